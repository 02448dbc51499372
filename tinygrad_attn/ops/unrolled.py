"""Bahdanau's decoder over a known target as one fused operation; its definition is the decoder step by step.

The kernel keeps the loop and drops everything around it: no tensor, no array is made for what is used once,
and what a step calls is prepared with the arrays. What does not depend on the state (the words' share of the
gates) and all gradients of weights are one product each for all steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from tinygrad_attn.engine import fused, scope
from tinygrad_attn.engine.tensor import expose
from tinygrad_attn.ops.attention import additive_scores, weighted_sum
from tinygrad_attn.ops.buffers import (
    Buffers,
    Gradients,
    input_weight,
    inputs_with_ones,
)
from tinygrad_attn.ops.calls import BYTES, Calls, call, run
from tinygrad_attn.ops.checks import Sizes
from tinygrad_attn.ops.curves import CACHED, constant, moderate, reach, tanh_of_half_, tanh_of_sum
from tinygrad_attn.ops.sequence import step_of
from tinygrad_attn.ops.shapes import concatenate, stack
from tinygrad_attn.ops.softmax import softmax
from tinygrad_attn.ops.spaces import bytes_of, pool
from tinygrad_attn.ops.steps import STEPS, Step


def _check(
    words: Any,
    initial: Any,
    annotations: Any,
    keys: Any,
    mask: Any,
    w_a: Any,
    v_a: Any,
    weights: Sequence[Any],
    step: type[Step],
) -> None:
    """Raises ValueError unless the shapes fit, TypeError for numbers that are not floating."""
    sizes = Sizes("bahdanau_decoder")
    sizes.check("words", words, ("B", "N", "E"))
    sizes.check_steps("words", "N")
    sizes.check("initial", initial, ("B", "H"))
    sizes.check("annotations", annotations, ("B", "T", "V"))
    sizes.check_steps("annotations", "T")
    sizes.check("keys", keys, ("B", "T", "A"))
    if mask is not None:
        sizes.check("mask", mask, ("B", "T"))
    sizes.check("w_a", w_a, ("A", "H"))
    sizes.check("v_a", v_a, ("A",))
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
    _check(words, initial, annotations, keys, mask, w_a, v_a, weights, STEPS[cell])
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


ATTENDING = 25
"""About how many calls a step makes besides the cell's, forward and back."""


class _Ahead(NamedTuple):
    """A step of the loop forward."""

    ask: Calls  # 2 W_a s
    near: Calls  # tanh(W_a s + U_a h), by way of exponentials
    score: Calls  # e
    weigh: Calls  # α
    enter: Calls  # the context's share of the gates
    tanh: np.ndarray  # (T, B, A)
    scores: np.ndarray  # (T, B): e, then α
    row: np.ndarray  # α, (B, 1, T)
    context: np.ndarray  # (B, 1, V)


class _Back(NamedTuple):
    """A step of the loop backward."""

    leave: Calls  # to the context, by way of the gates
    ask: Calls  # from the weights α to the state that asked
    context: np.ndarray  # (B, V, 1)


