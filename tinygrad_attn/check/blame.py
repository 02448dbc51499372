"""Which operation is at fault: every rule a gradient passed, checked on its own with the arrays it met."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tinygrad_attn.check.numeric import STEP, Slope, slope
from tinygrad_attn.check.objective import MULTIPLE
from tinygrad_attn.engine import Tensor, grad
from tinygrad_attn.engine.tensor import leaf

_MOST = 300  # operations looked at; the same one with the same shapes is looked at once
_TOLERANCE = 1e-9


def wrong_rules(outputs: Sequence[Tensor], rng: np.random.Generator) -> list[str]:
    """A sentence for each rule on the way to `outputs` that disagrees with its operation's forward function.

    One vector-Jacobian product with a random upstream gradient is compared, along a random direction of the
    input, with the derivative of the forward function, by a complex step or central differences. At a kink
    that is done a little beside it, and at the kink itself along a direction that keeps ties: all inputs
    moved by the same. And a rule is to be linear in its upstream gradient.
    """
    found: dict[str, None] = {}
    for node, slot in _uses(outputs):
        what = ""
        verdict = _compared(node, slot, _array(node, slot), rng)
        if verdict is None:
            verdict = _compared(node, slot, _beside(_array(node, slot), rng), rng)
            what = _fault_at_a_tie(node, rng)
        if verdict is False:
            what = f"for its input number {slot} is wrong"
        elif not what and not _is_linear(node, slot, rng):
            what = f"for its input number {slot} is not linear in its upstream gradient"
        if what:
            found[f"the rule of {_named(node)} {what}"] = None
    return list(found)


def writing_rules(outputs: Sequence[Tensor], rng: np.random.Generator) -> list[str]:
    """A sentence for each operation on the way to `outputs` that writes, itself or in its rule, to arrays it
    is given: its inputs, its value or the upstream gradient, which others read, too."""
    found: dict[str, None] = {}
    for node, slot in _uses(outputs):
        primitive = node._primitive
        assert primitive is not None
        inputs: list[Any] = [np.copy(x) if type(x) is np.ndarray else x for x in node._arrays]
        given = {f"its input number {i}": x for i, x in enumerate(inputs) if isinstance(x, np.ndarray)}
        before = {what: array.copy() for what, array in given.items()}
        inputs[slot] = leaf(np.asarray(inputs[slot], dtype=np.float64))
        inputs[slot].requires_grad = True
        try:
            output = primitive(*inputs, **node._static)
            own = {"its value": output.data, "its upstream gradient": _signed(output.shape, rng)}
            given |= own
            before |= {what: array.copy() for what, array in own.items()}
            grad(output, inputs[slot], given["its upstream gradient"])
        except Exception:  # what it raises is told by the check itself
            continue
        for what, array in given.items():
            if not np.array_equal(array, before[what], equal_nan=array.dtype.kind in "fc"):
                found[f"{_named(node)} writes to {what}, which others may read"] = None
    return list(found)


def lower_precision(outputs: Sequence[Tensor]) -> list[str]:
    """A sentence on an operation on the way to `outputs` that computes in less than float64."""
    nodes = {node for node, _ in _uses(outputs) if node.dtype.kind == "f" and node.dtype.itemsize < 8}
    if not nodes:
        return []
    first = min(nodes, key=lambda node: node._number)
    return [
        f"{first.dtype}: {_named(first)} gives it from the float64 of the check, and loses the small steps "
        "that derivatives are taken with; leave the precision to the inputs"
    ]


def _uses(outputs: Sequence[Tensor]) -> list[tuple[Tensor, int]]:
    """The operations with the inputs that a gradient flows to, each kind and shape once, the latest first."""
    seen = set(outputs)
    stack = [output for output in outputs if output._primitive is not None]
    kinds: set[Any] = set()
    uses: list[tuple[Tensor, int]] = []
    while stack and len(uses) < _MOST:
        node = stack.pop()
        for slot, x in enumerate(node._inputs):
            if not isinstance(x, Tensor) or not x.requires_grad:
                continue
            kind = (node._primitive, slot, tuple(np.shape(array) for array in node._arrays))
            if kind not in kinds:
                kinds.add(kind)
                uses.append((node, slot))
            if x._primitive is not None and x not in seen:
                seen.add(x)
                stack.append(x)
    return uses


def _compared(node: Tensor, slot: int, x: np.ndarray, rng: np.random.Generator) -> bool | None:
    """Whether the rule agrees with the forward function at `x`; None if that cannot be told."""
    largest = float(np.abs(x).max(initial=0.0)) or 1.0
    direction = _signed(x.shape, rng) * np.maximum(np.abs(x), 1e-3 * largest)
    line = _Line(node, {slot: x}, {slot: direction}, rng)
    if line.by_rule is None:
        return None
    try:
        by_step = complex(line.value(STEP * 1j)).imag / STEP
    except Exception:
        by_step = math.nan
    if abs(by_step - line.by_rule) <= _TOLERANCE * max(line.size, abs(by_step)):
        return True
    found = line.slope()
    if found.bent:
        return None
    if found.contradicts(line.by_rule, 1e-6 * line.size):
        return False
    return math.isfinite(line.by_rule) if found.settled else None


def _is_linear(node: Tensor, slot: int, rng: np.random.Generator) -> bool:
    """Whether the rule gives `MULTIPLE` times as much for that multiple of an upstream gradient."""
    inputs, primitive = list(node._arrays), node._primitive
    assert primitive is not None
    x = inputs[slot] = leaf(_array(node, slot))
    x.requires_grad = True
    try:
        output = primitive(*inputs, **node._static)
        g = _signed(output.shape, rng)
        once, multiple = (grad(output, x, factor * g)[0].data for factor in (1, MULTIPLE))
    except Exception:  # what it raises is told by the check itself
        return True
    told = np.isfinite(multiple)
    return np.allclose(multiple[told] / MULTIPLE, once[told], rtol=_TOLERANCE, atol=0.0)


def _fault_at_a_tie(node: Tensor, rng: np.random.Generator) -> str:
    """What is wrong with the rules where all inputs are moved by the same; empty if nothing, or at a kink.

    Entries that are equal stay so: what an operation such as a maximum gives to each is free, but not the
    sum.
    """
    slots = [slot for slot, x in enumerate(node._inputs) if isinstance(x, Tensor) and x.requires_grad]
    inputs = {slot: _array(node, slot) for slot in slots}
    for _ in range(2):  # where several kinks lie close together, one draw of upstream gradients may hide them
        line = _Line(node, inputs, {slot: np.ones_like(x) for slot, x in inputs.items()}, rng)
        if line.by_rule is None:
            return ""
        found = line.slope()
        if found.bent or not found.contradicts(line.by_rule, 1e-6 * line.size):
            return ""
    where = " where entries are equal" if _has_equal(inputs) else ""
    return (
        f"is wrong{where}: along a move of all by the same the derivative is {found.value:.6g}, "
        f"by the rule {line.by_rule:.6g}"
    )


def _has_equal(inputs: Mapping[int, np.ndarray]) -> bool:
    entries = np.concatenate([x.ravel() for x in inputs.values()])
    return len(np.unique(entries)) < len(entries)


class _Line:
    """An operation's value, weighted by a random upstream gradient, along a line through some inputs.

    Attributes:
        by_rule: its derivative by the rules; None where they raise, which the check itself tells.
        size: the same without cancellation.
    """

    def __init__(
        self,
        node: Tensor,
        inputs: Mapping[int, np.ndarray],
        directions: Mapping[int, np.ndarray],
        rng: np.random.Generator,
    ) -> None:
        self._node, self._inputs, self._directions = node, inputs, directions
        self.by_rule: float | None = None
        self.size = 0.0
        tensors = [leaf(x) for x in inputs.values()]
        for tensor in tensors:
            tensor.requires_grad = True
        output = self._run(tensors)
        self._g = _signed(output.shape, rng)
        with contextlib.suppress(Exception):
            found = grad(output, tensors, self._g)
            terms = [g.data * d for g, d in zip(found, directions.values(), strict=True)]
            self.by_rule = float(sum(np.sum(term) for term in terms))
            self.size = float(sum(np.sum(np.abs(term)) for term in terms))

    def value(self, distance: Any) -> Any:
        """At a distance, real or complex, along the line."""
        moved = [x + distance * self._directions[slot] for slot, x in self._inputs.items()]
        return np.sum(self._run(moved) * self._g)

    def slope(self) -> Slope:
        """The derivative by central differences."""
        claim = math.nan if self.by_rule is None else self.by_rule
        target = 1e-10 * self.size if math.isfinite(self.size) else 0.0
        return slope(self._value, target=target, claim=claim)

    def _value(self, distance: float) -> float:
        try:
            return float(self.value(distance))
        except (ValueError, ArithmeticError):  # beyond what the operation takes
            return math.nan

    def _run(self, values: Sequence[Any]) -> Any:
        arrays, primitive = list(self._node._arrays), self._node._primitive
        assert primitive is not None
        for slot, value in zip(self._inputs, values, strict=True):
            arrays[slot] = value
        return primitive(*arrays, **self._node._static)


def _array(node: Tensor, slot: int) -> np.ndarray:
    return np.asarray(node._arrays[slot], dtype=np.float64)


def _beside(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.asarray(x + 1e-2 * rng.uniform(0.5, 1.0, x.shape) * np.maximum(1, np.abs(x)))


def _named(node: Tensor) -> str:
    assert node._primitive is not None
    return node._primitive.name + (f" in {node._scope.path()}" if node._scope is not None else "")


def _signed(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    return np.asarray(rng.uniform(0.5, 1.5, shape) * rng.choice([-1.0, 1.0], shape))
