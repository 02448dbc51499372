"""The alignment drawn with characters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinygrad_attn.viz.checks import checked_weights, integer
from tinygrad_attn.viz.token_names import columns_of, shortened, shown

_SHADES, _ASCII_SHADES = " ░▒▓█", " .:*#"
_SHORTEST, _LONGEST = 5, 16  # columns up to which names are cut
_BOLD, _PLAIN = "\x1b[1;36m", "\x1b[0m"


def draw_alignment(
    weights: Any,
    source: Sequence[str],
    target: Sequence[str],
    *,
    width: int = 80,
    colour: bool = False,
    ascii_only: bool = False,
) -> str:
    """The weights as lines of text: source tokens across, a line for each target token, darker for more.

    Args:
        weights: (len(target), len(source)), as for `heatmap`.
        source: the source tokens.
        target: the output tokens.
        width: columns of the terminal; what does not fit beside is drawn below.
        colour: also colour the largest weight of each line.
        ascii_only: use ASCII signs for the shades, for terminals that have no others.

    Raises:
        ValueError: as `heatmap`.
    """
    array = checked_weights(weights, source, target, "draw_alignment")
    # In a narrow terminal the names take half of a line each.
    longest = min(_LONGEST, max(_SHORTEST, (integer("draw_alignment: width", width) - 1) // 2))
    above, beside = ([shortened(shown(token), longest) for token in side] for side in (source, target))
    margin = max(columns_of(label) for label in beside)
    cell = max(2, *(columns_of(label) for label in above))
    fitting = max(1, (width - margin - 1) // (cell + 1))
    largest = array.argmax(axis=1)
    shades = _ASCII_SHADES if ascii_only else _SHADES
    panels = []
    for start in range(0, len(above), fitting):
        part = range(start, min(start + fitting, len(above)))
        lines = [" " * margin + " " + " ".join(_padded(above[j], cell) for j in part)]
        for i, label in enumerate(beside):
            cells = [_shaded(array[i, j], cell, shades, colour and j == largest[i]) for j in part]
            lines.append(_padded(label, margin) + " " + " ".join(cells))
        panels.append("\n".join(line.rstrip() for line in lines))
    return "\n\n".join(panels)


def _shaded(weight: float, cell: int, shades: str, coloured: bool) -> str:
    level = int(np.clip(np.rint(weight * (len(shades) - 1)), 0, len(shades) - 1))
    text = shades[level] * cell
    return f"{_BOLD}{text}{_PLAIN}" if coloured else text


def _padded(text: str, width: int) -> str:
    return text + " " * (width - columns_of(text))
