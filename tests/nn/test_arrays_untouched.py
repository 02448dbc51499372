"""Kernels write to arrays of their own only, also where a transposed input happens to be contiguous."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn.ops.attention import additive_scores, dot_scores, weighted_sum
from tinygrad_attn.ops.linear import linear
from tinygrad_attn.ops.recurrent import gru_cell, lstm_hidden, lstm_memory, reset_before_gru_cell, rnn_cell
from tinygrad_attn.ops.sequence import bidirectional
from tinygrad_attn.ops.unrolled import bahdanau_decoder

GATES = {"rnn": 1, "gru": 3, "reset_before_gru": 3, "lstm": 4}
CELLS = {"rnn": rnn_cell, "gru": gru_cell, "reset_before_gru": reset_before_gru_cell}


def weights(rng: Any, kind: str, inputs: int, hidden: int) -> list[np.ndarray]:
    rows = GATES[kind] * hidden
    return [rng.standard_normal(shape) for shape in ((rows, inputs), (rows, hidden), (rows,), (rows,))]


def cases(batch: int, steps: int, count: int, width: int) -> Any:
    """(name, function of tensors, their arrays) for every kernel of the modules."""
    rng = np.random.default_rng(0)
    draw = rng.standard_normal
    mask = np.arange(steps) < rng.integers(1, steps + 1, batch)[:, None]
    yield "linear", linear, [draw((batch, count, width)), draw((width, width)), draw(width)]
    yield (
        "additive_scores",
        additive_scores,
        [*(draw((batch, width)), draw((width, width)), draw((batch, steps, width)), draw(width))],
    )
    yield (
        "additive_scores of many",
        additive_scores,
        [*(draw((batch, count, width)), draw((width, width)), draw((batch, steps, width)), draw(width))],
    )
    yield "dot_scores", dot_scores, [draw((batch, width)), draw((batch, steps, width))]
    yield "dot_scores of many", dot_scores, [draw((batch, count, width)), draw((batch, steps, width))]
    yield "weighted_sum", weighted_sum, [draw((batch, steps)), draw((batch, steps, width))]
    yield "weighted_sum of many", weighted_sum, [draw((batch, count, steps)), draw((batch, steps, width))]
    yield "lstm_memory", lstm_memory, [draw((batch, 4 * width)), draw((batch, width))]
    yield "lstm_hidden", lstm_hidden, [draw((batch, 4 * width)), draw((batch, width))]
    for kind, cell in CELLS.items():
        yield kind, cell, [draw((batch, width)), draw((batch, width)), *weights(rng, kind, width, width)]
    for kind in GATES:
        both = [*weights(rng, kind, width, width), *weights(rng, kind, width, width)]
        yield (
            f"bidirectional {kind}",
            lambda x, *w, kind=kind: bidirectional(x, mask, *w, cell=kind),
            [draw((batch, steps, width)), *both],
        )
        for masked in (None, mask):
            yield (
                f"bahdanau_decoder {kind}{' masked' * (masked is not None)}",
                lambda words, s, h, k, *w, kind=kind, masked=masked: bahdanau_decoder(
                    words, s, h, k, masked, *w, cell=kind
                ),
                [
                    *(draw((batch, count, width)), draw((batch, width))),
                    *(draw((batch, steps, width)), draw((batch, steps, width))),
                    *(draw((width, width)), draw(width), *weights(rng, kind, 2 * width, width)),
                ],
            )


SHAPES = [(1, 1, 1, 1), (1, 1, 1, 3), (1, 3, 1, 2), (1, 1, 3, 2), (3, 1, 1, 2), (2, 3, 2, 1), (2, 3, 2, 3)]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "B{} T{} N{} H{}".format(*shape))
def test_inputs_and_gradients_are_not_written_to_and_the_definition_agrees(shape: tuple[int, ...]) -> None:
    for name, function, arrays in cases(*shape):
        inputs = [ta.Tensor(array, requires_grad=True) for array in arrays]
        output = function(*inputs)
        value = output.data.copy()
        upstream = np.random.default_rng(1).standard_normal(output.shape)
        before = upstream.copy()
        first = ta.grad(output, inputs, upstream)
        kept = [g.data.copy() for g in first]
        np.testing.assert_array_equal(upstream, before, err_msg=name)
        second = ta.grad(output, inputs, upstream)
        for x, array, a, b, c in zip(inputs, arrays, first, second, kept, strict=True):
            np.testing.assert_array_equal(x.data, array, err_msg=name)
            np.testing.assert_array_equal(a.data, b.data, err_msg=name)
            np.testing.assert_array_equal(a.data, c, err_msg=name)  # the second pass left the first's alone
            assert not any(np.shares_memory(a.data, other) for other in (upstream, output.data, *arrays)), (
                name
            )
        np.testing.assert_array_equal(output.data, value, err_msg=name)
        with ta.explicit():
            definition = function(*inputs)
        np.testing.assert_allclose(output.data, definition.data, rtol=1e-12, atol=1e-13, err_msg=name)
        for a, b in zip(first, ta.grad(definition, inputs, upstream), strict=True):
            np.testing.assert_allclose(a.data, b.data, rtol=1e-11, atol=1e-12, err_msg=name)
