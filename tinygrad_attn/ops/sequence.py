"""The bidirectional encoder's recurrence over whole sequences: one fused operation, whose definition shows
each step.

The kernel runs both directions side by side where they are small, else one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tinygrad_attn.engine import fused, scope
from tinygrad_attn.ops.buffers import (
    Buffers,
    Gradients,
    input_weight,
    inputs_with_ones,
    parts_of,
)
from tinygrad_attn.ops.checks import Sizes, once
from tinygrad_attn.ops.elementwise import where
from tinygrad_attn.ops.recurrent import gru_cell, lstm_cell, reset_before_gru_cell, rnn_cell
from tinygrad_attn.ops.shapes import concatenate, stack
from tinygrad_attn.ops.spaces import bytes_of, pool
from tinygrad_attn.ops.steps import STEPS, Step

OneStep = Callable[[Any, tuple[Any, ...]], tuple[Any, ...]]


def step_of(cell: str, x: Any, state: tuple[Any, ...], weights: Sequence[Any]) -> tuple[Any, ...]:
    """One step of the cell called `cell`: the new state, (h,) or for an LSTM (h, c)."""
    if cell == "lstm":
        return lstm_cell(x, *state, *weights)
    operation = {"rnn": rnn_cell, "gru": gru_cell, "reset_before_gru": reset_before_gru_cell}[cell]
    return (operation(x, *state, *weights),)


def states_over(
    x: Any, mask: np.ndarray, step: OneStep, state: tuple[Any, ...], *, reverse: bool = False
) -> Any:
    """The states h (B, T, H) after each position, in the order of the positions; from the end if `reverse`.

    `step(x_t, state)` takes x_t (B, I) and the state before, (h,) or (h, c), to the state after. Where the
    mask (B, T) is False the state is held, and what is returned is zero.
    """
    length = x.shape[1]
    states: list[Any] = [None] * length
    for t in reversed(range(length)) if reverse else range(length):
        with scope(f"step {t + 1}"):
            here = mask[:, t, None]
            if here.all():
                state = step(x[:, t], state)
                states[t] = state[0]
            else:
                new = step(where(here, x[:, t], 0), state)  # not even NaN passes from a pad
                state = tuple(where(here, after, before) for after, before in zip(new, state, strict=True))
                states[t] = where(here, new[0], 0)
    return stack(states, axis=1)


@once
def _check(step: type[Step], inputs: Sequence[Any], weights: Sequence[Any]) -> None:
    """Raises ValueError unless the shapes fit, TypeError for numbers that are not floating."""
    (x, mask), sizes = inputs, Sizes("bidirectional")
    sizes.check("x", x, ("B", "T", "I"))
    sizes.check_steps("x", "T")
    sizes.check("mask", mask, ("B", "T"))
    sizes.check_cell(step, weights[:4])
    sizes.check_cell(step, weights[4:])


def bidirectional_definition(x: Any, mask: np.ndarray, *weights: Any, cell: str) -> Any:
    """h_j = [→h_j ; ←h_j], each direction from the zero state, over the positions that the mask admits.

    x (B, T, I), mask (B, T), weights of the forward and then of the backward cell; result (B, T, 2H), zero
    where the mask is False. Bahdanau et al. 2015, 3.2.
    """
    _check(STEPS[cell], (x, mask), weights)
    zero = np.zeros((x.shape[0], weights[1].shape[1]), x.dtype)
    state = (zero,) * STEPS[cell].states

    def direction(own: Sequence[Any], reverse: bool) -> Any:
        return states_over(x, mask, lambda x, state: step_of(cell, x, state, own), state, reverse=reverse)

    with scope("forward"):
        forward = direction(weights[:4], False)
    with scope("backward"):
        backward = direction(weights[4:], True)
    return concatenate([forward, backward], axis=-1)


SIDE_BY_SIDE = 2**11
"""Entries of a state up to which both directions go side by side: that halves the calls. Beyond, their arrays
would crowd each other out of the cache."""

_ORDERS = (slice(None), slice(None, None, -1))
"""Of the source positions, in each direction."""


class _Run:
    """The arrays of directions that go side by side; step k is position k forward, and T-1-k backward."""

    def __init__(
        self, directions: Sequence[int], step: type[Step], length: int, batch: int, size: int, dtype: Any
    ) -> None:
        self.directions = directions
        columns = len(directions) * batch
        self.weights = np.empty((len(directions), step.gates * size, size), dtype)
        self.buffers = Buffers(step, length, columns, size, dtype, self.weights)
        self.gradients = Gradients(self.buffers)
        self.upstream = np.empty((length, size, columns), dtype)
        self.nbytes = self.buffers.nbytes + self.gradients.nbytes + bytes_of(self.upstream, self.weights)

    def parts_of(self, columns: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """Each direction with its columns."""
        return zip(self.directions, parts_of(columns, len(self.directions)), strict=True)

    def held(self, padded: np.ndarray | None) -> np.ndarray | None:
        """Where the state is held, past a sequence's end: (T, columns); None if nowhere."""
        if padded is None:
            return None
        return np.concatenate([padded[_ORDERS[direction]] for direction in self.directions], axis=1)


