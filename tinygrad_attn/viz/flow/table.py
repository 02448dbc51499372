"""The gradient flow as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tinygrad_attn.viz.text import norm, number

if TYPE_CHECKING:
    from tinygrad_attn.viz.flow.flow import GradientFlow

_FEW = 6  # entries that are printed one by one
_ORDER = ("logits", "s", "c", "α", "e", "h̃")


def overview(flow: GradientFlow) -> str:
    """Norms by step, and by source position in parts."""
    roles = [role for role in _ORDER if flow.rows(role) and (flow.count > 1 or role != "logits")]
    norms = {role: dict(zip(flow.steps(role), flow.norms(role), strict=True)) for role in roles}
    first = min((step for column in norms.values() for step in column), default=1)
    rows = [["step", *(f"‖∂{role}‖" for role in roles)]]
    for step in range(first, flow.count + 1):
        rows.append(
            [str(step), *(number(norms[role][step]) if step in norms[role] else "" for role in roles)]
        )
    loss = number(float(flow.value("loss").sum()))
    title = f"∂loss, norms over {flow.count} step{'s' * (flow.count != 1)}; loss = {loss}"
    return "\n".join([title, "", *_aligned(rows), *_annotations(flow, None)])


def step_table(flow: GradientFlow, step: int) -> str:
    """One step: the gradient of each named tensor, of states and annotations in parts."""
    rows = [["", "norm", "∂loss/∂…"]]
    for role in ("logits", "c", "α", "e"):
        found = flow.rows(role)
        if found:
            entry = found[step - 1] if len(found) > 1 else found[0]
            rows.append([f"{role}{step}" if len(found) > 1 or flow.count == 1 else role, *_about(entry)])
    before, after = f"s{step - 1}", f"s{step}"
    for label in (after, before):
        if label in flow.labels:
            rows.append([label, *_about(flow.layout.of_example(flow.gradient(label)))])
            rows += [
                [f"  {name}", *_about(flow.layout.of_example(part))]
                for name, part in flow.parts(label).items()
            ]
    return "\n".join([f"step {step} of {flow.count}", "", *_aligned(rows), *_annotations(flow, step)])


def _annotations(flow: GradientFlow, step: int | None) -> list[str]:
    """The annotations: what reached each in all, and by parts (of one step), as norms."""
    whole = flow.rows("h")
    if not whole:
        return []
    names = flow.part_names("h", step)
    parts = [flow.rows("h", name, step) for name in names]
    titles = names if step is None else [f"{name} of step {step}" for name in names]
    rows = [["", "norm", *titles, "∂loss/∂h"]]
    for j, row in enumerate(whole):
        rows.append([f"h{j + 1}", _norm(row), *(_norm(part[j]) for part in parts), _about(row)[1]])
    return ["", *_aligned(rows)]


def _norm(array: np.ndarray) -> str:
    return number(norm(array))


def _about(array: np.ndarray) -> tuple[str, str]:
    flat = array.ravel()
    entries = (
        "  ".join(map(number, flat)) if flat.size <= _FEW else f"{number(flat.min())} … {number(flat.max())}"
    )
    return _norm(array), entries


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if i in (0, len(row) - 1) else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
