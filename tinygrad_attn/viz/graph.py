"""`graph`: the picture of a computation and of the gradients in it."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from tinygrad_attn.engine import Tensor
from tinygrad_attn.viz import dot as drawing
from tinygrad_attn.viz import render
from tinygrad_attn.viz.checks import integer, patterns
from tinygrad_attn.viz.dot_label import FONT, INK, LINE
from tinygrad_attn.viz.fold import matches, scopes_of
from tinygrad_attn.viz.nodes import Edge, Node
from tinygrad_attn.viz.opened import open_all, open_named
from tinygrad_attn.viz.record import Record
from tinygrad_attn.viz.text import one_line
from tinygrad_attn.viz.tojson import as_json
from tinygrad_attn.viz.view import Boxes, View, boxes, view

DETAILS = ("model", "paper", "primitive")
LIMIT = 250


class Graph:
    """A snapshot of how a tensor was computed; made by `graph`. A notebook shows it as a picture.

    Attributes:
        notices: what the reader has to be told; it also stands below the picture.
        record: the whole snapshot, unfolded: `record.nodes` and `record.edges`.
        detail: "model", "paper" or "primitive".
    """

    def __init__(
        self,
        record: Record,
        whole: Boxes,
        drawn: Boxes,
        notices: list[str],
        detail: str,
        direction: str = "down",
    ) -> None:
        self.record = record
        self.notices = notices
        self.detail = detail
        self._boxes = whole, drawn
        self._direction = direction

    @property
    def nodes(self) -> list[Node]:
        """The tensors and boxes of several that detail and folding ask for; inputs come before their uses."""
        return self._whole.nodes

    @property
    def edges(self) -> list[Edge]:
        """The uses between the nodes."""
        return self._whole.edges

    @property
    def boxes(self) -> list[Node]:
        """The nodes that are drawn: all, or what stands for them within the limit."""
        return self._drawn.nodes

    @property
    def lines(self) -> list[Edge]:
        """The edges that are drawn."""
        return self._drawn.edges

    @cached_property
    def _whole(self) -> View:
        return view(self.record, self._boxes[0])

    @cached_property
    def _drawn(self) -> View:
        whole, drawn = self._boxes
        return self._whole if drawn is whole else view(self.record, drawn)

    def __repr__(self) -> str:
        return f"<Graph of {len(self.nodes):,} nodes and {len(self.edges):,} edges, detail={self.detail!r}>"

    def __getitem__(self, name: str) -> Node:
        """The last node of that name, or with that id."""
        for node in reversed(self.nodes):
            if name in (node.name, node.id):
                return node
        raise KeyError(f"graph: no node is called {name!r}")

    @cached_property
    def dot(self) -> Any:
        """The picture as a `graphviz.Digraph`; its text is `.dot.source`."""
        import graphviz

        output = next(node for node in self.record.nodes if node.id == self.record.output)
        name = one_line(output.name) if output.name else ""
        title = f"{name or output.operation or 'tensor'}: {self._count()}"
        digraph = graphviz.Digraph(
            "tinygrad_attn",
            graph_attr={
                "newrank": "true",  # ranks over the whole picture: steps follow one another
                "rankdir": "LR" if self._direction == "right" else "TB",
                "fontname": FONT,
                "label": drawing.legend(self.boxes, title, self.notices, self.record.traced),
                "labelloc": "b",
                "labeljust": "l",
                "nodesep": "0.3",
                "ranksep": "0.45",
                "pad": "0.2",
                "bgcolor": "#ffffff",
            },
            node_attr={
                "shape": "plain",
                "fontname": FONT,
                "fontsize": "10",
                "fontcolor": INK,
            },
            edge_attr={"fontname": FONT, "fontsize": "9", "arrowsize": "0.6", "color": LINE},
        )
        mark = name if len(name) <= 12 and not self.record.weighted else ""
        digraph.body += drawing.body(self.boxes, self.lines, self.record.opened, mark)
        return digraph

    def _count(self) -> str:
        operations = sum(node.operation is not None for node in self.record.nodes)
        drawn = f", {len(self.boxes):,} boxes" if len(self.boxes) != len(self.record.nodes) else ""
        return f"{operations:,} operation{'s' * (operations != 1)}{drawn}, detail: {self.detail}"

    def svg(self) -> str:
        """The picture as SVG. Raises RenderError where no Graphviz is found."""
        return render.render(self.dot.source, "svg").decode()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the picture: SVG, PNG, PDF or DOT, by the ending of `path`. ValueError for another."""
        render.save(self.dot.source, path)

    def to_json(self, values: int = 4096) -> dict[str, Any]:
        """The snapshot as plain dicts, lists, numbers and strings; see `tinygrad_attn.viz.tojson`.

        Args:
            values: up to how many entries an array is given in full.
        """
        return as_json(self, integer("to_json: values", values))

    def _repr_svg_(self) -> str | None:
        try:
            return self.svg()
        except (render.RenderError, ImportError):
            return None

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        try:
            return {"image/svg+xml": self.svg(), "text/plain": repr(self)}
        except (render.RenderError, ImportError) as error:
            return {"text/plain": f"{self!r}\n{error}"}


