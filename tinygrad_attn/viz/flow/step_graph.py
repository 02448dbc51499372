"""The gradient flow of one step as a graph of the named tensors alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tinygrad_attn.viz.graph import Graph
from tinygrad_attn.viz.nodes import Edge
from tinygrad_attn.viz.record import Record
from tinygrad_attn.viz.view import Boxes

if TYPE_CHECKING:
    from tinygrad_attn.viz.flow.flow import GradientFlow


def step_graph(flow: GradientFlow, step: int) -> Graph:
    """See `GradientFlow.graph`."""
    wanted = {"loss", f"s{step - 1}", f"h̃{step}"} | {f"{role}{step}" for role in ("s", "c", "α", "e")}
    for role in ("h", "logits", "α", "e", "c"):
        labels = flow.role(role)
        wanted.update(labels if role == "h" or len(labels) == 1 else [f"{role}{step}"])
    labels = [label for label in reversed(flow.labels) if label in wanted]
    nodes = []
    for i, label in enumerate(labels):
        # Ids that DOT reads without quotes; the numbers of the labels become subscripts.
        nodes.append(replace(flow.node(label), id=f"f{i}", name=subscripted(label), scope=(), members=()))
    ids = {label: node.id for label, node in zip(labels, nodes, strict=True)}
    edges = _used_edges(flow, labels)
    for edge in edges:
        edge.source, edge.target = ids[edge.source], ids[edge.target]
    notice = (
        f"Step {step} of {flow.count}: the gradient flows against the arrows. A line is all that flows "
        "from one named tensor to another without passing a third; what comes from other steps is not drawn."
    )
    record = Record.of_parts(nodes, edges, ids["loss"])
    boxes: Boxes = {node.id: node.id for node in nodes}
    return Graph(record, boxes, boxes, [notice], "flow")


def subscripted(label: str) -> str:
    """A label as the papers write it: s₂ for "s2"."""
    return label.translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))


def _used_edges(flow: GradientFlow, labels: Sequence[str]) -> list[Edge]:
    """The links among the labels, as edges between nodes of that id."""
    among = set(labels)
    return [
        Edge(used, user, 0, part)
        for (user, used), part in flow.links.items()
        if used in among and user in among
    ]
