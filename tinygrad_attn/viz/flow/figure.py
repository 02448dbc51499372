"""The gradient flow as a figure of four panels: of all steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tinygrad_attn.viz.flow.panels import axis_names, bars, height_of, lines, matrix, new_panels
from tinygrad_attn.viz.picture import settings
from tinygrad_attn.viz.text import norm

if TYPE_CHECKING:
    from tinygrad_attn.viz.flow.flow import GradientFlow
    from tinygrad_attn.viz.picture import Picture


def flow_figure(flow: GradientFlow, source: Sequence[str] | None, target: Sequence[str] | None) -> Picture:
    """See `GradientFlow.figure`. Raises ValueError if the tokens are not as many as positions or steps."""
    across, down, positions = axis_names(flow, source, target)
    with settings():
        picture, panels = new_panels(across, height_of(flow.count) + 0.6)
        for axes, role in zip(panels[0], ("α", "e"), strict=True):
            matrix(picture, axes, flow.rows(role), f"∂loss/∂{role}", across, down)
        states = list(map(str, flow.steps("s"))) if flow.rows("s") else []
        _norms(panels[1][0], flow, "s", states, "‖∂loss/∂s‖ by step")
        _norms(panels[1][1], flow, "h", positions, "‖∂loss/∂h‖ by source position")
    return picture


def _norms(axes: Any, flow: GradientFlow, role: str, names: list[str], title: str) -> None:
    """The norms of the parts and of the whole: as lines, or side by side where there is one place alone."""
    series = {part: list(map(norm, flow.rows(role, part))) for part in flow.part_names(role)}
    series["whole"] = flow.norms(role)
    (bars if len(names) == 1 else lines)(axes, series, names, title)
