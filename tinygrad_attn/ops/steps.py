"""One step of each recurrent cell on plain arrays, forward and backward: the inner loops of the kernels.

Arrays are feature-major, (features, B), so that each gate is one contiguous block: a product of the weight
(rows gate by gate, PyTorch's order) with the state (H, B) gives the gates one below the other. A leading axis
may hold several directions. Everything is written into arrays that the caller gives, made once for all steps
by `Buffers`.

`x` is the input's share W_ih x + b_ih, `w` and `b` are W_hh and b_hh (a column).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

Arrays = tuple[np.ndarray, ...]

add, divide, exp, matmul, multiply, subtract, tanh = (
    np.add,
    np.divide,
    np.exp,
    np.matmul,
    np.multiply,
    np.subtract,
    np.tanh,
)

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


class Step:
    """A cell's step. Sizes are in units of H: `kept` of the arrays that the backward step needs, `scratch` of
    its own."""

    gates: ClassVar[int]
    states: ClassVar[int] = 1
    kept: ClassVar[tuple[int, ...]]
    scratch: ClassVar[int]
    shares_gradient: ClassVar[bool] = True  # the gradients for x and for W_hh h + b_hh are the same array

    @staticmethod
    def forward(
        x: np.ndarray, state: Arrays, w: np.ndarray, b: np.ndarray, new: Arrays, kept: Arrays
    ) -> None:
        """Writes the new state, and what the backward step needs."""
        raise NotImplementedError

    @staticmethod
    def backward(
        g: Arrays,
        state: Arrays,
        kept: Arrays,
        w: np.ndarray,
        dx: np.ndarray,
        dh: np.ndarray,
        out: Arrays,
        scratch: Arrays,
    ) -> None:
        """From the gradient `g` for the new state (overwritten): those for x, for W_hh h + b_hh, and, in
        `out`, for the state."""
        raise NotImplementedError


class RNN(Step):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh)."""

    gates = 1
    kept = (1,)
    scratch = 0

    @staticmethod
    def forward(
        x: np.ndarray, state: Arrays, w: np.ndarray, b: np.ndarray, new: Arrays, kept: Arrays
    ) -> None:
        """As Step.forward."""
        (h,) = kept
        matmul(w, state[0], h)
        add(h, b, h)
        add(h, x, h)
        tanh(h, h)
        new[0][...] = h

    @staticmethod
    def backward(
        g: Arrays,
        state: Arrays,
        kept: Arrays,
        w: np.ndarray,
        dx: np.ndarray,
        dh: np.ndarray,
        out: Arrays,
        scratch: Arrays,
    ) -> None:
        """As Step.backward."""
        tanh_backward(g[0], kept[0], dx)
        matmul(w.swapaxes(-1, -2), dx, out[0])


class GRU(Step):
    """r, z = σ(...), n = tanh(W_in x + b_in + r (W_hn h + b_hn)), h' = (1 - z) n + z h: PyTorch's."""

    gates = 3
    kept = (2, 1, 3)
    scratch = 1
    shares_gradient = False

    @staticmethod
    def forward(
        x: np.ndarray, state: Arrays, w: np.ndarray, b: np.ndarray, new: Arrays, kept: Arrays
    ) -> None:
        """As Step.forward."""
        (h,), (out,), (rz, n, recurrent) = state, new, kept
        size = h.shape[-2]
        matmul(w, h, recurrent)
        add(recurrent, b, recurrent)
        add(recurrent[..., : 2 * size, :], x[..., : 2 * size, :], rz)
        sigmoid_(rz)
        multiply(rz[..., :size, :], recurrent[..., 2 * size :, :], n)
        add(n, x[..., 2 * size :, :], n)
        tanh(n, n)
        subtract(h, n, out)
        multiply(out, rz[..., size:, :], out)
        add(out, n, out)

    @staticmethod
    def backward(
        g: Arrays,
        state: Arrays,
        kept: Arrays,
        w: np.ndarray,
        dx: np.ndarray,
        dh: np.ndarray,
        out: Arrays,
        scratch: Arrays,
    ) -> None:
        """As Step.backward."""
        (g_h,), (h,), (rz, n, recurrent), (carried,), (a,) = g, state, kept, out, scratch
        size = h.shape[-2]
        r, z, dx_n = rz[..., :size, :], rz[..., size:, :], dx[..., 2 * size :, :]
        subtract(h, n, a)
        multiply(a, g_h, a)
        sigmoid_backward(a, z, dx[..., size : 2 * size, :])
        multiply(g_h, z, a)  # what goes to h directly
        subtract(g_h, a, g_h)
        tanh_backward(g_h, n, dx_n)
        multiply(dx_n, recurrent[..., 2 * size :, :], g_h)
        sigmoid_backward(g_h, r, dx[..., :size, :])
        dh[..., : 2 * size, :] = dx[..., : 2 * size, :]
        multiply(dx_n, r, dh[..., 2 * size :, :])
        matmul(w.swapaxes(-1, -2), dh, carried)
        add(carried, a, carried)


