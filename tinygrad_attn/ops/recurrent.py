"""Recurrent cells, one step: definitions as the papers write them, kernels on `steps`.

Weights are PyTorch's: `w_ih` (G·H, I), `w_hh` (G·H, H), biases (G·H,), with G gates one below the other.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinygrad_attn.engine import Fused, fused
from tinygrad_attn.ops import steps
from tinygrad_attn.ops.buffers import (
    Buffers,
    Gradients,
    input_weight,
    inputs_with_ones,
    rows_of,
)
from tinygrad_attn.ops.calls import run
from tinygrad_attn.ops.checks import Sizes, once
from tinygrad_attn.ops.curves import sigmoid_backward, sigmoid_of, tanh_backward
from tinygrad_attn.ops.elementwise import sigmoid, tanh
from tinygrad_attn.ops.linear import linear
from tinygrad_attn.ops.shapes import split

# One step, as the papers write it. x (B, I), h (B, H), result (B, H).


def rnn_definition(x: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh). Elman 1990."""
    return tanh(linear(x, w_ih, b_ih) + linear(h, w_hh, b_hh))


def gru_definition(x: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:
    """The GRU that PyTorch has: the reset gate acts on the recurrent product, z keeps the old state.

    r = σ(x_r + h_r), z = σ(x_z + h_z), n = tanh(x_n + r ∘ h_n), h' = (1 - z) ∘ n + z ∘ h.
    """
    x_r, x_z, x_n = split(linear(x, w_ih, b_ih), 3, axis=-1)
    h_r, h_z, h_n = split(linear(h, w_hh, b_hh), 3, axis=-1)
    r = sigmoid(x_r + h_r)
    z = sigmoid(x_z + h_z)
    n = tanh(x_n + r * h_n)
    return (1 - z) * n + z * h


def reset_before_gru_definition(x: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:
    """The GRU of the paper: the reset gate acts on the state, z admits the candidate.

    r = σ(W_r x + U_r h), z = σ(W_z x + U_z h), n = tanh(W x + U [r ∘ h]), h' = (1 - z) ∘ h + z ∘ n.
    Bahdanau et al. 2015, A.1.1. (Cho et al. 2014 reset so, but let z keep the old state.)
    """
    x_r, x_z, x_n = split(linear(x, w_ih, b_ih), 3, axis=-1)
    (w_r, w_z, w_n), (b_r, b_z, b_n) = split(w_hh, 3), split(b_hh, 3)
    r = sigmoid(x_r + linear(h, w_r, b_r))
    z = sigmoid(x_z + linear(h, w_z, b_z))
    n = tanh(x_n + linear(r * h, w_n, b_n))
    return (1 - z) * h + z * n


def lstm_definition(x: Any, h: Any, c: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> tuple[Any, Any]:
    """The LSTM that PyTorch has; returns (h', c').

    i = σ(a_i), f = σ(a_f), g = tanh(a_g), o = σ(a_o), c' = f ∘ c + i ∘ g, h' = o ∘ tanh(c'), a = W_ih x +
    W_hh h + b. Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000.
    """
    gates = linear(x, w_ih, b_ih) + linear(h, w_hh, b_hh)
    memory = lstm_memory(gates, c)
    return lstm_hidden(gates, memory), memory


def lstm_memory_definition(gates: Any, c: Any) -> Any:
    """c' = σ(a_f) ∘ c + σ(a_i) ∘ tanh(a_g), for pre-activations a (B, 4H) in the order i, f, g, o."""
    a_i, a_f, a_g, _ = split(gates, 4, axis=-1)
    return sigmoid(a_f) * c + sigmoid(a_i) * tanh(a_g)


def lstm_hidden_definition(gates: Any, memory: Any) -> Any:
    """h' = σ(a_o) ∘ tanh(c')."""
    return sigmoid(split(gates, 4, axis=-1)[3]) * tanh(memory)


@once
def _check(step: type[steps.Step], inputs: Sequence[Any], weights: Sequence[Any], name: str) -> None:
    """Raises ValueError unless the shapes fit, TypeError for numbers that are not floating."""
    sizes = Sizes(name)
    sizes.check("x", inputs[0], ("B", "I"))
    for part, array in zip(("h", "c"), inputs[1:], strict=False):
        sizes.check(part, array, ("B", "H"))
    sizes.check_cell(step, weights)


def _fused_cell(definition: Any, step: type[steps.Step], name: str) -> Fused:
    """The fused operation of a cell whose state is h alone: one step of the recurrence."""

    @functools.wraps(definition)
    def checked(x: Any, h: Any, *weights: Any) -> Any:
        _check(step, (x, h), weights, name)
        return definition(x, h, *weights)

    @np.errstate(invalid="ignore")  # see matrix_product
    def kernel(x: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> tuple[Any, Any]:
        _check(step, (x, h), (w_ih, w_hh, b_ih, b_hh), name)
        buffers = Buffers(step, 1, len(h), h.shape[1], h.dtype, w_hh[None])
        buffers.start(h.T)
        buffers.set_bias(b_hh)
        inputs = inputs_with_ones(1, len(x), x.shape[1], x.dtype)[0]
        inputs[:, 1:] = x
        np.matmul(input_weight(step, w_ih, b_ih, b_hh), inputs.T, buffers.shares[0])
        with np.errstate(over="ignore"):
            buffers.step_on(0)
        return rows_of(buffers.states[0])[1], buffers

    @np.errstate(invalid="ignore")  # see matrix_product
    def kernel_vjp(
        g: Any, y: Any, x: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, *, saved: Any
    ) -> Any:
        grads = Gradients(saved)
        grads.start()
        grads.step_back(0, g.T)
        to_x = np.matmul(grads.gates.to_input.T, w_ih)
        return (to_x, np.ascontiguousarray(grads.carried[0].T), *grads.of_weights(x, h))

    return fused(checked, kernel, kernel_vjp, name=name)


def _lstm_memory_kernel(gates: np.ndarray, c: np.ndarray) -> tuple[Any, Any]:
    a = gates.T.copy()  # (4H, B), each gate a block
    size = c.shape[-1]
    sigmoid_of(a[: 2 * size], a[: 2 * size])
    np.tanh(a[2 * size : 3 * size], out=a[2 * size : 3 * size])
    new = a[size : 2 * size] * c.T
    new += a[:size] * a[2 * size : 3 * size]
    return new.T, a


def _lstm_memory_vjp(
    g: np.ndarray, y: np.ndarray, gates: np.ndarray, c: np.ndarray, *, saved: np.ndarray
) -> tuple[Any, Any]:
    size = c.shape[-1]
    out = np.empty_like(saved)
    i, f, candidate = saved[:size], saved[size : 2 * size], saved[2 * size : 3 * size]
    run(sigmoid_backward(g.T * candidate, i, out[:size]))
    run(sigmoid_backward(g.T * c.T, f, out[size : 2 * size]))
    run(tanh_backward(g.T * i, candidate, out[2 * size : 3 * size]))
    out[3 * size :] = 0
    return out.T, g * f.T


def _lstm_hidden_kernel(gates: np.ndarray, memory: np.ndarray) -> tuple[Any, Any]:
    size = memory.shape[-1]
    o = gates[:, 3 * size :].T.copy()
    sigmoid_of(o, o)
    squashed = np.tanh(memory.T)
    return (o * squashed).T, (o, squashed)


def _lstm_hidden_vjp(
    g: np.ndarray, y: np.ndarray, gates: np.ndarray, memory: np.ndarray, *, saved: Any
) -> tuple[Any, Any]:
    o, squashed = saved
    size = memory.shape[-1]
    out = np.zeros((4 * size, len(g)), g.dtype)
    run(sigmoid_backward(g.T * squashed, o, out[3 * size :]))
    to_memory = np.empty_like(squashed)
    run(tanh_backward(g.T * o, squashed, to_memory))
    return out.T, to_memory.T


rnn_cell = _fused_cell(rnn_definition, steps.RNN, "rnn_cell")
gru_cell = _fused_cell(gru_definition, steps.GRU, "gru_cell")
reset_before_gru_cell = _fused_cell(
    reset_before_gru_definition, steps.ResetBeforeGRU, "reset_before_gru_cell"
)
lstm_memory = fused(lstm_memory_definition, _lstm_memory_kernel, _lstm_memory_vjp, name="lstm_memory")
lstm_hidden = fused(lstm_hidden_definition, _lstm_hidden_kernel, _lstm_hidden_vjp, name="lstm_hidden")


def lstm_cell(x: Any, h: Any, c: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> tuple[Any, Any]:
    """One LSTM step, (h', c'): its parts are fused operations, so the definition is also what runs."""
    _check(steps.LSTM, (x, h, c), (w_ih, w_hh, b_ih, b_hh), "lstm_cell")
    return lstm_definition(x, h, c, w_ih, w_hh, b_ih, b_hh)
