"""What beam search remembers, beside a search that keeps everything in lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tinygrad_attn.nn import beam
from tinygrad_attn.nn.beam import Beams, largest, normalised
from tinygrad_attn.tokens import BOS, EOS, PAD

RNG = np.random.default_rng
LENGTH = 3  # T of the weights


def plain_search(
    table: np.ndarray, size: int, max_length: int, penalty: float
) -> tuple[list[int], float, list[int]]:
    """The best sequence of one sentence, its log-probability, and the words before each of its steps.

    The logits after each word are a row of `table`.
    """
    x, log_z = normalised(table)
    open_candidates: list[tuple[float, list[int]]] = [(0.0, [])]
    best: tuple[float, float, list[int]] = (-np.inf, -np.inf, [])
    ended = 0

    def offer(total: float, words: list[int]) -> None:
        nonlocal best
        worth = total / len(words) ** penalty
        if worth > best[0]:
            best = worth, total, words

    for i in range(max_length):
        extended = []
        for number, (total, words) in enumerate(open_candidates):
            last = words[-1] if words else BOS
            extended += [
                (x[last, word] + (total - log_z[last]), number, word, words)
                for word in range(len(table))
                if word not in (PAD, BOS)
            ]
        extended.sort(key=lambda found: (-found[0], found[1], found[2]))
        for total, _, word, words in extended[:size]:
            if word == EOS and np.isfinite(total):
                ended += 1
                offer(total, [*words, EOS])
        open_candidates = [
            (total, [*words, word])
            for total, _, word, words in extended
            if word != EOS and np.isfinite(total)
        ][:size]
        if not open_candidates:
            break
        if (open_candidates[0][0] <= best[1]) if penalty == 0 else ended >= size:
            break
        if i + 1 == max_length:
            offer(*open_candidates[0])
    return best[2], best[1], [BOS, *best[2][:-1]]


def run(tables: np.ndarray, size: int, max_length: int, penalty: float) -> tuple[np.ndarray, Any, np.ndarray]:
    """The same by `Beams`, for a batch in which each sentence has a table (B, V, V).

    The weights of a step tell the word before it.
    """
    batch = len(tables)
    beams = Beams(batch, size, max_length, penalty)
    sentences, word = np.arange(batch), np.full(batch, BOS)
    while True:
        each = np.repeat(sentences, len(word) // max(1, len(sentences)))
        going = beams.advance(tables[each, word], np.repeat(word[:, None], LENGTH, axis=1).astype(float))
        if going is None:
            tokens, weights = beams.traced(LENGTH)
            return tokens, beams.total, weights
        if going.kept is not None:
            sentences = sentences[going.kept]
        word = going.words


@pytest.mark.parametrize("clearing", [0.0, 0.25, 2.0])  # at once, sometimes, never
@pytest.mark.parametrize("penalty", [0.0, 0.7, 1.5])
@pytest.mark.parametrize("kind", ["spread", "ties", "early", "impossible"])
def test_the_best_is_that_of_a_search_in_lists(
    kind: str, penalty: float, clearing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beam, "LEFT_BEFORE_CLEARING", clearing)
    rng = RNG(0)
    lengths = set()
    for size in (1, 2, 3, 5, 9):
        tables = rng.standard_normal((12, 7, 7)) * 2
        if kind == "ties":
            tables = np.round(tables)
        if kind == "early":
            tables[::2, :, EOS] += 2
        if kind == "impossible":
            tables[:, :, 4:] = np.where(rng.random((12, 7, 3)) < 0.6, -np.inf, tables[:, :, 4:])
        tokens, total, weights = run(tables, size, 6, penalty)
        for b, table in enumerate(tables):
            words, expected, before = plain_search(table, size, 6, penalty)
            assert tokens[b, : len(words)].tolist() == words
            assert not tokens[b, len(words) :].any() and not weights[b, len(words) :].any()
            assert total[b] == expected
            assert weights[b, : len(words)].tolist() == [[word] * LENGTH for word in before]
            lengths.add(len(words))
    assert len(lengths) > 2  # else early and late ends would not be told apart


def test_largest_takes_the_first_of_equal_ones() -> None:
    for count, width in ((1, 4), (3, 3), (5, 40)):
        x = RNG(count).integers(0, 6, (20, width)).astype(float)
        order = np.argsort(-x, axis=1, kind="stable")[:, :count]
        values, places = largest(x.copy(), count)
        np.testing.assert_array_equal(places, order)
        np.testing.assert_array_equal(values, np.take_along_axis(x, order, axis=1))


def test_what_is_wanted_beyond_the_row_is_impossible() -> None:
    values, places = largest(np.array([[1.0, 2.0]]), 4)
    assert values.tolist() == [[2, 1, -np.inf, -np.inf]] and ((places >= 0) & (places < 2)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_normalised(dtype: Any) -> None:
    logits = (RNG(0).standard_normal((6, 9)) * 30).astype(dtype)
    logits[2, PAD], logits[3, BOS], logits[4, 5] = 1e4, 1e4, -np.inf
    found, log_z = normalised(logits)
    assert np.isneginf(found[:, [PAD, BOS]]).all() and log_z.dtype == np.float64
    np.testing.assert_array_equal(found[:, EOS:], logits[:, EOS:])
    exact = np.log(np.exp(logits[:, EOS:].astype(np.longdouble)).sum(axis=1))
    np.testing.assert_allclose(log_z, exact.astype(float), rtol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("word", [PAD, 4])
def test_logits_that_are_not_finite_are_an_error(value: float, word: int) -> None:
    logits = np.zeros((2, 5))
    logits[1, word] = value
    with pytest.raises(FloatingPointError, match="logits hold NaN or infinity"):
        normalised(logits)
