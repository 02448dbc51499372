"""One step of each recurrent cell on plain arrays, forward and backward: the inner loops of the kernels.

Each gate is one contiguous block: arrays are (G, B, H), gates in PyTorch's order, and a leading axis may hold
several directions. Everything is written into arrays that the caller gives, made once for all steps by
`buffers.Buffers`. Biases are part of `x`, the input's share of the gates, but for the one that a GRU's reset
gate scales; `w` is W_hh as (G, H, H), rows first.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

Arrays = tuple[np.ndarray, ...]

add, divide, exp, matmul = np.add, np.divide, np.exp, np.matmul
multiply, subtract, tanh = np.multiply, np.subtract, np.tanh

_constants: dict[tuple[Any, float], np.ndarray] = {}


def constant(value: float, dtype: Any) -> np.ndarray:
    """A 0-d array: numpy takes it up faster than a Python number."""
    found = _constants.get((dtype, value))
    if found is None:
        found = _constants[dtype, value] = np.array(value, dtype)
        found.flags.writeable = False
    return found


def sigmoid_(x: np.ndarray) -> None:
    """σ(x) = 1 / (1 + exp(-x)), in place. (numpy's exp takes half the time of its tanh.)"""
    one = constant(1, x.dtype)
    multiply(x, constant(-1, x.dtype), x)  # numpy 2.4's negative errs on float32 with a stride of four
    np.minimum(x, constant(80, x.dtype), out=x)  # beyond, σ is zero to rounding, and exp would overflow
    exp(x, x)
    add(x, one, x)
    divide(one, x, x)


def sigmoid_backward(g: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    """out = g y (1 - y)."""
    subtract(constant(1, y.dtype), y, out)
    multiply(out, y, out)
    multiply(out, g, out)


def tanh_backward(g: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    """out = g (1 - y²)."""
    multiply(y, y, out)
    subtract(constant(1, y.dtype), out, out)
    multiply(out, g, out)


def recur(h: np.ndarray, w: np.ndarray, out: np.ndarray) -> None:
    """W h for every gate: h (B, H), w (G, H, H), out (G, B, H)."""
    matmul(h[..., None, :, :], w.swapaxes(-1, -2), out)


class Step:
    """A cell's step.

    Attributes:
        gates: G.
        states: how many arrays (B, H) the state has; the first is h.
        kept: the arrays that the backward step needs, each by its number of blocks (B, H).
        scratch: how many blocks (B, H) the steps use besides one for each gate.
        inner: whether the last gate's recurrent share has a gradient of its own (and a bias of its own).
    """

    gates: ClassVar[int]
    states: ClassVar[int] = 1
    kept: ClassVar[tuple[int, ...]] = ()
    inner: ClassVar[bool] = False

    @staticmethod
    def forward(x: Any, state: Arrays, w: Any, b: Any, new: Arrays, kept: Arrays, scratch: Arrays) -> None:
        """Writes the new state and what the backward step needs; `b` (1, H) is the bias not in `x`."""
        raise NotImplementedError

    @staticmethod
    def backward(
        g: Arrays,
        state: Arrays,
        new: Arrays,
        kept: Arrays,
        w: Any,
        dx: Any,
        inner: Any,
        out: Arrays,
        scratch: Arrays,
    ) -> None:
        """From the gradient `g` for the new state, which is overwritten, those for `x`, for the recurrent
        share of the last gate (`inner`) where it has its own, and, in `out`, for the state."""
        raise NotImplementedError


class RNN(Step):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh)."""

    gates = 1

    @staticmethod
    def forward(x: Any, state: Arrays, w: Any, b: Any, new: Arrays, kept: Arrays, scratch: Arrays) -> None:
        """As Step.forward."""
        recur(state[0], w, scratch[0])
        add(scratch[0][..., 0, :, :], x[..., 0, :, :], new[0])
        tanh(new[0], new[0])

    @staticmethod
    def backward(
        g: Arrays,
        state: Arrays,
        new: Arrays,
        kept: Arrays,
        w: Any,
        dx: Any,
        inner: Any,
        out: Arrays,
        scratch: Arrays,
    ) -> None:
        """As Step.backward."""
        tanh_backward(g[0], new[0], dx[..., 0, :, :])
        matmul(dx[..., 0, :, :], w[..., 0, :, :], out[0])


class GRU(Step):
    """r, z = σ(...), n = tanh(W_in x + b_in + r (W_hn h + b_hn)), h' = (1 - z) n + z h: PyTorch's."""

    gates = 3
    kept = (2, 1, 1)
    inner = True

    @staticmethod
    def forward(x: Any, state: Arrays, w: Any, b: Any, new: Arrays, kept: Arrays, scratch: Arrays) -> None:
        """As Step.forward."""
        (h,), (out,), (rz, n, recurrent), (gates, _) = state, new, kept, scratch
        recur(h, w, gates)
        add(gates[..., :2, :, :], x[..., :2, :, :], rz)
        sigmoid_(rz)
        add(gates[..., 2, :, :], b, recurrent)
        multiply(rz[..., 0, :, :], recurrent, n)
        add(n, x[..., 2, :, :], n)
        tanh(n, n)
        subtract(h, n, out)
        multiply(out, rz[..., 1, :, :], out)
        add(out, n, out)

    @staticmethod
    def backward(
        g: Arrays,
        state: Arrays,
        new: Arrays,
        kept: Arrays,
        w: Any,
        dx: Any,
        inner: Any,
        out: Arrays,
        scratch: Arrays,
    ) -> None:
        """As Step.backward."""
        (g_h,), (h,), (rz, n, recurrent), (carried,), (gates, a) = g, state, kept, out, scratch
        r, z, dx_n = rz[..., 0, :, :], rz[..., 1, :, :], dx[..., 2, :, :]
        subtract(h, n, a)
        multiply(a, g_h, a)
        sigmoid_backward(a, z, dx[..., 1, :, :])
        multiply(g_h, z, a)  # what goes to h directly
        subtract(g_h, a, g_h)
        tanh_backward(g_h, n, dx_n)
        multiply(dx_n, recurrent, g_h)
        sigmoid_backward(g_h, r, dx[..., 0, :, :])
        multiply(dx_n, r, inner)
        matmul(dx[..., :2, :, :], w[..., :2, :, :], gates[..., :2, :, :])
        matmul(inner, w[..., 2, :, :], gates[..., 2, :, :])
        add.reduce(gates, axis=-3, out=carried)
        add(carried, a, carried)


class ResetBeforeGRU(Step):
    """r, z = σ(...), n = tanh(W_in x + b_in + W_hn (r h) + b_hn), h' = (1 - z) h + z n.

    Cho et al. 2014 and Bahdanau et al. 2015, A.1.1: the reset gate acts before the product, and z weighs the
    candidate.
    """

    gates = 3
    kept = (2, 1, 1)

    @staticmethod
    def forward(x: Any, state: Arrays, w: Any, b: Any, new: Arrays, kept: Arrays, scratch: Arrays) -> None:
        """As Step.forward."""
        (h,), (out,), (rz, n, reset), (gates, _) = state, new, kept, scratch
        recur(h, w[..., :2, :, :], gates[..., :2, :, :])
        add(gates[..., :2, :, :], x[..., :2, :, :], rz)
        sigmoid_(rz)
        multiply(rz[..., 0, :, :], h, reset)
        matmul(reset, w[..., 2, :, :].swapaxes(-1, -2), n)
        add(n, x[..., 2, :, :], n)
        tanh(n, n)
        subtract(n, h, out)
        multiply(out, rz[..., 1, :, :], out)
        add(out, h, out)

    @staticmethod
    def backward(
        g: Arrays,
        state: Arrays,
        new: Arrays,
        kept: Arrays,
        w: Any,
        dx: Any,
        inner: Any,
        out: Arrays,
        scratch: Arrays,
    ) -> None:
        """As Step.backward."""
        (g_h,), (h,), (rz, n, _), (carried,), (gates, a) = g, state, kept, out, scratch
        r, z, dx_n = rz[..., 0, :, :], rz[..., 1, :, :], dx[..., 2, :, :]
        subtract(n, h, a)
        multiply(a, g_h, a)
        sigmoid_backward(a, z, dx[..., 1, :, :])
        multiply(g_h, z, a)
        subtract(g_h, a, g_h)  # what goes to h directly
        tanh_backward(a, n, dx_n)
        matmul(dx_n, w[..., 2, :, :], a)  # the gradient for r h
        multiply(a, h, carried)
        sigmoid_backward(carried, r, dx[..., 0, :, :])
        multiply(a, r, gates[..., 2, :, :])
        matmul(dx[..., :2, :, :], w[..., :2, :, :], gates[..., :2, :, :])
        add.reduce(gates, axis=-3, out=carried)
        add(carried, g_h, carried)


class LSTM(Step):
    """i, f, o = σ(...), g = tanh(...), c' = f c + i g, h' = o tanh(c'): PyTorch's, in the order i f g o."""

    gates = 4
    states = 2
    kept = (4, 1)

    @staticmethod
    def forward(x: Any, state: Arrays, w: Any, b: Any, new: Arrays, kept: Arrays, scratch: Arrays) -> None:
        """As Step.forward; the state is (h, c)."""
        (h, c), (h_new, c_new), (a, squashed) = state, new, kept
        recur(h, w, scratch[0])
        add(scratch[0], x, a)
        i, f, candidate, o = (a[..., k, :, :] for k in range(4))
        sigmoid_(a[..., :2, :, :])
        tanh(candidate, candidate)
        sigmoid_(o)
        multiply(i, candidate, squashed)
        multiply(f, c, c_new)
        add(c_new, squashed, c_new)
        tanh(c_new, squashed)
        multiply(o, squashed, h_new)

    @staticmethod
    def backward(
        g: Arrays,
        state: Arrays,
        new: Arrays,
        kept: Arrays,
        w: Any,
        dx: Any,
        inner: Any,
        out: Arrays,
        scratch: Arrays,
    ) -> None:
        """As Step.backward."""
        (g_h, g_c), (_, c), (a, squashed), (to_h, to_c), (gates, part) = g, state, kept, out, scratch
        i, f, candidate, o = (a[..., k, :, :] for k in range(4))
        multiply(g_h, squashed, part)
        sigmoid_backward(part, o, dx[..., 3, :, :])
        multiply(g_h, o, g_h)
        tanh_backward(g_h, squashed, part)
        add(g_c, part, g_c)
        multiply(g_c, candidate, part)
        sigmoid_backward(part, i, dx[..., 0, :, :])
        multiply(g_c, c, part)
        sigmoid_backward(part, f, dx[..., 1, :, :])
        multiply(g_c, i, part)
        tanh_backward(part, candidate, dx[..., 2, :, :])
        multiply(g_c, f, to_c)
        matmul(dx, w, gates)
        add.reduce(gates, axis=-3, out=to_h)


STEPS: dict[str, type[Step]] = {"rnn": RNN, "gru": GRU, "reset_before_gru": ResetBeforeGRU, "lstm": LSTM}
"""The cells by the names that the recurrences know them by."""
