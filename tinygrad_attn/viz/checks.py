"""What arguments have to be. The errors name the argument, what came, and what was expected."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Set
from typing import Any


def integer(name: str, value: Any) -> int:
    """`value` as an integer. TypeError for what is none."""
    try:
        return int(operator.index(value))
    except TypeError:
        raise TypeError(f"{name} is {value!r}, expected an integer") from None


def patterns(name: str, value: Any) -> tuple[str, ...]:
    """One pattern or several as a tuple. TypeError for anything else."""
    several = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
    if not all(isinstance(one, str) for one in several):
        raise TypeError(f"{name} is {value!r}, expected a pattern of scopes or a list of them")
    return several


def token_count(name: str, value: Any) -> int:
    """How many tokens there are. TypeError for what does not hold strings in an order."""
    if (
        not isinstance(value, Collection)
        or isinstance(value, Set)
        or not all(isinstance(one, str) for one in value)
    ):
        raise TypeError(f"{name} holds {value!r}, expected strings; decode ids first")
    return len(value)
