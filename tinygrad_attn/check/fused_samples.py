"""Samples of the fused operations, of shapes drawn at random, so that kernels meet many."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tinygrad_attn import ops
from tinygrad_attn.check.sample import Draw, Sample, normal
from tinygrad_attn.ops.attention import additive_scores, dot_scores, weighted_sum
from tinygrad_attn.ops.linear import embedding, linear
from tinygrad_attn.ops.recurrent import (
    gru_cell,
    lstm_cell,
    lstm_hidden,
    lstm_memory,
    reset_before_gru_cell,
    rnn_cell,
)
from tinygrad_attn.ops.sequence import bidirectional
from tinygrad_attn.ops.unrolled import bahdanau_decoder


def fused_samples(rng: np.random.Generator) -> Iterator[Sample]:
    """Samples of every operation that has a kernel."""
    for table in (_softmaxes, _losses, _linear_maps, _scores, _cells, _sequences, _decoders):
        yield from table(rng)


def _softmaxes(rng: np.random.Generator) -> Iterator[Sample]:
    B, T, V = _sizes(rng, 3)
    mask = _mask(rng, B, T)
    nothing = mask & (np.arange(B) != 0)[:, None]
    for axis in (-1, 0, 1):
        yield Sample(
            "softmax", f"axis {axis}", lambda x, axis=axis: ops.softmax(x, axis=axis), (normal(B, T, V),)
        )
        yield Sample(
            "log_softmax",
            f"axis {axis}",
            lambda x, axis=axis: ops.log_softmax(x, axis=axis),
            (normal(B, T, V),),
        )
    yield Sample("softmax", "vector", ops.softmax, (normal(T),))
    yield Sample("softmax", "no rows", ops.softmax, (normal(0, T),))
    yield Sample("softmax", "mask", lambda x: ops.softmax(x, mask=mask), (normal(B, T),))
    yield Sample(
        "softmax", "mask, first axis", lambda x: ops.softmax(x, axis=0, mask=mask.T), (normal(T, B),)
    )
    yield Sample(
        "softmax", "mask that broadcasts", lambda x: ops.softmax(x, mask=mask[:, None]), (normal(B, V, T),)
    )
    yield Sample(
        "softmax", "row with nothing to attend to", lambda x: ops.softmax(x, mask=nothing), (normal(B, T),)
    )
    yield Sample("log_softmax", "vector", ops.log_softmax, (normal(T),))


def _losses(rng: np.random.Generator) -> Iterator[Sample]:
    B, T, V = _sizes(rng, 3)
    targets = rng.integers(0, V, (B, T))
    ignored = np.where(_mask(rng, B, T), targets, -1)
    yield Sample("cross_entropy", "rows", lambda x: ops.cross_entropy(x, targets[:, 0]), (normal(B, V),))
    yield Sample(
        "cross_entropy", "batch of sequences", lambda x: ops.cross_entropy(x, targets), (normal(B, T, V),)
    )
    yield Sample("cross_entropy", "one", lambda x: ops.cross_entropy(x, targets[0, 0]), (normal(V),))
    yield Sample(
        "cross_entropy",
        "some ignored",
        lambda x: ops.cross_entropy(x, ignored, ignore_index=-1),
        (normal(B, T, V),),
    )


def _linear_maps(rng: np.random.Generator) -> Iterator[Sample]:
    B, T, inputs, outputs = _sizes(rng, 4)
    weight, bias = normal(outputs, inputs), normal(outputs)
    yield Sample("linear", "rows", linear, (normal(B, inputs), weight, bias))
    yield Sample("linear", "without a bias", linear, (normal(B, inputs), weight))
    yield Sample("linear", "stack", linear, (normal(B, T, inputs), weight, bias))
    yield Sample("linear", "vector", linear, (normal(inputs), weight, bias))
    yield Sample("linear", "no rows", linear, (normal(0, inputs), weight, bias))
    yield Sample(
        "linear",
        "used twice",
        lambda x, w, b: linear(linear(x, w, b), w, b),
        (normal(B, 3), normal(3, 3), normal(3)),
    )
    yield Sample("linear", "fixed input", lambda w, b: linear(np.ones((B, inputs)), w, b), (weight, bias))
    ids = rng.integers(0, 5, (B, T))
    real = (ids != 0)[..., None]
    yield Sample("embedding", "repeated ids", lambda w: embedding(w, ids), (normal(5, inputs),))
    yield Sample("embedding", "vector of ids", lambda w: embedding(w, ids[:, 0]), (normal(5, inputs),))
    yield Sample("embedding", "no ids", lambda w: embedding(w, ids[:0]), (normal(5, inputs),))
    yield Sample(
        "embedding",
        "padding",
        lambda w: ops.where(real, embedding(w, ids, padding_index=0), 0.0),
        (normal(5, inputs),),
    )


def _scores(rng: np.random.Generator) -> Iterator[Sample]:
    B, N, T, A, V, Q = _sizes(rng, 6)
    for case, lead in (("one query", (B,)), ("several queries", (B, N))):
        additive = normal(*lead, Q), normal(A, Q), normal(B, T, A), normal(A)
        yield Sample("additive_scores", case, additive_scores, additive)
        yield Sample("dot_scores", case, dot_scores, (normal(*lead, A), normal(B, T, A)))
        yield Sample("weighted_sum", case, weighted_sum, (normal(*lead, T), normal(B, T, V)))
    yield Sample(
        "dot_scores",
        "the same keys at two steps",
        lambda q, r, k: dot_scores(q, k) * dot_scores(r, k),
        (normal(B, A), normal(B, A), normal(B, T, A)),
    )


def _cells(rng: np.random.Generator) -> Iterator[Sample]:
    B, inputs, H = _sizes(rng, 3)
    x, h, c = normal(B, inputs), normal(B, H), normal(B, H)
    for cell, gates in ((rnn_cell, 1), (gru_cell, 3), (reset_before_gru_cell, 3)):
        weights = _weights(gates, inputs, H)
        yield Sample(cell.name, "one step", cell, (x, h, *weights))
        yield Sample(
            cell.name, "two steps", lambda x, h, *w, cell=cell: cell(x, cell(x, h, *w), *w), (x, h, *weights)
        )
        yield Sample(
            cell.name,
            "fixed input",
            lambda h, *w, cell=cell: cell(np.ones((B, inputs)), h, *w),
            (h, *weights),
        )
    yield Sample("lstm_memory", "one step", lstm_memory, (normal(B, 4 * H), c))
    yield Sample("lstm_hidden", "one step", lstm_hidden, (normal(B, 4 * H), c))
    yield Sample(
        "lstm_cell",
        "both results",
        lambda x, h, c, *w: ops.mul(*lstm_cell(x, h, c, *w)),
        (x, h, c, *_weights(4, inputs, H)),
    )


def _sequences(rng: np.random.Generator) -> Iterator[Sample]:
    B, T, inputs, H = _sizes(rng, 4)
    lengths = rng.integers(1, T + 1, B)
    masks = {
        "full": np.ones((B, T), bool),
        "padded": np.arange(T) < lengths[:, None],
        "gaps": rng.random((B, T)) < 0.6,
    }
    for cell, gates in (("rnn", 1), ("gru", 3), ("reset_before_gru", 3), ("lstm", 4)):
        weights = (*_weights(gates, inputs, H), *_weights(gates, inputs, H))
        for case, mask in masks.items():
            yield Sample(
                "bidirectional",
                f"{cell}, {case}",
                lambda x, *w, mask=mask, cell=cell: bidirectional(x, mask, *w, cell=cell),
                (normal(B, T, inputs), *weights),
            )


def _decoders(rng: np.random.Generator) -> Iterator[Sample]:
    B, N, T, E, H, V, A = _sizes(rng, 7)
    mask = _mask(rng, B, T)
    nothing = mask & (np.arange(B) != 0)[:, None]
    for cell, gates in (("rnn", 1), ("gru", 3), ("reset_before_gru", 3), ("lstm", 4)):
        source = normal(B, N, E), normal(B, H), normal(B, T, V), normal(B, T, A)
        weights = normal(A, H), normal(A), *_weights(gates, E + V, H)
        for case, chosen in (
            ("whole source", None),
            ("padded", mask),
            ("row with nothing to attend to", nothing),
        ):
            yield Sample(
                "bahdanau_decoder",
                f"{cell}, {case}",
                lambda y, s, h, k, *w, cell=cell, chosen=chosen: bahdanau_decoder(
                    y, s, h, k, chosen, *w, cell=cell
                ),
                (*source, *weights),
            )


def _weights(gates: int, inputs: int, hidden: int) -> tuple[Draw, ...]:
    rows = gates * hidden
    return normal(rows, inputs), normal(rows, hidden), normal(rows), normal(rows)


def _sizes(rng: np.random.Generator, count: int) -> list[int]:
    return [int(size) for size in rng.integers(1, 6, count)]


def _mask(rng: np.random.Generator, batch: int, steps: int) -> np.ndarray:
    """What takes part: of each row at least the first entry."""
    mask = np.asarray(rng.random((batch, steps)) < 0.6)
    mask[:, 0] = True
    return mask