class ResetBeforeGRU(Step):
    """r, z = σ(...), n = tanh(W_in x + b_in + W_hn (r h) + b_hn), h' = (1 - z) h + z n.

    Bahdanau et al. 2015, A.1.1: the reset gate acts before the product, and z weighs the
    candidate.
    """

    gates = 3
    kept = (2, 1, 1)
    scratch = 1

    @staticmethod
    def forward(
        x: np.ndarray, state: Arrays, w: np.ndarray, b: np.ndarray, new: Arrays, kept: Arrays
    ) -> None:
        """As Step.forward."""
        (h,), (out,), (rz, n, reset) = state, new, kept
        size = h.shape[-2]
        matmul(w[..., : 2 * size, :], h, rz)
        add(rz, b[..., : 2 * size, :], rz)
        add(rz, x[..., : 2 * size, :], rz)
        sigmoid_(rz)
        multiply(rz[..., :size, :], h, reset)
        matmul(w[..., 2 * size :, :], reset, n)
        add(n, b[..., 2 * size :, :], n)
        add(n, x[..., 2 * size :, :], n)
        tanh(n, n)
        subtract(n, h, out)
        multiply(out, rz[..., size:, :], out)
        add(out, h, out)

    @staticmethod
    def backward(
        g: Arrays,
        state: Arrays,
        kept: Arrays,
        w: np.ndarray,
        dx: np.ndarray,
        dh: np.ndarray,
        out: Arrays,
        scratch: Arrays,
    ) -> None:
        """As Step.backward."""
        (g_h,), (h,), (rz, n, _), (carried,), (a,) = g, state, kept, out, scratch
        size = h.shape[-2]
        r, z, dx_n = rz[..., :size, :], rz[..., size:, :], dx[..., 2 * size :, :]
        subtract(n, h, a)
        multiply(a, g_h, a)
        sigmoid_backward(a, z, dx[..., size : 2 * size, :])
        multiply(g_h, z, a)
        subtract(g_h, a, g_h)  # what goes to h directly
        tanh_backward(a, n, dx_n)
        matmul(w[..., 2 * size :, :].swapaxes(-1, -2), dx_n, a)  # the gradient for r h
        multiply(a, h, carried)
        sigmoid_backward(carried, r, dx[..., :size, :])
        multiply(a, r, a)
        add(a, g_h, a)
        matmul(w[..., : 2 * size, :].swapaxes(-1, -2), dx[..., : 2 * size, :], carried)
        add(carried, a, carried)


class LSTM(Step):
    """i, f, o = σ(...), g = tanh(...), c' = f c + i g, h' = o tanh(c'): PyTorch's, gates in the order i, f,
    g, o."""

    gates = 4
    states = 2
    kept = (4, 1)
    scratch = 1

    @staticmethod
    def forward(
        x: np.ndarray, state: Arrays, w: np.ndarray, b: np.ndarray, new: Arrays, kept: Arrays
    ) -> None:
        """As Step.forward; the state is (h, c)."""
        (h, c), (h_new, c_new), (a, squashed) = state, new, kept
        size = h.shape[-2]
        matmul(w, h, a)
        add(a, b, a)
        add(a, x, a)
        sigmoid_(a[..., : 2 * size, :])
        tanh(a[..., 2 * size : 3 * size, :], a[..., 2 * size : 3 * size, :])
        sigmoid_(a[..., 3 * size :, :])
        multiply(a[..., :size, :], a[..., 2 * size : 3 * size, :], squashed)
        multiply(a[..., size : 2 * size, :], c, c_new)
        add(c_new, squashed, c_new)
        tanh(c_new, squashed)
        multiply(a[..., 3 * size :, :], squashed, h_new)

    @staticmethod
    def backward(
        g: Arrays,
        state: Arrays,
        kept: Arrays,
        w: np.ndarray,
        dx: np.ndarray,
        dh: np.ndarray,
        out: Arrays,
        scratch: Arrays,
    ) -> None:
        """As Step.backward."""
        (g_h, g_c), (_, c), (a, squashed), (to_h, to_c), (part,) = g, state, kept, out, scratch
        size = c.shape[-2]
        i, f, candidate, o = (a[..., k * size : (k + 1) * size, :] for k in range(4))
        multiply(g_h, squashed, part)
        sigmoid_backward(part, o, dx[..., 3 * size :, :])
        multiply(g_h, o, g_h)
        tanh_backward(g_h, squashed, part)
        add(g_c, part, g_c)
        multiply(g_c, candidate, part)
        sigmoid_backward(part, i, dx[..., :size, :])
        multiply(g_c, c, part)
        sigmoid_backward(part, f, dx[..., size : 2 * size, :])
        multiply(g_c, i, part)
        tanh_backward(part, candidate, dx[..., 2 * size : 3 * size, :])
        multiply(g_c, f, to_c)
        matmul(w.swapaxes(-1, -2), dx, to_h)


STEPS: dict[str, type[Step]] = {"rnn": RNN, "gru": GRU, "reset_before_gru": ResetBeforeGRU, "lstm": LSTM}
"""The cells by the names that the recurrences know them by."""
