"""What a snapshot and a picture are made of: nodes and edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tinygrad_attn.engine import Product
from tinygrad_attn.viz.text import settings_text

Path = tuple[str, ...]


def shared_scope(a: Path, b: Path) -> Path:
    """The innermost scope that both are, or lie within."""
    if a == b:
        return a
    length = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return a[:length]


@dataclass(slots=True)
class Node:
    """A tensor of the computation, or (in a picture) a box that stands for several.

    Attributes:
        id: unique in the graph, and the same in every picture of the same computation at the same level of
            detail.
        kind: "leaf" (collects a gradient), "constant" (a tensor that needs none), "operation", "fused",
            "output", or for a box of several "module", "steps", "parameters" or "earlier".
        name: the tensor's, or the box's title.
        operation: what computed it; None for leaves, constants and boxes of several.
        value: its array; None for a box of several.
        gradient: of the same shape; None where no gradient is known, which is not a gradient of zero.
        scope: the names it was recorded under, outermost first: ("decoder", "step 2", "attention").
        settings: the operation's settings and constants, as they are shown: `axis=(1,)`.
        members: the nodes that a box of several stands for, or that are shown as part of this one.
        count: how many repeated steps a box of several stands for.
    """

    id: str
    kind: str
    name: str | None
    operation: str | None
    value: np.ndarray | None
    gradient: np.ndarray | None
    scope: Path
    static: Mapping[str, Any] = field(default_factory=dict, repr=False)
    constants: Sequence[Any] = field(default=(), repr=False)
    members: tuple[Node, ...] = field(default=(), repr=False)
    count: int = 1

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The value's shape."""
        return None if self.value is None else self.value.shape

    @property
    def settings(self) -> str:
        """The operation's settings and constants in a few characters."""
        return settings_text(self.static, self.constants)


class Edge:
    """The use of a tensor as an input of an operation, or (in a picture) a line that stands for several uses.

    Attributes:
        source: the id of the node that is used.
        target: the id of the node that uses it.
        slot: which input of the operation it is; None for a line that stands for several.
        parts: the uses that the line stands for; empty for a single one.
    """

    __slots__ = ("_gradient", "parts", "slot", "source", "target")

    def __init__(
        self, source: str, target: str, slot: int | None, gradient: Any = None, parts: tuple[Edge, ...] = ()
    ) -> None:
        self.source = source
        self.target = target
        self.slot = slot
        self.parts = parts
        self._gradient = gradient  # an array, or a product of two that is carried out when it is asked for

    def __repr__(self) -> str:
        slot = f", slot={self.slot}" if self.slot is not None else f", parts={len(self.parts)}"
        return f"Edge({self.source!r} -> {self.target!r}{slot})"

    @property
    def gradient(self) -> np.ndarray | None:
        """The gradient that flowed along this very edge, of the used tensor's shape.

        None where no gradient is known; also for a line on which several tensors travel (see `parts`).
        """
        if not self.parts:
            return self._gradient.value() if type(self._gradient) is Product else self._gradient
        if any(part.source != self.parts[0].source for part in self.parts):
            return None
        flowed = [g for g in (part.gradient for part in self.parts) if g is not None]
        total: np.ndarray | None = None
        for g in flowed:
            total = g if total is None else np.asarray(total + g)
        return total

    def gradients(self) -> list[np.ndarray]:
        """The gradients of all uses that the edge stands for, where known."""
        gradient = self.gradient
        if gradient is not None:
            return [gradient]
        return [g for part in self.parts for g in part.gradients()]
