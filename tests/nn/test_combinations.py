"""Every score with every query and every cell: first and second derivatives, padding, one word, width one."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tests.nn.support import make_batch

SCORES = ("additive", "dot", "scaled", "general", "concat", "none")
COMBINATIONS = list(itertools.product(SCORES, ("previous", "current"), ("gru", "lstm", "rnn")))
every = pytest.mark.parametrize(
    ("score", "query", "cell"), COMBINATIONS, ids=["-".join(each) for each in COMBINATIONS]
)


def make(score: str, query: str, cell: str, hidden: int = 2, dtype: Any = np.float64) -> ta.nn.Seq2Seq:
    """A tiny model; an odd width for the scores that can have one."""
    equal = score in ("dot", "scaled")
    return ta.nn.Seq2Seq(
        *(9, 8),
        embedding_size=hidden,
        hidden_size=2 * hidden if equal else hidden,
        attention=score,
        cell=cell,
        query=query,
        encoder_hidden_size=hidden,
        dtype=dtype,
        rng=np.random.default_rng(0),
    )


@every
def test_derivatives_of_both_orders(score: str, query: str, cell: str) -> None:
    """By the loss of a padded batch, on every parameter of encoder, attention, decoder and embeddings."""
    model, batch = make(score, query, cell), make_batch([2, 1], [1, 0])
    report = ta.gradcheck(model.loss, (batch,), order=2, entries=1)
    assert report and {row.order for row in report.rows} == {1, 2} and report.method == "complex"


@every
def test_one_word_of_width_one(score: str, query: str, cell: str) -> None:
    """Batch 1, one source word, one target word: what there is to attend to gets all the weight."""
    model = make(score, query, cell, hidden=1)
    output = model([[5]], None, [[ta.BOS]])
    np.testing.assert_array_equal(output.weights.data, [[[1.0]]])
    np.testing.assert_allclose(output.contexts.data, output.annotations.data, rtol=1e-15)
    ta.cross_entropy(output.logits, [[4]]).backward()
    assert all(p.grad is None or np.isfinite(p.grad).all() for p in model.parameters())


@every
def test_padding_changes_nothing(score: str, query: str, cell: str) -> None:
    """A sentence in a padded batch: the logits and weights that it has alone."""
    model, batch = make(score, query, cell), make_batch([4, 2], [3, 3])
    together = model(batch.source, batch.lengths, batch.target_in)
    alone = model(batch.source[1:, :2], None, batch.target_in[1:])
    np.testing.assert_allclose(together.logits.data[1], alone.logits.data[0], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(together.weights.data[1, :, :2], alone.weights.data[0], rtol=1e-12)
    assert not together.weights.data[1, :, 2:].any()
