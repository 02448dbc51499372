"""Parts of a gradient: what flows along some paths of a record and not along others.

A whole gradient is pulled back by `backward()`. Here a part of one is pulled back, operation by operation,
with the same rules; what arrives at chosen tensors goes no further.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from heapq import heappop, heappush

import numpy as np

from tinygrad_attn.engine import Product, Tensor
from tinygrad_attn.engine.backward import walk
from tinygrad_attn.engine.modes import changed_mode
from tinygrad_attn.viz.record import Record


class Sweeper:
    """Pulls gradients back through a record."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._position = {node.id: i for i, node in enumerate(record.nodes)}
        self._into: dict[str, list[tuple[int, str]]] = {}
        for edge in record.edges:
            assert edge.slot is not None
            self._into.setdefault(edge.target, []).append((edge.slot, edge.source))

    def position(self, id: str) -> int:
        """Where the node stands in the order of the computation."""
        return self._position[id]

    def sweep(
        self, start: str, gradient: np.ndarray, stops: AbstractSet[str], within: AbstractSet[str]
    ) -> dict[str, np.ndarray]:
        """What arrives at each of `stops` when `gradient` leaves `start`, on paths that pass none of them.

        Args:
            start: a node's id; it may be one of `stops`.
            gradient: a gradient for it, whole or a part.
            stops: where gradients are collected and go no further.
            within: the nodes that lead to stops (`leading`); nothing is pulled back to others.
        """
        arrived: dict[str, np.ndarray] = {}
        pending = {start: gradient}
        heap = [-self._position[start]]
        while heap:
            id = self._record.nodes[-heappop(heap)].id
            g = pending.pop(id)
            if id in stops and id != start:
                arrived[id] = g
                continue
            for source, part in self._pulled(id, g):
                if source not in within:
                    continue
                if source in pending:
                    pending[source] = pending[source] + part
                else:
                    pending[source] = part
                    heappush(heap, -self._position[source])
        return arrived

    def leading(self, stops: AbstractSet[str]) -> set[str]:
        """The nodes that are among `stops` or computed from one of them."""
        found = set(stops)
        for node in self._record.nodes:
            if any(source in found for _, source in self._into.get(node.id, ())):
                found.add(node.id)
        return found

    def _pulled(self, id: str, g: np.ndarray) -> list[tuple[str, np.ndarray]]:
        """The gradients for the inputs of one operation, given one for its value."""
        tensor = self._record.tensors[id]
        if tensor._primitive is None:
            return []
        pulled: dict[int, np.ndarray] = {}

        def note(_: Tensor, slot: int, gradient: np.ndarray | Product) -> None:
            pulled[slot] = gradient.value() if isinstance(gradient, Product) else gradient.copy()

        inputs = [x for x in tensor._inputs if isinstance(x, Tensor) and x._tracked]
        with changed_mode(watcher=None, recording=False), np.errstate(all="ignore"):
            walk(
                tensor,
                np.asarray(g, tensor.data.dtype),
                wanted=inputs,
                within=True,
                revisit=True,
                observe=note,
            )
        return [(source, pulled[slot]) for slot, source in self._into[id] if slot in pulled]
