"""The snapshot of a computation: its tensors as nodes, each use of one by an operation as an edge.

It is read off the graph that the engine keeps anyway, so recording costs nothing. After `backward()` the
gradients are found by walking the graph once more with the gradient that the output kept; no `.grad` is
touched.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad_attn.engine import Fused, Product, Tensor
from tinygrad_attn.engine.backward import walk
from tinygrad_attn.engine.modes import Scope, changed_mode
from tinygrad_attn.viz.nodes import Edge, Node, Path, shared_scope
from tinygrad_attn.viz.text import one_line

NO_GRADIENTS = "No gradients: backward() has not been called on this tensor."


class Record:
    """The nodes and edges of a computation, inputs before what is computed from them.

    Attributes:
        nodes: the tensors.
        edges: their uses, by the order of what uses them.
        output: the id of what the record was taken of.
        tensors: the tensors themselves, by the nodes' ids.
        opened: the scopes that stand for a fused operation whose definition was run.
        notices: what the reader of a picture has to be told.
        traced: whether the gradients along the edges are known.
        weighted: whether the gradients are not the output's own, but weighted by one that it holds.
    """

    def __init__(self, output: Tensor) -> None:
        self.nodes: list[Node] = []
        self.edges: list[Edge] = []
        self.tensors: dict[str, Tensor] = {}
        self.opened: set[Path] = set()
        self.notices: list[str] = []
        operations = computed_before(output)
        self.traced, seen, seed = _judged(output, operations, self.notices)
        self.weighted = seed is not None and not np.all(np.asarray(seed) == 1)
        flowed: dict[tuple[Tensor, int], Any] = {}
        totals: dict[Tensor, Any] = {}
        if self.traced:
            totals = _gradients(output, seed, operations, flowed)
        ids: dict[Tensor, str] = {}
        paths: dict[int, Path] = {}
        for tensor in operations:
            used, constants = [], []
            for slot, x in enumerate(tensor._inputs):
                if isinstance(x, Tensor):
                    used.append((slot, x))
                    if x._primitive is None and x not in ids:
                        self._add_leaf(x, ids, seen, totals)
                else:
                    constants.append(x)
            primitive: Any = tensor._primitive
            kind = "output" if tensor is output else "fused" if isinstance(primitive, Fused) else "operation"
            # What a tensor holds by itself is another output's, unless this one has been gone back from.
            gradient = totals.get(tensor) if self.traced else tensor.grad if seed is not None else None
            target = f"n{len(ids)}"
            path = path_of(tensor._scope, paths)
            node = Node(
                target,
                kind,
                tensor.name,
                primitive.name,
                tensor.data,
                gradient,
                path,
                tensor._static,
                constants,
            )
            self._add(tensor, ids, node)
            for slot, x in used:
                if x in ids:  # it is not if it was written in place, against the rules, after it was computed
                    self.edges.append(Edge(ids[x], target, slot, flowed.get((tensor, slot))))
        if not operations:
            self._add_leaf(output, ids, seen, {} if output.grad is None else {output: output.grad})
        self.output = ids[output]
        self._place_leaves()
        self._note_foreign(totals)

    @classmethod
    def of_parts(cls, nodes: list[Node], edges: list[Edge], output: str) -> Record:
        """A record of given nodes and edges, whose gradients are known."""
        record = cls.__new__(cls)
        record.nodes, record.edges, record.output = nodes, edges, output
        record.tensors, record.opened, record.notices = {}, set(), []
        record.traced, record.weighted = True, False
        return record

    def _add(self, tensor: Tensor, ids: dict[Tensor, str], node: Node) -> None:
        ids[tensor] = node.id
        self.nodes.append(node)
        self.tensors[node.id] = tensor

    def _add_leaf(
        self, x: Tensor, ids: dict[Tensor, str], seen: dict[Tensor, np.ndarray], totals: dict[Tensor, Any]
    ) -> None:
        gradient = totals.get(x) if x.grad is not None else None
        kind = "leaf" if x._tracked else "constant"
        # A copy: parameters are written in place when they are trained.
        self._add(x, ids, Node(f"n{len(ids)}", kind, x.name, None, seen.get(x, x.data).copy(), gradient, ()))

    def _place_leaves(self) -> None:
        """Gives each leaf the scope that all its uses share."""
        scopes = {node.id: node.scope for node in self.nodes}
        shared: dict[str, Path] = {}
        for edge in self.edges:
            scope = scopes[edge.target]
            shared[edge.source] = shared_scope(shared[edge.source], scope) if edge.source in shared else scope
        for node in self.nodes:
            if node.operation is None:
                node.scope = shared.get(node.id, ())

    def _note_foreign(self, totals: dict[Tensor, Any]) -> None:
        """Says so where a leaf has collected gradients of other outputs besides this one's."""
        mixed = [
            x
            for x, gradient in totals.items()
            if x._primitive is None and x.grad is not None and not _alike(x.grad, gradient)
        ]
        if mixed:
            self.notices.append(
                f"{_named(mixed)} hold{'s' if len(mixed) == 1 else ''} in .grad more than this output's "
                "gradient; the picture shows this output's share."
            )


