"""What the scripts that measure have in common.

Their options are checked as those of `tinygrad-attn bench`, but not by importing the command: its modules
would count as memory of those that we compare with.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import math
import os
import time
from collections.abc import Callable, Iterable
from typing import Any


def rounds_asked(description: str | None) -> int:
    """How many rounds the command line asks for; the end where the environment holds BLAS back."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=at_least_one, default=15)
    rounds: int = parser.parse_args().rounds
    if any(name in os.environ for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")):
        raise SystemExit("unset OPENBLAS_CORETYPE and OPENBLAS_L2_SIZE: they hold BLAS back")
    return rounds


def at_least_one(text: str) -> int:
    """The integer that an option gives."""
    with contextlib.suppress(ValueError):
        if int(text) >= 1:
            return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")


def above_zero(text: str) -> float:
    """The time that an option gives."""
    with contextlib.suppress(ValueError):
        if 0 < float(text) < math.inf:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a time above zero")


def need(peers: Iterable[str]) -> None:
    """The end, in one line, where one of those that we compare with is missing."""
    modules = dict.fromkeys(peer.removesuffix("-compile") for peer in peers)
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        raise SystemExit(f"not installed: {', '.join(missing)}; python -m pip install '.[peers]'")


def seconds(what: Callable[[], Any], least: float = 0.1) -> float:
    """The mean time that it takes, twice or more, over about `least` seconds."""
    start, done = time.perf_counter(), 0
    while done < 2 or time.perf_counter() - start < least:
        what()
        done += 1
    return (time.perf_counter() - start) / done
