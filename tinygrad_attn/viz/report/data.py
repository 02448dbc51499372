"""What the page shows of a computation, as plain data for JSON.

Numbers are rounded to five significant digits; those that are not finite are the strings "NaN", "Infinity"
and "-Infinity". Axes of a batch of one are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tinygrad_attn.viz.flow import GradientFlow
from tinygrad_attn.viz.flow.roles import number_in
from tinygrad_attn.viz.fold import numbered
from tinygrad_attn.viz.graph import Graph
from tinygrad_attn.viz.nodes import Edge, Node
from tinygrad_attn.viz.text import norm, number, one_line

ENTRIES = 1024
"""Up to how many entries an array is on the page in full; beyond, its shape, range and norm are."""
WORDS = 100
"""How many words of each side the gradient flow of an example has; of more, the first."""
BOXES = 1000
"""Up to how many boxes a graph is on the page as it is; beyond, as its picture within the limit."""


def plain(x: Any) -> Any:
    """A number, or an array as nested lists."""
    if isinstance(x, np.ndarray) and x.ndim:
        return [plain(entry) for entry in x]
    value = float(x)
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    rounded = float(f"{value:.5g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def flow_data(flow: GradientFlow, source: Sequence[str], target: Sequence[str]) -> dict[str, Any]:
    """The gradient flow of one example.

    T and N are at most 100; of a longer example it is the beginning.

    {"source", "target": tokens, "words": how many of each there are, "loss",
     "α", "∂α", "∂e": N rows of T numbers, none of the gradient of constants,
     "h": {part: N rows of T norms: what reached h_j at step i through it}, where steps are apart,
     "all": {"whole": norms of h_1 ... h_T over all steps, part: likewise},
     "s": {"whole": norms of s_0 ... s_N, part: likewise},
     "logits": norms of ∂loss/∂logits by step,
     "links": [[used by, tensor, norm of the gradient that takes this way]]}

    Args:
        flow: of the loss of a Seq2Seq on a batch of one.
        source: the tokens of the source.
        target: those of the output, the end included.
    """
    steps = min(len(target), WORDS)
    return {
        "source": list(source[:WORDS]),
        "target": list(target[:WORDS]),
        "words": [len(source), len(target)],
        "loss": plain(flow.value("loss")),
        "α": plain(_matrix(flow.values("α"))),
        "∂α": plain(_matrix(flow.rows("α"))),
        "∂e": plain(_matrix(flow.rows("e"))),
        "h": _parts_of_h(flow, len(source)),
        "all": {"whole": _norms(flow.rows("h")[:WORDS])}
        | {part: _norms(flow.rows("h", part)[:WORDS]) for part in flow.part_names("h")},
        "s": {"whole": _norms(flow.rows("s")[: steps + 1])}
        | {part: _norms(flow.rows("s", part)[: steps + 1]) for part in flow.part_names("s")},
        "logits": _norms(flow.rows("logits")[:steps]),
        "links": [
            [user, used, plain(norm(part))]
            for (user, used), part in flow.links.items()
            if max(number_in(user) or 0, number_in(used) or 0) <= steps
        ],
    }


def _parts_of_h(flow: GradientFlow, length: int) -> dict[str, list[list[Any]]]:
    steps = 0 if flow.layout.together else min(flow.count, WORDS)
    by_step = [flow.parts("h", step) for step in range(1, steps + 1)]
    nothing: list[Any] = [0.0] * min(length, WORDS)
    return {
        part: [
            _norms(parts[part].reshape(length, -1)[:WORDS]) if part in parts else nothing for parts in by_step
        ]
        for part in dict.fromkeys(part for parts in by_step for part in parts)
    }


def _matrix(rows: Sequence[np.ndarray]) -> np.ndarray:
    return np.stack([row.reshape(-1)[:WORDS] for row in rows[:WORDS]]) if rows else np.zeros((0, 0))


def _norms(rows: Iterable[np.ndarray]) -> list[Any]:
    return [plain(norm(row)) for row in rows]


def graph_data(graph: Graph, source: Sequence[str], target: Sequence[str]) -> dict[str, Any]:
    """A picture's boxes and lines with the values, and the gradients that flow.

    {"source", "target": tokens, "notices", "traced", "output": id,
     "boxes": [{"id", "kind", "label", "operation", "settings", "scope", "count", "tensors", "value": A,
                "gradient": A, "parts": [{"label", "operation", "value": A, "gradient": A}]}],
     "lines": [{"source", "target", "gradient": A}]}

    Boxes are those that the level of detail asks for: the page folds and draws them itself, so what a limit
    does to a picture is not said here, unless there are more than 1,000, which no browser draws at once: then
    they are those of the picture within its limit. "tensors" counts what a box stands for, "parts" are the
    first 40 of them. The label of a box says its step: s in step 2 is "s₂".

    An array A is null where nothing is known, or {"shape", "norm", "low", "high", "data"}: "low" and "high"
    are the ends of what is finite, as text, or null; "data" the entries, null for more than 1,024, along a
    line, and of the parts of a box of one tensor. Of a line on which several tensors travel, A is {"shape":
    null, "norm", "data": null, "several"}: the largest norm, and of how many.
    """
    whole = len(graph.nodes) <= BOXES
    return {
        "source": list(source),
        "target": list(target),
        "notices": list(graph.record.notices if whole else graph.notices),
        "traced": graph.record.traced,
        "output": graph.record.output,
        "boxes": [_box(node) for node in _in_order(graph, graph.nodes if whole else graph.boxes)],
        "lines": [_line(edge) for edge in (graph.edges if whole else graph.lines)],
    }


def _in_order(graph: Graph, boxes: Sequence[Node]) -> list[Node]:
    """The boxes by when the last tensor of each was computed."""
    position = {node.id: i for i, node in enumerate(graph.record.nodes)}
    return sorted(
        boxes,
        key=lambda node: max(position[one.id] for one in (node, *node.members) if one.id in position),
    )


def _box(node: Node) -> dict[str, Any]:
    several = node.value is None
    return {
        "id": node.id,
        "kind": node.kind,
        "label": _label(node),
        "operation": node.operation,
        "settings": node.settings,
        "scope": list(map(one_line, node.scope)),
        "count": node.count,
        "tensors": len(node.members) + (not several),
        "value": _array(node.value),
        "gradient": _array(node.gradient),
        "parts": [
            {
                "label": _label(part),
                "operation": part.operation,
                "value": _array(part.value, several),
                "gradient": _array(part.gradient, several),
            }
            for part in node.members[:40]
        ],
    }


def _label(node: Node) -> str:
    if node.kind == "parameters":
        return f"{len(node.members)} weights"
    if node.name is None:
        return one_line(node.operation or node.kind)
    name = one_line(node.name)
    steps = [found[1] for found in map(numbered, node.scope) if found] if node.operation is not None else []
    if steps:
        return name + str(steps[-1]).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))
    return f"{name}₀" if name == "s" else name


def _line(edge: Edge) -> dict[str, Any]:
    gradients = edge.gradients()
    whole = edge.gradient
    if whole is not None or not gradients:
        return {"source": edge.source, "target": edge.target, "gradient": _array(whole, False)}
    norms = [norm(g) for g in gradients]
    return {
        "source": edge.source,
        "target": edge.target,
        "gradient": {"shape": None, "norm": plain(np.max(norms)), "data": None, "several": len(norms)},
    }


def _array(array: np.ndarray | None, entries: bool = True) -> dict[str, Any] | None:
    if array is None:
        return None
    known = array[np.isfinite(array)] if array.dtype.kind == "f" else array
    trimmed = array[0] if array.ndim > 1 and array.shape[0] == 1 else array
    return {
        "shape": list(array.shape),
        "norm": plain(norm(array)),
        "low": number(known.min()) if known.size else None,
        "high": number(known.max()) if known.size else None,
        "data": plain(trimmed) if entries and array.size <= ENTRIES else None,
    }
