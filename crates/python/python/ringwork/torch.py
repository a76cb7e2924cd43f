"""ringwork as a backend of torch.distributed, for tensors on the CPU.

    import torch.distributed as dist
    dist.init_process_group("ringwork")     # torch 2.15 finds it; before, `import ringwork.torch` first

Everything that torch builds on a process group uses it then: DDP, FSDP, DTensor, functional collectives.
"""

from __future__ import annotations

import math
import os
import uuid
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend as _C10dBackend

from . import _open
from ._core import Comm
from ._torch_messages import Messages
from ._torch_window import Arena
from ._torch_work import Work

__all__ = ["Backend", "monitored_barrier", "register", "window_tensor"]

# Calls that can use the window, and from how many bytes on they are told of it: to agree about it takes a call on 64 bytes.
_IN_WINDOW = {"all_reduce", "all_gather", "reduce_scatter"}
_WINDOW_FROM = 16 << 10

_DTYPES = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "u8",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float8_e4m3fn: "f8e4m3",
    torch.float8_e5m2: "f8e5m2",
}
_BYTES = {name: dtype.itemsize for dtype, name in _DTYPES.items()}
_OPS = {
    dist.ReduceOp.SUM: "sum",
    dist.ReduceOp.AVG: "avg",
    dist.ReduceOp.MAX: "max",
    dist.ReduceOp.MIN: "min",
    dist.ReduceOp.PRODUCT: "prod",
}
_BOOL_OPS = {"sum": "max", "prod": "min", "max": "max", "min": "min"}
Tensor = torch.Tensor


def _op(reduce_op: Any, tensor: Tensor) -> str:
    kind = getattr(reduce_op, "op", reduce_op)
    op = _OPS.get(kind)
    if op is None:
        raise ValueError(f"ringwork: there is no reduction {kind}; there are {', '.join(_OPS.values())}")
    if tensor.dtype == torch.bool:
        if op not in _BOOL_OPS:
            raise ValueError("ringwork: truth values have no average")
        return _BOOL_OPS[op]
    return op


def _place(tensor: Tensor) -> tuple[int, int]:
    return (tensor.data_ptr(), tensor.numel())


def _bytes(tensor: Tensor) -> tuple[int, int]:
    return (tensor.data_ptr(), tensor.numel() * tensor.element_size())


def _overlap(a: Tensor, b: Tensor) -> bool:
    (start, count), (other, others) = _bytes(a), _bytes(b)
    return start < other + others and other < start + count


