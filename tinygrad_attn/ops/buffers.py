"""The arrays of a recurrence over several steps, and what is done with all steps at once.

The axis of steps stands right before (B, H), so that the blocks of one step are contiguous for the loop, and
all steps of one gate are one matrix (steps · B, H) for the products that come before and after it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad_attn.ops.spaces import bytes_of
from tinygrad_attn.ops.steps import ResetBeforeGRU, Step


class Buffers:
    """What `count` steps of a cell write; `lead` holds the directions, if there are several."""

    def __init__(
        self, step: type[Step], count: int, lead: tuple[int, ...], batch: int, size: int, dtype: Any
    ) -> None:
        block = (batch, size)
        self.step = step
        self.states = [np.empty((*lead, count + 1, *block), dtype) for _ in range(step.states)]
        self.kept = [
            np.empty((*lead, *((units,) if units > 1 else ()), count, *block), dtype) for units in step.kept
        ]
        self.scratch = (np.empty((*lead, step.gates, *block), dtype), np.empty((*lead, *block), dtype))
        self.state = [tuple(array[..., t, :, :] for array in self.states) for t in range(count + 1)]
        self.kept_at = [tuple(array[..., t, :, :] for array in self.kept) for t in range(count)]
        self.nbytes = bytes_of(*self.states, *self.kept, *self.scratch)

    def start(self, *initial: np.ndarray) -> None:
        """Sets the state before the first step; what is not given is zero."""
        for position, array in enumerate(self.state[0]):
            array[...] = initial[position] if position < len(initial) else 0


class Gradients:
    """What the backward pass over the steps of `buffers` writes."""

    def __init__(self, buffers: Buffers) -> None:
        step, states = buffers.step, buffers.states[0]
        *lead, after, batch, size = states.shape
        dtype, block, count = states.dtype, (batch, size), after - 1
        self.dx = np.empty((*lead, step.gates, count, *block), dtype)
        self.inner = np.empty((*lead, count, *block), dtype) if step.inner else None
        self.carried = tuple(np.zeros((*lead, *block), dtype) for _ in range(step.states))
        self.arriving = tuple(np.empty((*lead, *block), dtype) for _ in range(step.states))
        self.dx_at = [self.dx[..., t, :, :] for t in range(count)]
        self._inner_at = [None if self.inner is None else self.inner[..., t, :, :] for t in range(count)]
        self._buffers = buffers
        self.nbytes = bytes_of(self.dx, self.inner, *self.carried, *self.arriving)

    def start(self) -> None:
        """Nothing comes back from beyond the last step."""
        for part in self.carried:
            part[...] = 0

    def step_back(self, t: int, upstream: np.ndarray, w: np.ndarray) -> None:
        """From `carried` and `upstream`, for the state after step `t`, to `carried`, for the one before."""
        self.arrive(upstream)
        self.leave(t, w)

    def arrive(self, upstream: np.ndarray) -> None:
        """Sets `arriving`, the gradient for the state after a step: what was carried back, and `upstream`."""
        np.add(self.carried[0], upstream, self.arriving[0])
        for part, carried in zip(self.arriving[1:], self.carried[1:], strict=True):
            part[...] = carried

    def leave(self, t: int, w: np.ndarray) -> None:
        """From `arriving`, which is overwritten, to `carried`, the gradient for the state before step `t`."""
        buffers = self._buffers
        buffers.step.backward(
            self.arriving,
            buffers.state[t],
            buffers.state[t + 1],
            buffers.kept_at[t],
            w,
            self.dx_at[t],
            self._inner_at[t],
            self.carried,
            buffers.scratch,
        )

    def of_direction(self, direction: int | tuple[()], inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """The gradients of a cell's weights: W_ih, W_hh, b_ih, b_hh.

        `inputs` (steps · B, I + 1) are all steps' inputs, with a column of ones for the bias.
        """
        buffers, step = self._buffers, self._buffers.step
        gates, count, batch, size = self.dx[direction].shape
        rows = self.dx[direction].reshape(gates, count * batch, size)
        before = buffers.states[0][direction][:-1].reshape(count * batch, size)
        to_input = np.matmul(rows.swapaxes(1, 2), inputs)  # (G, H, I + 1)
        to_w = np.empty((gates, size, size), rows.dtype)
        to_bias = to_input[:, :, -1].copy()
        own = step.inner or step is ResetBeforeGRU  # the last gate's recurrent share is a product of its own
        together = gates - 1 if own else gates
        np.matmul(rows[:together].swapaxes(1, 2), before, out=to_w[:together])
        if self.inner is not None:
            inner = self.inner[direction].reshape(count * batch, size)
            np.matmul(inner.T, before, out=to_w[-1])
            to_bias[-1] = np.matmul(inputs[:, -1], inner)
        elif own:
            np.matmul(rows[-1].T, buffers.kept[2][direction].reshape(count * batch, size), out=to_w[-1])
        return (
            to_input[:, :, :-1].reshape(gates * size, inputs.shape[1] - 1),
            to_w.reshape(gates * size, size),
            to_input[:, :, -1].reshape(-1),
            to_bias.reshape(-1),
        )


def by_gate(w: np.ndarray, step: type[Step]) -> Any:
    """A weight (G·H, I) as (G, H, I)."""
    return w.reshape(step.gates, len(w) // step.gates, w.shape[1])


def input_weight(step: type[Step], w: np.ndarray, b_ih: np.ndarray, b_hh: np.ndarray) -> np.ndarray:
    """What inputs with a column of ones meet, (G, I + 1, H): W_ih, and the biases that simply add."""
    weight = by_gate(w, step)
    whole = np.empty((step.gates, weight.shape[2] + 1, weight.shape[1]), w.dtype)
    whole[:, :-1] = weight.swapaxes(1, 2)
    whole[:, -1] = b_ih.reshape(step.gates, -1)
    simple = step.gates - 1 if step.inner else step.gates
    whole[:simple, -1] += b_hh.reshape(step.gates, -1)[:simple]
    return whole


def inner_bias(step: type[Step], b_hh: np.ndarray) -> Any:
    """The bias that a GRU's reset gate scales, (1, H); of no use to other cells."""
    return b_hh.reshape(step.gates, 1, -1)[-1]


def inputs_with_ones(count: int, batch: int, width: int, dtype: Any) -> np.ndarray:
    """Room for inputs step by step, (count, B, width + 1), with a last column of ones for the biases."""
    inputs = np.empty((count, batch, width + 1), dtype)
    inputs[..., -1] = 1
    return inputs
