"""Tokens as they are shown: literally, but for what would be invisible or would steer a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinygrad_attn.engine import Tensor
from tinygrad_attn.viz.checks import token_count
from tinygrad_attn.viz.text import visible

LONGEST = 24
"""Columns of a token's name in a picture."""


def shown(token: str) -> str:
    """`token` with spaces and control characters replaced by visible signs."""
    return visible(token).replace(" ", "␣")


def labels_of(tokens: Sequence[str]) -> list[str]:
    """The tokens as pictures show them, long ones cut."""
    return [shortened(shown(token), LONGEST) for token in tokens]


def shortened(label: str, columns: int) -> str:
    """The label, cut to that many columns of a terminal, with … where something is missing."""
    used = end = 0  # where the label would be cut
    for place, character in enumerate(label, 1):
        used += columns_of(character)
        if used < columns:
            end = place
        elif used > columns:
            return label[:end] + "…"
    return label


def columns_of(text: str) -> int:
    """How many columns of a terminal `text` takes: wide characters two, combining ones none."""
    return sum(
        0
        if unicodedata.combining(c) or c == "\u200d"
        else 2
        if unicodedata.east_asian_width(c) in "WF"
        else 1
        for c in text
    )


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
