"""Threads held at what the work can use, and Ctrl-C at a moment that suits."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from tinygrad_attn.engine.modes import changed_mode
from tinygrad_attn.engine.workers import Workers


@contextlib.contextmanager
def workers(count: int | None = None) -> Iterator[int]:
    """Within a `with` block, `count` processes share each large batch; BLAS uses one thread in each.

    `Seq2Seq.loss`, `greedy` and `beam_search` give each process, this one included, a part of the sentences.
    Small models gain nothing and stay in this one; see `tinygrad_attn.nn.sharing`. Gradients are summed part
    by part, so a run is reproducible for a given number of workers. Where processes cannot be handed files
    (Windows), this one computes all parts.

    Args:
        count: how many; `usual_workers()` if None.

    Returns:
        A context manager that gives the number.
    """
    crew = Workers(usual_workers() if count is None else count)
    try:
        with _one_blas_thread(), _kept_memory(), changed_mode(workers=crew):
            yield crew.count
    finally:
        crew.close()


_lock = threading.RLock()
_open: list[Any] = []
"""The limits of all blocks that have not ended."""

_first: Any = None
"""Those of the block that began when no other was open."""


@contextlib.contextmanager
def _one_blas_thread() -> Iterator[None]:
    """BLAS with one thread within a `with` block.

    The number is mostly the whole process's, and blocks in several threads may end in any order: it stays at
    one until the last of them has ended, and then is what the first found.
    """
    global _first
    from threadpoolctl import threadpool_limits

    with _lock:
        mine = threadpool_limits(1, user_api="blas").__enter__()
        if not _open:
            _first = mine
        _open.append(mine)
    try:
        yield
    finally:
        with _lock:
            _open.remove(mine)
            mine.__exit__(None, None, None)
            if bool(_open) == (mine is _first):  # what was put back is not what holds now
                with _open[0] if _open else _first:  # to leave limits puts back what they found
                    pass


_KEEPING = {-1: 2**30, -3: 2**30}
"""Bytes from which freed memory goes back to the system at once: malloc.h's M_TRIM_THRESHOLD and
M_MMAP_THRESHOLD."""

_USUAL = {-1: 2**26, -3: 2**25}
"""What glibc raises them to as a program uses large arrays; once they were set, it raises them no more."""

_blocks_that_keep = 0


@contextlib.contextmanager
def _kept_memory() -> Iterator[None]:
    """Within a `with` block, the memory of freed arrays serves the next ones (where the C library is glibc).

    Else it goes back to the system and comes again page by page, zeroed, which shows where decoding is timed.
    """
    global _blocks_that_keep
    try:
        libc = ctypes.CDLL("libc.so.6") if sys.platform == "linux" else None
    except OSError:  # another C library
        libc = None
    if libc is None:
        yield
        return
    _blocks_that_keep += 1
    for option, size in _KEEPING.items():
        libc.mallopt(option, size)
    try:
        yield
    finally:
        _blocks_that_keep -= 1
        if not _blocks_that_keep:
            for option, size in _USUAL.items():
                libc.mallopt(option, size)
            libc.malloc_trim(0)


_QUOTA = "/sys/fs/cgroup/cpu.max"
"""What a container may use of the processors, if it is limited: microseconds in so many microseconds."""


def usual_workers() -> int:
    """As many as the process has whole processors, but not more than four."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):  # elsewhere, or without a limit ("max")
        with open(_QUOTA, encoding="ascii") as file:
            used, of = map(int, file.read().split())
        available = min(available, used // of)
    return max(1, min(available, 4))


class Interruption:
    """Within a `with` block, Ctrl-C is noted in `requested` instead of raised; a second one raises at once.

    So a step is finished and saved. Where the signal is ignored, as in the background of a script, or what
    handles it is not Python's, it stays so; and outside the main thread, where signals cannot be caught.
    """

    def __init__(self) -> None:
        self.requested = False
        self._found = signal.getsignal(signal.SIGINT)
        in_main_thread = threading.current_thread() is threading.main_thread()
        self._catching = in_main_thread and self._found not in (signal.SIG_IGN, None)

    def __enter__(self) -> Interruption:
        if self._catching:
            signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._catching:
            signal.signal(signal.SIGINT, self._found)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        with contextlib.suppress(OSError):  # not by print, which may be what the signal interrupted
            os.write(2, b"\nstopping, and saving where that is due; Ctrl-C again stops at once\n")
