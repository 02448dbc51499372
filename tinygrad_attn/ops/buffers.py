"""The arrays of a recurrence over several steps, and what is done with all steps at once.

What a step writes is contiguous. What enters the products before and after the loop is laid out for these:
the inputs and states with a sentence a row, all gates' gradients as one matrix with a column for each step
and sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tinygrad_attn.ops.curves import constant
from tinygrad_attn.ops.spaces import bytes_of
from tinygrad_attn.ops.steps import GateGradients, Gates, Products, Step


class Buffers:
    """What `count` steps of a cell write, with a sentence a column; or a row (`rows`), to go forward only."""

    def __init__(
        self, step: type[Step], count: int, batch: int, size: int, dtype: Any, *, rows: bool = False
    ) -> None:
        block = (batch, size) if rows else (size, batch)
        self.step = step
        gates = (step.gates, *block) if rows else (step.gates * size, batch)
        self.shares = np.empty((count, *gates), dtype)
        """Before a step the inputs' negated share of the gates, with biases; after it the gates."""
        self.states = [np.empty((count + 1, *block), dtype) for _ in range(step.states)]
        self.kept = np.empty((count, step.kept, *block), dtype)
        self.bias = np.empty(block, dtype) if step.inner else None
        self.state = list(zip(*self.states, strict=True))
        self.gates_at = [Gates.of(shares, step.gates) for shares in self.shares]
        self.kept_at = [tuple(kept) for kept in self.kept]
        self._scratch = Gates.of(np.empty(gates, dtype), step.gates)
        self.nbytes = bytes_of(self.shares, *self.states, self.kept, self.bias, self._scratch.whole)

    def start(self, *initial: np.ndarray) -> None:
        """Sets the state before the first step; what is not given is zero."""
        for position, array in enumerate(self.state[0]):
            array[...] = initial[position] if position < len(initial) else 0

    def set_bias(self, b_hh: np.ndarray) -> None:
        """Sets the bias that a GRU's reset gate scales; other cells have it in the inputs' share."""
        if self.bias is not None:
            inner = b_hh[len(b_hh) - len(b_hh) // self.step.gates :]
            self.bias[...] = inner if self.shares.ndim == 4 else inner[:, None]

    def step_on(self, t: int, w: Products) -> None:
        """Step `t`: from the state before it, and `shares[t]`, to the state after it."""
        self.step.forward(
            self.gates_at[t],
            self.state[t],
            w,
            self.bias,
            self.state[t + 1],
            self.kept_at[t],
            self._scratch,
        )


class Gradients:
    """What the backward pass over the steps of `buffers`, with a sentence a column, writes."""

    def __init__(self, buffers: Buffers) -> None:
        step, states = buffers.step, buffers.states[0]
        dtype, count, block = states.dtype, len(states) - 1, states.shape[1:]
        units = (step.gates + step.inner) * block[0]
        self._all = np.empty((units, count, block[1]), dtype)
        self._at = [self._all[:, t] for t in range(count)]
        self.gates = GateGradients.of(np.empty((units, block[1]), dtype), step)
        """Of the step that was left last."""
        self.all = GateGradients.of(self._all.reshape(units, count * block[1]), step)
        """Of all steps, a column for each step and sentence."""
        self.carried = tuple(np.empty(block, dtype) for _ in range(step.states))
        self.arriving = tuple(np.empty(block, dtype) for _ in range(step.states))
        self._scratch = (np.empty(block, dtype), np.empty(block, dtype))
        self._buffers = buffers
        self.nbytes = bytes_of(self._all, self.gates.whole, *self.carried, *self.arriving, *self._scratch)

    def start(self) -> None:
        """Nothing comes back from beyond the last step."""
        for part in self.carried:
            part[...] = 0

    def step_back(self, t: int, upstream: np.ndarray, w: Products) -> None:
        """From `carried` and `upstream`, for the state after step `t`, to `carried`, for the one before."""
        self.arrive(upstream)
        self.leave(t, w)

    def arrive(self, upstream: np.ndarray) -> None:
        """Sets `arriving`, the gradient for the state after a step: what was carried back, and `upstream`."""
        np.add(self.carried[0], upstream, self.arriving[0])
        if len(self.carried) > 1:  # an LSTM's memory
            np.copyto(self.arriving[1], self.carried[1])

    def leave(self, t: int, w: Products) -> None:
        """From `arriving`, which is overwritten, to `carried`, the gradient for the state before step `t`."""
        buffers = self._buffers
        buffers.step.backward(
            self.arriving,
            buffers.state[t],
            buffers.state[t + 1],
            buffers.gates_at[t],
            buffers.kept_at[t],
            w,
            self.gates,
            self.carried,
            self._scratch,
        )
        np.copyto(self._at[t], self.gates.whole)

    def of_weights(self, inputs: np.ndarray, states: np.ndarray) -> tuple[np.ndarray, ...]:
        """After all steps, the gradients of a cell's weights: W_ih, W_hh, b_ih, b_hh.

        Args:
            inputs: (steps · B, I), of all steps and sentences.
            states: (steps · B, H), the states before them.
        """
        step, size = self._buffers.step, states.shape[1]
        to_w = np.matmul(self.all.to_state, states)
        bias = np.add.reduce(self.all.whole, axis=1)
        if step.inner:
            to_w = np.concatenate([to_w[size:], to_w[:size]])
            to_bias = np.concatenate([bias[size:-size], bias[:size]])
            bias = bias[size:]
        else:
            to_bias = bias.copy()
        if step.outer:
            entered = rows_of(self._buffers.kept[:, -1]).reshape(states.shape)
            to_w = np.concatenate([to_w, np.matmul(self.all.each[-1], entered)])
        return np.matmul(self.all.to_input, inputs), to_w, bias, to_bias


def rows_of(states: np.ndarray) -> np.ndarray:
    """Blocks (steps, H, B) with a sentence a row: (steps, B, H)."""
    return np.ascontiguousarray(states.swapaxes(1, 2))


def input_weight(step: type[Step], w: np.ndarray, b_ih: np.ndarray, b_hh: np.ndarray) -> np.ndarray:
    """What a one and then the inputs meet, to give their negated share of the gates: in a first column the
    biases that simply add, then W_ih."""
    whole, minus = np.empty((len(w), w.shape[1] + 1), w.dtype), constant(-1, w.dtype)
    np.multiply(w, minus, whole[:, 1:])
    np.multiply(b_ih, minus, whole[:, 0])
    simple = len(w) - step.inner * len(w) // step.gates
    whole[:simple, 0] -= b_hh[:simple]
    return whole


def forward_products(step: type[Step], w_hh: np.ndarray, *, rows: bool = False) -> Products:
    """The products of the forward steps with W_hh (G·H, H); with `rows`, of states (B, H)."""
    size = w_hh.shape[1]
    parts = [w_hh[:-size], w_hh[-size:]] if step.outer else [w_hh]
    return Products(*(_product_of_rows(part) if rows else partial(np.matmul, part) for part in parts))


def _product_of_rows(weight: np.ndarray) -> Callable[[np.ndarray, np.ndarray], Any]:
    """States (B, H) times (G·H, H): (G, B, H), or (B, H) of a single gate that is `outer`."""
    size = weight.shape[1]
    by_gate = np.ascontiguousarray(weight.reshape(-1, size, size).swapaxes(1, 2))
    return lambda x, out: np.matmul(x, by_gate if out.ndim == 3 else by_gate[0], out)


def backward_products(step: type[Step], w_hh: np.ndarray) -> Products:
    """The products of the backward steps: gradients for gates times W_hhᵀ."""
    size = w_hh.shape[1]
    if step.outer:
        return Products(partial(np.matmul, w_hh[:-size].T), partial(np.matmul, w_hh[-size:].T))
    weight = np.concatenate([w_hh[-size:], w_hh[:-size]]) if step.inner else w_hh
    return Products(partial(np.matmul, weight.T))


def inputs_with_ones(count: int, batch: int, width: int, dtype: Any) -> np.ndarray:
    """Room for inputs step by step, (count, B, 1 + width), with a first column of ones for the biases."""
    inputs = np.empty((count, batch, 1 + width), dtype)
    inputs[..., 0] = 1
    return inputs
