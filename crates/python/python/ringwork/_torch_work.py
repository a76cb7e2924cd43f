"""The handle that torch gets for a call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist


class _Failure:
    """The value of a future whose call failed.

    torch's C++ reads a future by extracting the tensors of its value, which it does by pickling it. DDP then uses the first
    tensor without looking whether there is one: with `Future.set_exception` the process crashed in `backward`. So pickling
    this raises the error, which C++ passes on as it is.
    """

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise self.error


def _unwrap(value: Any) -> Any:
    if isinstance(value, _Failure):
        raise value.error
    return value


class Work(dist._Work):
    """One or more calls. Their memory is owned by the calls: dropping this abandons the outcome and nothing else."""

    def __init__(self, result: list[torch.Tensor]) -> None:
        super().__init__()
        self._result = result
        self._calls: list[Any] = []
        self._copies: list[Callable[[], object]] = []
        self._lock = threading.Lock()
        self._began = False
        self._ended_early = False
        self._error: BaseException | None = None
        self._done = False
        self._future: torch.futures.Future[Any] | None = None

    # --- for the backend ---

    def began(self) -> Work:
        """Every call has been begun, and the last of them tells `ended`."""
        with self._lock:
            self._began = True
            early = self._ended_early
        if early or not self._calls:
            self.ended()
        return self

    def ended(self) -> None:
        """The last call is over; called on the worker's thread."""
        with self._lock:
            if not self._began:
                # `began` follows: the calls are not all known here yet.
                self._ended_early = True
                return
        self._finish()

    def _finish(self) -> None:
        try:
            for call in self._calls:
                call.wait()
        except KeyboardInterrupt:
            # Ctrl-C ends this wait and not the call, which can be waited for again.
            raise
        except BaseException as error:
            with self._lock:
                self._error = self._error or error
        with self._lock:
            if not self._done:
                if self._error is None:
                    for copy in self._copies:
                        copy()
                self._copies, self._calls = [], []
                self._done = True  # last: `wait` looks at it without the lock
            future = self._future
        if future is not None:
            self._complete(future)

    def _complete(self, future: torch.futures.Future[Any]) -> None:
        try:
            if self._error is None:
                future.set_result(self._result)
            else:
                future._set_unwrap_func(_unwrap)
                future.set_result(_Failure(self._error))
        except RuntimeError:
            pass  # completed by another thread

    # --- for torch ---

    def wait(self, timeout: Any = None) -> bool:
        """Waits for the calls, and raises what went wrong. `timeout` is not used: the group has one."""
        if not self._done:
            self._finish()
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        """Whether the calls are over. torch forwards this only for some handles; `get_future().done()` always works."""
        return self._done or all(call.test() for call in self._calls)

    def is_success(self) -> bool:
        """Whether they are over, and well."""
        return self._done and self._error is None

    def exception(self) -> BaseException | None:
        """What went wrong."""
        return self._error

    def result(self) -> list[torch.Tensor]:
        """The tensors that were written."""
        return self._result

    def get_future(self) -> torch.futures.Future[Any]:
        """A future of the tensors."""
        if torch._C._current_graph_task_id() != -1:
            # DDP asks for the future inside backward, and C++ would turn its error into a RuntimeError. This is called at
            # the end of backward, before DDP waits for the future, and raises the error as it is.
            torch.autograd.Variable._execution_engine.queue_callback(self.wait)
        with self._lock:
            if self._future is None:
                self._future = torch.futures.Future()
            future, done = self._future, self._done
        if done:
            self._complete(future)
        return future
