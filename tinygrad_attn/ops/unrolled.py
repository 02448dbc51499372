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
from tinygrad_attn.ops import steps
from tinygrad_attn.ops.attention import additive_scores, weighted_sum
from tinygrad_attn.ops.buffers import Buffers, end_to_end, recurrent_weight_gradient
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
    columns = words.transpose(1, 2, 0)  # (N, E, B)
    gates = np.matmul(w_ih[:, :inner], columns)  # (N, G·H, B), to which each step adds the context's share
    gates += b_ih[:, None]
    w_c, b = np.ascontiguousarray(w_ih[:, inner:]), b_hh[:, None]
    buffers = Buffers(step, count, (), size, batch, dtype)
    buffers.start(initial.T)
    hidden = np.empty((count, batch, length, len(v_a)), dtype)
    alpha = np.empty((count, batch, length), dtype)
    contexts = np.empty((count, batch, width), dtype)
    absent = None if mask is None else ~mask
    one, least = steps.constant(1, dtype), np.finfo(dtype).min
    query, share = np.empty((batch, 1, len(v_a)), dtype), np.empty((len(w_ih), batch), dtype)
    for i in range(count):
        state = buffers.state[i]
        np.matmul(state[0].T, w_a.T, out=query[:, 0])
        np.add(keys, query, out=hidden[i])
        np.tanh(hidden[i], out=hidden[i])
        scores = alpha[i]
        np.matmul(hidden[i].reshape(-1, len(v_a)), v_a, out=scores.reshape(-1))
        if absent is not None:
            scores[absent] = -np.inf
        scores -= np.maximum.reduce(scores, axis=1, keepdims=True, initial=least)
        np.exp(scores, out=scores)
        total = np.add.reduce(
            scores, axis=1, keepdims=True
        )  # at least 1, the largest entry's share, or 0 for none
        scores /= np.maximum(total, one, out=total)
        np.matmul(scores[:, None], annotations, out=contexts[i][:, None])
        np.matmul(w_c, contexts[i].T, out=share)
        gates[i] += share
        step.forward(gates[i], state, w_hh, b, buffers.state[i + 1], buffers.kept[i])
    read = np.empty((batch, count, size + width + inner), dtype)
    read[:, :, :size] = buffers.states[0][1:].transpose(2, 0, 1)
    read[:, :, size : size + width] = contexts.transpose(1, 0, 2)
    read[:, :, size + width :] = words
    return read, (hidden, alpha, contexts, buffers)


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
    hidden, alpha, contexts, buffers = saved
    (count, batch, length, a), size, width, inner = (
        hidden.shape,
        initial.shape[1],
        contexts.shape[2],
        words.shape[2],
    )
    dtype = g.dtype
    w_c = w_ih[:, inner:]
    upstream = np.ascontiguousarray(g[:, :, :size].transpose(1, 2, 0))  # (N, H, B)
    to_context = g[:, :, size : size + width].transpose(1, 0, 2).copy()  # (N, B, V), added to below
    grads = buffers.gradients(count)
    dx, dh, carried, arriving = grads.dx, grads.dh, grads.carried, grads.arriving
    to_scores, to_query = np.empty((count, batch, length), dtype), np.empty((count, batch, a), dtype)
    squared = np.zeros((batch, length, a), dtype)  # Σ_i ē_i tanh², for the gradient of the keys
    to_v = np.zeros(a, dtype)
    for i in reversed(range(count)):
        np.add(carried[0], upstream[i], arriving[0])
        for part, held in zip(arriving[1:], carried[1:], strict=True):
            part[...] = held
        step.backward(arriving, buffers.state[i], buffers.kept[i], w_hh, dx[i], dh[i], carried, grads.scratch)
        to_context[i] += np.matmul(dx[i].T, w_c)
        e = to_scores[i]
        np.matmul(annotations, to_context[i][:, :, None], out=e[:, :, None])
        e *= alpha[i]
        e -= alpha[i] * np.add.reduce(e, axis=1, keepdims=True)
        tanh = hidden[i]
        to_v += np.matmul(e.reshape(-1), tanh.reshape(-1, a))
        # q enters every score: its gradient is v Σ_j ē_j (1 - tanh²_j), and the keys' is the same without the
        # sum.
        term = np.multiply(tanh, tanh)
        term *= e[:, :, None]
        squared += term
        np.subtract(np.add.reduce(e, axis=1, keepdims=True), np.add.reduce(term, axis=1), out=to_query[i])
        to_query[i] *= v_a
        np.add(carried[0], np.matmul(w_a.T, to_query[i].T), carried[0])
    to_keys = np.subtract(np.add.reduce(to_scores, axis=0)[:, :, None], squared, out=squared)
    to_keys *= v_a
    to_annotations = np.matmul(alpha.transpose(1, 2, 0), to_context.transpose(1, 0, 2))
    from_x, from_h = end_to_end(dx), end_to_end(dh)
    before = end_to_end(buffers.states[0][:-1])
    reset = end_to_end(buffers.reset_states()) if step is steps.ResetBeforeGRU else None
    rows = words.transpose(1, 0, 2).reshape(-1, inner)
    to_w_ih = np.concatenate([from_x @ rows, from_x @ contexts.reshape(-1, width)], axis=1)
    to_words = np.matmul(from_x.T, w_ih[:, :inner]).reshape(count, batch, inner).transpose(1, 0, 2)
    return (
        to_words + g[:, :, size + width :],
        carried[0].T,
        to_annotations,
        to_keys,
        None,
        to_query.reshape(-1, a).T @ before.T,
        to_v,
        to_w_ih,
        recurrent_weight_gradient(step, from_h, before, reset),
        from_x.sum(axis=1),
        from_h.sum(axis=1),
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
