"""Arrays and messages between two processes of this machine.

Arrays lie in an `Area`, memory that both processes see; messages say where. They are JSON, never pickle.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import socket
import struct
import tempfile
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import Any

import numpy as np

PATIENCE = 1e-3
"""For how many seconds a process looks whether a message has come before it sleeps: being woken takes longer
than many answers."""

_ALIGNMENT = 64
_HEADER = struct.Struct("!I")

_let_others: Callable[[], object] = getattr(os, "sched_yield", lambda: None)

Placed = tuple[str, tuple[int, ...], int]
"""An array in an area: dtype, shape, offset."""


class Area:
    """Memory that two processes see: a file without a name, gone with the last process that has it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._map: mmap.mmap | None = None
        self._length = 0

    @classmethod
    def new(cls) -> Area:
        """An empty one."""
        if hasattr(os, "memfd_create"):
            return cls(os.memfd_create("tinygrad_attn"))
        with tempfile.TemporaryFile() as file:
            return cls(os.dup(file.fileno()))

    def close(self) -> None:
        """Lets go of the file. Arrays that still lie in it stay as they are."""
        os.close(self.descriptor)

    def place(self, arrays: Iterable[Any], start: int = 0) -> list[Placed | None]:
        """Copies the arrays in, one after the other from `start`; None stays None."""
        placed: list[Placed | None] = []
        for array in arrays:
            if array is None:
                placed.append(None)
                continue
            found = (array.dtype.str, array.shape, start)
            self.array(found)[...] = array  # in C order, however it lay
            placed.append(found)
            start += room_for((array,))
        return placed

    def array(self, placed: Sequence[Any] | None) -> Any:
        """The array that lies there, not a copy."""
        if placed is None:
            return None
        dtype, shape, offset = np.dtype(placed[0]), tuple(placed[1]), placed[2]
        end = offset + dtype.itemsize * math.prod(shape)
        if end > self._length:
            self._reach(end)
        return np.ndarray(shape, dtype, self._map, offset)

    def _reach(self, end: int) -> None:
        size = os.fstat(self.descriptor).st_size
        if size < end:
            size = -(-end // 2**20) * 2**20
            os.ftruncate(self.descriptor, size)
        self._map = mmap.mmap(self.descriptor, size)  # the map before lives on with the arrays that lie in it
        self._length = size


def room_for(arrays: Iterable[Any]) -> int:
    """The bytes that `place` takes for these arrays."""
    return sum(-(-array.nbytes // _ALIGNMENT) * _ALIGNMENT for array in arrays if array is not None)


def send(connection: socket.socket, message: Any) -> None:
    """Sends what JSON can say."""
    body = json.dumps(message).encode()
    connection.sendall(_HEADER.pack(len(body)) + body)


def has_come(connection: socket.socket) -> bool:
    """Whether there is something to read, if only that the other side is gone."""
    try:
        connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def receive(connection: socket.socket) -> Any:
    """The next message. Raises EOFError where the other side is gone."""
    end = perf_counter() + PATIENCE
    while not has_come(connection) and perf_counter() < end:
        _let_others()
    (length,) = _HEADER.unpack(_exactly(connection, _HEADER.size))
    return json.loads(_exactly(connection, length))


def _exactly(connection: socket.socket, count: int) -> bytes:
    body = b""
    while len(body) < count:
        piece = connection.recv(count - len(body))
        if not piece:
            raise EOFError
        body += piece
    return body
