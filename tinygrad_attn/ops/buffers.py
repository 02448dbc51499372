"""The arrays of a recurrence over several steps, and what is done with all steps at once.

What a forward step writes is one contiguous array a step. What enters the products that come before and
after the loop, such as the gates' gradients, has the axis of steps right before (B, H), so that all steps of
one gate are one matrix (steps · B, H).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad_attn.ops.spaces import bytes_of
from tinygrad_attn.ops.steps import Gates, Scratch, Step


class Buffers:
    """What `count` steps of a cell write; `lead` holds the directions, if there are several."""

    def __init__(
        self, step: type[Step], count: int, lead: tuple[int, ...], batch: int, size: int, dtype: Any
    ) -> None:
        block = (*lead, batch, size)
        self.step = step
        self.states = [np.empty((count + 1, *block), dtype) for _ in range(step.states)]
        self.kept = [np.empty((count, units, *block), dtype) for units in step.kept]
        self.state = list(zip(*self.states, strict=True))
        self.kept_at = [tuple(_with_blocks(array[t] for array in self.kept)) for t in range(count)]
        self.scratch = Scratch(
            Gates.of(np.empty((step.gates, *block), dtype)),
            np.empty(block, dtype),
            np.empty(block, dtype),
        )
        self.nbytes = bytes_of(*self.states, *self.kept, self.scratch.gates.whole, *self.scratch[1:])

    def start(self, *initial: np.ndarray) -> None:
        """Sets the state before the first step; what is not given is zero."""
        for position, array in enumerate(self.state[0]):
            array[...] = initial[position] if position < len(initial) else 0


def _with_blocks(arrays: Any) -> Any:
    """Each array, followed by its blocks; of an array of a single block, only that."""
    for array in arrays:
        if len(array) > 1:
            yield array
        yield from array


class Gradients:
    """What the backward pass over the steps of `buffers` writes."""

    def __init__(self, buffers: Buffers) -> None:
        step, states = buffers.step, buffers.states[0]
        dtype, count, block = states.dtype, len(states) - 1, states.shape[1:]
        units = step.gates + step.inner
        *lead, batch, size = block
        self._by_gate = np.empty((units, *lead, count, batch, size), dtype)
        blocks_at = np.moveaxis(self._by_gate, -3, 0)  # the same as the steps write it
        self._blocks_at = [Gates.of(blocks) for blocks in blocks_at]
        self.dx_at = [blocks[1:] if step.inner else blocks for blocks in blocks_at]
        """The gradients for the gates' input share, (G, ..., B, H) of each step."""
        self.dx = self._by_gate[1:] if step.inner else self._by_gate
        """The same of all steps, each gate in one piece: (G, ..., count, B, H)."""
        self.carried = tuple(np.zeros(block, dtype) for _ in range(step.states))
        self.arriving = tuple(np.empty(block, dtype) for _ in range(step.states))
        self._buffers = buffers
        self.nbytes = bytes_of(self._by_gate, *self.carried, *self.arriving)

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
        if len(self.carried) > 1:  # an LSTM's memory
            np.copyto(self.arriving[1], self.carried[1])

    def leave(self, t: int, w: np.ndarray) -> None:
        """From `arriving`, which is overwritten, to `carried`, the gradient for the state before step `t`."""
        buffers = self._buffers
        buffers.step.backward(
            self.arriving,
            buffers.state[t],
            buffers.state[t + 1],
            buffers.kept_at[t],
            w,
            self._blocks_at[t],
            self.carried,
            buffers.scratch,
        )

    def of_direction(self, direction: int | tuple[()], inputs: np.ndarray) -> tuple[np.ndarray, ...]:
        """After all steps, the gradients of a cell's weights: W_ih, W_hh, b_ih, b_hh.

        `inputs` (steps · B, I + 1) are all steps' inputs, with a column of ones for the bias.
        """
        buffers, step = self._buffers, self._buffers.step
        at = (slice(None), direction) if isinstance(direction, int) else ()
        blocks = self._by_gate[at]
        units, count, batch, size = blocks.shape
        blocks = blocks.reshape(units, count * batch, size)
        rows, gates = blocks[1:] if step.inner else blocks, step.gates
        before = buffers.states[0][:-1][at].reshape(count * batch, size)
        to_input = np.matmul(rows.swapaxes(1, 2), inputs)  # (G, H, I + 1)
        to_w = np.empty((gates, size, size), rows.dtype)
        to_bias = to_input[:, :, -1].copy()
        alike = gates - 1 if step.inner or step.outer else gates
        np.matmul(rows[:alike].swapaxes(1, 2), before, out=to_w[:alike])
        if step.inner:
            np.matmul(blocks[0].T, before, out=to_w[-1])
            np.add.reduce(blocks[0], axis=0, out=to_bias[-1])
        elif step.outer:
            entered = buffers.kept[-1][:, 0][at].reshape(count * batch, size)
            np.matmul(rows[-1].T, entered, out=to_w[-1])
        return (
            to_input[:, :, :-1].reshape(gates * size, inputs.shape[1] - 1),
            to_w.reshape(gates * size, size),
            to_input[:, :, -1].reshape(-1),
            to_bias.reshape(-1),
        )


