"""The gradient flow as a figure of four panels: of all steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tinygrad_attn.viz.flow_panels import bars, lines, matrix, names_of, new_panels
from tinygrad_attn.viz.picture import settings

if TYPE_CHECKING:
    from tinygrad_attn.viz.flow import GradientFlow
    from tinygrad_attn.viz.picture import Picture


def flow_figure(flow: GradientFlow, source: Sequence[str] | None, target: Sequence[str] | None) -> Picture:
    """See `GradientFlow.figure`. Raises ValueError if the tokens are not as many as positions or steps."""
    length = (flow.rows("α") or flow.rows("e"))[0].shape[-1]
    across = names_of(source, length, "source")
    down = names_of(target, flow.count, "target")
    with settings():
        picture, panels = new_panels(across, min(max(0.36 * flow.count, 1.0), 6.0) + 0.6)
        for axes, role in zip(panels[0], ("α", "e"), strict=True):
            matrix(picture, axes, flow.rows(role), f"∂loss/∂{role}", across, down)
        states = [label.removeprefix("s") for label in flow.role("s")]
        _norms(panels[1][0], flow, "s", states, "‖∂loss/∂s‖ by step")
        positions = across if source is not None else [str(j + 1) for j in range(len(flow.rows("h")))]
        _norms(panels[1][1], flow, "h", positions, "‖∂loss/∂h‖ by source position")
    return picture


def _norms(axes: Any, flow: GradientFlow, role: str, names: list[str], title: str) -> None:
    """The norms of the parts and of the whole: as lines, or side by side where there is one place alone."""
    series = {
        part: [float(np.linalg.norm(row)) for row in flow.rows(role, part)] for part in flow.part_names(role)
    }
    series["whole"] = flow.norms(role)
    (bars if len(names) == 1 else lines)(axes, series, names, title)
