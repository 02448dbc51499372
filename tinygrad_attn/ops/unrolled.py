"""Bahdanau's decoder over a known target as one fused operation; its definition is the decoder step by step.

The kernel keeps the loop and drops everything around it: no tensor, no array is made for what is used once.
What does not depend on the state (the words' share of the gates) and all gradients of weights are one product
each for all steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad_attn.engine import fused, scope
from tinygrad_attn.engine.tensor import expose
from tinygrad_attn.ops.attention import additive_scores, weighted_sum
from tinygrad_attn.ops.buffers import (
    Buffers,
    Gradients,
    backward_products,
    forward_products,
    input_weight,
    inputs_with_ones,
)
from tinygrad_attn.ops.curves import CACHED, constant, moderate, reach, tanh_of_half_, tanh_of_sum
from tinygrad_attn.ops.sequence import step_of
from tinygrad_attn.ops.shapes import concatenate, stack
from tinygrad_attn.ops.softmax import softmax
from tinygrad_attn.ops.spaces import bytes_of, pool
from tinygrad_attn.ops.steps import STEPS, Step


def bahdanau_decoder_definition(
    words: Any,
    initial: Any,
    annotations: Any,
    keys: Any,
    mask: Any,
    w_a: Any,
    v_a: Any,
    *weights: Any,
    cell: str,
) -> Any:
    """[s_i ; c_i ; E y_{i-1}] for every target position i: what the output layer reads.

    e = v_aᵀ tanh(W_a s_{i-1} + U_a h), α = softmax(e), c_i = Σ α_j h_j, s_i = cell([E y_{i-1} ; c_i],
    s_{i-1}).

    words (B, N, E), initial s_0 (B, H), annotations (B, T, V), keys U_a h (B, T, A), mask (B, T) or None, w_a
    (A, H), v_a (A,), the cell's four weights; result (B, N, H + V + E). An LSTM's memory starts at zero.
    Bahdanau et al. 2015, A.1.2 and A.2.2.
    """
    state: tuple[Any, ...] = (initial,) + (np.zeros(initial.shape, initial.dtype),) * (STEPS[cell].states - 1)
    read = []
    for i in range(words.shape[1]):
        with scope(f"step {i + 1}"):
            word = words[:, i]
            scores = expose(additive_scores(state[0], w_a, keys, v_a), "e")
            alpha = expose(softmax(scores, mask=mask), "α")
            context = expose(weighted_sum(alpha, annotations), "c")
            state = step_of(cell, concatenate([word, context], axis=-1), state, weights)
            expose(state[0], "s")
            read.append(concatenate([state[0], context, word], axis=-1))
    return stack(read, axis=1)


class _Space:
    """The arrays of the kernel. Scores stand position by position, (T, B): what is the same for all positions
    is added block by block."""

    def __init__(
        self,
        step: type[Step],
        count: int,
        batch: int,
        inner: int,
        size: int,
        length: int,
        width: int,
        a: int,
        dtype: Any,
    ) -> None:
        self.inputs = inputs_with_ones(count, batch, inner + width, dtype)  # [1 ; E y ; c], (N, B, 1 + E + V)
        self.words, contexts = self.inputs[:, :, : 1 + inner], self.inputs[:, :, 1 + inner :]
        self.rows = np.empty((count + 1, batch, size), dtype)  # the states
        self.entering = np.empty((step.gates * size, batch), dtype)
        self.leaving = np.empty((batch, width), dtype)
        self.query = np.empty((batch, a), dtype)  # 2 W_a s, or its exponential
        self.asking = np.empty((size, batch), dtype)
        self.positions = np.empty((length, batch, a), dtype)  # exp(2 U_a h)
        self.hidden = np.empty((count, length, batch, a), dtype)  # tanh(W_a s + U_a h)
        self.term = np.empty((length, batch, a), dtype)
        self.alpha = np.empty((count, length, batch), dtype)
        self.upstream = np.empty((count, size, batch), dtype)
        self.to_context = np.empty((count, batch, width), dtype)
        self.to_scores = np.empty((count, length, batch), dtype)
        self.to_query = np.empty((count, batch, a), dtype)
        arrays = [
            array for array in vars(self).values() if isinstance(array, np.ndarray) and array.base is None
        ]
        self.buffers = Buffers(step, count, batch, size, dtype)
        self.gradients = Gradients(self.buffers)
        self.nbytes = bytes_of(*arrays) + self.buffers.nbytes + self.gradients.nbytes
        # Positions in parts that stay near the processor while several calls go over them.
        together = max(1, CACHED // max(1, batch * a))
        parts = [slice(start, start + together) for start in range(0, length, together)]
        self.position_parts = [self.positions[part] for part in parts]
        self.steps = list(
            zip(
                self.hidden,
                [[hidden[part] for part in parts] for hidden in self.hidden],
                self.alpha,
                self.alpha.swapaxes(1, 2)[:, :, None],  # (N, B, 1, T)
                contexts[:, :, None],
                contexts.swapaxes(1, 2),
                self.buffers.shares,
                strict=True,
            )
        )
        """What the loop needs of each step, as views made once."""


def _kernel(
    words: np.ndarray,
    initial: np.ndarray,
    annotations: np.ndarray,
    keys: np.ndarray,
    mask: np.ndarray | None,
    w_a: np.ndarray,
    v_a: np.ndarray,
    *weights: np.ndarray,
    cell: str,
) -> tuple[Any, Any]:
    step, (w_ih, w_hh, b_ih, b_hh) = STEPS[cell], weights
    (batch, count, inner), (_, length, width), size = words.shape, annotations.shape, initial.shape[1]
    loan = pool.borrow(_Space, step, count, batch, inner, size, length, width, len(v_a), words.dtype)
    space: _Space = loan.space
    buffers, entering, query = space.buffers, space.entering, space.query
    space.words[:, :, 1:] = words.swapaxes(0, 1)
    w_e = input_weight(step, w_ih[:, :inner], b_ih, b_hh)
    # The words' share of the gates, to which each step adds the context's.
    np.matmul(w_e, space.words.swapaxes(1, 2), buffers.shares)
    w_c, w_q, w = w_ih[:, inner:], w_a.T + w_a.T, forward_products(step, w_hh)
    buffers.start(initial.T)
    buffers.set_bias(b_hh)
    states = buffers.states[0].swapaxes(1, 2)  # (N + 1, B, H)
    two = constant(2, keys.dtype)
    absent = None if mask is None else ~mask.T  # (T, B)
    near = moderate(keys if mask is None else keys[mask])
    if near:
        np.multiply(keys.swapaxes(0, 1), two, space.positions)
        if absent is not None:
            space.positions[absent] = 0  # what stands in a pad is not looked at
        np.exp(space.positions, space.positions)
    if absent is not None:
        nothing = absent.all(axis=0)  # a row without any position gets weights of zero
        absent &= ~nothing
    # A state is a mixture of tangents and of s_0, which bounds W_a s for all steps.
    queries = np.add.reduce(np.abs(w_a), axis=1).max(initial=0) * max(1, np.abs(initial).max(initial=0))
    bounded = queries <= reach(w_a.dtype)  # not if there is NaN
    # |e| <= Σ |v_a|: where that is small, exp(e) is a float without the largest e subtracted first.
    small = np.add.reduce(np.abs(v_a)) <= 2 * reach(v_a.dtype)
    with np.errstate(over="ignore"):
        for i, (tanh, parts, scores, row, context, column, share) in enumerate(space.steps):
            np.matmul(states[i], w_q, query)
            if near and (bounded or moderate(query, 2)):
                np.exp(query, query)
                for positions, part in zip(space.position_parts, parts, strict=True):
                    tanh_of_sum(positions, query, part)
            else:
                np.multiply(keys.swapaxes(0, 1), two, tanh)
                np.add(tanh, query, tanh)
                tanh_of_half_(tanh)
            np.matmul(tanh, v_a, scores)
            if absent is not None:
                scores[absent] = -np.inf
            if not small:
                np.subtract(scores, np.maximum.reduce(scores, axis=0), scores)
            np.exp(scores, scores)
            np.divide(scores, np.add.reduce(scores, axis=0), scores)
            if absent is not None:
                scores[:, nothing] = 0
            np.matmul(row, annotations, context)
            np.matmul(w_c, column, entering)
            np.subtract(share, entering, share)
            buffers.step_on(i, w)
    np.copyto(space.rows, states)
    read = np.empty((batch, count, size + width + inner), words.dtype)
    read[:, :, :size] = space.rows[1:].swapaxes(0, 1)
    read[:, :, size : size + width] = space.inputs[:, :, 1 + inner :].swapaxes(0, 1)
    read[:, :, size + width :] = words
    return read, loan


def _vjp(
    g: np.ndarray,
    y: np.ndarray,
    words: np.ndarray,
    initial: np.ndarray,
    annotations: np.ndarray,
    keys: np.ndarray,
    mask: np.ndarray | None,
    w_a: np.ndarray,
    v_a: np.ndarray,
    *weights: np.ndarray,
    cell: str,
    saved: Any,
) -> tuple[Any, ...]:
    step, (w_ih, w_hh, _, _) = STEPS[cell], weights
    space: _Space = saved.space
    hidden, alpha, grads = space.hidden, space.alpha, space.gradients
    to_scores, to_query, to_context, term = space.to_scores, space.to_query, space.to_context, space.term
    (count, length, batch, a), size = hidden.shape, initial.shape[1]
    width, inner = annotations.shape[2], words.shape[2]
    w_c, w = w_ih[:, inner:], backward_products(step, w_hh)
    np.copyto(space.upstream, g[:, :, :size].transpose(1, 2, 0))
    to_context[...] = g[:, :, size : size + width].swapaxes(0, 1)
    squared = np.zeros((length, batch, a), g.dtype)  # Σ_i ē_i tanh², for the gradient of the keys
    grads.start()
    minus_v = np.negative(v_a)
    for i in reversed(range(count)):
        grads.step_back(i, space.upstream[i], w)
        tanh, weight, context, e, query = hidden[i], alpha[i], to_context[i], to_scores[i], to_query[i]
        np.add(context, np.matmul(grads.gates.to_input.T, w_c, space.leaving), context)
        np.multiply(np.matmul(annotations, context[:, :, None])[:, :, 0].T, weight, e)
        np.subtract(e, weight * np.add.reduce(e, axis=0), e)
        # The query enters every score: its gradient is v Σ_j ē_j (1 - tanh²_j), where Σ_j ē_j = 0, as a
        # softmax does not change when all scores do. The gradient of a key is one term of that sum.
        np.multiply(tanh, tanh, term)
        np.multiply(term, e[:, :, None], term)
        np.add(squared, term, squared)
        np.multiply(np.add.reduce(term, axis=0), minus_v, query)
        np.add(grads.carried[0], np.matmul(w_a.T, query.T, space.asking), grads.carried[0])
    to_keys = np.subtract(np.add.reduce(to_scores, axis=0)[:, :, None], squared, squared)
    to_keys *= v_a
    to_annotations = np.matmul(alpha.transpose(2, 1, 0), to_context.swapaxes(0, 1))
    to_words = np.matmul(grads.all[0].to_input.T, w_ih[:, :inner]).reshape(count, batch, inner)
    states = space.rows[:-1].reshape(count * batch, size)
    inputs = space.inputs.reshape(count * batch, 1 + inner + width)[:, 1:]
    return (
        to_words.swapaxes(0, 1) + g[:, :, size + width :],
        grads.carried[0].T.copy(),
        to_annotations,
        to_keys.swapaxes(0, 1),
        None,
        np.matmul(to_query.reshape(-1, a).T, states),
        np.matmul(to_scores.reshape(-1), hidden.reshape(-1, a)),
        *grads.of_weights(inputs, states),
    )


bahdanau_decoder = fused(bahdanau_decoder_definition, _kernel, _vjp, name="bahdanau_decoder")
