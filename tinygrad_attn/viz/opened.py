"""Fused operations opened: their definitions, run on what the kernels were given, in place of single nodes.

An operation whose definition names tensors of the papers (the decoder over a whole target names e, α, c and
s) is always opened, one level deep: those names are what a reader looks for. The others are opened where
every operation is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinygrad_attn.engine import Fused, Primitive, Tensor
from tinygrad_attn.engine.backward import walk
from tinygrad_attn.engine.modes import Scope, changed_mode
from tinygrad_attn.engine.tensor import leaf
from tinygrad_attn.viz.fold import numbered
from tinygrad_attn.viz.nodes import Edge, Node, Path
from tinygrad_attn.viz.record import Record, computed_before, kept, path_of

_NOTICE = (
    "Fused operations are opened: what is drawn of them is their definition, run once more on the recorded "
    "inputs{}. The computation itself used the kernel, which gives the same."
)


def open_named(record: Record) -> None:
    """Opens the fused operations whose definitions name tensors; their scopes continue those around."""
    naming: dict[Primitive, bool] = {}

    def inside(node: Node, into: list[Edge]) -> _Inside | None:
        primitive: Any = record.tensors[node.id]._primitive
        if not naming.get(primitive, True):
            return None
        found = _Inside(record, node, into, record.tensors[node.id]._scope, explicit=False)
        naming[primitive] = any(tensor.name is not None for tensor in found.operations)
        return found if naming[primitive] else None

    _replace(record, inside)


def open_all(record: Record, chosen: Callable[[Node], bool]) -> None:
    """Opens the fused operations that are `chosen` down to primitives, each in a scope of its own name."""
    taken: dict[Path, int] = {}

    def inside(node: Node, into: list[Edge]) -> _Inside | None:
        if not chosen(node):
            return None
        tensor = record.tensors[node.id]
        assert tensor._primitive is not None
        name = tensor._primitive.name
        path = (*node.scope, name)
        times = taken[path] = taken.get(path, 0) + 1
        if times > 1 or numbered(name):  # a number at its end would make it a step
            name = f"{name} ({times})"
        found = _Inside(record, node, into, Scope(tensor._scope, name), explicit=True)
        record.opened.add((*node.scope, name))
        return found

    _replace(record, inside)


def _replace(record: Record, inside: Callable[[Node, list[Edge]], _Inside | None]) -> None:
    into: dict[str, list[Edge]] = {}
    for edge in record.edges:
        into.setdefault(edge.target, []).append(edge)
    nodes: list[Node] = []
    edges: list[Edge] = []
    for node in record.nodes:
        arriving = into.get(node.id, [])
        found = inside(node, arriving) if isinstance(record.tensors[node.id]._primitive, Fused) else None
        if found is None or not found.operations:
            nodes.append(node)
            edges += arriving
        else:
            found.add_to(nodes, edges)
            notice = _NOTICE.format(" and with the gradient that had arrived" if record.traced else "")
            if notice not in record.notices:
                record.notices.append(notice)
    record.nodes, record.edges = nodes, edges


class _Inside:
    """The definition of a fused operation, run on stand-ins for its inputs."""

    def __init__(
        self, record: Record, node: Node, into: list[Edge], scope: Scope | None, explicit: bool
    ) -> None:
        self._record = record
        self._node = node
        tensor = record.tensors[node.id]
        primitive = tensor._primitive
        assert isinstance(primitive, Fused)
        given = list(tensor._arrays)
        self._ids: dict[Tensor, str] = {}
        stand_ins: dict[str, Tensor] = {}
        for edge in into:
            assert edge.slot is not None
            if edge.source not in stand_ins:
                stand_in = stand_ins[edge.source] = leaf(given[edge.slot], tensor._inputs[edge.slot].name)
                stand_in._tracked = tensor._inputs[edge.slot]._tracked
                self._ids[stand_in] = edge.source
            given[edge.slot] = stand_ins[edge.source]
        self._flowed: dict[tuple[Tensor, int], Any] = {}
        self._totals: dict[Tensor, Any] = {}
        # Looking is no computation of the user's: nothing watches it, and what it meets (overflow, NaN) is in
        # the picture.
        with (
            changed_mode(recording=True, explicit=explicit, watcher=None, scope=scope),
            np.errstate(all="ignore"),
        ):
            output = primitive.definition(*given, **tensor._static)
            self.operations = computed_before(output) if isinstance(output, Tensor) else []
            if record.traced and node.gradient is not None and self.operations:
                wanted = [*self.operations, *(x for x in stand_ins.values() if x._tracked)]
                self._totals = walk(output, node.gradient, wanted=wanted, observe=self._note)

    def _note(self, tensor: Tensor, slot: int, gradient: Any) -> None:
        self._flowed[tensor, slot] = kept(gradient)

    def add_to(self, nodes: list[Node], edges: list[Edge]) -> None:
        """Adds the operations; the last takes the place of the fused one."""
        whole, ids = self._node, self._ids
        known: dict[int, Path] = {}
        for number, tensor in enumerate(self.operations):
            last = number == len(self.operations) - 1
            primitive = tensor._primitive
            assert primitive is not None
            path = path_of(tensor._scope, known)
            ids[tensor] = whole.id if last else f"{whole.id}_{number}"
            for slot, x in enumerate(tensor._inputs):
                if isinstance(x, Tensor) and x not in ids:  # a constant of the definition's own
                    ids[x] = f"{whole.id}_{number}_{slot}"
                    nodes.append(Node(ids[x], "constant", x.name, None, x.data, None, path))
                    self._record.tensors[ids[x]] = x
            kind = "fused" if isinstance(primitive, Fused) else "operation"
            nodes.append(
                Node(
                    ids[tensor],
                    "output" if last and whole.kind == "output" else kind,
                    whole.name if last and whole.name is not None else tensor.name,
                    primitive.name,
                    whole.value if last else tensor.data,
                    whole.gradient if last else self._totals.get(tensor),
                    path,
                    tensor._static,
                    [x for x in tensor._inputs if not isinstance(x, Tensor)],
                )
            )
            self._record.tensors[ids[tensor]] = tensor
            edges += [
                Edge(ids[x], ids[tensor], slot, self._flowed.get((tensor, slot)))
                for slot, x in enumerate(tensor._inputs)
                if isinstance(x, Tensor)
            ]