def graph(
    output: Tensor,
    *,
    detail: str = "paper",
    fold: str | Sequence[str] = (),
    open: str | Sequence[str] = (),
    limit: int | None = LIMIT,
    direction: str = "down",
) -> Graph:
    """A snapshot of how `output` was computed, with the gradients if `backward()` has been called on it.

    Args:
        output: the tensor whose computation is drawn, such as a loss.
        detail: "model" draws modules and steps as boxes; "paper" the named tensors (h, s, e, α, c, logits,
            loss) and fused operations, with what merely leads to one of them as part of it; "primitive" every
            operation, a fused one opened by running its definition on the recorded inputs.
        fold: scopes to draw as one box each, given in full (`decoder/attention`) or by their last names
            (`attention`), `*` standing for anything. Repeated steps that are folded (`step *`) are one box
            with a count.
        open: scopes to draw in the next finer level of detail.
        limit: how many boxes are drawn; beyond, repeated steps are folded, then the deepest scopes, and in
            the end what was computed first becomes one box. The picture says so. None for no limit.
        direction: "down" or "right": where the computation goes.

    A gradient that is not known is None, never zero: before `backward()`, on a leaf whose gradient was reset,
    and on constants. Where a tensor is used several times, the gradients along its edges sum to its own.

    Raises:
        TypeError: if `output` is not a Tensor, a pattern is no string, or the limit no integer.
        ValueError: for an unknown level or direction, a limit below 2, or a pattern that no scope matches.
    """
    if not isinstance(output, Tensor):
        raise TypeError(f"graph: expected a Tensor, got a {type(output).__name__}")
    if detail not in DETAILS:
        raise ValueError(f"graph: detail '{detail}' is not one of {', '.join(DETAILS)}")
    if direction not in ("down", "right"):
        raise ValueError(f"graph: direction '{direction}' is not one of down, right")
    if limit is not None and integer("graph: limit", limit) < 2:
        raise ValueError(f"graph: limit is {limit}, expected at least 2 boxes, or None")
    folds, opens = patterns("graph: fold", fold), patterns("graph: open", open)
    with _collector_paused():
        return _taken(output, detail, folds, opens, limit, direction)


def _taken(
    output: Tensor, detail: str, folds: Sequence[str], opens: Sequence[str], limit: int | None, direction: str
) -> Graph:
    record = Record(output)
    open_named(record)
    if detail == "primitive":
        open_all(record, lambda node: True)
    elif detail == "paper" and opens:
        within = {scope for scope in scopes_of(record) if matches(scope, opens)}
        open_all(record, lambda node: any(node.scope[:k] in within for k in range(1, len(node.scope) + 1)))
    scopes = scopes_of(record)
    for what, given in (("fold", folds), ("open", opens)):
        for pattern in given:
            if not any(matches(scope, (pattern,)) for scope in scopes):
                there = ", ".join("/".join(scope) for scope in scopes[:8]) or "none"
                there += ", …" if len(scopes) > 8 else ""
                raise ValueError(f"graph: {what}='{pattern}' matches no scope; there are: {there}")
    whole, drawn, notices = boxes(record, detail, folds, opens, limit)
    return Graph(record, whole, drawn, [*record.notices, *notices], detail, direction)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Keeps the collector of cycles, which finds none here, from looking through all nodes each time."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
