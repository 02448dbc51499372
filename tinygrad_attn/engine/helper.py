"""Processes that work beside this one on parts of a batch.

Threads of one process take turns at its interpreter: every numpy call ends with a wait for the lock that the
other thread may hold, which cost a training step of medium size more than the second thread gained. Another
process has an interpreter of its own. It is sent what to do with arrays in shared memory, and keeps what a
backward pass will need until the graph here lets go of it.
"""

from __future__ import annotations

import contextlib
import json
import os
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

import numpy as np

from tinygrad_attn.engine.memory import Area, has_come, receive, room_for, send

POSSIBLE = os.name == "posix" and bool(sys.executable) and not hasattr(sys, "frozen")
"""Whether descriptors can be handed on, and there is an interpreter to start."""

_STARTING = 0  # stands for the number of a call until the helper says that it is ready

# Started with the standard library alone on its path, so that no file called numpy.py or json.py comes first.
_PROGRAM = (
    "import importlib, json, sys; sys.path += json.loads(sys.argv[1]); "
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


class Call:
    """What a helper was asked. When nothing refers to it any more, the helper lets go of what it kept."""

    def __init__(self, helper: Helper, number: int, block: Block) -> None:
        self._helper, self._number, self._block = helper, number, block

    def __del__(self) -> None:
        self._helper.gone.append((self._number, self._block))

    def result(self) -> list[Any] | None:
        """The arrays, which lie in shared memory until the helper's next call.

        None where it could not do it, for whatever reason. To be asked for once.
        """
        return self._helper.answer(self._number)

    def start_back(self, message: dict[str, Any], arrays: Sequence[Any]) -> Call | None:
        """Begins the backward pass of what the helper kept; None as from `Helper.start`."""
        return self._helper.start({**message, "back": self._number}, arrays)


class Helper:
    """A process that runs `serve` of the module `program`, for the thread that started it.

    Nothing depends on it: before it is ready, after it died, for any other thread and in a forked process,
    `start` gives None, and whoever asked does the work. Raises OSError if no process can be started.
    """

    def __init__(self, program: str) -> None:
        self._owner = threading.get_ident()
        self._blocks: dict[int, list[int]] = {}  # free blocks of the area that is sent, by size
        self._end = 0
        self.gone: list[tuple[int, Block]] = []  # calls that nothing refers to any more
        self._numbers = count(_STARTING + 1)
        self._running: int | None = _STARTING  # the call whose answer has not been read
        with contextlib.ExitStack() as opened:
            self._sent = opened.enter_context(contextlib.closing(Area.new()))
            self._received = opened.enter_context(contextlib.closing(Area.new()))
            self._connection, theirs = socket.socketpair()
            opened.enter_context(self._connection)
            with theirs:
                for end in (self._connection, theirs):
                    end.settimeout(None)  # whatever the default
                process = _started(program, theirs.fileno(), self._sent.descriptor, self._received.descriptor)
            opened.pop_all()
        self.close = weakref.finalize(
            self, _close, process, self._connection, self._sent, self._received, os.getpid()
        )
        _all.add(self)

    def start(self, message: dict[str, Any], arrays: Sequence[Any]) -> Call | None:
        """Begins what `message` says with the arrays."""
        if not self._at_hand():
            return None
        try:
            # The helper is idle: what nothing refers to may be overwritten before it is told.
            gone = [self.gone.pop() for _ in range(len(self.gone))]
            for _, (offset, size) in gone:
                self._blocks.setdefault(size, []).append(offset)
            number, block = next(self._numbers), self._block(room_for(arrays))
            call = Call(self, number, block)
            protocol = {
                "number": number,
                "arrays": self._sent.place(arrays, block[0]),
                "gone": [number for number, _ in gone],
                # What would warn or raise here is an error there, and done again here.
                "errors": {
                    kind: "ignore" if how == "ignore" else "raise" for kind, how in np.geterr().items()
                },
            }
            self._running = number
            send(self._connection, {**message, **protocol})
        except OSError:
            self.close()
            return None
        except BaseException:  # an interrupt may have torn the message
            self.close()
            raise
        return call

    def answer(self, number: int) -> list[Any] | None:
        """What the call of this number gives, None if it failed or another has begun since."""
        if self._running != number:
            return None
        try:
            placed = receive(self._connection)
            self._running = None
            return None if placed is None else [self._received.array(place) for place in placed]
        except (OSError, EOFError):
            self.close()
            return None
        except BaseException:
            self.close()
            raise

    def _at_hand(self) -> bool:
        """Whether the helper can be asked now."""
        if not self.close.alive or threading.get_ident() != self._owner:
            return False
        if self._running == _STARTING and not has_come(self._connection):
            return False
        if self._running is not None:  # it is ready, or an error here kept the answer from being read
            self.answer(self._running)
        return self.close.alive

    def _block(self, size: int) -> Block:
        """A free block; sizes are powers of two, so that they fit again."""
        size = 1 << max(size - 1, 4095).bit_length()
        free = self._blocks.get(size)
        if free:
            return free.pop(), size
        self._end += size
        return self._end - size, size


_all: weakref.WeakSet[Helper] = weakref.WeakSet()


def _close_all() -> None:
    for helper in list(_all):
        helper.close()


if hasattr(os, "register_at_fork"):
    # A forked process is not to talk to its parent's helpers, nor to keep them alive when the parent is gone.
    os.register_at_fork(after_in_child=_close_all)


def _started(program: str, *handed: int) -> subprocess.Popen[bytes]:
    """The process, which finds this package and numpy where this process did."""
    homes = [
        os.path.abspath(Path(module).parents[levels]) for module, levels in ((__file__, 2), (np.__file__, 1))
    ]
    path = json.dumps([*homes, *filter(os.path.isabs, sys.path)])
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-B", "-c", _PROGRAM, path, program, *map(str, handed)],
        pass_fds=handed,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **_SETTINGS},
        start_new_session=True,  # Ctrl-C is for the process that asked
    )


