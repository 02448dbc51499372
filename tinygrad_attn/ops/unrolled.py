"""Bahdanau's decoder over a known target as one fused operation; its definition is the decoder step by step.

The kernel keeps the loop and drops everything around it: no tensor, no array is made for what is used once,
and what a step calls is prepared with the arrays. What does not depend on the state (the words' share of the
gates) and all gradients of weights are one product each for all steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinygrad_attn.engine import fused, scope
from tinygrad_attn.engine.tensor import expose
from tinygrad_attn.ops.attention import additive_scores, weighted_sum
from tinygrad_attn.ops.buffers import input_weight
from tinygrad_attn.ops.calls import run
from tinygrad_attn.ops.checks import Sizes, once
from tinygrad_attn.ops.curves import constant, moderate, reach, tanh_of_half_
from tinygrad_attn.ops.sequence import step_of
from tinygrad_attn.ops.shapes import concatenate, stack
from tinygrad_attn.ops.softmax import softmax
from tinygrad_attn.ops.spaces import pool
from tinygrad_attn.ops.steps import STEPS, Step
from tinygrad_attn.ops.unrolled_space import Axes, Space

_AXES = {
    "words": ("B", "N", "E"),
    "initial": ("B", "H"),
    "annotations": ("B", "T", "V"),
    "keys": ("B", "T", "A"),
    "mask": ("B", "T"),
    "w_a": ("A", "H"),
    "v_a": ("A",),
}


@once
def _check(step: type[Step], inputs: Sequence[Any], weights: Sequence[Any]) -> None:
    """Raises ValueError unless the shapes fit, TypeError for numbers that are not floating."""
    sizes = Sizes("bahdanau_decoder")
    for (name, axes), array in zip(_AXES.items(), inputs, strict=True):
        if array is not None:  # there may be no mask
            sizes.check(name, array, axes)
        if name in ("words", "annotations"):
            sizes.check_steps(name, axes[1])
    sizes["I"] = sizes["E"] + sizes["V"]
    sizes.check_cell(step, weights)


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
    _check(STEPS[cell], (words, initial, annotations, keys, mask, w_a, v_a), weights)
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


@np.errstate(invalid="ignore")  # see matrix_product
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
    step = STEPS[cell]
    _check(step, (words, initial, annotations, keys, mask, w_a, v_a), weights)
    (batch, targets, embedding), (_, positions, annotation) = words.shape, annotations.shape
    axes = Axes(batch, targets, positions, embedding, initial.shape[1], annotation, len(v_a))
    loan = pool.borrow(Space, step, axes, words.dtype)
    space: Space = loan.space
    _start(space, step, words, initial, w_a, v_a, weights)
    two = constant(2, keys.dtype)
    absent = None if mask is None else ~mask.T  # (T, B)
    near = moderate(keys if mask is None else keys[mask])
    if near:
        np.multiply(keys.swapaxes(0, 1), two, space.keys)
        if absent is not None:
            space.keys[absent] = 0  # what stands in a pad is not looked at
        np.exp(space.keys, space.keys)
    if absent is not None:
        nothing = absent.all(axis=0)  # a row without any position gets weights of zero
        absent &= ~nothing
    # A state is a mixture of tangents and of s_0, which bounds W_a s for all steps.
    queries = np.add.reduce(np.abs(w_a), axis=1).max(initial=0) * max(1, np.abs(initial).max(initial=0))
    bounded = queries <= reach(w_a.dtype)  # not if there is NaN
    space.far = not (near and bounded)
    # |e| <= Σ |v_a|: where that is small, exp(e) is a float without the largest e subtracted first.
    small = np.add.reduce(np.abs(v_a)) <= 2 * reach(v_a.dtype)
    with np.errstate(over="ignore"):
        for i, at in enumerate(space.ahead):
            run(at.ask)
            if near and (bounded or moderate(space.query, 2)):
                run(at.near)
            else:
                np.multiply(keys.swapaxes(0, 1), two, at.tanh)
                np.add(at.tanh, space.query, at.tanh)
                tanh_of_half_(at.tanh)
            run(at.score)
            if absent is not None:
                at.scores[absent] = -np.inf
            if not small:
                np.subtract(at.scores, np.maximum.reduce(at.scores, axis=0), at.scores)
            run(at.weigh)
            if absent is not None:
                at.scores[:, nothing] = 0
            np.matmul(at.row, annotations, at.context)
            run(at.enter)
            space.buffers.step_on(i)
    return _read(space, words), loan


def _start(
    space: Space,
    step: type[Step],
    words: np.ndarray,
    initial: np.ndarray,
    w_a: np.ndarray,
    v_a: np.ndarray,
    weights: Sequence[np.ndarray],
) -> None:
    """Copies what the steps read to where they read it, with the words' share of the gates, to which each
    step adds the context's."""
    w_ih, w_hh, b_ih, b_hh = weights
    embedding = space.axes.embedding
    space.words[:, :, 1:] = words.swapaxes(0, 1)
    w_e = input_weight(step, w_ih[:, :embedding], b_ih, b_hh)
    np.matmul(w_e, space.words.swapaxes(1, 2), space.buffers.shares)
    np.copyto(space.w_hh, w_hh)
    np.copyto(space.w_c, w_ih[:, embedding:])
    np.copyto(space.v_a, v_a)
    np.add(w_a.T, w_a.T, space.w_q)
    space.buffers.start(initial.T)
    space.buffers.set_bias(b_hh)


