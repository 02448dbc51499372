"""How training went, as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tinygrad_attn.viz.picture import new_picture, settings

if TYPE_CHECKING:
    from tinygrad_attn.viz.picture import Picture

_TRAINING, _DEVELOPMENT = "#9aa5b1", "#c2410c"


def curves(rows: Sequence[Mapping[str, Any]]) -> Picture:
    """The loss on training and development data over the steps and, below, the share of exact matches.

    Args:
        rows: the rows of a run's `metrics.jsonl`; others than "train" and "evaluation" are not drawn.

    Returns:
        A matplotlib Figure that shows itself in a notebook; `.save(path)` writes SVG, PNG or PDF.
    """
    training = [row for row in rows if row.get("event") == "train"]
    development = [row for row in rows if row.get("event") == "evaluation"]
    with settings():
        picture = new_picture(6.4, 4.6)
        above, below = picture.subplots(2, 1, sharex=True, height_ratios=[3, 2])
        _line(above, training, "loss", "training", _TRAINING)
        _line(above, development, "loss", "development", _DEVELOPMENT)
        _line(below, development, "exact_match", "development", _DEVELOPMENT)
        above.set_ylabel("loss (nats per token)")
        above.set_ylim(bottom=0)
        if above.lines:
            above.legend(frameon=False)
        below.set_ylabel("exact match")
        below.set_ylim(-0.03, 1.03)
        below.set_xlabel("step")
        for axes in (above, below):
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(axis="y", color="#e5e7eb", linewidth=0.8)
            axes.set_axisbelow(True)
    return picture


def _line(axes: Any, rows: Sequence[Mapping[str, Any]], key: str, label: str, colour: str) -> None:
    rows = [row for row in rows if _is_drawn(row.get("step")) and _is_drawn(row.get(key))]
    if rows:
        marker = "o" if len(rows) <= 40 else None
        steps, values = [row["step"] for row in rows], [row[key] for row in rows]
        axes.plot(steps, values, color=colour, label=label, linewidth=1.6, marker=marker, markersize=3)


def _is_drawn(value: Any) -> bool:
    """Whether this is a number that has a place in a picture."""
    return isinstance(value, (int, float)) and abs(value) < 1e300
