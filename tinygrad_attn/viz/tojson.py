"""A graph as plain data, for pages and other programs.

    {"format": 1, "detail": ..., "output": id, "traced": bool, "notices": [...],
     "nodes": [{"id", "box", "kind", "name", "operation", "settings", "scope": [...],
                "value": A, "gradient": A | null}],
     "edges": [{"source", "target", "slot", "gradient": A | null}],
     "boxes": [{"id", "kind", "name", "scope", "count", "members": [ids]}],
     "lines": [{"source", "target", "edges": [numbers of edges]}]}

`nodes` and `edges` are the whole snapshot, `boxes` and `lines` what the picture draws of it. An array A is
{"shape", "dtype", "norm", "min", "max", "nan", "inf", "data"}: `min` and `max` of the finite entries (of
complex ones their sizes), null if there are none; how many are NaN and infinite; `data` the entries, row by
row, null if there are too many or they are complex. Numbers that are not finite are the strings "NaN",
"Infinity" and "-Infinity".
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tinygrad_attn.viz.text import norm

if TYPE_CHECKING:
    from tinygrad_attn.viz.graph import Graph


def as_json(graph: Graph, values: int) -> dict[str, Any]:
    """See `Graph.to_json`."""
    record = graph.record
    box = {
        member.id: node.id
        for node in graph.boxes
        for member in (node.members if node.value is None else (node, *node.members))
    }
    numbers = {(edge.source, edge.target, edge.slot): i for i, edge in enumerate(record.edges)}
    return {
        "format": 1,
        "detail": graph.detail,
        "output": record.output,
        "traced": record.traced,
        "notices": list(graph.notices),
        "nodes": [
            {
                "id": node.id,
                "box": box[node.id],
                "kind": node.kind,
                "name": node.name,
                "operation": node.operation,
                "settings": node.settings,
                "scope": list(node.scope),
                "value": array_json(node.value, values),
                "gradient": array_json(node.gradient, values),
            }
            for node in record.nodes
        ],
        "edges": [
            {
                "source": edge.source,
                "target": edge.target,
                "slot": edge.slot,
                "gradient": array_json(edge.gradient, values),
            }
            for edge in record.edges
        ],
        "boxes": [
            {
                "id": node.id,
                "kind": node.kind,
                "name": node.name,
                "scope": list(node.scope),
                "count": node.count,
                "members": [
                    member.id for member in (node.members if node.value is None else (node, *node.members))
                ],
            }
            for node in graph.boxes
        ],
        "lines": [
            {
                "source": edge.source,
                "target": edge.target,
                "edges": [numbers[part.source, part.target, part.slot] for part in edge.parts or (edge,)],
            }
            for edge in graph.lines
        ],
    }


def array_json(array: np.ndarray | None, values: int) -> dict[str, Any] | None:
    """An array as plain data."""
    if array is None:
        return None
    real = array.dtype.kind != "c"
    finite = array[np.isfinite(array)] if array.dtype.kind in "fc" else array
    ends = finite if real else np.abs(finite)
    return {
        "shape": list(array.shape),
        "dtype": str(array.dtype),
        "norm": _plain(norm(array)),
        "min": _plain(ends.min()) if ends.size else None,
        "max": _plain(ends.max()) if ends.size else None,
        "nan": int(np.isnan(array).sum()) if array.dtype.kind in "fc" else 0,
        "inf": int(np.isinf(array).sum()) if array.dtype.kind in "fc" else 0,
        "data": [_plain(x) for x in array.ravel()] if real and array.size <= values else None,
    }


def _plain(x: Any) -> Any:
    if isinstance(x, (bool, np.bool_)):
        return bool(x)
    if isinstance(x, (int, np.integer)):
        return int(x)
    if math.isfinite(x):
        # The shortest digits that give the number back, in its own precision.
        return float(str(x)) if isinstance(x, np.floating) else float(x)
    return "NaN" if math.isnan(x) else "Infinity" if x > 0 else "-Infinity"
