"""The toy tasks: right targets, disjoint sets, every length trained, and the same on every machine."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygrad_attn.data import Batch, Task, from_description
from tinygrad_attn.data.membership import Membership, even_quotas
from tinygrad_attn.data.tasks import reversed_within
from tinygrad_attn.errors import DataError
from tinygrad_attn.tokens import PAD


def rows_of(batch: Batch) -> list[tuple[int, ...]]:
    return [tuple(row[:length].tolist()) for row, length in zip(batch.source, batch.lengths, strict=True)]


def test_reversing_stays_within_each_length() -> None:
    rows = np.array([[5, 6, 7, 0, 0], [1, 2, 3, 4, 9]])
    turned = reversed_within(rows, np.array([3, 5]))
    assert turned.tolist() == [[7, 6, 5, 0, 0], [9, 4, 3, 2, 1]]
    assert ((turned != PAD) == (rows != PAD)).all()


@given(st.lists(st.lists(st.integers(4, 99), min_size=1, max_size=7), min_size=1, max_size=7))
def test_reversing_is_that_of_each_list(sequences: list[list[int]]) -> None:
    lengths = np.array([len(sequence) for sequence in sequences])
    rows = np.zeros((len(sequences), lengths.max()), np.int64)
    for row, sequence in zip(rows, sequences, strict=True):
        row[: len(sequence)] = sequence
    turned = reversed_within(rows, lengths)
    for row, sequence in zip(turned, sequences, strict=True):
        assert row.tolist() == sequence[::-1] + [PAD] * (len(row) - len(sequence))


@pytest.mark.parametrize("name", ["copy", "reverse"])
@pytest.mark.parametrize("equal_lengths", [True, False])
def test_targets_of_training_batches(name: str, equal_lengths: bool) -> None:
    task = Task(name, equal_lengths=equal_lengths)
    lengths = set()
    for step in range(100):
        batch = task.train_batch(step, 16)
        assert len(batch) == 16
        lengths |= set(batch.lengths.tolist())
        assert (len(set(batch.lengths.tolist())) == 1) == equal_lengths
        assert batch.source.shape[1] == batch.lengths.max()
        assert batch.indices.tolist() == list(range(16 * step, 16 * step + 16))
        for row, source in enumerate(rows_of(batch)):
            expected = list(source) if name == "copy" else list(source)[::-1]
            target = batch.target_out[row, : batch.target_lengths[row]]
            assert target.tolist() == [*expected, 2]
            assert not batch.target_out[row, batch.target_lengths[row] :].any()
    assert lengths == set(range(1, 11))


def test_content_never_uses_a_special_id() -> None:
    task = Task("copy", symbols=5, max_length=12, equal_lengths=False)
    drawn: Counter[int] = Counter()
    step = 0
    while drawn.total() < 10_000:
        batch = task.train_batch(step, 64)
        step += 1
        content = np.arange(batch.source.shape[1]) < batch.lengths[:, None]
        assert (batch.source[content] >= 4).all() and (batch.source[~content] == PAD).all()
        drawn.update(batch.source[content].tolist())
    assert set(drawn) == {4, 5, 6, 7, 8}
    assert max(drawn.values()) < 1.2 * min(drawn.values())
    assert task.source_vocabulary.symbols == ("0", "1", "2", "3", "4")


@pytest.mark.parametrize("seed", [0, 1])
def test_the_three_sets_are_disjoint(seed: int) -> None:
    task = Task("reverse", seed=seed)
    development, test = set(task.development.sources), set(task.test.sources)
    assert (len(development), len(test)) == (len(task.development), len(task.test)) == (500, 1000)
    assert not development & test
    vocabulary = task.source_vocabulary
    for step in range(500):
        for row in task.train_batch(step, 64).source:
            source = tuple(vocabulary.decode(row))
            assert source not in development and source not in test


def test_lengths_are_even_where_there_are_enough() -> None:
    task = Task("copy")
    for split in (task.development, task.test):
        counts = Counter(len(source) for source in split.sources)
        assert set(counts) == set(range(1, 11))
        assert max(counts.values()) - min(counts[length] for length in range(5, 11)) <= 1
    lengths = [len(source) for source in task.test.sources[:50]]
    assert lengths != sorted(lengths)  # the first few show different lengths


def test_short_lengths_stay_in_training() -> None:
    task = Task("copy", equal_lengths=False, max_length=2)
    seen = {row for step in range(60) for row in rows_of(task.train_batch(step, 64))}
    assert Counter(map(len, seen)) == {1: 8, 2: 85}


@pytest.mark.parametrize(("symbols", "max_length"), [(2, 2), (2, 6), (3, 1), (3, 3), (5, 2), (20, 1)])
def test_small_tasks_are_divided_completely(symbols: int, max_length: int) -> None:
    task = Task("copy", symbols=symbols, max_length=max_length, equal_lengths=False)
    everything = {
        row
        for length in range(1, max_length + 1)
        for row in itertools.product(range(4, 4 + symbols), repeat=length)
    }
    encode = task.source_vocabulary.encode
    held = {tuple(encode(s).tolist()) for split in (task.development, task.test) for s in split.sources}
    training = {row for step in range(100) for row in rows_of(task.train_batch(step, 64))}
    assert held | training == everything and not held & training
    assert {len(row) for row in training} == set(range(1, max_length + 1))
    assert len(task.development) >= 1 and len(task.test) >= 1
    assert len(training) >= len(everything) / 3


def test_references_are_the_targets() -> None:
    task = Task("reverse")
    for source, targets in zip(task.test.sources, task.test.references, strict=True):
        assert targets == (source[::-1],)


def test_a_batch_depends_on_the_seed_and_the_step_alone() -> None:
    one, other = Task("reverse", seed=3), Task("reverse", seed=3)
    forward = [one.train_batch(step, 8).source.tolist() for step in range(6)]
    assert [other.train_batch(step, 8).source.tolist() for step in reversed(range(6))] == forward[::-1]
    assert len({str(batch) for batch in forward}) == 6
    different = Task("reverse", seed=4)
    assert different.train_batch(0, 8).source.tolist() != forward[0]
    assert set(different.test.sources) != set(one.test.sources)


def test_copy_and_reverse_share_their_sequences() -> None:
    assert Task("copy").test.sources == Task("reverse").test.sources


def test_text_is_split_at_spaces() -> None:
    task = Task("copy", symbols=12)
    assert task.split_source("1 11 3") == ("1", "11", "3")
    assert task.join_target(("1", "11")) == "1 11"
    assert task.source_vocabulary.unknown(task.split_source("123")) == ["123"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "sort"}, "unknown task 'sort', expected one of copy, reverse"),
        ({"symbols": 0}, "copy: symbols is 0, expected an integer of at least 1"),
        ({"min_length": 0}, "min_length is 0, expected an integer of at least 1"),
        ({"min_length": 5, "max_length": 4}, "max_length is 4, expected an integer of at least 5"),
        ({"seed": -1}, "seed is -1, expected an integer of at least 0"),
        ({"seed": 1.5}, "seed is 1.5, expected an integer"),
        ({"symbols": True}, "symbols is True, expected an integer"),
        ({"symbols": 1}, "leave nothing to test on, expected at least 3 sequences of one length"),
        ({"symbols": 2, "max_length": 1}, "leave nothing to test on"),
    ],
)
def test_tasks_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Task(**{"name": "copy", **options})


def test_settings_may_be_numpys_integers() -> None:
    """As a sweep over `np.arange` has them."""
    task = Task("copy", symbols=np.int64(5), max_length=np.int32(3), seed=np.uint8(2))
    same = Task("copy", symbols=5, max_length=3, seed=2)
    assert json.dumps(task.describe()) == json.dumps(same.describe())
    assert (task.train_batch(0, 4).source == same.train_batch(0, 4).source).all()


@pytest.mark.parametrize("equal", [np.False_, 0])
def test_a_truth_that_is_no_bool_survives_json(equal: Any) -> None:
    task = Task("copy", symbols=4, max_length=3, equal_lengths=equal)
    assert from_description(json.loads(json.dumps(task.describe()))).describe() == task.describe()


def test_a_batch_needs_a_row() -> None:
    with pytest.raises(ValueError, match="batch size 0"):
        Task("copy").train_batch(0, 0)
    with pytest.raises(ValueError, match="non-negative"):
        Task("copy").train_batch(-1, 1)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=8), st.integers(0, 200))
def test_quotas_are_as_even_as_they_can_be(available: list[int], total: int) -> None:
    quotas = even_quotas(available, total)
    assert sum(quotas) == min(total, sum(available))
    assert all(0 <= quota <= most for quota, most in zip(quotas, available, strict=True))
    most = max(quotas)  # whoever has less than another, by more than one, has all there is
    assert all(q == a or q >= most - 1 for q, a in zip(quotas, available, strict=True))


def test_the_hash_gives_padded_and_unpadded_rows_the_same_part() -> None:
    membership = Membership(10, 1, 8, seed=0)
    rows = np.random.default_rng(0).integers(4, 14, (500, 5))
    padded = np.pad(rows, ((0, 0), (0, 3)))
    held = membership.held_out(rows, np.full(500, 5))
    assert (held == membership.held_out(padded, np.full(500, 5))).all()
    assert 0.1 < held.mean() < 0.2


@pytest.mark.parametrize("option", ["symbols", "min_length", "max_length"])
@pytest.mark.parametrize("value", [10**6, 10**400])
def test_sizes_that_would_take_minutes(option: str, value: int) -> None:
    others = {"max_length": value} if option == "min_length" else {}
    with pytest.raises(DataError, match=f"copy: {option} is above"):
        Task("copy", **{option: value, **others})
