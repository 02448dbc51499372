"""The bidirectional encoder's recurrence over whole sequences: one fused operation, whose definition shows each step.

The kernel runs both directions side by side: iteration k is position k for the forward cell and T-1-k for the
backward cell. The share of the input in all steps is one product, and so is each weight's gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinygrad_attn.engine import fused, scope
from tinygrad_attn.ops import steps
from tinygrad_attn.ops.elementwise import where
from tinygrad_attn.ops.recurrent import gru_cell, lstm_cell, reset_before_gru_cell, rnn_cell
from tinygrad_attn.ops.shapes import concatenate, stack

STEPS: dict[str, Any] = {
    "rnn": steps.RNN,
    "gru": steps.GRU,
    "reset_before_gru": steps.ResetBeforeGRU,
    "lstm": steps.LSTM,
}


def step_of(cell: str, x: Any, state: tuple[Any, ...], weights: Sequence[Any]) -> tuple[Any, ...]:
    """One step of the cell called `cell`: the new state, (h,) or for an LSTM (h, c)."""
    if cell == "lstm":
        return lstm_cell(x, *state, *weights)
    operation = {"rnn": rnn_cell, "gru": gru_cell, "reset_before_gru": reset_before_gru_cell}[cell]
    return (operation(x, *state, *weights),)


def _direction(x: Any, weights: Sequence[Any], mask: np.ndarray, cell: str, times: range) -> Any:
    """The states (B, T, H) after each source position, in the order of the positions; held where the mask is False."""
    zero = np.zeros((x.shape[0], weights[1].shape[1]), x.dtype)
    state = (zero,) * STEPS[cell].states
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

    x (B, T, I), mask (B, T), weights of the forward and then of the backward cell; result (B, T, 2H), zero where the
    mask is False. Bahdanau et al. 2015, 3.2.
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
    from_input += np.stack([weights[2], weights[6]])[:, :, None]
    w, b = np.stack([weights[1], weights[5]]), np.stack([weights[3], weights[7]])[:, :, None]
    state = (np.zeros((2, size, batch), x.dtype),) * step.states
    states, kept = [state], []
    for k in range(length):
        new, saved = step.forward(from_input[k], state, w, b)
        if held is not None:
            for after, before in zip(new, state, strict=True):
                np.copyto(after, before, where=held[k])
        state = new
        states.append(state)
        kept.append(saved)
    annotations = np.empty((batch, length, 2 * size), x.dtype)
    for k, (h, *_) in enumerate(states[1:]):
        annotations[:, k, :size] = h[0].T
        annotations[:, length - 1 - k, size:] = h[1].T
    if held is not None:
        annotations[~mask] = 0
    return annotations, (columns, states, kept, w, held)


def _held(mask: np.ndarray) -> np.ndarray | None:
    """Where the state is held, (T, 2, 1, B): for each iteration and direction; None if nowhere."""
    if mask.all():
        return None
    padded = ~mask.T
    return np.stack([padded, padded[::-1]], axis=1)[:, :, None]


def _vjp(
    g: np.ndarray, y: np.ndarray, x: np.ndarray, mask: np.ndarray, *weights: np.ndarray, saved: Any, cell: str, needs: Sequence[bool]
) -> tuple[Any, ...]:
    step = STEPS[cell]
    columns, states, kept, w, held = saved
    batch, length, inputs = x.shape
    size = weights[1].shape[1]
    gates = len(weights[0])
    upstream = np.empty((length, 2, size, batch), g.dtype)
    upstream[:, 0] = g[:, :, :size].transpose(1, 2, 0)
    upstream[:, 1] = g[:, ::-1, size:].transpose(1, 2, 0)
    if held is not None:
        upstream[np.broadcast_to(held, upstream.shape)] = 0
    # (2, G·H, T, B): with a step's gradients in strided blocks, all steps laid end to end are one matrix.
    dx = np.empty((2, gates, length, batch), g.dtype)
    dh = np.empty_like(dx) if step is steps.GRU else dx
    carried = tuple(np.zeros((2, size, batch), g.dtype) for _ in range(step.states))
    for k in reversed(range(length)):
        arriving = (carried[0] + upstream[k], *carried[1:])
        if held is not None:
            passing = tuple(np.where(held[k], part, 0) for part in arriving)
            arriving = tuple(np.where(held[k], 0, part) for part in arriving)
        carried = step.backward(arriving, states[k], kept[k], w, dx[:, :, k], dh[:, :, k])
        if held is not None:
            for part, passed in zip(carried, passing, strict=True):
                part += passed
    flat_x = columns.transpose(1, 0, 2).reshape(inputs, -1)
    reversed_x = columns[::-1].transpose(1, 0, 2).reshape(inputs, -1)
    before = np.stack([h for h, *_ in states[:-1]], axis=2).reshape(2, size, -1)
    gradients: list[Any] = []
    for direction, rows in enumerate((flat_x, reversed_x)):
        from_x, from_h = dx[direction].reshape(gates, -1), dh[direction].reshape(gates, -1)
        if step is steps.ResetBeforeGRU:
            reset = np.stack([saved_step[2][direction] for saved_step in kept], axis=1).reshape(size, -1)
            recurrent = np.concatenate([from_h[: 2 * size] @ before[direction].T, from_h[2 * size :] @ reset.T])
        else:
            recurrent = from_h @ before[direction].T
        gradients += [from_x @ rows.T, recurrent, from_x.sum(axis=1), from_h.sum(axis=1)]
    x_gradient = None
    if needs[0]:
        to_x = (weights[0].T @ dx[0].reshape(gates, -1)).reshape(inputs, length, batch)
        to_x += (weights[4].T @ dx[1].reshape(gates, -1)).reshape(inputs, length, batch)[:, ::-1]
        x_gradient = np.ascontiguousarray(to_x.transpose(2, 1, 0))
    return (x_gradient, None, *gradients)


bidirectional = fused(bidirectional_definition, _kernel, _vjp, name="bidirectional")
