"""The bidirectional encoder's recurrence over whole sequences: one fused operation, whose definition shows
each step.

The kernel runs both directions side by side: iteration k is position k for the forward cell and T-1-k for the
backward cell. The share of the input in all steps is one product, and so is each weight's gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinygrad_attn.engine import fused, scope
from tinygrad_attn.engine.workers import Sharded
from tinygrad_attn.ops import steps
from tinygrad_attn.ops.buffers import Buffers, end_to_end, recurrent_weight_gradient
from tinygrad_attn.ops.elementwise import where
from tinygrad_attn.ops.recurrent import gru_cell, lstm_cell, reset_before_gru_cell, rnn_cell
from tinygrad_attn.ops.shapes import concatenate, stack
from tinygrad_attn.ops.steps import STEPS


def step_of(cell: str, x: Any, state: tuple[Any, ...], weights: Sequence[Any]) -> tuple[Any, ...]:
    """One step of the cell called `cell`: the new state, (h,) or for an LSTM (h, c)."""
    if cell == "lstm":
        return lstm_cell(x, *state, *weights)
    operation = {"rnn": rnn_cell, "gru": gru_cell, "reset_before_gru": reset_before_gru_cell}[cell]
    return (operation(x, *state, *weights),)


def _direction(x: Any, weights: Sequence[Any], mask: np.ndarray, cell: str, times: range) -> Any:
    """The states (B, T, H) after each source position, in the order of the positions; held where the mask is
    False."""
    zero = np.zeros((x.shape[0], weights[1].shape[1]), x.dtype)
    state: tuple[Any, ...] = (zero,) * STEPS[cell].states
    states: list[Any] = [None] * len(times)
    for t in times:
        with scope(f"step {t}"):
            here = mask[:, t, None]
            if here.all():
                state = step_of(cell, x[:, t], state, weights)
                states[t] = state[0]
            else:
                new = step_of(cell, where(here, x[:, t], 0), state, weights)  # not even NaN passes from a pad
                state = tuple(where(here, after, before) for after, before in zip(new, state, strict=True))
                states[t] = where(here, new[0], 0)
    return stack(states, axis=1)


def bidirectional_definition(x: Any, mask: np.ndarray, *weights: Any, cell: str) -> Any:
    """h_j = [→h_j ; ←h_j], each direction from the zero state, over the positions that the mask admits.

    x (B, T, I), mask (B, T), weights of the forward and then of the backward cell; result (B, T, 2H), zero
    where the mask is False. Bahdanau et al. 2015, 3.2.
    """
    length = x.shape[1]
    with scope("forward"):
        forward = _direction(x, weights[:4], mask, cell, range(length))
    with scope("backward"):
        backward = _direction(x, weights[4:], mask, cell, range(length - 1, -1, -1))
    return concatenate([forward, backward], axis=-1)


def _kernel(x: np.ndarray, mask: np.ndarray, *weights: np.ndarray, cell: str) -> tuple[Any, Any]:
    step = STEPS[cell]
    batch, length, _ = x.shape
    size = weights[1].shape[1]
    held = _held(mask)
    columns = np.ascontiguousarray(x.transpose(1, 2, 0))  # (T, I, B)
    if held is not None:
        columns = np.where(held[:, 0], 0, columns)  # not even NaN passes from a pad
    from_input = np.empty((length, 2, len(weights[0]), batch), x.dtype)
    np.matmul(weights[0], columns, out=from_input[:, 0])
    np.matmul(weights[4], columns[::-1], out=from_input[:, 1])
    from_input += _pair(weights[2], weights[6])[:, :, None]
    w, b = _pair(weights[1], weights[5]), _pair(weights[3], weights[7])[:, :, None]
    buffers = Buffers(step, length, (2,), size, batch, x.dtype)
    buffers.start()
    state, kept = buffers.state, buffers.kept
    for k in range(length):
        step.forward(from_input[k], state[k], w, b, state[k + 1], kept[k])
        if held is not None:
            for after, before in zip(state[k + 1], state[k], strict=True):
                np.copyto(after, before, where=held[k])
    annotations = np.empty((batch, length, 2 * size), x.dtype)
    hidden = buffers.states[0][1:]  # (T, 2, H, B)
    annotations[:, :, :size] = hidden[:, 0].transpose(2, 0, 1)
    annotations[:, :, size:] = hidden[::-1, 1].transpose(2, 0, 1)
    if held is not None:
        annotations[~mask] = 0
    return annotations, (columns, buffers, w, held)


def _pair(forward: np.ndarray, backward: np.ndarray) -> np.ndarray:
    """The two directions' weights, beside each other on a new first axis."""
    pair = np.empty((2, *forward.shape), forward.dtype)
    pair[0], pair[1] = forward, backward
    return pair