class _Space:
    """The arrays of the kernel, and what its loops call. Scores stand position by position, (T, B): what is
    the same for all positions is added block by block."""

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
        self.words = self.inputs[:, :, : 1 + inner]
        self.contexts = self.inputs[:, :, 1 + inner :]
        self.rows = np.empty((count + 1, batch, size), dtype)  # the states
        self.w_hh = np.empty((step.gates * size, size), dtype)
        self.w_c = np.empty((step.gates * size, width), dtype)
        self.w_a = np.empty((a, size), dtype)
        self.w_q = np.empty((size, a), dtype)  # 2 W_aᵀ
        self.v_a = np.empty(a, dtype)
        self.minus_v = np.empty(a, dtype)
        self.entering = np.empty((step.gates * size, batch), dtype)
        self.leaving = np.empty((batch, width), dtype)
        self.query = np.empty((batch, a), dtype)  # 2 W_a s, or its exponential
        self.asking = np.empty((size, batch), dtype)
        self.positions = np.empty((length, batch, a), dtype)  # exp(2 U_a h)
        self.hidden = np.empty((count, length, batch, a), dtype)  # tanh(W_a s + U_a h)
        self.term = np.empty((length, batch, a), dtype)
        self.squared = np.empty((length, batch, a), dtype)  # Σ_i ē_i tanh², for the gradient of the keys
        self.alpha = np.empty((count, length, batch), dtype)
        self.total = np.empty(batch, dtype)
        self.upstream = np.empty((count, size, batch), dtype)
        self.to_context = np.empty((count, batch, width), dtype)
        self.to_weights = np.empty((batch, length, 1), dtype)
        self.to_scores = np.empty((count, length, batch), dtype)
        self.shared = np.empty((length, batch), dtype)
        self.to_query = np.empty((count, batch, a), dtype)
        arrays = [
            array for array in vars(self).values() if isinstance(array, np.ndarray) and array.base is None
        ]
        self.buffers = Buffers(step, count, batch, size, dtype, [self.w_hh])
        self.gradients = Gradients(self.buffers)
        calls = count * ATTENDING * BYTES
        self.nbytes = bytes_of(*arrays) + calls + self.buffers.nbytes + self.gradients.nbytes
        self.ahead = [self._ahead(i) for i in range(count)]
        self._steps_back: list[_Back] | None = None

    def back(self) -> list[_Back]:
        """The steps of the loop backward; not made before a gradient is asked for."""
        if self._steps_back is None:
            self._steps_back = [self._back(i) for i in range(len(self.ahead))]
        return self._steps_back

    def _ahead(self, i: int) -> _Ahead:
        state, share = self.buffers.states[0][i].T, self.buffers.shares[i]
        tanh, scores = self.hidden[i], self.alpha[i]
        length, batch, a = tanh.shape
        # Positions in parts that stay near the processor while several calls go over them.
        together = max(1, CACHED // max(1, batch * a))
        parts = [slice(start, start + together) for start in range(0, length, together)]
        return _Ahead(
            ask=[call(np.matmul, state, self.w_q, self.query)],
            near=[
                call(np.exp, self.query, self.query),
                *chain.from_iterable(
                    tanh_of_sum(self.positions[part], self.query, tanh[part]) for part in parts
                ),
            ],
            score=[call(np.matmul, tanh, self.v_a, scores)],
            weigh=[
                call(np.exp, scores, scores),
                call(np.add.reduce, scores, axis=0, out=self.total),
                call(np.divide, scores, self.total, scores),
            ],
            enter=[
                call(np.matmul, self.w_c, self.contexts[i].T, self.entering),
                call(np.subtract, share, self.entering, share),
            ],
            tanh=tanh,
            scores=scores,
            row=scores.T[:, None],
            context=self.contexts[i][:, None],
        )

    def _back(self, i: int) -> _Back:
        context, carried = self.to_context[i], self.gradients.carried[0]
        tanh, weight, e, query = self.hidden[i], self.alpha[i], self.to_scores[i], self.to_query[i]
        return _Back(
            leave=[
                call(np.matmul, self.gradients.gates.to_input.T, self.w_c, self.leaving),
                call(np.add, context, self.leaving, context),
            ],
            ask=[
                call(np.multiply, self.to_weights[:, :, 0].T, weight, e),
                call(np.add.reduce, e, axis=0, out=self.total),
                call(np.multiply, weight, self.total, self.shared),
                call(np.subtract, e, self.shared, e),
                # The query enters every score: its gradient is v Σ_j ē_j (1 - tanh²_j), where Σ_j ē_j = 0, as
                # a softmax does not change when all scores do. The gradient of a key is one term of that sum.
                call(np.multiply, tanh, tanh, self.term),
                call(np.multiply, self.term, e[:, :, None], self.term),
                call(np.add, self.squared, self.term, self.squared),
                call(np.add.reduce, self.term, axis=0, out=query),
                call(np.multiply, query, self.minus_v, query),
                call(np.matmul, self.w_a.T, query.T, self.asking),
                call(np.add, carried, self.asking, carried),
            ],
            context=context[:, :, None],
        )


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
    _check(words, initial, annotations, keys, mask, w_a, v_a, weights, step)
    (batch, count, inner), (_, length, width), size = words.shape, annotations.shape, initial.shape[1]
    loan = pool.borrow(_Space, step, count, batch, inner, size, length, width, len(v_a), words.dtype)
    space: _Space = loan.space
    buffers = space.buffers
    space.words[:, :, 1:] = words.swapaxes(0, 1)
    w_e = input_weight(step, w_ih[:, :inner], b_ih, b_hh)
    # The words' share of the gates, to which each step adds the context's.
    np.matmul(w_e, space.words.swapaxes(1, 2), buffers.shares)
    np.copyto(space.w_hh, w_hh)
    np.copyto(space.w_c, w_ih[:, inner:])
    np.copyto(space.w_a, w_a)
    np.copyto(space.v_a, v_a)
    np.add(w_a.T, w_a.T, space.w_q)
    buffers.start(initial.T)
    buffers.set_bias(b_hh)
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
            buffers.step_on(i)
    np.copyto(space.rows, buffers.states[0].swapaxes(1, 2))
    read = np.empty((batch, count, size + width + inner), words.dtype)
    read[:, :, :size] = space.rows[1:].swapaxes(0, 1)
    read[:, :, size : size + width] = space.contexts.swapaxes(0, 1)
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
    w_ih = weights[0]
    space: _Space = saved.space
    hidden, alpha, grads = space.hidden, space.alpha, space.gradients
    to_scores, to_query, to_context = space.to_scores, space.to_query, space.to_context
    (count, length, batch, a), size = hidden.shape, initial.shape[1]
    width, inner = annotations.shape[2], words.shape[2]
    np.copyto(space.upstream, g[:, :, :size].transpose(1, 2, 0))
    to_context[...] = g[:, :, size : size + width].swapaxes(0, 1)
    space.squared[...] = 0
    np.negative(v_a, space.minus_v)
    grads.start()
    back = space.back()
    for i in reversed(range(count)):
        at = back[i]
        grads.step_back(i, space.upstream[i])
        run(at.leave)
        np.matmul(annotations, at.context, space.to_weights)
        run(at.ask)
    to_keys = np.subtract(np.add.reduce(to_scores, axis=0)[:, :, None], space.squared)
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
        np.matmul(to_query.reshape(count * batch, a).T, states),
        np.matmul(to_scores.reshape(-1), hidden.reshape(count * length * batch, a)),
        *grads.of_weights(inputs, states),
    )


bahdanau_decoder = fused(bahdanau_decoder_definition, _kernel, _vjp, name="bahdanau_decoder")
