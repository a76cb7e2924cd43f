"""Collectives among the ranks of a bench."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from ..errors import ArgumentError
from .machine import Simulation
from .ranks import Job, current, identity
from .tensor import Tensor


class ReduceOp(enum.Enum):
    """How values of ranks are combined."""

    SUM = "sum"
    PRODUCT = "prod"
    MIN = "min"
    MAX = "max"
    AVG = "avg"


class Work:
    """A collective that was begun. `wait` returns when all ranks have begun it; waiting again does nothing."""

    def __init__(self, call: _Call, rank: int) -> None:
        self._call, self._rank = call, rank

    def is_completed(self) -> bool:
        """Whether all ranks have begun it, so that it is queued."""
        return self._call.done

    def wait(self) -> None:
        """Lets the other ranks run until all have begun it. Raises what is wrong with the call."""
        call = self._call
        if call.job is not None:
            call.job.wait(self._rank, lambda: call.done, call.missing)
        if call.error is not None:
            raise call.error


class _Call:
    """One collective: what each rank brings to it."""

    def __init__(self, job: Job | None, size: int) -> None:
        self.job, self.size = job, size
        self.brought: dict[int, tuple[tuple[Any, ...], Tensor | None, Tensor | None]] = {}
        self.done = False
        self.error: Exception | None = None

    def missing(self) -> list[int]:
        return [rank for rank in range(self.size) if rank not in self.brought]


def _refuse(call: str, problem: str) -> ArgumentError:
    return ArgumentError(f"{call}: {problem}", call=call, problem=problem)


class Distributed:
    """`torch.distributed`: the process group of all ranks.

    Among the ranks of `spawn` each brings a tensor of its own. Outside of it there is one worker; its tensors are dealt over
    PEs, and each PE's part is that of one rank.
    """

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.ReduceOp = ReduceOp
        #: By job and rank: the number of the next call.
        self._next: dict[tuple[int, int], int] = {}
        self._calls: dict[tuple[int, int], _Call] = {}

    def init_process_group(
        self, backend: str = "ahbm", *, world_size: int | None = None, rank: int | None = None
    ) -> None:
        """Makes the group of all ranks. Each rank calls it once, before its first collective."""
        job, me = current()
        if backend != "ahbm":
            raise _refuse("init_process_group", f"there is no backend `{backend}`; take `ahbm`")
        if self.is_initialized():
            raise _refuse("init_process_group", "this rank has a process group already; destroy it first")
        size = self._simulation.world_size if job is None else job.size
        if world_size not in (None, size) or rank not in (None, me):
            raise _refuse("init_process_group", f"rank {rank} of {world_size}; this is rank {me} of {size}")
        if job is not None and size > self._simulation.sips:
            problem = f"{size} workers for {self._simulation.sips} SIPs; deal one worker's tensor over PEs instead"
            raise _refuse("init_process_group", problem)
        self._next[identity()] = 0

    def destroy_process_group(self) -> None:
        """Forgets this rank's group."""
        self._next.pop(identity(), None)

    def is_initialized(self) -> bool:
        """Whether this rank has a group."""
        return identity() in self._next

    def get_rank(self) -> int:
        """This rank."""
        self._number("get_rank")
        return current()[1]

    def get_world_size(self) -> int:
        """How many ranks there are."""
        self._number("get_world_size")
        job, _ = current()
        return self._simulation.world_size if job is None else job.size

    def _number(self, call: str) -> int:
        if identity() not in self._next:
            raise _refuse(call, 'there is no process group; call init_process_group(backend="ahbm") first')
        return self._next[identity()]

    def all_reduce(self, tensor: Tensor, op: ReduceOp = ReduceOp.SUM, async_op: bool = False) -> Work | None:
        """`tensor` becomes its reduction over all ranks, in rank order."""
        return self._begin(("all_reduce", op), tensor, tensor, async_op)

    def broadcast(self, tensor: Tensor, src: int = 0, async_op: bool = False) -> Work | None:
        """`tensor` becomes what it is on rank `src`."""
        return self._begin(("broadcast", src), tensor, tensor, async_op)

    def reduce(
        self, tensor: Tensor, dst: int = 0, op: ReduceOp = ReduceOp.SUM, async_op: bool = False
    ) -> Work | None:
        """`tensor` of rank `dst` becomes its reduction over all ranks."""
        return self._begin(("reduce", dst, op), tensor, tensor, async_op)

    def all_gather_into_tensor(self, output: Tensor, input: Tensor, async_op: bool = False) -> Work | None:
        """`output` becomes every rank's `input`, one after the other."""
        return self._begin(("all_gather",), input, output, async_op)

    def reduce_scatter_tensor(
        self, output: Tensor, input: Tensor, op: ReduceOp = ReduceOp.SUM, async_op: bool = False
    ) -> Work | None:
        """`output` becomes this rank's part of the reduction of `input`."""
        return self._begin(("reduce_scatter", op), input, output, async_op)

    def all_to_all_single(self, output: Tensor, input: Tensor, async_op: bool = False) -> Work | None:
        """`output` becomes this rank's part of every rank's `input`."""
        return self._begin(("all_to_all",), input, output, async_op)

    def barrier(self, async_op: bool = False) -> Work | None:
        """Returns when every rank has called it."""
        return self._begin(("barrier",), None, None, async_op)

    def _begin(self, what: tuple[Any, ...], x: Tensor | None, y: Tensor | None, async_op: bool) -> Work | None:
        number = self._number(what[0])
        job, me = current()
        self._next[identity()] = number + 1
        size = 1 if job is None else job.size
        key = identity()[0], number
        call = self._calls.setdefault(key, _Call(job, size))
        call.brought[me] = what, x, y
        if len(call.brought) == size:
            del self._calls[key]
            call.done = True
            try:
                self._queue(call)
            except Exception as error:
                call.error = error
        work = Work(call, me)
        if async_op:
            return work
        work.wait()
        return None

    def _queue(self, call: _Call) -> None:
        """Queues a call that all ranks have begun."""
        brought = [call.brought[rank] for rank in range(call.size)]
        what, x, y = brought[0]
        sizes = [(other, x and (x.numel(), x.dtype), y and y.numel()) for other, x, y in brought]
        for rank, other in enumerate(sizes):
            if other != sizes[0]:
                raise _refuse(what[0], f"rank 0 calls {_described(sizes[0])}, rank {rank} {_described(other)}")
        if x is None or y is None:
            return
        pairs, devices = _members([(x, y) for _, x, y in brought if x is not None and y is not None])
        if call.job is None and len(devices) != self._simulation.world_size:
            problem = f"the tensor is dealt over {len(devices)} PEs, and there are {self._simulation.world_size} ranks"
            raise _refuse(what[0], problem)
        named: dict[str, Any] = {}
        for value in what[1:]:
            if isinstance(value, ReduceOp):
                named["op"] = value.value
            else:
                if not 0 <= value < len(devices):
                    raise _refuse(what[0], f"there is no rank {value} among {len(devices)}")
                named["root"] = value
        self._simulation.collective(what[0], pairs, devices, **named)


def _described(call: tuple[Any, ...]) -> str:
    what, x, _ = call
    arguments = [str(value.value if isinstance(value, ReduceOp) else value) for value in what[1:]]
    if x is not None:
        arguments.append(f"{x[0]} {x[1]}")
    return f"{what[0]}({', '.join(arguments)})"


def _members(brought: Sequence[tuple[Tensor, Tensor]]) -> tuple[list[tuple[Any, Any]], list[int]]:
    """The memory of every member, and where it is."""
    pairs: list[tuple[Any, Any]] = []
    devices: list[int] = []
    for x, y in brought:
        if x.devices != y.devices:
            raise _refuse("a collective", "input and output are not on the same PEs")
        pairs += zip(x.memory, y.memory)
        devices += x.devices
    if len(set(devices)) != len(devices):
        raise _refuse("a collective", "two ranks are on one SIP; call torch.ahbm.set_device(rank) in each")
    return pairs, devices