def _close(
    process: subprocess.Popen[bytes], connection: socket.socket, sent: Area, received: Area, owner: int
) -> None:
    for end in (connection, sent, received):
        end.close()
    if os.getpid() == owner:
        process.kill()
        process.wait()
    else:
        process.returncode = 0  # it is not ours to wait for, and Popen would warn that nobody did


def attend(
    connection_descriptor: int,
    received_descriptor: int,
    sent_descriptor: int,
    compute: Callable[[dict[str, Any], list[Any]], tuple[Sequence[Any], Any]],
    back: Callable[[Any, dict[str, Any], list[Any]], Sequence[Any]],
) -> None:
    """What the helper's process does until the other side is gone.

    Args:
        connection_descriptor, received_descriptor, sent_descriptor: what `serve` was given.
        compute: `compute(message, arrays) -> (arrays, what to keep)`.
        back: `back(kept, message, arrays) -> arrays`.
    """
    warnings.simplefilter("error")  # whoever asked does it again, and so gives the warning
    received, sent = Area(received_descriptor), Area(sent_descriptor)
    all_kept: dict[int, Any] = {}

    def answer(message: dict[str, Any]) -> Any:
        arrays = [received.array(placed) for placed in message["arrays"]]
        if "back" in message:
            return sent.place(back(all_kept[message["back"]], message, arrays))
        found, all_kept[message["number"]] = compute(message, arrays)
        return sent.place(found)

    with contextlib.suppress(OSError, EOFError), socket.socket(fileno=connection_descriptor) as connection:
        send(connection, [])
        while True:
            message = receive(connection)
            for number in message["gone"]:
                all_kept.pop(number, None)
            try:
                with np.errstate(**message["errors"]):
                    placed = answer(message)
            except Exception:
                placed = None
            send(connection, placed)
