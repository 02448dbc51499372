"""The alignment as a picture: which source tokens each target token looked at."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tinygrad_attn.viz.checks import checked_weights
from tinygrad_attn.viz.picture import count_in_unit, new_picture, settings, unit_of
from tinygrad_attn.viz.text import visible
from tinygrad_attn.viz.token_names import labels_of

if TYPE_CHECKING:
    from tinygrad_attn.viz.picture import Picture

_CELL, _MOST = 0.34, 12.0  # inches: a cell, and the longest side of the matrix
_READABLE = 0.1  # inches from one name to the next; where there are more, some are left out
_FEW, _WITH_NUMBER = 8, 0.5  # rows and columns up to which cells have numbers, and inches of such a cell


def heatmap(
    weights: Any,
    source: Sequence[str],
    target: Sequence[str],
    *,
    title: str | None = None,
    signed: bool | None = None,
) -> Picture:
    """The weights as a picture: source tokens on x, target tokens on y, grey from 0 (black) to 1 (white).

    As in Bahdanau et al. 2015, figure 3. Entries below 0 or above 1, such as those of ∂loss/∂α, are drawn
    from blue over white to red instead, with a scale. In a matrix of at most 8 rows and columns, each cell
    has its number.

    Args:
        weights: (len(target), len(source)), an array or a Tensor: row i holds α of output token i.
        source: the source tokens, without padding.
        target: the output tokens, without what stands after the end.
        title: text above the picture.
        signed: whether the entries are gradients or other numbers around zero; None to judge by the entries.

    Returns:
        A matplotlib Figure that shows itself in a notebook; `.save(path)` writes SVG, PNG or PDF.

    Raises:
        ValueError: if the shape does not match the tokens, or an entry is not finite.
        TypeError: for tokens that are not strings.
    """
    array = checked_weights(weights, source, target, "heatmap")
    rows, columns = array.shape
    few = max(rows, columns) <= _FEW
    cell = _WITH_NUMBER if few else min(_CELL, _MOST / max(rows, columns))
    # Where one side is much longer the cells are no squares, so that the few on the other can be seen.
    wide, high = (max(cell, min(2 * _READABLE, _MOST / count)) for count in (columns, rows))
    labels = labels_of(source), labels_of(target)
    room = [0.4 + 0.09 * max(len(label) for label in side) for side in labels]  # inches for the names
    upright = max(len(label) for label in labels[0]) * 0.09 > wide
    largest = float(np.abs(array).max())
    if signed is None:
        signed = bool(array.min() < -1e-6 * largest or array.max() > 1 + 1e-6)
    # In their unit the numbers stay within what matplotlib can compute with.
    unit, unit_name = unit_of(largest) if signed else (1.0, "")
    most = (largest / unit or 1.0) if signed else 1.0
    with settings():
        width, height = columns * wide + room[1] + 0.3, rows * high + (room[0] if upright else 0.5) + 0.3
        picture = new_picture(max(width, 1.6) + 0.8 * signed, max(height, 1.2) + (0.3 if title else 0))
        axes = picture.add_subplot()
        image = axes.imshow(
            array / unit,
            cmap="RdBu_r" if signed else "gray",
            vmin=-most if signed else 0.0,
            vmax=most,
            interpolation="nearest",
            aspect=high / wide,
        )
        across, down = (math.ceil(_READABLE / side) for side in (wide, high))  # from name to name
        size = min(10.0, 50 * wide * across, 50 * high * down)
        axes.xaxis.tick_top()
        axes.set_xticks(
            range(0, columns, across),
            labels[0][::across],
            rotation=90 if upright else 0,
            fontsize=size,
            parse_math=False,
        )
        axes.set_yticks(range(0, rows, down), labels[1][::down], fontsize=size, parse_math=False)
        axes.tick_params(length=0)
        if min(wide, high) >= 0.15:  # thin lines between the cells
            axes.set_xticks(np.arange(-0.5, columns), minor=True)
            axes.set_yticks(np.arange(-0.5, rows), minor=True)
            axes.grid(which="minor", color="#666666", linewidth=0.4)
            axes.tick_params(which="minor", length=0)
        if few:
            _write_numbers(axes, image, array / unit, signed)
        if signed:
            count_in_unit(picture.colorbar(image, ax=axes, shrink=0.8).ax.yaxis, unit_name)
        if title:
            lines = "\n".join(line and visible(line) for line in title.split("\n"))
            axes.set_title(lines, fontsize=10, parse_math=False)
    return picture


def _write_numbers(axes: Any, image: Any, array: np.ndarray, signed: bool) -> None:
    """Numbers in the cells: of weights two decimals, of others three digits of the largest."""
    decimals = 2
    if signed:
        largest = float(np.abs(array).max())
        decimals = min(max(2 - math.floor(math.log10(largest)), 0), 3) if largest else 0
    for (row, column), value in np.ndenumerate(array):
        red, green, blue, _ = image.cmap(image.norm(value))
        colour = "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"
        text = f"{round(value, decimals) + 0.0:.{decimals}f}".replace("-", "−")
        axes.text(column, row, text, color=colour, fontsize=7.5, ha="center", va="center")
