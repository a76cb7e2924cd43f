"""Messages between two ranks of a torch group.

Each direction between two ranks is a communicator of its own, with a thread of its own. A send is therefore never queued
behind a receive, and long messages in both directions at once do not deadlock.

Messages carry their tag and length in a header. A receive takes the first message with its tag; a message with another
tag is kept until a receive asks for it. So receives may be posted in another order than the sends.
"""

from __future__ import annotations

import queue
import struct
import threading
from collections import deque
from typing import Any

import torch

from ._core import Comm

_HEADER = struct.Struct("=qq")  # tag, bytes


class Message:
    """A send or a receive that was begun. It owns the tensor until it is over."""

    def __init__(self, tensor: torch.Tensor, tag: int, then: Any) -> None:
        self.tag = tag
        self.bytes = tensor.numel() * tensor.element_size()
        self.place = (tensor.data_ptr(), self.bytes)
        self.owner: torch.Tensor | None = tensor
        self.over = threading.Event()
        self.error: BaseException | None = None
        self.then = then

    def test(self) -> bool:
        return self.over.is_set()

    def wait(self) -> None:
        while not self.over.wait(0.1):
            pass  # signals are handled between the waits
        if self.error is not None:
            raise self.error


class Channel:
    """Messages from one rank to another."""

    def __init__(self, name: str, is_sender: bool, timeout: float) -> None:
        self._name, self._is_sender, self._timeout = name, is_sender, timeout
        self._messages: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._comm: Comm | None = None
        self._kept: dict[int, deque[bytearray]] = {}
        self._thread = threading.Thread(target=self._serve, name=f"ringwork-{name[-24:]}", daemon=True)
        self._thread.start()

    def put(self, message: Message) -> None:
        self._messages.put(message)

    def close(self) -> None:
        self._messages.put(None)

    def _serve(self) -> None:
        while (message := self._messages.get()) is not None:
            try:
                if self._comm is None:
                    self._comm = Comm.join(self._name, 0 if self._is_sender else 1, 2, self._timeout)
                if self._is_sender:
                    self._send(self._comm, message)
                else:
                    self._receive(self._comm, message)
            except BaseException as error:
                message.error = error
            message.owner = None
            message.over.set()
            if message.then is not None:
                message.then()
        if self._comm is not None:
            self._comm.close()

    def _send(self, comm: Comm, message: Message) -> None:
        comm.send(_HEADER.pack(message.tag, message.bytes), 1)
        comm._call_at("send", "u8", message.place, None, message.owner, peer=1)

    def _receive(self, comm: Comm, message: Message) -> None:
        kept = self._kept.get(message.tag)
        if kept:
            self._check(message, len(kept[0]))
            memoryview(message.owner.view(torch.uint8).numpy())[:] = kept.popleft()
            return
        while True:
            header = bytearray(_HEADER.size)
            comm.recv(header, 0)
            tag, count = _HEADER.unpack(header)
            if tag == message.tag and count == message.bytes:
                comm._call_at("recv", "u8", None, message.place, message.owner, peer=0)
                return
            data = bytearray(count)
            comm.recv(data, 0)
            if tag == message.tag:
                self._check(message, count)
            self._kept.setdefault(tag, deque()).append(data)

    @staticmethod
    def _check(message: Message, sent: int) -> None:
        if sent != message.bytes:
            raise ValueError(
                f"ringwork: received a message of {sent} bytes with tag {message.tag}, "
                f"but the tensor has {message.bytes}; send and receive tensors of the same size and dtype"
            )


class Messages:
    """All channels of a rank."""

    def __init__(self, name: str, rank: int, timeout: float) -> None:
        self._name, self._rank, self._timeout = name, rank, timeout
        self._channels: dict[tuple[int, bool], Channel] = {}

    def begin(self, tensor: torch.Tensor, peer: int, tag: int, is_send: bool, then: Any) -> Message:
        """Begins to send a contiguous tensor to `peer`, or to receive it from there."""
        channel = self._channels.get((peer, is_send))
        if channel is None:
            source, target = (self._rank, peer) if is_send else (peer, self._rank)
            channel = Channel(f"{self._name}-{source}-{target}", is_send, self._timeout)
            self._channels[peer, is_send] = channel
        message = Message(tensor, tag, then)
        channel.put(message)
        return message

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
