"""What the figures of the gradient flow are made of: matrices, lines and bars."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tinygrad_attn.viz.checks import token_count
from tinygrad_attn.viz.picture import count_in_unit, new_picture, unit_of
from tinygrad_attn.viz.token_names import columns_of, labels_of

if TYPE_CHECKING:
    from tinygrad_attn.viz.flow.flow import GradientFlow
    from tinygrad_attn.viz.picture import Picture

# They differ in lightness too, for grey paper and for those who see few colours.
_COLOURS = {
    "value": "#3b82c4",
    "key": "#e0792a",
    "state": "#3f5a12",
    "scores": "#e0792a",
    "recurrence": "#5b2a86",
    "output": "#3b82c4",
    "whole": "#1f2933",
}
_OTHER = "#9aa5b1"
_POSITIVE, _NEGATIVE = "#b2182b", "#2166ac"  # as in the matrices
_MARKERS = "so^dvP"
_LINE, _LETTER = 0.16, 0.085  # inches that a line of names is high, and a letter of one wide
_BESIDE = 3.6  # inches of a picture beside its panels


def names_of(tokens: Sequence[str] | None, count: int, what: str) -> list[str]:
    """Names for an axis: the tokens, or numbers. Raises ValueError if there are not `count`,
    TypeError if they are no strings."""
    if tokens is None:
        return [str(i + 1) for i in range(count)]
    if token_count(f"gradient_flow: {what}", tokens) != count:
        raise ValueError(f"gradient_flow: {len(tokens)} {what} tokens given for {count} of the computation")
    return labels_of(tokens)


def axis_names(
    flow: GradientFlow, source: Sequence[str] | None, target: Sequence[str] | None
) -> tuple[list[str], list[str], list[str]]:
    """Names for the source positions, the steps, and the annotations as far as they have gradients."""
    across = names_of(source, (flow.values("α") or flow.values("e"))[0].shape[-1], "source")
    annotations = len(flow.rows("h"))
    positions = names_of(source, annotations, "source") if annotations else []
    return across, names_of(target, flow.count, "target"), positions


def height_of(rows: int) -> float:
    """Inches of a matrix of so many rows."""
    return min(max(0.36 * rows, 1.0), 6.0)


def new_panels(names: Sequence[str], tall: float) -> tuple[Picture, Any]:
    """A picture of two rows of two panels for source positions of these names, the upper row `tall`
    inches."""
    side = min(max(0.42 * len(names), 2.4), 7.0)
    room = 0.09 * max(0, max(map(len, names), default=0) - 10)  # inches for long names, in each row
    picture = new_picture(2 * side + _BESIDE, tall + 3.7 + 2 * room)
    engine: Any = picture.get_layout_engine()
    engine.set(h_pad=0.12, w_pad=0.08)
    return picture, picture.subplots(2, 2, height_ratios=[tall, 2.6])


def matrix(
    picture: Any, axes: Any, rows: list[np.ndarray], title: str, across: list[str], down: list[str]
) -> None:
    """Rows as colours from blue over white to red, with a scale; a dash if there are none."""
    axes.set_title(title, fontsize=10)
    if not rows:
        _leave_empty(axes)
        return
    unit, unit_name = unit_of(_largest(*rows))
    array = np.stack([row.ravel() / unit for row in rows])
    largest = _largest(array) or 1.0
    from matplotlib import colormaps

    colours = colormaps["RdBu_r"].with_extremes(bad="#000000")
    image = axes.imshow(
        array, cmap=colours, vmin=-largest, vmax=largest, aspect="auto", interpolation="nearest"
    )
    axes.xaxis.tick_top()
    _name_places(axes, across)
    _name(axes.yaxis, down, _LINE, 0.8 * height_of(len(down)))  # names above take some of the height
    axes.tick_params(length=0)
    # Within the panel's own room, so that the legends below do not push it away.
    scale = axes.inset_axes((1.03, 0.04, 0.05, 0.92), label="scale")
    count_in_unit(picture.colorbar(image, cax=scale).ax.yaxis, unit_name)
    scale.tick_params(labelsize=9)


def _places(axes: Any, names: list[str], title: str) -> np.ndarray:
    """Titles a panel and gives each name a place on x; without names the panel has a dash and no axes."""
    axes.set_title(title, fontsize=10)
    if not names:
        _leave_empty(axes)
    return np.arange(len(names))


def _leave_empty(axes: Any) -> None:
    axes.set_axis_off()
    axes.text(0.5, 0.5, "–", transform=axes.transAxes, ha="center", va="center", fontsize=12)


def lines(axes: Any, series: Mapping[str, Sequence[float]], names: list[str], title: str) -> None:
    """A line for each series. The whole lies beneath, wider: a part that is all of it is seen too."""
    x = _places(axes, names, title)
    if not names:
        return
    norms = np.array(series["whole"])
    positive = norms[np.isfinite(norms) & (norms > 0)]
    logarithmic = positive.size and positive.max() > 1000 * positive.min()
    unit, unit_name = (1.0, "") if logarithmic else unit_of(_largest(*series.values()))
    for i, (name, values) in enumerate(series.items()):
        whole = name == "whole"
        axes.plot(
            x,
            np.divide(values, unit),
            color=_COLOURS.get(name, _OTHER),
            label=name,
            marker="o" if whole else _MARKERS[i % 6],
            markersize=6.5 if whole else 4,
            linewidth=2.6 if whole else 1.3,
            zorder=2 if whole else 2.5,
        )
    if logarithmic:
        axes.set_yscale("log")
    else:
        count_in_unit(axes.yaxis, unit_name)
        axes.set_ylim(bottom=0)
    _finish(axes, names)


def bars(axes: Any, series: Mapping[str, Sequence[float]], names: list[str], title: str) -> None:
    """A group of bars for each name; a single series is coloured by sign."""
    x = _places(axes, names, title)
    if not names:
        return
    width = min(0.8 / len(series), 0.3)
    alone = len(series) == 1
    unit, unit_name = unit_of(_largest(*series.values()))
    for i, (name, values) in enumerate(series.items()):
        colours = [_NEGATIVE if value < 0 else _POSITIVE for value in values]
        axes.bar(
            x + (i - (len(series) - 1) / 2) * width,
            np.divide(values, unit),
            width,
            color=colours if alone else _COLOURS.get(name, _OTHER),
            label=name,
        )
    axes.axhline(0, color="#666666", linewidth=0.8)
    middle, half = (len(names) - 1) / 2, max(len(names), 3) / 2 + 0.1
    axes.set_xlim(middle - half, middle + half)
    count_in_unit(axes.yaxis, unit_name)
    _finish(axes, names)


def _finish(axes: Any, names: list[str]) -> None:
    _name_places(axes, names)
    axes.tick_params(axis="y", labelsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e5e7eb", linewidth=0.8)
    axes.set_axisbelow(True)
    if len(axes.get_legend_handles_labels()[1]) > 1:  # beside the panel, where no curve is
        axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0), handlelength=1.4)


def _name_places(axes: Any, names: list[str]) -> None:
    """Names along x, upright where they are long."""
    longest = max(map(columns_of, names))
    upright = longest > 3
    width = (axes.figure.get_figwidth() - _BESIDE) / 2
    _name(axes.xaxis, names, _LINE if upright else _LETTER * (longest + 1), width, 90 if upright else 0)


def _name(axis: Any, names: list[str], each: float, room: float, rotation: int = 0) -> None:
    """Names along an axis; those that find no room, at so many inches `each`, are left out."""
    every = math.ceil(len(names) * each / room)
    axis.set_ticks(
        range(0, len(names), every), names[::every], rotation=rotation, fontsize=9, parse_math=False
    )


def _largest(*values: Any) -> float:
    """The largest size of a finite number among them, 0 without any."""
    sizes = np.abs(np.concatenate([np.ravel(one) for one in values]))
    return float(sizes[np.isfinite(sizes)].max(initial=0.0))
