"""Tokens as they are shown: literally, but for what would be invisible or would steer a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

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
