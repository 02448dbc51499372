"""Padding, BOS and EOS in their places, and results that can be put back in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygrad_attn.data import Split, Vocabulary, make_batch, pad
from tinygrad_attn.engine import Tensor
from tinygrad_attn.tokens import BOS, EOS, PAD, UNK

content = st.integers(4, 30)
pairs = st.lists(
    st.tuples(st.lists(content, min_size=1, max_size=6), st.lists(content, max_size=6)),
    min_size=1,
    max_size=8,
)


def ids(values: list[int]) -> np.ndarray:
    return np.array(values, np.int64)


def test_a_batch_by_hand() -> None:
    batch = make_batch([(ids([5, 6, 7]), ids([8])), (ids([9]), ids([4, 5]))])
    assert batch.source.tolist() == [[5, 6, 7], [9, PAD, PAD]]
    assert batch.lengths.tolist() == [3, 1]
    assert batch.target_in.tolist() == [[BOS, 8, PAD], [BOS, 4, 5]]
    assert batch.target_out.tolist() == [[8, EOS, PAD], [4, 5, EOS]]
    assert batch.target_lengths.tolist() == [2, 3]
    assert batch.tokens == 5
    assert batch.indices.tolist() == [0, 1]
    assert len(batch) == 2


@given(pairs)
def test_every_row_is_its_pair(pairs: list[tuple[list[int], list[int]]]) -> None:
    batch = make_batch([(ids(source), ids(target)) for source, target in pairs])
    fields = (
        batch.source,
        batch.lengths,
        batch.target_in,
        batch.target_out,
        batch.target_lengths,
        batch.indices,
    )
    assert all(field.dtype == np.int64 for field in fields)
    assert batch.source.shape == (len(pairs), max(len(source) for source, _ in pairs))
    assert batch.target_in.shape == batch.target_out.shape == (len(pairs), max(len(t) for _, t in pairs) + 1)
    for row, (source, target) in enumerate(pairs):
        assert batch.source[row].tolist() == source + [PAD] * (batch.source.shape[1] - len(source))
        spare = [PAD] * (batch.target_in.shape[1] - len(target) - 1)
        assert batch.target_in[row].tolist() == [BOS, *target, *spare]
        assert batch.target_out[row].tolist() == [*target, EOS, *spare]
    assert batch.lengths.tolist() == [len(source) for source, _ in pairs]
    assert batch.tokens == np.count_nonzero(batch.target_out) == sum(len(target) + 1 for _, target in pairs)


def test_indices_are_kept() -> None:
    batch = make_batch([(ids([4]), ids([])), (ids([5]), ids([]))], ids([7, 3]))
    assert batch.indices.tolist() == [7, 3]
    assert batch.target_out.tolist() == [[EOS], [EOS]]


def test_what_cannot_be_a_batch() -> None:
    with pytest.raises(ValueError, match="no pairs, expected at least one"):
        make_batch([])
    with pytest.raises(ValueError, match="source of pair 1 is empty"):
        make_batch([(ids([4]), ids([4])), (ids([]), ids([4]))])
    with pytest.raises(ValueError, match=r"indices have shape \(1,\), expected \(2,\), one a pair"):
        make_batch([(ids([4]), ids([4]))] * 2, ids([0]))


@pytest.mark.parametrize(
    ("side", "number", "name", "least"),
    [
        ("target", PAD, ", which is <pad>", UNK),
        ("target", BOS, ", which is <bos>", UNK),
        ("target", EOS, ", which is <eos>", UNK),
        ("target", -1, "", UNK),
        ("source", PAD, ", which is <pad>", BOS),
        ("source", -1, "", BOS),
    ],
)
def test_ids_that_would_not_be_learnt_are_refused(side: str, number: int, name: str, least: int) -> None:
    """A PAD would not be learnt, and a target's EOS would end it, without a word."""
    pair = (ids([5, number]), ids([5])) if side == "source" else (ids([5]), ids([5, number]))
    with pytest.raises(
        ValueError, match=f"{side} of pair 1 has id {number}{name}, expected ids from {least} on"
    ):
        make_batch([(ids([4]), ids([4])), pair])


