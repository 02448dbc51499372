"""The arrays of a recurrence over several steps, and what is done with all steps at once.

What a step writes is contiguous. What enters the products before and after the loop is laid out for these:
the inputs and states with a sentence a row, all gates' gradients as one matrix with a column for each step
and sentence.

Cells of one kind and size can go side by side, such as an encoder's two directions: each has its own part of
the columns, equal parts in order, and its own products, while all else is done for all of them at once.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from tinygrad_attn.ops.calls import BYTES, Calls, call, run
from tinygrad_attn.ops.curves import constant
from tinygrad_attn.ops.spaces import bytes_of
from tinygrad_attn.ops.steps import GateGradients, Gates, Products, Step, Times

BACK_PER_GATE = 5
"""About how many calls a step backward makes for each gate."""


class Buffers:
    """What `count` steps of a cell write, with a sentence a column; or a row (`rows`), to go forward only.

    `weights` are each cell's W_hh, (cells, G·H, H), or of sentences in rows what `by_gate` makes of one. The
    steps refer to this array: whoever keeps the buffers writes the weights into it.
    """

    def __init__(
        self,
        step: type[Step],
        count: int,
        batch: int,
        size: int,
        dtype: Any,
        weights: np.ndarray,
        *,
        rows: bool = False,
    ) -> None:
        block = (batch, size) if rows else (size, batch)
        self.step, self.weights = step, weights
        gates = (step.gates, *block) if rows else (step.gates * size, batch)
        self.shares = np.empty((count, *gates), dtype)
        """Before a step the inputs' negated share of the gates, with biases; after it the gates."""
        self.states = [np.empty((count + 1, *block), dtype) for _ in range(step.states)]
        self.kept = np.empty((count, step.kept, *block), dtype)
        self.bias = np.empty(block, dtype) if step.inner else None
        self.state = list(zip(*self.states, strict=True))
        self.gates_at = [Gates.of(shares, step.gates) for shares in self.shares]
        self.kept_at = [tuple(kept) for kept in self.kept]
        scratch = Gates.of(np.empty(gates, dtype), step.gates)
        w = _forward_products(step, weights, rows=rows)
        self._calls = [
            step.forward(gates, before, w, self.bias, after, kept, scratch)
            for gates, (before, after), kept in zip(
                self.gates_at, pairwise(self.state), self.kept_at, strict=True
            )
        ]
        arrays = bytes_of(self.shares, *self.states, self.kept, self.bias, scratch.whole)
        self.nbytes = arrays + BYTES * sum(map(len, self._calls))

    def start(self, *initial: np.ndarray) -> None:
        """Sets the state before the first step; what is not given is zero."""
        for position, array in enumerate(self.state[0]):
            array[...] = initial[position] if position < len(initial) else 0

    def set_bias(self, *b_hh: np.ndarray) -> None:
        """Sets each cell's bias that a GRU's reset gate scales; other cells have it in the inputs' share."""
        if self.bias is None:
            return
        inner = [b[len(b) - len(b) // self.step.gates :] for b in b_hh]
        if self.shares.ndim == 4:  # with a sentence a row
            (self.bias[...],) = inner
            return
        for columns, bias in zip(parts_of(self.bias, len(inner)), inner, strict=True):
            columns[...] = bias[:, None]

    def step_on(self, t: int) -> None:
        """Step `t`: from the state before it, and `shares[t]`, to the state after it."""
        run(self._calls[t])


class Gradients:
    """What the backward pass over the steps of `buffers`, with a sentence a column, writes."""

    def __init__(self, buffers: Buffers) -> None:
        step, states, cells = buffers.step, buffers.states[0], len(buffers.weights)
        dtype, count, block = states.dtype, len(states) - 1, states.shape[1:]
        units = (step.gates + step.inner) * block[0]
        gates, everything = (
            np.empty((units, block[1]), dtype),
            np.empty((cells, units, count, block[1] // cells), dtype),
        )
        self.gates = GateGradients.of(gates, step)
        """Of the step that was left last."""
        flat = everything.reshape(cells, units, count * everything.shape[3])
        self.all = [GateGradients.of(part, step) for part in flat]
        """Of all steps, for each cell, a column for each step and sentence."""
        self._ones = np.ones(flat.shape[2], dtype)
        self.carried = tuple(np.empty(block, dtype) for _ in range(step.states))
        self.arriving = tuple(np.empty(block, dtype) for _ in range(step.states))
        self._scratch = (np.empty(block, dtype), np.empty(block, dtype))
        self._all, self._buffers = everything, buffers
        # In the order of the gates' gradients, which for a cell with `inner` is not that of the gates.
        self._weights = np.empty_like(buffers.weights) if step.inner else buffers.weights
        self._calls: list[Calls] | None = None  # not made before a gradient is asked for
        arrays = bytes_of(everything, gates, *self.carried, *self.arriving, *self._scratch, self._ones)
        self.nbytes = arrays + count * step.gates * BACK_PER_GATE * BYTES

    def _prepared(self) -> list[Calls]:
        """What each step calls."""
        buffers, w = self._buffers, _backward_products(self._buffers.step, self._weights)
        parts = by_cell(self.gates.whole, len(self.all))
        return [
            [
                *buffers.step.backward(
                    self.arriving, before, after, gates, kept, w, self.gates, self.carried, self._scratch
                ),
                call(np.copyto, self._all[:, :, t], parts),
            ]
            for t, ((before, after), gates, kept) in enumerate(
                zip(pairwise(buffers.state), buffers.gates_at, buffers.kept_at, strict=True)
            )
        ]

    def start(self) -> None:
        """Nothing comes back from beyond the last step."""
        if self._calls is None:
            self._calls = self._prepared()
        for part in self.carried:
            part[...] = 0
        if self._weights is not self._buffers.weights:
            size = self._weights.shape[2]
            np.copyto(self._weights[:, :size], self._buffers.weights[:, -size:])
            np.copyto(self._weights[:, size:], self._buffers.weights[:, :-size])

    def step_back(self, t: int, upstream: np.ndarray) -> None:
        """From `carried` and `upstream`, for the state after step `t`, to `carried`, for the one before."""
        self.arrive(upstream)
        self.leave(t)

    def arrive(self, upstream: np.ndarray) -> None:
        """Sets `arriving`, the gradient for the state after a step: what was carried back, and `upstream`."""
        np.add(self.carried[0], upstream, self.arriving[0])
        if len(self.carried) > 1:  # an LSTM's memory
            np.copyto(self.arriving[1], self.carried[1])

    def leave(self, t: int) -> None:
        """From `arriving`, which is overwritten, to `carried`, the gradient for the state before step `t`."""
        assert self._calls is not None
        run(self._calls[t])

    def of_weights(self, inputs: np.ndarray, states: np.ndarray, cell: int = 0) -> tuple[np.ndarray, ...]:
        """After all steps, the gradients of a cell's weights: W_ih, W_hh, b_ih, b_hh.

        Args:
            inputs: (steps · B, I), of all steps and sentences.
            states: (steps · B, H), the states before them.
            cell: which of the cells.
        """
        step, size, gates = self._buffers.step, states.shape[1], self.all[cell]
        to_w = np.empty((step.gates * size, size), states.dtype)
        bias = np.dot(gates.whole, self._ones)
        to_bias = np.concatenate([bias[size:-size], bias[:size]]) if step.inner else bias.copy()
        if step.inner:
            np.dot(gates.to_state[size:], states, to_w[:-size])
            np.dot(gates.to_state[:size], states, to_w[-size:])
            bias = bias[size:]
        elif step.outer:
            entered = rows_of(parts_of(self._buffers.kept[:, -1], len(self.all))[cell]).reshape(states.shape)
            np.dot(gates.to_state, states, to_w[:-size])
            np.dot(gates.each[-1], entered, to_w[-size:])
        else:
            np.dot(gates.to_state, states, to_w)
        return np.matmul(gates.to_input, inputs), to_w, bias, to_bias


def parts_of(columns: np.ndarray, cells: int) -> list[np.ndarray]:
    """Each cell's columns of an array (..., cells · B)."""
    if cells == 1:
        return [columns]
    batch = columns.shape[-1] // cells
    return [columns[..., cell * batch : (cell + 1) * batch] for cell in range(cells)]


def by_cell(columns: np.ndarray, cells: int) -> np.ndarray:
    """The same as one array, (cells, rows, B)."""
    return columns.reshape(len(columns), cells, columns.shape[1] // cells).swapaxes(0, 1)


def rows_of(states: np.ndarray) -> np.ndarray:
    """Blocks (steps, H, B) with a sentence a row: (steps, B, H)."""
    return np.ascontiguousarray(states.swapaxes(1, 2))


def input_weight(step: type[Step], w: np.ndarray, b_ih: np.ndarray, b_hh: np.ndarray) -> np.ndarray:
    """What a one and then the inputs meet, to give their negated share of the gates: in a first column the
    biases that simply add, then W_ih."""
    # Column by column in memory: with the inputs turned, too, the product takes less than with either alone.
    whole, minus = np.empty((w.shape[1] + 1, len(w)), w.dtype).T, constant(-1, w.dtype)
    np.multiply(w, minus, whole[:, 1:])
    np.multiply(b_ih, minus, whole[:, 0])
    simple = len(w) - step.inner * len(w) // step.gates
    whole[:simple, 0] -= b_hh[:simple]
    return whole


def _forward_products(step: type[Step], w_hh: np.ndarray, *, rows: bool) -> Products:
    """The products of the forward steps with each cell's W_hh; with `rows`, of states (B, H)."""
    if rows:  # (G, H, H)
        return Products(_times_rows(w_hh[:-1] if step.outer else w_hh), _times_rows(w_hh[-1]))
    size = w_hh.shape[2]
    if step.outer:
        return Products(_times(w_hh[:, :-size]), _times(w_hh[:, -size:]))
    return Products(_times(w_hh))


def _backward_products(step: type[Step], w_hh: np.ndarray) -> Products:
    """The products of the backward steps: gradients for gates times each cell's W_hhᵀ."""
    size, turned = w_hh.shape[2], w_hh.swapaxes(1, 2)
    if step.outer:
        return Products(_times(turned[:, :, :-size]), _times(turned[:, :, -size:]))
    return Products(_times(turned))


def _times(weights: np.ndarray) -> Times:
    """The product of each cell's weight with its columns."""
    cells = len(weights)
    if cells == 1:  # which for numpy's dot is a little less to look at
        return lambda x, out: [call(np.dot, weights[0], x, out)]
    return lambda x, out: [call(np.matmul, weights, by_cell(x, cells), by_cell(out, cells))]


def _times_rows(weight: np.ndarray) -> Times:
    """States (B, H) times (G, H, H), or (H, H) of a single gate that is `outer`."""
    return lambda x, out: [call(np.matmul, x, weight, out)]


def by_gate(weight: np.ndarray, size: int) -> np.ndarray:
    """A weight (G·H, I) as rows (B, I) meet it: (G, I, H)."""
    return np.ascontiguousarray(weight.reshape(-1, size, weight.shape[1]).swapaxes(1, 2))


def inputs_with_ones(count: int, batch: int, width: int, dtype: Any) -> np.ndarray:
    """Room for inputs step by step, (count, B, 1 + width), with a first column of ones for the biases."""
    inputs = np.empty((count, batch, 1 + width), dtype)
    inputs[..., 0] = 1
    return inputs