def _held(mask: np.ndarray) -> np.ndarray | None:
    """Where the state is held, (T, 2, 1, B): for each iteration and direction; None if nowhere."""
    if mask.all():
        return None
    padded = ~mask.T
    return np.stack([padded, padded[::-1]], axis=1)[:, :, None]


def _vjp(
    g: np.ndarray, y: np.ndarray, x: np.ndarray, mask: np.ndarray, *weights: np.ndarray, saved: Any, cell: str
) -> Any:
    step = STEPS[cell]
    columns, buffers, w, held = saved
    batch, length, inputs = x.shape
    size = weights[1].shape[1]
    upstream = np.empty((length, 2, size, batch), g.dtype)
    upstream[:, 0] = g[:, :, :size].transpose(1, 2, 0)
    upstream[:, 1] = g[:, ::-1, size:].transpose(1, 2, 0)
    if held is not None:
        upstream[np.broadcast_to(held, upstream.shape)] = 0
    grads = buffers.gradients(length)
    carried, arriving = grads.carried, grads.arriving
    passing: list[np.ndarray] = []
    for k in reversed(range(length)):
        np.add(carried[0], upstream[k], arriving[0])
        for part, before in zip(arriving[1:], carried[1:], strict=True):
            part[...] = before
        if (
            held is not None
        ):  # past the end of a sequence the gradient goes by the step, to the state that was held
            passing = [np.where(held[k], part, 0) for part in arriving]
            for part in arriving:
                np.copyto(part, 0, where=held[k])
        step.backward(
            arriving, buffers.state[k], buffers.kept[k], w, grads.dx[k], grads.dh[k], carried, grads.scratch
        )
        for part, passed in zip(carried, passing):  # noqa: B905 - nothing passes where nothing is held
            part += passed
    to_inputs: Any = 0
    gradients: list[Any] = []
    for direction, order in enumerate((slice(None), slice(None, None, -1))):
        from_x, from_h = end_to_end(grads.dx[:, direction]), end_to_end(grads.dh[:, direction])
        before = end_to_end(buffers.states[0][:-1, direction])
        reset = None
        if step is steps.ResetBeforeGRU:
            reset = end_to_end(buffers.reset_states()[:, direction])
        gradients += [
            np.matmul(from_x, end_to_end(columns[order]).T),
            recurrent_weight_gradient(step, from_h, before, reset),
            from_x.sum(axis=1),
            from_h.sum(axis=1),
        ]
        to_inputs = (
            to_inputs + np.matmul(weights[4 * direction].T, from_x).reshape(inputs, length, batch)[:, order]
        )
    return (to_inputs.transpose(2, 1, 0), None, *gradients)


def _work(x: np.ndarray, mask: np.ndarray, *weights: np.ndarray, cell: str) -> float:
    """Multiplications in one step: both directions' recurrent products."""
    return 2 * len(x) * weights[1].size


_sharded = Sharded(_kernel, _vjp, (True, True), _work)
bidirectional = fused(bidirectional_definition, _sharded.kernel, _sharded.kernel_vjp, name="bidirectional")