def by_gate(w: np.ndarray, step: type[Step]) -> Any:
    """A weight (G·H, I) as (G, H, I)."""
    return w.reshape(step.gates, len(w) // step.gates, w.shape[1])


def weight_forward(step: type[Step], *w: np.ndarray) -> np.ndarray:
    """W_hh as the forward steps multiply with it: (G, H, H), or (G, D, H, H) of several directions."""
    return _beside([by_gate(each, step).swapaxes(1, 2) for each in w])


def weight_backward(step: type[Step], *w: np.ndarray) -> np.ndarray:
    """W_hh as the backward steps multiply with it: (G, H, H), or (G, D, H, H) of several directions.

    The gate whose recurrent share has a gradient of its own comes first, as its block does.
    """
    gates = [by_gate(each, step) for each in w]
    if step.inner:
        gates = [np.concatenate([each[-1:], each[:-1]]) for each in gates]
    return gates[0] if len(w) == 1 else _beside(gates)


def _beside(weights: list[np.ndarray]) -> np.ndarray:
    """Several directions' (G, ...) as (G, D, ...), one as it is; in C order."""
    if len(weights) == 1:
        return np.ascontiguousarray(weights[0])
    whole = np.empty((len(weights[0]), len(weights), *weights[0].shape[1:]), weights[0].dtype)
    for direction, weight in enumerate(weights):
        whole[:, direction] = weight
    return whole


def input_weight(step: type[Step], w: np.ndarray, b_ih: np.ndarray, b_hh: np.ndarray) -> np.ndarray:
    """What inputs with a column of ones meet, (G, I + 1, H): W_ih, and the biases that simply add."""
    weight = by_gate(w, step)
    whole = np.empty((step.gates, weight.shape[2] + 1, weight.shape[1]), w.dtype)
    whole[:, :-1] = weight.swapaxes(1, 2)
    whole[:, -1] = b_ih.reshape(step.gates, -1)
    simple = step.gates - 1 if step.inner else step.gates
    whole[:simple, -1] += b_hh.reshape(step.gates, -1)[:simple]
    return whole


def inner_bias(step: type[Step], batch: int, *b_hh: np.ndarray) -> Any:
    """The bias that a GRU's reset gate scales, for each row of the batch; None for other cells.

    (B, H), or (D, B, H) of several directions.
    """
    if not step.inner:
        return None
    size = len(b_hh[0]) // step.gates
    rows = np.empty((len(b_hh), batch, size), b_hh[0].dtype)
    for row, bias in zip(rows, b_hh, strict=True):
        row[...] = bias[-size:]
    return rows if len(b_hh) > 1 else rows[0]


def inputs_with_ones(count: int, batch: int, width: int, dtype: Any) -> np.ndarray:
    """Room for inputs step by step, (count, B, width + 1), with a last column of ones for the biases."""
    inputs = np.empty((count, batch, width + 1), dtype)
    inputs[..., -1] = 1
    return inputs