class _Space:
    """The arrays of the kernel."""

    def __init__(self, step: type[Step], length: int, batch: int, width: int, size: int, dtype: Any) -> None:
        groups: list[list[int]] = [[0, 1]] if batch * size <= SIDE_BY_SIDE else [[0], [1]]
        self.runs = [_Run(group, step, length, batch, size, dtype) for group in groups]
        self.inputs = [inputs_with_ones(length, batch, width, dtype) for _ in _ORDERS]
        self.rows = [np.empty((length + 1, batch, size), dtype) for _ in _ORDERS]  # the states
        self.arriving = np.empty((length, batch, size), dtype)
        self.nbytes = bytes_of(*self.inputs, *self.rows, self.arriving) + sum(run.nbytes for run in self.runs)


@np.errstate(invalid="ignore")  # see matrix_product
def _kernel(x: np.ndarray, mask: np.ndarray, *weights: np.ndarray, cell: str) -> tuple[Any, Any]:
    step = STEPS[cell]
    _check(step, (x, mask), weights)
    batch, length, width = x.shape
    size = weights[1].shape[1]
    loan = pool.borrow(_Space, step, length, batch, width, size, x.dtype)
    space: _Space = loan.space
    padded = None if mask.all() else ~mask.T  # (T, B)
    x = x if padded is None else np.where(mask[:, :, None], x, 0)
    annotations = np.empty((batch, length, 2, size), x.dtype)
    for run in space.runs:
        for direction, shares in run.parts_of(run.buffers.shares):
            w_ih, _, b_ih, b_hh = weights[4 * direction : 4 * direction + 4]
            inputs = space.inputs[direction]
            inputs[:, :, 1:] = x.swapaxes(0, 1)[_ORDERS[direction]]
            np.matmul(input_weight(step, w_ih, b_ih, b_hh), inputs.swapaxes(1, 2), shares)
        _forward(
            run,
            run.held(padded),
            [weights[4 * direction : 4 * direction + 4] for direction in run.directions],
        )
        for direction, states in run.parts_of(run.buffers.states[0]):
            rows = space.rows[direction]
            np.copyto(rows, states.swapaxes(1, 2))
            annotations[:, :, direction] = rows[1:].swapaxes(0, 1)[:, _ORDERS[direction]]
    if padded is not None:
        annotations[~mask] = 0
    return annotations.reshape(batch, length, 2 * size), (loan, padded)


def _forward(run: _Run, held: np.ndarray | None, weights: Sequence[Sequence[np.ndarray]]) -> None:
    """All steps of a run."""
    buffers = run.buffers
    for kept, (_, w_hh, _, _) in zip(run.weights, weights, strict=True):
        np.copyto(kept, w_hh)
    buffers.start()
    buffers.set_bias(*(b_hh for _, _, _, b_hh in weights))
    with np.errstate(over="ignore"):
        for t in range(len(buffers.shares)):
            buffers.step_on(t)
            if held is not None:
                for after, before in zip(buffers.state[t + 1], buffers.state[t], strict=True):
                    np.copyto(after, before, where=held[t])


@np.errstate(invalid="ignore")  # see matrix_product
def _vjp(g: Any, y: Any, x: Any, mask: Any, *weights: Any, saved: Any, cell: str) -> Any:
    loan, padded = saved
    space: _Space = loan.space
    batch, length, width = x.shape
    size = weights[1].shape[1]
    by_direction = g.reshape(batch, length, 2, size)
    gradients: list[Any] = []
    to_x: Any = 0
    for run in space.runs:
        for direction, upstream in run.parts_of(run.upstream):
            # By way of rows beside each other: straight from rows far apart it takes longer.
            np.copyto(space.arriving, by_direction[:, _ORDERS[direction], direction].swapaxes(0, 1))
            np.copyto(upstream, space.arriving.swapaxes(1, 2))
        grads, held = run.gradients, run.held(padded)
        grads.start()
        for t in reversed(range(length)):
            if held is None:
                grads.step_back(t, run.upstream[t])
            else:
                _back_past_pads(grads, t, run.upstream[t], held[t])
        for place, direction in enumerate(run.directions):
            inputs = space.inputs[direction].reshape(length * batch, 1 + width)[:, 1:]
            states = space.rows[direction][:-1].reshape(length * batch, size)
            gradients += grads.of_weights(inputs, states, place)
            to_inputs = np.matmul(grads.all[place].to_input.T, weights[4 * direction])
            to_x = to_x + to_inputs.reshape(length, batch, width)[_ORDERS[direction]].swapaxes(0, 1)
    return (to_x if padded is None else np.where(mask[:, :, None], to_x, 0), None, *gradients)


def _back_past_pads(grads: Gradients, t: int, upstream: np.ndarray, held: np.ndarray) -> None:
    """Where the state was held the gradient goes by the step, and none enters."""
    grads.arrive(np.where(held, 0, upstream))
    passing = [np.where(held, part, 0) for part in grads.arriving]
    for part in grads.arriving:
        np.copyto(part, 0, where=held)
    grads.leave(t)
    for part, passed in zip(grads.carried, passing, strict=True):
        part += passed


bidirectional = fused(bidirectional_definition, _kernel, _vjp, name="bidirectional")
