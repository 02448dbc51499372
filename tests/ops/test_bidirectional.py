"""The encoder's kernel runs its directions side by side or one after the other: the same, and as defined."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn.engine import Tensor
from tinygrad_attn.ops import sequence
from tinygrad_attn.ops.spaces import Pool
from tinygrad_attn.ops.steps import STEPS

BATCH, LENGTH, WIDTH, SIZE = 3, 5, 2, 4
LENGTHS = {"whole": [5, 5, 5], "padded": [5, 1, 3]}


def run(cell: str, lengths: list[int], explicit: bool) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    gates = STEPS[cell].gates * SIZE
    shapes = [(BATCH, LENGTH, WIDTH), *[(gates, WIDTH), (gates, SIZE), (gates,), (gates,)] * 2]
    leaves = [Tensor(rng.normal(size=shape), requires_grad=True) for shape in shapes]
    mask = np.arange(LENGTH) < np.array(lengths)[:, None]
    upstream = rng.normal(size=(BATCH, LENGTH, 2 * SIZE))
    with ta.explicit() if explicit else ta.scope("kernel"):
        h: Any = sequence.bidirectional(leaves[0], mask, *leaves[1:], cell=cell)
    h.backward(upstream)
    return [h.data, *(np.asarray(leaf.grad) for leaf in leaves)]


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("cell", STEPS)
def test_both_ways_are_as_defined(monkeypatch: pytest.MonkeyPatch, cell: str, lengths: list[int]) -> None:
    expected = run(cell, lengths, explicit=True)
    for entries, runs in ((0, 2), (10**6, 1)):
        monkeypatch.setattr(sequence, "SIDE_BY_SIDE", entries)
        monkeypatch.setattr(sequence, "pool", Pool(0))
        assert len(sequence._Space(STEPS[cell], LENGTH, BATCH, WIDTH, SIZE, np.float64).runs) == runs
        for found, right in zip(run(cell, lengths, explicit=False), expected, strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-12, atol=1e-12)
