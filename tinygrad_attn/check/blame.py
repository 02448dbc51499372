"""Which operation is at fault: every rule a gradient passed, checked on its own with the arrays it met."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinygrad_attn.check.numeric import STEP, slope
from tinygrad_attn.engine import Tensor, grad
from tinygrad_attn.engine.tensor import leaf

_MOST = 300  # operations looked at; the same one with the same shapes is looked at once
_TOLERANCE = 1e-9


def wrong_rules(outputs: Sequence[Tensor], rng: np.random.Generator) -> list[str]:
    """A sentence for each rule on the way to `outputs` that disagrees with its operation's forward function.

    One vector-Jacobian product with a random upstream gradient is compared, along a random direction of the
    input, with the derivative of the forward function, by a complex step or central differences.
    """
    found: dict[str, None] = {}
    for node, slot in _uses(outputs):
        primitive = node._primitive
        assert primitive is not None
        if not _rule_is_right(node, slot, rng):
            scope = f" in {node._scope.path()}" if node._scope is not None else ""
            found[f"the rule of {primitive.name}{scope} for its input number {slot} is wrong"] = None
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
        scope = f" in {node._scope.path()}" if node._scope is not None else ""
        for what, array in given.items():
            if not np.array_equal(array, before[what], equal_nan=array.dtype.kind in "fc"):
                found[f"{primitive.name}{scope} writes to {what}, which others may read"] = None
    return list(found)


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


def _rule_is_right(node: Tensor, slot: int, rng: np.random.Generator) -> bool:
    x = np.asarray(node._arrays[slot], dtype=np.float64)
    verdict = _compared(node, slot, x, rng)
    if verdict is None:  # at a kink: a little beside it
        verdict = _compared(
            node, slot, x + 1e-2 * rng.uniform(0.5, 1.0, x.shape) * np.maximum(1, np.abs(x)), rng
        )
    return verdict is not False


def _compared(node: Tensor, slot: int, x: np.ndarray, rng: np.random.Generator) -> bool | None:
    """Whether the rule agrees with the forward function at `x`; None if that cannot be told."""
    direction = _signed(x.shape, rng)
    inputs, primitive = list(node._arrays), node._primitive
    assert primitive is not None

    def run(value: Any) -> Any:
        inputs[slot] = value
        return primitive(*inputs, **node._static)

    tensor = leaf(x)
    tensor.requires_grad = True
    output = run(tensor)
    g = _signed(output.shape, rng)
    try:
        terms = grad(output, tensor, g)[0].data * direction
    except Exception:  # what a rule raises is told by the check itself
        return None
    by_rule, size = float(np.sum(terms)), float(np.sum(np.abs(terms)))
    try:
        by_step = complex(np.sum(run(x + STEP * 1j * direction) * g)).imag / STEP
    except Exception:
        by_step = np.nan
    if abs(by_step - by_rule) <= _TOLERANCE * max(size, abs(by_step)):
        return True
    found = slope(lambda distance: float(np.sum(run(x + distance * direction) * g)), target=1e-10 * size)
    if found.kink or not found.settled:
        return None
    return not found.contradicts(by_rule, 1e-6 * size)


def _signed(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    return np.asarray(rng.uniform(0.5, 1.5, shape) * rng.choice([-1.0, 1.0], shape))