class Backend(_C10dBackend):
    """A process group: a communicator for collectives, and channels for messages."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._rank, self._size = rank, size
        seconds = max(timeout.total_seconds(), 0.001)
        if rank == 0:
            store.set("ringwork", f"torch-{uuid.uuid4()}")
        name = store.get("ringwork").decode()
        self._comm = Comm.join(name, rank, size, seconds)
        _open.add(self._comm)
        self._messages = Messages(name, rank, seconds)
        self._batch: list[Work] | None = None
        self._arena: Arena | None = None
        self._options = _C10dBackend.Options("ringwork", timeout=timeout)

    # --- what torch asks about ---

    @property
    def options(self) -> Any:
        """The name and the timeout."""
        return self._options

    @property
    def supports_coalescing(self) -> bool:
        """Yes: a batch of calls has one handle."""
        return True

    @property
    def supports_splitting(self) -> bool:
        """No: subgroups meet by a name of their own."""
        return False

    def getBackendName(self) -> str:
        """`ringwork`."""
        return "ringwork"

    # --- memory in the window ---

    def supports_tensor_alloc(self, device: Any) -> bool:
        """Whether `allocate_tensor` can be used. Yes for Python, where `device` is a device. No for C++, which gives an
        index: torch cannot hand its options of a tensor to Python.
        """
        return isinstance(device, torch.device) and device.type == "cpu"

    def allocate_tensor(self, size: int, *, dtype: torch.dtype, device: Any = None) -> Tensor:
        """A tensor in the window, or elsewhere if there is no room. The first call is collective."""
        if self._arena is None:
            mebibytes = int(os.environ.get("RINGWORK_TORCH_WINDOW_MIB", "256"))
            self._arena = Arena(self._comm, mebibytes << 20)
        tensor = self._arena.tensor(size, dtype)
        return torch.empty(size, dtype=dtype) if tensor is None else tensor

    # --- calls ---

    def _begin(self, result: list[Tensor], calls: list[tuple[Any, ...]], is_async: bool, *copies: Callable[[], object]) -> Work:
        """Makes calls of (name, dtype, data, out, owner, options), or begins them."""
        work = Work(result)
        work._copies.extend(copies)
        if self._arena is not None:
            calls = [self._may_be_in_window(call, self._arena) for call in calls]
        if not is_async:
            for name, dtype, data, out, owner, more in calls:
                self._comm._call_at(name, dtype, data, out, owner, **more)
            return self._batched(work.began())
        last = len(calls) - 1
        for index, (name, dtype, data, out, owner, more) in enumerate(calls):
            then = work.ended if index == last else None
            call = self._comm._call_at(name, dtype, data, out, owner, wait=False, then=then, **more)
            work._calls.append(call)
        return self._batched(work.began())

    @staticmethod
    def _may_be_in_window(call: tuple[Any, ...], arena: Arena) -> tuple[Any, ...]:
        name, dtype, data, out, owner, more = call
        # The same on every rank, as every rank must say so or none.
        elements = max(data[1] if data else 0, out[1] if out else 0)
        if name not in _IN_WINDOW or elements * _BYTES[dtype] < _WINDOW_FROM:
            return call
        return (name, dtype, data, out, owner, {**more, "window": arena.window})

    def _batched(self, work: Work) -> Work:
        if self._batch is not None:
            self._batch.append(work)
        return work

    def _reduction(self, name: str, tensors: list[Tensor], opts: Any, **more: Any) -> Work:
        calls: list[tuple[Any, ...]] = []
        copies: list[Callable[[], object]] = []
        for tensor in tensors:
            op, flat = _op(opts.reduceOp, tensor), tensor.contiguous()
            dtype = _DTYPES.get(tensor.dtype)
            if dtype is None:
                flat, dtype = self._widened(flat), "i32"
            if flat is not tensor:
                copies.append(lambda to=tensor, of=flat: to.copy_(of))
            calls.append((name, dtype, None, _place(flat), flat, {"op": op, **more}))
        return self._begin(tensors, calls, opts.asyncOp, *copies)

    @staticmethod
    def _widened(tensor: Tensor) -> Tensor:
        if tensor.dtype in (torch.int16, torch.uint16):
            return tensor.to(torch.int32)
        raise ValueError(f"ringwork: cannot compute with {tensor.dtype}; convert the tensor to float32 or int32")

    def allreduce(self, tensors: list[Tensor], opts: Any) -> Work:
        """Every tensor becomes its reduction."""
        return self._reduction("all_reduce", tensors, opts)

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any) -> Work:
        """Every tensor becomes its reduction."""
        return self._reduction("all_reduce", tensors, opts)

    def reduce(self, tensors: list[Tensor], opts: Any) -> Work:
        """The root's tensors become their reduction."""
        return self._reduction("reduce", tensors, opts, root=opts.rootRank)

    def broadcast(self, tensors: list[Tensor], opts: Any) -> Work:
        """Every tensor becomes the root's."""
        calls: list[tuple[Any, ...]] = []
        copies: list[Callable[[], object]] = []
        for tensor in tensors:
            flat = tensor.contiguous()
            if flat is not tensor and self._rank != opts.rootRank:
                copies.append(lambda to=tensor, of=flat: to.copy_(of))
            calls.append(("broadcast", "u8", None, _bytes(flat), flat, {"root": opts.rootRank}))
        return self._begin(tensors, calls, opts.asyncOp, *copies)

    def _gathered(self, output: Tensor, input: Tensor) -> tuple[tuple[Any, ...], list[Callable[[], object]]]:
        flat, copies = output, []
        if not output.is_contiguous():
            flat = torch.empty_like(output, memory_format=torch.contiguous_format)
            copies.append(lambda: output.copy_(flat))
        start, count = _bytes(flat)
        input = input.contiguous()
        own = start + self._rank * count // self._size
        if input.data_ptr() == own and input.numel():
            # FSDP gathers in place.
            return ("all_gather", "u8", None, (start, count), flat, {}), copies
        if _overlap(input, flat):
            input = input.clone()
        return ("all_gather", "u8", _bytes(input), (start, count), (input, flat), {}), copies

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any) -> Work:
        """`output` becomes everybody's `input`."""
        call, copies = self._gathered(output, input)
        return self._begin([output], [call], opts.asyncOp, *copies)

    def all_gather_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any) -> Work:
        """Each of `outputs` becomes everybody's one of `inputs`."""
        pairs = [self._gathered(output, input) for output, input in zip(outputs, inputs, strict=True)]
        copies = [copy for _, some in pairs for copy in some]
        return self._begin(outputs, [call for call, _ in pairs], opts.asyncOp, *copies)

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> Work:
        """List `i` of `outputs` becomes everybody's `inputs[i]`, which may have different lengths."""
        calls: list[tuple[Any, ...]] = []
        copies: list[Callable[[], object]] = []
        for parts, input in zip(outputs, inputs, strict=True):
            sizes = [part.numel() for part in parts]
            if len(set(sizes)) == 1:
                flat = input.new_empty(sum(sizes))
                calls.append(self._gathered(flat, input)[0])
                pieces: list[Tensor] = list(flat.split(sizes[0])) if sizes[0] else []
            else:
                pieces = [input.contiguous().view(-1) if r == self._rank else input.new_empty(n) for r, n in enumerate(sizes)]
                calls += [("broadcast", "u8", None, _bytes(p), p, {"root": r}) for r, p in enumerate(pieces)]
            copies += [lambda to=part, of=piece: to.copy_(of.view_as(to)) for part, piece in zip(parts, pieces)]
        return self._begin([part for parts in outputs for part in parts], calls, opts.asyncOp, *copies)

    def allgather_coalesced(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> Work:
        """`outputs[rank][i]` becomes that rank's `inputs[i]`."""
        return self.allgather([list(parts) for parts in zip(*outputs, strict=True)], inputs, opts)

    def _scattered(self, output: Tensor, input: Tensor, op: Any) -> tuple[tuple[Any, ...], list[Callable[[], object]]]:
        kind, input, copies = _op(op, input), input.contiguous(), []
        flat, dtype = output, _DTYPES.get(input.dtype)
        if dtype is None:
            input, dtype = self._widened(input), "i32"
        if not output.is_contiguous() or input.dtype != output.dtype:
            flat = torch.empty(output.shape, dtype=input.dtype)
            copies.append(lambda: output.copy_(flat))
        if _overlap(input, flat):
            input = input.clone()
        return ("reduce_scatter", dtype, _place(input), _place(flat), (input, flat), {"op": kind}), copies

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any) -> Work:
        """`output` becomes this rank's part of the reduction of `input`."""
        call, copies = self._scattered(output, input, opts.reduceOp)
        return self._begin([output], [call], opts.asyncOp, *copies)

    def reduce_scatter_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any) -> Work:
        """Each of `outputs` becomes this rank's part of the reduction of its input."""
        pairs = [self._scattered(o, i, opts.reduceOp) for o, i in zip(outputs, inputs, strict=True)]
        copies = [copy for _, some in pairs for copy in some]
        return self._begin(outputs, [call for call, _ in pairs], opts.asyncOp, *copies)

    def reduce_scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> Work:
        """`outputs[i]` becomes the reduction of everybody's `inputs[i][rank]`; parts may have different lengths."""
        calls: list[tuple[Any, ...]] = []
        copies: list[Callable[[], object]] = []
        for output, parts in zip(outputs, inputs, strict=True):
            if len({part.numel() for part in parts}) == 1:
                call, more = self._scattered(output, torch.cat([part.reshape(-1) for part in parts]), opts.reduceOp)
                calls.append(call)
                copies += more
                continue
            for root, part in enumerate(parts):
                flat, op = part.clone(memory_format=torch.contiguous_format), _op(opts.reduceOp, part)
                dtype = _DTYPES.get(flat.dtype)
                if dtype is None:
                    flat, dtype = self._widened(flat), "i32"
                calls.append(("reduce", dtype, None, _place(flat), flat, {"op": op, "root": root}))
                if root == self._rank:
                    copies.append(lambda to=output, of=flat: to.copy_(of.view_as(to)))
        return self._begin(outputs, calls, opts.asyncOp, *copies)

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> Work:
        """The root's `outputs[0]` become everybody's `inputs[0]`."""
        input, root = inputs[0].contiguous(), opts.rootRank
        if self._rank != root:
            call = ("gather", "u8", _bytes(input), None, input, {"root": root})
            return self._begin([], [call], opts.asyncOp)
        parts = outputs[0]
        flat = input.new_empty((self._size, input.numel()))
        call = ("gather", "u8", _bytes(input), _bytes(flat), (input, flat), {"root": root})
        copies = [lambda to=part, of=piece: to.copy_(of.view_as(to)) for part, piece in zip(parts, flat, strict=True)]
        return self._begin(parts, [call], opts.asyncOp, *copies)

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> Work:
        """`outputs[0]` becomes this rank's of the root's `inputs[0]`."""
        output, root, data = outputs[0], opts.rootRank, None
        flat = torch.empty_like(output, memory_format=torch.contiguous_format)
        if self._rank == root:
            data = torch.cat([part.reshape(-1) for part in inputs[0]])
        place = None if data is None else _bytes(data)
        call = ("scatter", "u8", place, _bytes(flat), (data, flat), {"root": root})
        return self._begin(outputs, [call], opts.asyncOp, lambda: output.copy_(flat))

    def all_to_all_single(self, output: Tensor, input: Tensor, receives: list[int], sends: list[int], opts: Any) -> Work:
        """`output` becomes this rank's part of everybody's `input`; the counts are of rows."""
        data = input.contiguous()
        flat = torch.empty_like(output, memory_format=torch.contiguous_format)
        more: dict[str, Any] = {}
        name = "all_to_all"
        if receives or sends:
            name = "all_to_all_v"
            for key, counts, tensor in (("sends", sends, data), ("receives", receives, flat)):
                rows = tensor.size(0) if tensor.dim() else 1
                row = tensor.numel() * tensor.element_size() // rows if rows else 0
                counts = counts or [rows // self._size] * self._size
                more[key] = [count * row for count in counts]
        call = (name, "u8", _bytes(data), _bytes(flat), (data, flat), more)
        return self._begin([output], [call], opts.asyncOp, lambda: output.copy_(flat))

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any) -> Work:
        """`outputs[r]` becomes rank `r`'s `inputs[rank]`."""
        data = torch.cat([part.reshape(-1) for part in inputs])
        sizes = [part.numel() for part in outputs]
        flat, item = data.new_empty(sum(sizes)), data.element_size()
        more = {"sends": [part.numel() * item for part in inputs], "receives": [size * item for size in sizes]}
        call = ("all_to_all_v", "u8", _bytes(data), _bytes(flat), (data, flat), more)
        copies = [lambda to=o, of=piece: to.copy_(of.view_as(to)) for o, piece in zip(outputs, flat.split(sizes))]
        return self._begin(outputs, [call], opts.asyncOp, *copies)

    def barrier(self, opts: Any) -> Work:
        """Waits for every rank."""
        return self._begin([], [("barrier", "u8", None, None, None, {})], opts.asyncOp)

    # --- messages ---

    def _message(self, tensors: list[Tensor], peer: int, tag: int, is_send: bool) -> Work:
        work, last = Work([] if is_send else tensors), len(tensors) - 1
        for index, tensor in enumerate(tensors):
            flat = tensor.contiguous() if is_send else tensor
            if not flat.is_contiguous():
                flat = torch.empty_like(tensor, memory_format=torch.contiguous_format)
                work._copies.append(lambda to=tensor, of=flat: to.copy_(of))
            then = work.ended if index == last else None
            work._calls.append(self._messages.begin(flat, peer, tag, is_send, then))
        return self._batched(work.began())

    def send(self, tensors: list[Tensor], peer: int, tag: int = 0) -> Work:
        """Begins to send to `peer`."""
        return self._message(tensors, peer, tag, True)

    def recv(self, tensors: list[Tensor], peer: int, tag: int = 0) -> Work:
        """Begins to receive from `peer`."""
        return self._message(tensors, peer, tag, False)

    def recv_anysource(self, tensors: list[Tensor], tag: int = 0) -> Work:
        """Refused: every receive names its source."""
        raise ValueError("ringwork: a receive must name its source rank")

    def start_coalescing(self) -> None:
        """Begins a batch."""
        self._batch = []

    def end_coalescing(self) -> Work:
        """One handle for the batch."""
        works, self._batch = self._batch or [], None
        batch = Work([])
        batch._calls.extend(_Waited(work) for work in works)
        # Nobody tells when the last one ends, so the future of a batch is complete when it was waited for.
        batch._began = True
        return batch

    # --- the end ---

    def abort(self) -> None:
        """Ends every call, on every rank."""
        self._comm.abort("torch aborted the process group")

    def shutdown(self) -> None:
        """Leaves."""
        self._messages.close()
        self._comm.close()


