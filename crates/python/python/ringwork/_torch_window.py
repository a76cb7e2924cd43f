"""Tensors in the window of a torch group, which its collectives use where they are."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import Any

import torch

from ._core import Comm

_ALIGNMENT = 128


class Arena:
    """A part of the window that tensors are cut from. Making it is a collective call.

    Each rank cuts and returns blocks on its own: nothing makes sure that a tensor has the same place on every rank. So the
    ranks agree about the place in every call (`Operand::Either` of the communicator), and use the window if it is the same.
    """

    def __init__(self, comm: Comm, nbytes: int) -> None:
        self.window = comm.zeros(nbytes, "u8")
        self._memory = memoryview(self.window)
        self._lock = threading.Lock()
        self._free = [(0, nbytes)]  # start and length, in order
        # Blocks whose tensor is gone. The garbage collector may run a callback anywhere, so that must not take the lock.
        self._returned: deque[tuple[int, int, int]] = deque()
        self._lent: dict[int, Any] = {}
        self._count = 0

    def tensor(self, count: int, dtype: torch.dtype) -> torch.Tensor | None:
        """A tensor of `count` elements with any values, or None if there is no room."""
        size = count * dtype.itemsize
        room = max(-(-size // _ALIGNMENT) * _ALIGNMENT, _ALIGNMENT)
        with self._lock:
            self._take_back()
            found = next((index for index, (_, length) in enumerate(self._free) if length >= room), None)
            if found is None or size == 0:
                return None
            start, length = self._free[found]
            self._free[found : found + 1] = [(start + room, length - room)] if length > room else []
            number, self._count = self._count, self._count + 1
            # The tensor's storage keeps this view of the memory until its last user is gone, also in C++.
            view = self._memory[start : start + size]
            self._lent[number] = weakref.ref(view, lambda _: self._returned.append((number, start, room)))
        return torch.frombuffer(view, dtype=dtype)

    def _take_back(self) -> None:
        while self._returned:
            number, start, length = self._returned.popleft()
            del self._lent[number]
            self._free.append((start, length))
        self._free.sort()
        merged: list[tuple[int, int]] = []
        for start, length in self._free:
            if merged and sum(merged[-1]) == start:
                merged[-1] = (merged[-1][0], merged[-1][1] + length)
            else:
                merged.append((start, length))
        self._free = merged
