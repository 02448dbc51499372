"""Timing of a repeated call. The median is what to quote, as a ratio to something timed in turn with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple


class Timing(NamedTuple):
    """How long calls took, in milliseconds."""

    first_ms: float  # the first call, before anything was warm
    second_ms: float
    median_ms: float
    min_ms: float
    calls: int  # how many calls median and minimum are over


def time_calls(call: Callable[[], Any], seconds: float, least: int = 5) -> Timing:
    """Times `call` for about `seconds`, at least `least` times, after some to warm up.

    To warm up takes three calls, and half a second (of a second, less), in which other processes start.
    """
    first, second = _timed(call), _timed(call)
    warm = time.perf_counter() + min(seconds, 1) / 2
    for _ in range(3):
        call()
    while time.perf_counter() < warm:
        call()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < least:
        times.append(_timed(call))
    times.sort()
    return Timing(first, second, times[len(times) // 2], times[0], len(times))


def _timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e3
