"""What `gradient_flow` gives: the gradients by the names of the papers, their parts and their paths."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from tinygrad_attn.viz.flow.figure import flow_figure
from tinygrad_attn.viz.flow.layout import Layout
from tinygrad_attn.viz.flow.roles import ROLES, normal, number_in, role_of
from tinygrad_attn.viz.flow.step_figure import step_figure
from tinygrad_attn.viz.flow.step_graph import step_graph
from tinygrad_attn.viz.flow.sweep import Sweeper
from tinygrad_attn.viz.flow.table import overview, step_table
from tinygrad_attn.viz.graph import Graph
from tinygrad_attn.viz.nodes import Node
from tinygrad_attn.viz.record import Record
from tinygrad_attn.viz.text import norm

if TYPE_CHECKING:
    from tinygrad_attn.viz.picture import Picture

_MOST_PATHS = 20_000
_NAMED = 40  # labels in a message

# What reaches a tensor through a use by ...: for an annotation h and for a state s.
_PARTS = {
    "h": {"c": "value", "e": "key", "s": "state"},
    "s": {"e": "scores", "s": "recurrence", "h̃": "output", "logits": "output", "loss": "output"},
}


@dataclass(frozen=True)
class Path:
    """A path of the gradient from one named tensor to another.

    Attributes:
        labels: the named tensors on the way, from the loss's side on: ("loss", "logits", "c2", "h").
        gradient: the gradient that flows along this path alone, of the last tensor's shape.
    """

    labels: tuple[str, ...]
    gradient: np.ndarray

    def __str__(self) -> str:
        return " → ".join(self.labels)


class GradientFlow:
    """The gradients of an attention model by the names of the papers, and the parts they are made of.

    Labels are the names with the number of the step: "loss", "logits", "s0", "c1", "α1" (or "alpha1"), "e1",
    "h"; what there is once has no number.

    Attributes:
        labels: all of them, from the loss on back.
        count: N, how many steps there are.
        links: (used by, tensor) -> the gradient that reaches the tensor through that use, on paths that no
            other named tensor lies on; over all uses they sum to the tensor's gradient.
        example: which sequence of the batch tables and figures show.
        layout: which axes of the tensors are the batch and the steps.
    """

    def __init__(
        self, record: Record, roles: Mapping[str, Sequence[tuple[str, int | None]]], example: int
    ) -> None:
        self._record = record
        self._sweeper = Sweeper(record)
        self._nodes = {node.id: node for node in record.nodes}
        self._ids: dict[str, str] = {"loss": record.output}
        self._roles: dict[str, list[str]] = {"loss": ["loss"]}
        for role, found in roles.items():
            labels = [role if number is None else f"{role}{number}" for _, number in found]
            self._roles[role] = labels
            self._ids.update(zip(labels, (id for id, _ in found), strict=True))
        self._labels = {id: label for label, id in self._ids.items()}
        self.labels = sorted(self._ids, key=lambda label: -self._sweeper.position(self._ids[label]))
        weights = self._roles.get("α") or self._roles["e"]
        self.layout = Layout([*map(self.value, weights)], [*map(self.value, self.role("h"))], example)
        self.example, self.count = self.layout.example, self.layout.count
        self._stops = set(self._labels)
        self._within = self._sweeper.leading(self._stops)
        self.links: dict[tuple[str, str], np.ndarray] = {}
        self._uses: dict[str, list[tuple[str, np.ndarray]]] = {}  # the links of each tensor
        for label in self.labels:
            gradient = self._nodes[self._ids[label]].gradient
            if gradient is not None:
                for id, part in self._sweeper.sweep(
                    self._ids[label], gradient, self._stops, self._within
                ).items():
                    self.links[label, self._labels[id]] = part
                    self._uses.setdefault(self._labels[id], []).append((label, part))

    def role(self, name: str) -> list[str]:
        """The labels of all steps of "h", "s", "e", "α" (or "alpha"), "c", "h̃" or "logits", in order, if
        there are any. KeyError for another name."""
        role = normal(name)
        if role not in ("loss", *ROLES):
            raise KeyError(f"gradient_flow: there is no role {name!r}; there are loss, {', '.join(ROLES)}")
        return list(self._roles.get(role, ()))

    def node(self, label: str) -> Node:
        """The tensor in the record."""
        return self._nodes[self._id(label)]

    def value(self, label: str) -> np.ndarray:
        """The tensor itself."""
        value = self.node(label).value
        assert value is not None
        return value

    def gradient(self, label: str) -> np.ndarray:
        """∂loss/∂(the tensor), of its shape. Zeros where no gradient arrived."""
        gradient = self.node(label).gradient
        return np.zeros_like(self.value(label)) if gradient is None else gradient

    def parts(self, label: str, step: int | None = None) -> dict[str, np.ndarray]:
        """The gradient by what it came through; the parts sum to the whole. With `step`, of that step alone.

        For an annotation h: "value" (through c), "key" (through e), "state" (through s_0, which the encoder's
        last state starts). For a state s: "scores" (through e), "recurrence" (through the next state),
        "output" (through the logits, or h̃). For others, the names of what uses them.

        Raises:
            KeyError: for a label that is not there.
            ValueError: for a step that is not there, or where one tensor holds all steps.
        """
        label, step = self.label(label), None if step is None else self.layout.checked(step)
        names = _PARTS.get(role_of(label), {})
        found: dict[str, np.ndarray] = {}
        for user, part in self._uses.get(label, ()):
            if step in (None, number_in(user)):
                name = names.get(role_of(user), role_of(user))
                found[name] = found[name] + part if name in found else part
        return found

    def path(self, *labels: str) -> np.ndarray:
        """The gradient from the first tensor to the last along paths that meet just these named ones.

        It starts with the whole gradient of the first: `path("loss", "logits", "c2", "h")`.

        Raises:
            KeyError: for a label that is not there.
            ValueError: for fewer than two labels, and where there is no such path.
        """
        if len(labels) < 2:
            raise ValueError(f"path: the labels are {labels}, expected the two ends at least")
        ids = [self._id(label) for label in labels]
        gradient = self.gradient(labels[0])
        for here, there in pairwise(ids):
            arrived = self._sweeper.sweep(here, gradient, self._stops, self._within)
            if there not in arrived:
                first = _listed([self._labels[id] for id in arrived]) or "no named tensor"
                came = f"from {self._labels[here]} the gradient comes to {first} first"
                raise ValueError(f"path: {came}, not to {self._labels[there]}")
            gradient = arrived[there]
        return gradient

    def paths(self, start: str, end: str) -> list[Path]:
        """All paths from `start` to `end`, each with what flows along it; they sum to `between`.

        Raises:
            KeyError: for a label that is not there.
            ValueError: if there are more than 20,000; their number grows exponentially with the steps.
        """
        first, last = self._id(start), self._id(end)
        if self._path_count(self._labels[first], self._labels[last]) > _MOST_PATHS:
            raise ValueError(
                f"paths: there are more than {_MOST_PATHS:,} from {start} to {end}; ask path() for one"
            )
        towards = self._sweeper.leading({last})
        found: list[Path] = []
        stack: list[tuple[tuple[str, ...], np.ndarray]] = [((self._labels[first],), self.gradient(start))]
        while stack:
            labels, gradient = stack.pop()
            here = self._ids[labels[-1]]
            if here == last and len(labels) > 1:
                found.append(Path(labels, gradient))
                continue
            for id, part in self._sweeper.sweep(here, gradient, self._stops, towards).items():
                stack.append(((*labels, self._labels[id]), part))
        return sorted(found, key=lambda path: path.labels)

    def _path_count(self, start: str, end: str) -> int:
        """How many paths there are, without following them."""
        ways = dict.fromkeys(self.labels, 0)
        ways[start] = 1
        for used in self.labels[self.labels.index(start) + 1 :]:  # what uses a tensor comes before it
            ways[used] = sum(ways[user] for user, other in self.links if other == used and user != end)
        return ways[end]

    def between(self, start: str, end: str) -> np.ndarray:
        """The gradient that flows from `start` to `end` on all paths; from "loss", the whole of it."""
        first, last = self._id(start), self._id(end)
        found = self._sweeper.sweep(first, self.gradient(start), {last}, self._sweeper.leading({last}))
        return found.get(last, np.zeros_like(self.value(end)))

    def norms(self, role: str) -> list[float]:
        """The Euclidean norm of ∂loss/∂(each step's tensor), for the example: where it vanishes or explodes.

        For "h" one for each source position.
        """
        return [norm(row) for row in self.rows(role)]

    def rows(self, role: str, part: str | None = None, step: int | None = None) -> list[np.ndarray]:
        """∂loss/∂(each step's tensor), or a `part` of it, for the example; for "h" by source position.

        None for a role whose tensors are constants, such as weights that no score made.

        Raises:
            KeyError: for a role or a part that is not there.
        """
        if part is not None and part not in (there := self.part_names(role)):
            raise KeyError(
                f"gradient_flow: {role} has no part {part!r}, only {_listed(there) or 'the whole'}"
            )
        labels = self.role(role)
        if all(self.node(label).kind == "constant" for label in labels):
            return []
        return self.layout.split(role, [self._array(label, part, step) for label in labels])

    def values(self, role: str) -> list[np.ndarray]:
        """Each step's tensor itself, for the example; for "h" by source position."""
        return self.layout.split(role, [self.value(label) for label in self.role(role)])

    def steps(self, role: str) -> list[int]:
        """The numbers of the steps that `values` are of."""
        labels, count = self.role(role), len(self.values(role))
        numbers = [number_in(label) for label in labels] if count == len(labels) else [None] * count
        return [place if number is None else number for place, number in enumerate(numbers, 1)]

    def part_names(self, role: str, step: int | None = None) -> list[str]:
        """Which parts the gradients of "h" or "s" have; with `step`, those that come through it alone."""
        return [*dict.fromkeys(name for label in self.role(role) for name in self.parts(label, step))]

    def table(self, step: int | None = None) -> str:
        """The gradients as text: of one step (from 1), by entry if there are few, or norms by step."""
        return overview(self) if step is None else step_table(self, self.layout.checked(step))

    def figure(
        self,
        source: Sequence[str] | None = None,
        target: Sequence[str] | None = None,
        step: int | None = None,
    ) -> Picture:
        """∂loss/∂α and ∂loss/∂e as matrices, norms of ∂loss/∂s over steps and of ∂loss/∂h over the source.

        Args:
            source: the source tokens, for the axes; their positions if None.
            target: the target tokens.
            step: this step (from 1) alone: ∂loss/∂α and ∂loss/∂e by source position, the norms of ∂loss/∂s
                before and after it, and of what it sends to each h.

        Returns:
            A matplotlib Figure that shows itself in a notebook; `.save(path)` writes SVG, PNG or PDF.
        """
        if step is None:
            return flow_figure(self, source, target)
        return step_figure(self, self.layout.checked(step), source, target)

    def graph(self, step: int) -> Graph:
        """How the gradient travels through one step (from 1), as a graph of the named tensors alone."""
        return step_graph(self, self.layout.checked(step))

    def save(
        self,
        path: str | os.PathLike[str],
        source: Sequence[str] | None = None,
        target: Sequence[str] | None = None,
        step: int | None = None,
    ) -> None:
        """Writes `figure` to a file: SVG, PNG or PDF by its ending."""
        self.figure(source, target, step).save(path)

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        labels = f": {', '.join(self.labels)}" if len(self.labels) < 30 else ""
        return f"<GradientFlow of {self.count} step{'s' * (self.count != 1)}{labels}>"

    def _repr_svg_(self) -> str:
        return self.figure().svg()

    def _array(self, label: str, part: str | None, step: int | None) -> np.ndarray:
        if part is None:
            return self.gradient(label)
        return self.parts(label, step).get(part, np.zeros_like(self.value(label)))

    def label(self, name: str) -> str:
        """The label that `name` stands for: "alpha 2" and "α₂" are "α2". KeyError if there is none."""
        label = normal(name)
        if label not in self._ids:
            raise KeyError(f"gradient_flow: there is no {name!r}; there are {_listed(self.labels)}")
        return label

    def _id(self, name: str) -> str:
        return self._ids[self.label(name)]


def _listed(labels: Sequence[str]) -> str:
    return ", ".join([*labels[:_NAMED], *["…"] * (len(labels) > _NAMED)])
