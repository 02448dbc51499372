"""The bidirectional encoder's recurrence over whole sequences: one fused operation, whose definition shows
each step.

The kernel runs one direction after the other, which is quicker than both side by side: their blocks would lie
apart, and each weight is one product with its state. So is each weight's gradient, for all steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinygrad_attn.engine import fused, scope
from tinygrad_attn.ops.buffers import (
    Buffers,
    Gradients,
    backward_products,
    forward_products,
    input_weight,
    inputs_with_ones,
)
from tinygrad_attn.ops.elementwise import where
from tinygrad_attn.ops.recurrent import gru_cell, lstm_cell, reset_before_gru_cell, rnn_cell
from tinygrad_attn.ops.shapes import concatenate, stack
from tinygrad_attn.ops.spaces import bytes_of, pool
from tinygrad_attn.ops.steps import STEPS, Products, Step


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
    """The arrays of the kernel, for each direction."""

    def __init__(self, step: type[Step], length: int, batch: int, width: int, size: int, dtype: Any) -> None:
        self.inputs = [inputs_with_ones(length, batch, width, dtype) for _ in range(2)]
        self.buffers = [Buffers(step, length, batch, size, dtype) for _ in range(2)]
        self.gradients = [Gradients(buffers) for buffers in self.buffers]
        self.rows = [np.empty((length + 1, batch, size), dtype) for _ in range(2)]  # the states
        self.arriving = np.empty((length, batch, size), dtype)
        self.upstream = np.empty((length, size, batch), dtype)
        self.nbytes = bytes_of(*self.inputs, *self.rows, self.arriving, self.upstream)
        self.nbytes += sum(buffers.nbytes for buffers in self.buffers)
        self.nbytes += sum(gradients.nbytes for gradients in self.gradients)


_ORDERS = (slice(None), slice(None, None, -1))
"""Of the source positions, in each direction."""


def _kernel(x: np.ndarray, mask: np.ndarray, *weights: np.ndarray, cell: str) -> tuple[Any, Any]:
    step = STEPS[cell]
    batch, length, width = x.shape
    size = weights[1].shape[1]
    loan = pool.borrow(_Space, step, length, batch, width, size, x.dtype)
    space, padded = loan.space, None if mask.all() else ~mask.T  # (T, B)
    if padded is not None:
        x = np.where(mask[:, :, None], x, 0)
    annotations = np.empty((batch, length, 2 * size), x.dtype)
    for direction, order in enumerate(_ORDERS):
        w_ih, w_hh, b_ih, b_hh = weights[4 * direction : 4 * direction + 4]
        inputs, buffers, rows = space.inputs[direction], space.buffers[direction], space.rows[direction]
        inputs[:, :, 1:] = x.swapaxes(0, 1)[order]
        np.matmul(input_weight(step, w_ih, b_ih, b_hh), inputs.swapaxes(1, 2), buffers.shares)
        w = forward_products(step, w_hh)
        buffers.start()
        buffers.set_bias(b_hh)
        held = None if padded is None else padded[order]
        with np.errstate(over="ignore"):
            for t in range(length):
                buffers.step_on(t, w)
                if held is not None:  # past a sequence's end its state stays
                    for after, before in zip(buffers.state[t + 1], buffers.state[t], strict=True):
                        np.copyto(after, before, where=held[t])
        np.copyto(rows, buffers.states[0].swapaxes(1, 2))
        annotations[:, :, direction * size : (direction + 1) * size] = rows[1:].swapaxes(0, 1)[:, order]
    if padded is not None:
        annotations[~mask] = 0
    return annotations, (loan, padded)


def _vjp(g: Any, y: Any, x: Any, mask: Any, *weights: Any, saved: Any, cell: str) -> Any:
    step = STEPS[cell]
    loan, padded = saved
    space: _Space = loan.space
    batch, length, width = x.shape
    size = weights[1].shape[1]
    gradients: list[Any] = []
    to_x: Any = 0
    for direction, order in enumerate(_ORDERS):
        w_ih, w_hh = weights[4 * direction : 4 * direction + 2]
        upstream, grads = space.upstream, space.gradients[direction]
        # By way of rows beside each other: straight from rows far apart it takes two or three times as long.
        np.copyto(space.arriving, g[:, order, direction * size : (direction + 1) * size].swapaxes(0, 1))
        np.copyto(upstream, space.arriving.swapaxes(1, 2))
        held = None if padded is None else padded[order]
        w = backward_products(step, w_hh)
        grads.start()
        for t in reversed(range(length)):
            if held is None:
                grads.step_back(t, upstream[t], w)
            else:
                _back_past_pads(grads, t, upstream[t], held[t], w)
        inputs = space.inputs[direction].reshape(length * batch, 1 + width)[:, 1:]
        gradients += grads.of_weights(inputs, space.rows[direction][:-1].reshape(length * batch, size))
        to_inputs = np.matmul(grads.all.to_input.T, w_ih).reshape(length, batch, width)
        to_x = to_x + to_inputs[order].swapaxes(0, 1)
    return (to_x if padded is None else np.where(mask[:, :, None], to_x, 0), None, *gradients)


def _back_past_pads(grads: Gradients, t: int, upstream: np.ndarray, held: np.ndarray, w: Products) -> None:
    """Past a sequence's end, where its state was held, (B,), the gradient goes by the step; none enters."""
    grads.arrive(np.where(held, 0, upstream))
    passing = [np.where(held, part, 0) for part in grads.arriving]
    for part in grads.arriving:
        np.copyto(part, 0, where=held)
    grads.leave(t, w)
    for part, passed in zip(grads.carried, passing, strict=True):
        part += passed


bidirectional = fused(bidirectional_definition, _kernel, _vjp, name="bidirectional")
