"""Which pairs meet in a batch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygrad_attn.data.epochs import Epochs, batch_bounds


def epochs_of(count: int, seed: int = 0) -> tuple[Epochs, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(9)
    sources, targets = rng.integers(1, 8, count), rng.integers(0, 12, count)
    return Epochs(sources, targets, seed), sources, targets


@given(st.lists(st.integers(1, 50), min_size=1, max_size=12), st.integers(1, 16))
def test_bounds_cut_into_even_batches(counts: list[int], batch_size: int) -> None:
    bounds = batch_bounds(counts, batch_size)
    sizes = np.diff(bounds)
    assert bounds[0] == 0 and bounds[-1] == sum(counts)
    assert (sizes >= 1).all() and (sizes <= batch_size).all()
    if sum(counts) >= batch_size:
        assert (sizes >= batch_size // 2).all()


@given(st.lists(st.integers(16, 50), min_size=1, max_size=12), st.integers(1, 16))
def test_lengths_are_not_mixed_where_there_are_enough(counts: list[int], batch_size: int) -> None:
    assert set(np.cumsum(counts)) <= set(batch_bounds(counts, batch_size))


@pytest.mark.parametrize(("count", "batch_size"), [(1, 1), (1, 64), (10, 3), (1000, 32), (1000, 2000)])
def test_every_epoch_takes_every_pair_once(count: int, batch_size: int) -> None:
    epochs, _, _ = epochs_of(count)
    rows: list[int] = []
    step = 0
    for epoch in range(3):
        while len(rows) < count * (epoch + 1):
            rows += epochs.rows(step, batch_size).tolist()
            step += 1
        assert sorted(rows[count * epoch :]) == list(range(count))
    assert count < 10 or rows[:count] != rows[count : 2 * count]


def test_batches_are_of_one_source_length_and_near_target_lengths() -> None:
    epochs, sources, targets = epochs_of(2000)
    spreads = []
    for step in range(60):
        rows = epochs.rows(step, 32)
        assert len(set(sources[rows])) == 1
        spreads.append(np.ptp(targets[rows]))
    assert np.mean(spreads) < 3


def test_order_is_a_function_of_seed_and_step() -> None:
    one, _, _ = epochs_of(500)
    other, _, _ = epochs_of(500)
    forward = [one.rows(step, 16).tolist() for step in range(80)]
    assert [other.rows(step, 16).tolist() for step in reversed(range(80))] == forward[::-1]
    one.rows(3, 7)  # another batch size in between changes nothing
    assert one.rows(5, 16).tolist() == forward[5]
    assert epochs_of(500, seed=1)[0].rows(0, 16).tolist() != forward[0]


def test_wrong_use() -> None:
    epochs, _, _ = epochs_of(5)
    with pytest.raises(ValueError, match="batch size 0, expected at least 1"):
        epochs.rows(0, 0)
    with pytest.raises(ValueError, match="training step -1, expected 0 or more"):
        epochs.rows(-1, 4)