class _Waited:
    """A handle inside a batch."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def wait(self) -> None:
        self._work.wait()

    def test(self) -> bool:
        return self._work.is_completed()


# The names that torch used before 2.15.
Backend._allgather_base = Backend.all_gather_single  # type: ignore[method-assign,assignment]
Backend._reduce_scatter_base = Backend.reduce_scatter_single  # type: ignore[method-assign,assignment]
Backend.alltoall_base = Backend.all_to_all_single  # type: ignore[method-assign,assignment]
Backend.allgather_into_tensor_coalesced = Backend.all_gather_single_coalesced  # type: ignore[attr-defined]
Backend.reduce_scatter_tensor_coalesced = Backend.reduce_scatter_single_coalesced  # type: ignore[attr-defined]


def window_tensor(shape: int | Sequence[int], dtype: torch.dtype = torch.float32, group: Any = None) -> Tensor:
    """A zeroed tensor in the window of a group, whose collectives use it where it is: without a copy.

    The first call for a group is collective. The window of a group has 256 MiB, or `RINGWORK_TORCH_WINDOW_MIB`; when it is
    full, the tensor lies elsewhere. Tensors must be made and dropped in the same order on every rank to be used in place.
    """
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    backend = (group or dist.group.WORLD)._get_backend(torch.device("cpu"))
    if not isinstance(backend, Backend):
        raise ValueError("ringwork: the group has another backend; give one that was made with \"ringwork\"")
    return backend.allocate_tensor(math.prod(sizes), dtype=dtype).zero_().view(sizes)


def monitored_barrier(group: Any = None) -> None:
    """A barrier that names the ranks that are missing when the group's timeout has passed."""
    dist.barrier(group=group)


def register() -> None:
    """Makes `init_process_group("ringwork")` known to torch. Importing this module does so too."""
    if "RINGWORK" not in dist.Backend._plugins:
        dist.Backend.register_backend("ringwork", Backend, devices=["cpu"])


register()
