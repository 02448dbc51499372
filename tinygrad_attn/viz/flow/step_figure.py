"""The gradient flow through one step as a figure of four panels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tinygrad_attn.viz.flow.panels import axis_names, bars, new_panels
from tinygrad_attn.viz.flow.step_graph import subscripted
from tinygrad_attn.viz.picture import settings
from tinygrad_attn.viz.text import norm

if TYPE_CHECKING:
    from tinygrad_attn.viz.flow.flow import GradientFlow
    from tinygrad_attn.viz.picture import Picture


def step_figure(
    flow: GradientFlow, step: int, source: Sequence[str] | None, target: Sequence[str] | None
) -> Picture:
    """See `GradientFlow.figure`. Raises ValueError if the tokens are not as many as positions or steps."""
    across, down, positions = axis_names(flow, source, target)
    with settings():
        picture, panels = new_panels(across, 2.6)
        about = f"step {step} of {flow.count}" + (f", for output {down[step - 1]}" if target else "")
        picture.suptitle(about, fontsize=11, parse_math=False)
        for axes, role in zip(panels[0], ("α", "e"), strict=True):
            rows = flow.rows(role)
            row = rows[step - 1 if len(rows) > 1 else 0] if rows else np.zeros(0)
            bars(
                axes,
                {role: row.ravel().tolist()},
                across if rows else [],
                f"∂loss/∂{subscripted(f'{role}{step}')}",
            )
        states = [label for label in (f"s{step - 1}", f"s{step}") if label in flow.labels]
        bars(
            panels[1][0], _states(flow, states), list(map(subscripted, states)), "‖∂loss/∂s‖ before and after"
        )
        through = {part: list(map(norm, flow.rows("h", part, step))) for part in flow.part_names("h", step)}
        bars(panels[1][1], through, positions if through else [], f"‖∂loss/∂h‖ through step {step}")
    return picture


def _states(flow: GradientFlow, labels: list[str]) -> dict[str, list[float]]:
    """The norms of the parts of these states' gradients, and of the whole."""
    parts = [flow.parts(label) for label in labels]
    names = dict.fromkeys(name for found in parts for name in found)
    norms = {name: [_norm(flow, found.get(name)) for found in parts] for name in names}
    return {**norms, "whole": [_norm(flow, flow.gradient(label)) for label in labels]}


def _norm(flow: GradientFlow, array: np.ndarray | None) -> float:
    """The norm of the example's part of an array, 0 of none."""
    return 0.0 if array is None else norm(flow.layout.of_example(array))
