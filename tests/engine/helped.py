"""What the helpers of test_helper.py do."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from tinygrad_attn.engine.helper import attend


class Kept:
    """The arrays of a call; it knows how many of its kind there are."""

    alive: ClassVar[int] = 0

    def __init__(self, arrays: Sequence[Any]) -> None:
        self.arrays = arrays
        Kept.alive += 1

    def __del__(self) -> None:
        Kept.alive -= 1


def compute(message: dict[str, Any], arrays: list[Any]) -> tuple[list[Any], Any]:
    what = message["do"]
    if what == "keep":
        return [None if array is None else 2 * array for array in arrays], Kept(arrays)
    if what == "count":
        return [np.array(Kept.alive), np.array(os.getpid())], None
    if what == "sleep":
        time.sleep(message["seconds"])
    elif what == "fail":
        raise ValueError("in a helper")
    elif what == "die":
        os._exit(1)
    elif what == "overflow":
        return [np.exp(1000 * arrays[0])], None
    elif what == "underflow":
        return [np.exp(-1000 * arrays[0])], None
    elif what == "say":
        for stream in (sys.stdout, sys.stderr):
            print("something", file=stream, flush=True)
    return [], None


def back(kept: Kept, message: dict[str, Any], arrays: list[Any]) -> list[Any]:
    return [message["factor"] * arrays[0] * array for array in kept.arrays]


def serve(connection: int, received: int, sent: int) -> None:
    attend(connection, received, sent, compute, back)
