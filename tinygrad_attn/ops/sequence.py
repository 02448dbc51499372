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
from tinygrad_attn.ops.buffers import (
    Buffers,
    Gradients,
    by_gate,
    inner_bias,
    input_weight,
    inputs_with_ones,
    weight_backward,
    weight_forward,
)
from tinygrad_attn.ops.elementwise import where
from tinygrad_attn.ops.recurrent import gru_cell, lstm_cell, reset_before_gru_cell, rnn_cell
from tinygrad_attn.ops.shapes import concatenate, stack
from tinygrad_attn.ops.spaces import bytes_of, pool
from tinygrad_attn.ops.steps import STEPS, Gates, Step


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
        with scope(f"step {t + 1}"):
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


class _Space:
    """The arrays of the kernel, both directions beside each other."""

    def __init__(self, step: type[Step], length: int, batch: int, width: int, size: int, dtype: Any) -> None:
        self.inputs = np.stack([inputs_with_ones(length, batch, width, dtype)] * 2)  # (2, T, B, I + 1)
        self.gates = np.empty((step.gates, 2, length, batch, size), dtype)
        self.buffers = Buffers(step, length, (2,), batch, size, dtype)
        self.gradients = Gradients(self.buffers)
        self.upstream = np.empty((length, 2, batch, size), dtype)
        self.gates_at = [Gates.of(self.gates[:, :, t]) for t in range(length)]
        self.nbytes = bytes_of(self.inputs, self.gates, self.upstream)
        self.nbytes += self.buffers.nbytes + self.gradients.nbytes


def _kernel(x: np.ndarray, mask: np.ndarray, *weights: np.ndarray, cell: str) -> tuple[Any, Any]:
    step = STEPS[cell]
    batch, length, width = x.shape
    size = weights[1].shape[1]
    loan = pool.borrow(_Space, step, length, batch, width, size, x.dtype)
    space, held = loan.space, _held(mask)
    if held is not None:
        x = np.where(mask[:, :, None], x, 0)
    inputs, buffers = space.inputs, space.buffers
    inputs[0, :, :, :-1] = x.swapaxes(0, 1)
    inputs[1, :, :, :-1] = inputs[0, ::-1, :, :-1]
    for direction in range(2):
        w_ih, _, b_ih, b_hh = weights[4 * direction : 4 * direction + 4]
        np.matmul(
            inputs[direction].reshape(length * batch, width + 1),
            input_weight(step, w_ih, b_ih, b_hh),
            out=space.gates[:, direction].reshape(step.gates, length * batch, size),
        )
    w = weight_forward(step, weights[1], weights[5])
    b = inner_bias(step, batch, weights[3], weights[7])
    buffers.start()
    state = buffers.state
    for k, gates in enumerate(space.gates_at):
        step.forward(gates, state[k], w, b, state[k + 1], buffers.kept_at[k], buffers.scratch)
        if held is not None:
            for after, before in zip(state[k + 1], state[k], strict=True):
                np.copyto(after, before, where=held[k])
    annotations = np.empty((batch, length, 2 * size), x.dtype)
    hidden = buffers.states[0][1:]  # (T, 2, B, H)
    annotations[:, :, :size] = hidden[:, 0].swapaxes(0, 1)
    annotations[:, :, size:] = hidden[::-1, 1].swapaxes(0, 1)
    if held is not None:
        annotations[~mask] = 0
    return annotations, (loan, held)


def _held(mask: np.ndarray) -> np.ndarray | None:
    """Where the state is held, (T, 2, B, 1): for each iteration and direction; None if nowhere."""
    if mask.all():
        return None
    padded = ~mask.T
    return np.stack([padded, padded[::-1]], axis=1)[..., None]


def _vjp(g: Any, y: Any, x: Any, mask: Any, *weights: Any, saved: Any, cell: str) -> Any:
    step = STEPS[cell]
    loan, held = saved
    space: _Space = loan.space
    batch, length, width = x.shape
    size = weights[1].shape[1]
    upstream, grads = space.upstream, space.gradients
    upstream[:, 0] = g[:, :, :size].swapaxes(0, 1)
    upstream[:, 1] = g[:, ::-1, size:].swapaxes(0, 1)
    if held is not None:
        np.copyto(upstream, 0, where=held)
    w = weight_backward(step, weights[1], weights[5])
    grads.start()
    for k in reversed(range(length)):
        grads.arrive(upstream[k])
        if held is None:
            grads.leave(k, w)
            continue
        # Past a sequence's end the gradient goes by the step, to the state that was held.
        passing = [np.where(held[k], part, 0) for part in grads.arriving]
        for part in grads.arriving:
            np.copyto(part, 0, where=held[k])
        grads.leave(k, w)
        for part, passed in zip(grads.carried, passing, strict=True):
            part += passed
    dx = grads.dx
    gradients: list[Any] = []
    to_inputs: Any = 0
    for direction, order in enumerate((slice(None), slice(None, None, -1))):
        gradients += grads.of_direction(direction, space.inputs[direction].reshape(length * batch, width + 1))
        rows = dx[:, direction].reshape(step.gates, length * batch, size)
        shares = np.matmul(rows, by_gate(weights[4 * direction], step))
        to_inputs = to_inputs + np.add.reduce(shares, axis=0).reshape(length, batch, width)[order]
    to_x = to_inputs.swapaxes(0, 1)
    return (to_x if held is None else np.where(mask[:, :, None], to_x, 0), None, *gradients)


bidirectional = fused(bidirectional_definition, _kernel, _vjp, name="bidirectional")
