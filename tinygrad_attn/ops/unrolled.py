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
from tinygrad_attn.engine.workers import Sharded
from tinygrad_attn.ops.attention import additive_scores, weighted_sum
from tinygrad_attn.ops.buffers import Buffers, Gradients, by_gate, inner_bias, input_weight, with_ones
from tinygrad_attn.ops.sequence import step_of
from tinygrad_attn.ops.shapes import concatenate, stack
from tinygrad_attn.ops.softmax import softmax
from tinygrad_attn.ops.steps import STEPS


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
    dtype = words.dtype
    inputs = with_ones(words)  # (N, B, E + 1)
    gates = np.empty((step.gates, count, batch, size), dtype)  # to which each step adds the context's share
    np.matmul(
        inputs.reshape(count * batch, inner + 1),
        input_weight(step, w_ih[:, :inner], b_ih, b_hh),
        out=gates.reshape(step.gates, count * batch, size),
    )
    w_c, w, b = by_gate(w_ih, step)[:, :, inner:].swapaxes(1, 2), by_gate(w_hh, step), inner_bias(step, b_hh)
    buffers = Buffers(step, count, (), batch, size, dtype)
    buffers.start(initial)
    state = buffers.state
    # Scores stand position by position, (T, B): what is the same for all positions is added block by block.
    positions = np.ascontiguousarray(keys.swapaxes(0, 1))  # (T, B, A)
    hidden = np.empty((count, *positions.shape), dtype)
    alpha = np.empty((count, length, batch), dtype)
    contexts = np.empty((count, batch, width), dtype)
    absent = None if mask is None else ~mask.T  # (T, B)
    if absent is not None:
        nothing = absent.all(axis=0)  # a row without any position gets weights of zero
        absent &= ~nothing
    share = np.empty((step.gates, batch, size), dtype)
    for i in range(count):
        tanh, scores = hidden[i], alpha[i]
        np.add(positions, np.matmul(state[i][0], w_a.T), tanh)
        np.tanh(tanh, tanh)
        np.matmul(tanh, v_a, out=scores)
        if absent is not None:
            scores[absent] = -np.inf
        scores -= np.maximum.reduce(scores, axis=0)
        np.exp(scores, scores)
        scores /= np.add.reduce(scores, axis=0)
        if absent is not None:
            scores[:, nothing] = 0
        np.matmul(scores.T[:, None], annotations, out=contexts[i][:, None])
        np.matmul(contexts[i], w_c, out=share)
        entering = gates[:, i]
        entering += share
        step.forward(entering, state[i], w, b, state[i + 1], buffers.kept_at[i], buffers.scratch)
    read = np.empty((batch, count, size + width + inner), dtype)
    read[:, :, :size] = buffers.states[0][1:].swapaxes(0, 1)
    read[:, :, size : size + width] = contexts.swapaxes(0, 1)
    read[:, :, size + width :] = words
    return read, (inputs, hidden, alpha, contexts, buffers)


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
    inputs, hidden, alpha, contexts, buffers = saved
    (count, length, batch, a), size, width, inner = (
        hidden.shape,
        initial.shape[1],
        contexts.shape[2],
        words.shape[2],
    )
    dtype = g.dtype
    w_c, w = by_gate(w_ih, step)[:, :, inner:], by_gate(w_hh, step)
    upstream = np.ascontiguousarray(g[:, :, :size].swapaxes(0, 1))  # (N, B, H)
    to_context = g[:, :, size : size + width].swapaxes(0, 1).copy()  # (N, B, V), added to below
    grads = Gradients(buffers)
    carried, arriving = grads.carried, grads.arriving
    to_scores, to_query = np.empty((count, length, batch), dtype), np.empty((count, batch, a), dtype)
    squared = np.zeros((length, batch, a), dtype)  # Σ_i ē_i tanh², for the gradient of the keys
    for i in reversed(range(count)):
        np.add(carried[0], upstream[i], arriving[0])
        for part, before in zip(arriving[1:], carried[1:], strict=True):
            part[...] = before
        grads.step_back(i, w)
        to_context[i] += np.add.reduce(np.matmul(grads.dx[:, i], w_c), axis=0)
        e = to_scores[i]
        e[...] = np.matmul(annotations, to_context[i][:, :, None])[:, :, 0].T
        e *= alpha[i]
        e -= alpha[i] * np.add.reduce(e, axis=0)
        # q enters every score: its gradient is v Σ_j ē_j (1 - tanh²_j), the keys' the same without the sum.
        term = np.multiply(hidden[i], hidden[i])
        term *= e[:, :, None]
        squared += term
        query = to_query[i]
        np.subtract(np.add.reduce(e, axis=0)[:, None], np.add.reduce(term, axis=0), query)
        query *= v_a
        np.add(carried[0], np.matmul(query, w_a), carried[0])
    to_keys = np.subtract(np.add.reduce(to_scores, axis=0)[:, :, None], squared, squared)
    to_keys *= v_a
    to_annotations = np.matmul(alpha.transpose(2, 1, 0), to_context.swapaxes(0, 1))
    rows = grads.dx.reshape(step.gates, count * batch, size)
    to_words = np.add.reduce(np.matmul(rows, by_gate(w_ih, step)[:, :, :inner]), axis=0)
    from_words, *others = grads.of_direction((), inputs.reshape(count * batch, inner + 1))
    from_contexts = np.matmul(rows.swapaxes(1, 2), contexts.reshape(-1, width)).reshape(len(w_ih), width)
    return (
        to_words.reshape(count, batch, inner).swapaxes(0, 1) + g[:, :, size + width :],
        carried[0],
        to_annotations,
        to_keys.swapaxes(0, 1),
        None,
        np.matmul(to_query.reshape(-1, a).T, buffers.states[0][:-1].reshape(-1, size)),
        np.matmul(to_scores.reshape(-1), hidden.reshape(-1, a)),
        np.concatenate([from_words, from_contexts], axis=1),
        *others,
    )


def _work(
    words: np.ndarray, initial: np.ndarray, annotations: np.ndarray, keys: np.ndarray, *others: Any, cell: str
) -> Any:
    """Multiplications in one step: the cell's products, and the scores, whose tanh costs as much as 16 of
    them."""
    w_ih, w_hh = others[3], others[4]
    return len(words) * (w_ih.size + w_hh.size) + 16 * keys.size


_sharded = Sharded(_kernel, _vjp, (True,) * 5, _work)
bahdanau_decoder = fused(
    bahdanau_decoder_definition, _sharded.kernel, _sharded.kernel_vjp, name="bahdanau_decoder"
)
