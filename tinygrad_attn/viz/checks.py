"""What arguments have to be. The errors name the argument, what came, and what was expected."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Sequence, Set
from typing import Any

import numpy as np

from tinygrad_attn.engine import Tensor


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


def checked_weights(weights: Any, source: Sequence[str], target: Sequence[str], name: str) -> np.ndarray:
    """`weights` as a float array (target, source).

    Raises ValueError, naming the function `name`, unless there is a row for each target token, a column for
    each source token, and every entry is a finite number; TypeError for tokens that are not strings.
    """
    try:
        array = np.asarray(weights.data if isinstance(weights, Tensor) else weights)
    except ValueError:
        raise ValueError(f"{name}: weights have rows of different lengths, expected an array") from None
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name}: weights have dtype {array.dtype}, expected numbers")
    for side, tokens in (("source", source), ("target", target)):
        if not token_count(f"{name}: {side}", tokens):
            raise ValueError(f"{name}: {side} is empty, expected at least one token")
    if array.shape != (len(target), len(source)):
        raise ValueError(
            f"{name}: weights have shape {array.shape}, expected ({len(target)}, {len(source)}), "
            "a row for each target token and a column for each source token"
        )
    if not np.isfinite(array).all():
        row, column = (int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(
            f"{name}: the weight at row {row}, column {column} is {array[row, column]}, expected a number"
        )
    return array.astype(float)
