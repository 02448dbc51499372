"""The gradient flow as a figure of four panels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tinygrad_attn.viz.labels import shown
from tinygrad_attn.viz.picture import new_picture, settings

if TYPE_CHECKING:
    from tinygrad_attn.viz.flow import GradientFlow
    from tinygrad_attn.viz.picture import Picture

_COLOURS = {
    "value": "#2b6cb0",
    "key": "#c2410c",
    "state": "#6b8e23",
    "scores": "#c2410c",
    "recurrence": "#6b5ca5",
    "output": "#2b6cb0",
}
_WHOLE, _OTHER = "#1f2933", "#9aa5b1"
_MARKERS = "so^dvP"


def flow_figure(flow: GradientFlow, source: Sequence[str] | None, target: Sequence[str] | None) -> Picture:
    """See `GradientFlow.figure`. Raises ValueError if the tokens are not as many as positions or steps."""
    weights = flow.rows("α") or flow.rows("e")
    length = weights[0].shape[-1]
    across = _names(source, length, "source")
    down = _names(target, flow.count, "target")
    with settings():
        side = min(max(0.42 * length, 2.4), 7.0)
        tall = min(max(0.36 * flow.count, 1.0), 6.0)
        picture = new_picture(2 * side + 2.4, tall + 4.0)
        panels = picture.subplots(2, 2, height_ratios=[tall + 0.6, 2.6])
        for axes, role in zip(panels[0], ("α", "e"), strict=True):
            _matrix(picture, axes, flow.rows(role), f"∂loss/∂{role}", across, down)
        labels = flow.role("s")
        _lines(panels[1][0], flow, "s", [label.removeprefix("s") for label in labels], "‖∂loss/∂s‖ by step")
        positions = across if source is not None else [str(j + 1) for j in range(len(flow.rows("h")))]
        _lines(panels[1][1], flow, "h", positions, "‖∂loss/∂h‖ by source position")
    return picture


def _names(tokens: Sequence[str] | None, count: int, what: str) -> list[str]:
    if tokens is None:
        return [str(i + 1) for i in range(count)]
    if len(tokens) != count:
        raise ValueError(f"gradient_flow: {len(tokens)} {what} tokens given for {count} of the computation")
    return [shown(token) for token in tokens]


def _matrix(
    picture: Any, axes: Any, rows: list[np.ndarray], title: str, across: list[str], down: list[str]
) -> None:
    axes.set_title(title, fontsize=10)
    if not rows:
        axes.set_axis_off()
        return
    array = np.stack(rows)
    finite = np.abs(array[np.isfinite(array)])
    largest = float(finite.max()) if finite.size and finite.max() > 0 else 1.0
    from matplotlib import colormaps

    colours = colormaps["RdBu_r"].with_extremes(bad="#000000")
    image = axes.imshow(
        array, cmap=colours, vmin=-largest, vmax=largest, aspect="auto", interpolation="nearest"
    )
    axes.xaxis.tick_top()
    upright = max(map(len, across)) > 3
    axes.set_xticks(range(len(across)), across, rotation=90 if upright else 0, fontsize=9, parse_math=False)
    axes.set_yticks(range(len(down)), down, fontsize=9, parse_math=False)
    axes.tick_params(length=0)
    picture.colorbar(image, ax=axes, shrink=0.9, pad=0.02)


def _lines(axes: Any, flow: GradientFlow, role: str, names: list[str], title: str) -> None:
    whole = flow.norms(role)
    axes.set_title(title, fontsize=10)
    if not whole:
        axes.set_axis_off()
        return
    x = np.arange(len(whole))
    for i, part in enumerate(flow.part_names(role)):
        norms = [float(np.linalg.norm(row)) for row in flow.rows(role, part)]
        colour = _COLOURS.get(part, _OTHER)
        axes.plot(x, norms, color=colour, label=part, marker=_MARKERS[i % 6], markersize=4, linewidth=1.3)
    axes.plot(x, whole, color=_WHOLE, label="whole", marker="o", markersize=4.5, linewidth=2)
    positive = [norm for norm in whole if norm > 0 and np.isfinite(norm)]
    if positive and max(positive) > 1000 * min(positive):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    every = max(1, len(x) // 16)
    axes.set_xticks(x[::every], names[::every], fontsize=9, parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e5e7eb", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, fontsize=8)
