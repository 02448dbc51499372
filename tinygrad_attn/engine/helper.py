"""Processes that work beside this one on parts of a batch.

Threads of one process take turns at its interpreter: every numpy call ends with a wait for the lock that the
other thread may hold, which cost a training step of medium size more than the second thread gained. Another
process has an interpreter of its own. It is sent what to do with arrays in shared memory, and keeps what a
backward pass will need until the graph here lets go of it.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from tinygrad_attn.engine.memory import Area, receive, room_for, send

POSSIBLE = os.name == "posix"  # where descriptors can be handed on

_ROOT = str(Path(__file__).parents[2])
_PROGRAM = (
    "import importlib, json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "importlib.import_module(sys.argv[2]).serve(*map(int, sys.argv[3:]))"
)
_SETTINGS = {
    **dict.fromkeys(
        ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
    ),
    # glibc: freed arrays serve the next step instead of going back to the system, which would zero them again
    "MALLOC_MMAP_THRESHOLD_": str(2**30),
    "MALLOC_TRIM_THRESHOLD_": str(2**30),
}

Block = tuple[int, int]
"""A stretch of shared memory: offset and size."""


class Kept:
    """What a helper keeps of a call; it lets go of that when nothing refers to this any more."""

    __slots__ = ("_block", "helper", "number")

    def __init__(self, helper: Helper, number: int, block: Block) -> None:
        self.helper, self.number, self._block = helper, number, block

    def __del__(self) -> None:
        self.helper.let_go(self.number, self._block)


class Call:
    """What a helper is at work on."""

    def __init__(self, helper: Helper, block: Block, keep: int | None) -> None:
        self._helper, self._block, self._keep = helper, block, keep

    def result(self) -> tuple[list[Any], Kept | None] | None:
        """The arrays, which lie in shared memory until the helper's next call, and what it kept.

        None where it could not do it, for whatever reason.
        """
        arrays = self._helper.answer()
        kept = None
        if self._keep is None:
            self._helper.give_back(self._block)
        else:
            kept = Kept(self._helper, self._keep, self._block)
        return None if arrays is None else (arrays, kept)


class Helper:
    """A process that runs `serve` of the module `program`, for the thread that started it.

    Nothing depends on it: before it is ready, after it died, for any other thread and in a forked process,
    `start` gives None, and whoever asked does the work.
    """

    def __init__(self, program: str) -> None:
        self._owner = _here()
        self._sent, self._received = Area.new(), Area.new()
        self._blocks: dict[int, list[int]] = {}  # free blocks of the area that is sent, by size
        self._end = 0
        self._gone: list[tuple[int, Block]] = []  # what was kept and is not needed any more
        self._numbers = count()
        self._ready = self._busy = False
        self._alive = True
        ours, theirs = socket.socketpair()
        self._connection = ours
        handed = (theirs.fileno(), self._sent.descriptor, self._received.descriptor)
        path = json.dumps([_ROOT, *sys.path])
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-I", "-c", _PROGRAM, path, program, *map(str, handed)],
                pass_fds=handed,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **_SETTINGS},
            )
        self.close = weakref.finalize(self, _end, process, ours, self._sent, self._received, self._owner[0])

    def start(self, message: dict[str, Any], arrays: Sequence[Any], *, keep: bool = False) -> Call | None:
        """Begins what `message` says with the arrays; `keep` for a backward pass to come."""
        if not self._at_hand():
            return None
        return self._start(message, arrays, next(self._numbers) if keep else None)

    def start_back(self, kept: Kept, arrays: Sequence[Any]) -> Call | None:
        """Begins the backward pass of what was kept."""
        return self._start({"back": kept.number}, arrays, None) if self._at_hand() else None

    def _start(self, message: dict[str, Any], arrays: Sequence[Any], keep: int | None) -> Call | None:
        gone, self._gone = self._gone, []
        block = self._block(room_for(arrays))
        placed = self._sent.place(arrays, block[0])
        try:
            self._busy = True
            send(
                self._connection,
                {**message, "arrays": placed, "keep": keep, "gone": [number for number, _ in gone]},
            )
        except OSError:
            self._alive = False
            return None
        for _, free in gone:
            self.give_back(free)
        return Call(self, block, keep)

    def _at_hand(self) -> bool:
        if not self._alive or self._owner != _here():
            return False
        try:
            if not self._ready:
                if not select.select([self._connection], [], [], 0)[0]:
                    return False
                receive(self._connection)
                self._ready = True
            if self._busy:  # an error here kept the answer from being read
                self.answer()
        except (OSError, EOFError):
            self._alive = False
        return self._alive

    def answer(self) -> list[Any] | None:
        """The arrays that the running call gives, None if it failed."""
        self._busy = False
        try:
            placed = receive(self._connection)
        except (OSError, EOFError):
            self._alive = False
            return None
        except BaseException:  # an interrupt may have torn the message
            self._alive = False
            raise
        return None if placed is None else [self._received.array(place) for place in placed]

    def let_go(self, number: int, block: Block) -> None:
        """What was kept under this number is not needed any more: the helper is told with the next call."""
        self._gone.append((number, block))

    def _block(self, size: int) -> Block:
        """A free block; sizes are powers of two, so that they fit again."""
        size = 1 << max(size - 1, 4095).bit_length()
        free = self._blocks.get(size)
        if free:
            return free.pop(), size
        self._end += size
        return self._end - size, size

    def give_back(self, block: Block) -> None:
        """The block is free again."""
        self._blocks.setdefault(block[1], []).append(block[0])


def _here() -> tuple[int, int]:
    return os.getpid(), threading.get_ident()


def _end(process: Any, connection: socket.socket, sent: Area, received: Area, owner: int) -> None:
    connection.close()  # at which the helper ends
    sent.close()
    received.close()
    if os.getpid() == owner:
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def attend(
    connection_descriptor: int,
    received_descriptor: int,
    sent_descriptor: int,
    compute: Callable[[dict[str, Any], list[Any]], tuple[Sequence[Any], Any]],
    back: Callable[[Any, list[Any]], Sequence[Any]],
) -> None:
    """What the helper's process does until the other side is gone.

    Args:
        connection_descriptor, received_descriptor, sent_descriptor: what `serve` was given.
        compute: `compute(message, arrays) -> (arrays, what to keep)`.
        back: `back(kept, arrays) -> arrays`.
    """
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asked
    received, sent = Area(received_descriptor), Area(sent_descriptor)
    all_kept: dict[int, Any] = {}

    def answer(message: dict[str, Any]) -> Any:
        arrays = [received.array(placed) for placed in message["arrays"]]
        if "back" in message:
            return sent.place(back(all_kept[message["back"]], arrays))
        found, kept = compute(message, arrays)
        if message["keep"] is not None:
            all_kept[message["keep"]] = kept
        return sent.place(found)

    with socket.socket(fileno=connection_descriptor) as connection:
        send(connection, "ready")
        while True:
            try:
                message = receive(connection)
            except (OSError, EOFError):
                return
            for number in message["gone"]:
                all_kept.pop(number, None)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error")  # whoever asked does it again, and so gives the warning
                    placed = answer(message)
            except Exception:
                placed = None
            send(connection, placed)
