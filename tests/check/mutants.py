"""Wrong copies of the rules in the tables, to check the checker with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import tinygrad_attn as ta
from tinygrad_attn.engine.tensor import value_of

Rule = Callable[..., Any]


def _scaled(rule: Rule) -> Rule:
    return lambda *arguments, **static: rule(*arguments, **static) * 1.001


def _negated(rule: Rule) -> Rule:
    return lambda *arguments, **static: -rule(*arguments, **static)


def _zero(rule: Rule) -> Rule:
    return lambda *arguments, **static: rule(*arguments, **static) * 0


def _transposed(rule: Rule) -> Rule:
    def mutant(*arguments: Any, **static: Any) -> Any:
        right = rule(*arguments, **static)
        if len(right.shape) < 2:
            return right
        return ta.reshape(ta.swapaxes(right, -1, -2), right.shape)

    return mutant


def _without_upstream(rule: Rule) -> Rule:
    return lambda g, *rest, **static: rule(np.ones_like(value_of(g)), *rest, **static)


def _cut_at_inputs(rule: Rule) -> Rule:
    return lambda g, *rest, **static: rule(g, *map(value_of, rest), **static)


def _cut_at_upstream(rule: Rule) -> Rule:
    return lambda g, *rest, **static: rule(value_of(g), *rest, **static)


OF_A_RULE: dict[str, Callable[[Rule], Rule]] = {
    "scaled by 1.001": _scaled,
    "sign flipped": _negated,
    "zeros": _zero,
    "transposed": _transposed,
    "upstream replaced by ones": _without_upstream,
    "second derivative cut at the inputs": _cut_at_inputs,
    "second derivative cut at the upstream gradient": _cut_at_upstream,
}


class _WithOneRule:
    """Rules of which one is another."""

    def __init__(self, rules: Any, slot: int, rule: Rule) -> None:
        self.rules, self.slot, self.rule = rules, slot, rule

    def __len__(self) -> int:
        return len(self.rules)

    def __getitem__(self, slot: int) -> Rule:
        return self.rule if slot == self.slot else self.rules[slot]


@contextmanager
def _replaced(thing: Any, **attributes: Any) -> Iterator[None]:
    before = {name: getattr(thing, name) for name in attributes}
    for name, value in attributes.items():
        setattr(thing, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(thing, name, value)


Mutant = Callable[[], Any]  # a context manager under which the tables are wrong


def mutants(primitive: ta.Primitive, slot: int, others: set[int]) -> Iterator[tuple[str, Mutant]]:
    """What can be wrong with one rule, by name."""
    if isinstance(primitive, ta.Fused):
        yield from _of_a_kernel(primitive, slot, others)
        return
    rule = primitive.vjps[slot]
    rules = {name: mutate(rule) for name, mutate in OF_A_RULE.items()}
    rules |= {f"exchanged with input {other}": primitive.vjps[other] for other in others}
    for name, wrong in rules.items():
        wrong_rules = _WithOneRule(primitive.vjps, slot, wrong)
        yield name, lambda wrong_rules=wrong_rules: _replaced(primitive, vjps=wrong_rules)


def _of_a_kernel(primitive: ta.Fused, slot: int, others: set[int]) -> Iterator[tuple[str, Mutant]]:
    right = primitive.kernel_vjp

    def changed(change: Callable[[Any, list[Any]], Any]) -> Mutant:
        def kernel_vjp(*arguments: Any, **settings: Any) -> list[Any]:
            found = [g.value() if isinstance(g, ta.Product) else g for g in right(*arguments, **settings)]
            if found[slot] is not None:
                found[slot] = change(found[slot], found)
            return found

        return lambda: _replaced(primitive, kernel_vjp=kernel_vjp)

    yield "scaled by 1.001", changed(lambda g, found: g * 1.001)
    yield "sign flipped", changed(lambda g, found: -g)
    yield "no gradient", changed(lambda g, found: None)  # which counts as zeros
    yield "transposed", changed(lambda g, found: np.swapaxes(g, -1, -2).reshape(g.shape) if g.ndim > 1 else g)
    for other in others:
        yield f"exchanged with input {other}", changed(lambda g, found, other=other: found[other])

    def without_upstream(g: Any, *rest: Any, **settings: Any) -> Any:
        return right(np.ones_like(g), *rest, **settings)

    yield "upstream replaced by ones", lambda: _replaced(primitive, kernel_vjp=without_upstream)

    def wrong_value(*arrays: Any, **settings: Any) -> Any:
        value = primitive_forward(*arrays, **settings)
        return (value[0] * 1.001, value[1]) if isinstance(value, tuple) else value * 1.001

    primitive_forward = primitive.forward
    yield "value scaled by 1.001", lambda: _replaced(primitive, forward=wrong_value)
