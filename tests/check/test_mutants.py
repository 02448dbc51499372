"""The checker is checked: every rule of the tables, made wrong in every way that matters, is caught."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import pytest

import tinygrad_attn as ta
from tests.check.mutants import Mutant, mutants
from tinygrad_attn.check.objective import weigh
from tinygrad_attn.check.sample import Sample
from tinygrad_attn.check.samples import rules_used, samples

Rule = tuple[ta.Primitive, int]

LARGE = 60  # where inputs have more entries, one of each is looked at, and all along one direction
ALIKE = 3  # inputs of an operation on any number of them; the others have the same rule


def _samples_by_rule() -> dict[Rule, list[Sample]]:
    """For each rule the samples that use it, those with few entries first."""
    table = [(sum(x.size for x in s.inputs(np.random.default_rng(0))), s) for s in samples()]
    found: dict[Rule, list[Sample]] = {}
    for size, sample in sorted(table, key=lambda pair: pair[0]):
        if size:
            for primitive, slot in rules_used(sample):
                if isinstance(primitive, ta.Fused) or slot < len(primitive.vjps) < 100 or slot < ALIKE:
                    found.setdefault((primitive, slot), []).append(sample)
    return found


BY_RULE = _samples_by_rule()
NAMES = sorted({primitive.name for primitive, _ in BY_RULE})


def derivatives(sample: Sample, order: int) -> list[np.ndarray] | None:
    """The derivatives of a sample as the tables have them; None if a rule raises."""
    rng = np.random.default_rng(2)
    inputs = [ta.Tensor(x, requires_grad=True) for x in sample.inputs(rng)]
    output = sample.fn(*inputs)
    upstream = ta.Tensor(rng.uniform(0.5, 1.5, output.shape), requires_grad=True)
    try:
        found = ta.grad(output, inputs, upstream, create_graph=order == 2)
        if order == 1:
            return [g.data for g in found]
        along = weigh(*found, *(rng.uniform(0.5, 1.5, x.shape) for x in inputs))
        if not along.requires_grad:
            return [np.zeros(x.shape) for x in (*inputs, upstream)]
        return [g.data for g in ta.grad(along, [*inputs, upstream])]
    except (ValueError, TypeError, RuntimeError, IndexError):
        return None


def differ(right: Sequence[np.ndarray] | None, wrong: Sequence[np.ndarray] | None) -> bool:
    if right is None or wrong is None:
        return True
    return any(not np.allclose(a, b, rtol=1e-6, atol=1e-9) for a, b in zip(right, wrong, strict=True))


_right = cache(derivatives)  # only called while the tables are right


def caught(sample: Sample, mutant: Mutant, name: str, of_a_kernel: bool) -> bool | None:
    """Whether `gradcheck` sees the mutant on a sample; None if it makes no difference there."""
    for order in (1,) if of_a_kernel else (1, 2):  # create_graph goes by definitions
        right = _right(sample, order)
        with mutant():
            changed = name.startswith("value") or differ(right, derivatives(sample, order))
            if changed:
                inputs = sample.inputs(np.random.default_rng(2))
                entries = 1 if sum(x.size for x in inputs) > LARGE else None
                return not ta.gradcheck(
                    sample.fn, inputs, order=order, entries=entries, raise_exception=False
                )
    return None


@pytest.mark.parametrize("operation", NAMES)
def test_every_wrong_rule_is_caught(operation: str, record_property: Callable[[str, object], None]) -> None:
    missed, count = [], 0
    for (primitive, slot), users in BY_RULE.items():
        if primitive.name != operation:
            continue
        others = {other for p, other in BY_RULE if p is primitive and other - slot in (1, -1)}
        for name, mutant in mutants(primitive, slot, others):
            of_a_kernel = isinstance(primitive, ta.Fused)
            verdicts = (caught(sample, mutant, name, of_a_kernel) for sample in users[:12])
            verdict = next((verdict for verdict in verdicts if verdict is not None), None)
            if verdict is False:
                missed.append((slot, name))
            count += verdict is True
    assert not missed
    assert count >= 3  # a factor, a sign and zeros make a difference to any rule
    record_property("mutants caught", count)  # for the summary of the run


def test_a_right_rule_is_not_accused() -> None:
    for sample in samples()[::7]:
        inputs = sample.inputs(np.random.default_rng(2))
        assert ta.gradcheck(sample.fn, inputs, method="complex" if sample.analytic else "central")