def test_a_source_may_hold_any_symbol() -> None:
    batch = make_batch([(ids([BOS, 5, UNK, EOS]), ids([UNK]))])
    assert batch.source.tolist() == [[BOS, 5, UNK, EOS]]
    assert batch.target_out.tolist() == [[UNK, EOS]]


def test_pairs_may_come_from_a_generator_or_be_arrays_or_tensors() -> None:
    row = np.array([[4, 5], [6, 7]])
    pairs: Any
    for pairs in ((pair for pair in [row, row]), np.array([row] * 2), [(Tensor(row[0]), Tensor(row[1]))] * 2):
        assert make_batch(pairs).target_out.tolist() == [[6, 7, EOS]] * 2


def test_pad() -> None:
    values, lengths = pad([ids([4, 5]), ids([6])])
    assert values.tolist() == [[4, 5], [6, PAD]] and lengths.tolist() == [2, 1]
    values, _ = pad([np.array([4], np.uint64), [], np.array([5, 6], np.uint8)])
    assert values.dtype == np.int64 and values.tolist() == [[4, PAD], [PAD, PAD], [5, 6]]
    values, lengths = pad([])
    assert values.shape == (0, 0) and lengths.shape == (0,)


@given(
    st.dictionaries(
        st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(tuple),
        st.lists(st.lists(st.sampled_from("xyz?"), max_size=3).map(tuple), min_size=1, max_size=2).map(tuple),
        min_size=1,
    ),
    st.integers(1, 5),
)
def test_split_batches_hold_every_source_once_and_say_which(
    examples: dict[tuple[str, ...], tuple[tuple[str, ...], ...]], batch_size: int
) -> None:
    source_vocabulary, target_vocabulary = Vocabulary(("a", "b", "c")), Vocabulary(("x", "y", "z"))
    split = Split("test", source_vocabulary, target_vocabulary, tuple(examples), tuple(examples.values()))
    seen: list[int] = []
    lengths: list[int] = []
    for batch in split.batches(batch_size):
        assert 1 <= len(batch) <= batch_size
        for row, index in enumerate(batch.indices):
            assert tuple(source_vocabulary.decode(batch.source[row])) == split.sources[index]
            target = [token if token != "?" else "<unk>" for token in split.references[index][0]]
            assert target_vocabulary.decode(batch.target_out[row]) == target
        seen += batch.indices.tolist()
        lengths += batch.lengths.tolist()
    assert sorted(seen) == list(range(len(split)))
    assert lengths == sorted(lengths)


def test_what_is_printed_is_short() -> None:
    vocabulary = Vocabulary(tuple(str(n) for n in range(1000)))
    sources = tuple((str(n),) for n in range(1000))
    split = Split("test", vocabulary, vocabulary, sources, tuple((source,) for source in sources))
    assert repr(split) == "Split('test', 1000 sources)"
    assert repr(next(split.batches(64))) == "Batch(64 examples, source (64, 1), target (64, 2))"
    assert repr(vocabulary) == "Vocabulary(('0', '1', '2', '3', '4', '5', ...), 1004 ids)"


def test_a_batch_needs_a_row() -> None:
    split = Split("test", Vocabulary(("a",)), Vocabulary(("a",)), (("a",),), ((("a",),),))
    with pytest.raises(ValueError, match="batch size 0, expected at least 1"):
        next(split.batches(0))


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([("45", "5")], "the source of pair 0 is '45'"),
        ([([4], [5]), ([4], 5)], "the target of pair 1 is 5"),
        ([([4.0], [5])], r"the source of pair 0 is \[4.0\]"),
        ([([[4]], [5])], r"the source of pair 0 is \[\[4\]\]"),
    ],
)
def test_what_is_no_row_of_ids_is_named(pairs: Any, message: str) -> None:
    with pytest.raises(TypeError, match=f"make_batch: {message}, expected a row of ids"):
        make_batch(pairs)


@pytest.mark.parametrize("pair", [([4],), ([4], [5], [6]), None, 4])
def test_what_is_no_pair_is_named(pair: Any) -> None:
    with pytest.raises(TypeError, match=r"make_batch: pair 1 is .*, expected \(source, target\)"):
        make_batch([([4], [5]), pair])