def _read(space: Space, words: np.ndarray) -> np.ndarray:
    """[s_i ; c_i ; E y_{i-1}] of all steps, a new array (B, N, H + V + E)."""
    np.copyto(space.rows, space.buffers.states[0].swapaxes(1, 2))
    batch, targets, _, embedding, state, annotation, _ = space.axes
    read = np.empty((batch, targets, state + annotation + embedding), words.dtype)
    read[:, :, :state] = space.rows[1:].swapaxes(0, 1)
    read[:, :, state : state + annotation] = space.contexts.swapaxes(0, 1)
    read[:, :, state + annotation :] = words
    return read


@np.errstate(invalid="ignore")  # see matrix_product
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
    w_ih = weights[0]
    space: Space = saved.space
    batch, targets, positions, embedding, state, annotation, score = space.axes
    grads, to_context = space.gradients, space.to_context
    to_scores, to_query = space.to_scores, space.to_query
    np.copyto(space.upstream, g[:, :, :state].transpose(1, 2, 0))
    to_context[...] = g[:, :, state : state + annotation].swapaxes(0, 1)
    space.squared[...] = 0
    np.negative(v_a, space.minus_v)
    if space.far:
        np.copyto(space.w_v, w_a)
    else:
        np.multiply(w_a, space.minus_v[:, None], space.w_v)
    grads.start()
    back = space.back()
    for i in reversed(range(targets)):
        at = back[i]
        grads.step_back(i, space.upstream[i])
        run(at.leave)
        np.matmul(annotations, at.context, at.weights)
        run(at.ask)
    if space.far:
        to_keys = space.squared * space.minus_v
    else:
        to_query *= space.minus_v
        to_keys = np.subtract(np.add.reduce(to_scores, axis=0)[:, :, None], space.squared)
        to_keys *= v_a
    to_annotations = np.matmul(space.alpha.transpose(2, 1, 0), to_context.swapaxes(0, 1))
    to_words = np.matmul(grads.all[0].to_input.T, w_ih[:, :embedding])
    states = space.rows[:-1].reshape(targets * batch, state)
    inputs = space.inputs.reshape(targets * batch, 1 + embedding + annotation)[:, 1:]
    return (
        to_words.reshape(targets, batch, embedding).swapaxes(0, 1) + g[:, :, state + annotation :],
        grads.carried[0].T.copy(),
        to_annotations,
        to_keys.swapaxes(0, 1),
        None,
        np.dot(to_query.reshape(targets * batch, score).T, states),
        np.dot(to_scores.reshape(-1), space.tanh.reshape(targets * positions * batch, score)),
        *grads.of_weights(inputs, states),
    )


bahdanau_decoder = fused(bahdanau_decoder_definition, _kernel, _vjp, name="bahdanau_decoder")