def computed_before(output: Tensor) -> list[Tensor]:
    """The computed tensors that `output` was made from, itself included, in the order of computation."""
    if output._primitive is None:
        return []
    found = {output}
    stack = [output]
    while stack:
        for x in stack.pop()._inputs:
            if isinstance(x, Tensor) and x._primitive is not None and x not in found:
                found.add(x)
                stack.append(x)
    return sorted(found, key=lambda tensor: tensor._number)


def _judged(
    output: Tensor, operations: list[Tensor], notices: list[str]
) -> tuple[bool, dict[Tensor, np.ndarray], Any]:
    """(Whether gradients can be traced, each leaf's array at its first use, the gradient to start with)."""
    seen: dict[Tensor, np.ndarray] = {}
    written: dict[Tensor, None] = {}
    for tensor in operations:
        for x, array in zip(tensor._inputs, tensor._arrays, strict=True):
            if isinstance(x, Tensor):
                if x._primitive is None:
                    seen.setdefault(x, array)
                if x._number > tensor._number or x.data.shape != array.shape:
                    written[x] = None
    if written:
        notices.append(
            f"{_named(list(written))} {'was' if len(written) == 1 else 'were'} written after this was "
            "computed (by an optimiser, perhaps): the values shown there are the new ones, and the gradients "
            "along the edges cannot be traced. Draw between backward() and the optimiser's step."
        )
    elif not operations:
        if not output._tracked:
            notices.append(
                "Nothing was recorded: this is a constant, was detached, or was computed under no_grad."
            )
    elif output.grad is None:
        notices.append(NO_GRADIENTS)
    return bool(operations) and not written and output.grad is not None, seen, output.grad


def _gradients(
    output: Tensor, seed: Any, operations: list[Tensor], flowed: dict[tuple[Tensor, int], Any]
) -> dict[Tensor, Any]:
    """The gradient of every tensor, and in `flowed` the one along each edge."""

    def note(tensor: Tensor, slot: int, gradient: Any) -> None:
        flowed[tensor, slot] = kept(gradient)

    wanted = {x for tensor in operations for x in tensor._inputs if isinstance(x, Tensor) and x._tracked}
    # Looking is no computation of the user's: nothing watches it, and what it meets (overflow, NaN) is in the
    # picture.
    with changed_mode(watcher=None, recording=False), np.errstate(all="ignore"):
        return walk(output, np.asarray(seed), wanted=[output, *wanted], revisit=True, observe=note)


def kept(gradient: Any) -> Any:
    """A gradient that stays what it is: kernels may use their arrays again once a walk has moved on."""
    if type(gradient) is Product:
        return Product(gradient.left.copy(), None if gradient.right is None else gradient.right.copy())
    return np.array(gradient)


def path_of(scope: Scope | None, known: dict[int, Path]) -> Path:
    """The names of a scope, outermost first; `known` holds those found before, by identity."""
    if scope is None:
        return ()
    found = known.get(id(scope))
    if found is None:
        found = known[id(scope)] = tuple(scope.names())
    return found


def _alike(a: np.ndarray, b: np.ndarray) -> bool:
    with np.errstate(all="ignore"):
        scale = np.max(np.abs(b), initial=0)
        return bool(
            np.allclose(a, b, rtol=1e-3, atol=1e-4 * scale if np.isfinite(scale) else 0, equal_nan=True)
        )


def _named(tensors: list[Tensor]) -> str:
    names = [one_line(x.name) if x.name else f"a tensor of shape {x.shape}" for x in tensors[:3]]
    more = [f"{len(tensors) - 3} more"] if len(tensors) > 3 else []
    return ", ".join(names + more)
