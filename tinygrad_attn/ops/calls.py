"""Loops written out: lists of numpy calls, each bound once to the arrays that it reads and writes.

A kernel whose arrays are kept from one use to the next prepares what each of its steps calls, and then only
runs that: the views, the choices and the functions in between are paid for once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

Calls = list[Callable[[], Any]]

BYTES = 300
"""About what a call takes, with its share of the views that it was made from."""

call = partial
"""`call(np.add, a, b, out)`: that call, to be made later."""


def run(calls: Sequence[Callable[[], Any]]) -> None:
    """Makes the calls, one after the other."""
    for each in calls:
        each()
