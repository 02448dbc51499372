"""BLAS on one thread, and Ctrl-C at a moment that suits."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any


def one_blas_thread() -> AbstractContextManager[Any]:
    """BLAS held at one thread within a `with` block: the products of small models are too small to share."""
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[Any] = threadpool_limits(1, user_api="blas")
    return limits


class Interruption:
    """Within a `with` block, Ctrl-C is noted in `requested` instead of raised; a second one raises at once.

    So a step is finished and saved. Outside the main thread, where signals cannot be caught, nothing changes.
    """

    def __init__(self) -> None:
        self.requested = False
        self._catching = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> Interruption:
        if self._catching:
            self._found = signal.signal(signal.SIGINT, self._note)
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
