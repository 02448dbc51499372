"""One step of each recurrent cell on plain arrays, forward and backward: what the kernels of `recurrent` call.

Arrays are feature-major, (features, B), so that each gate is one contiguous block: a product of the weight (rows
gate by gate, PyTorch's order) with the state (H, B) gives the gates one below the other. A leading axis may hold
several directions. `x` is the input's share W_ih x + b_ih, `w` and `b` are W_hh and b_hh (a column).
"""

from __future__ import annotations

from typing import Any

import numpy as np

Arrays = tuple[np.ndarray, ...]

_constants: dict[tuple[Any, float], np.ndarray] = {}


def constant(value: float, dtype: Any) -> np.ndarray:
    """A 0-d array: numpy takes it up faster than a Python number."""
    found = _constants.get((dtype, value))
    if found is None:
        found = _constants[dtype, value] = np.array(value, dtype)
        found.flags.writeable = False
    return found


def sigmoid_(x: np.ndarray) -> np.ndarray:
    """σ(x) = 1 / (1 + exp(-x)), in place. (numpy's exp takes half the time of its tanh.)"""
    one = constant(1, x.dtype)
    np.multiply(x, constant(-1, x.dtype), out=x)  # numpy 2.4's negative errs on float32 with a stride of four
    np.minimum(x, constant(80, x.dtype), out=x)  # beyond, σ is zero to rounding, and exp would overflow
    np.exp(x, out=x)
    np.add(x, one, out=x)
    return np.divide(one, x, out=x)


def sigmoid_backward(g: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    """out = g y (1 - y)."""
    np.subtract(constant(1, y.dtype), y, out=out)
    out *= y
    out *= g


def tanh_backward(g: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    """out = g (1 - y²)."""
    np.multiply(y, y, out=out)
    np.subtract(constant(1, y.dtype), out, out=out)
    out *= g


class RNN:
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh)."""

    gates = 1
    states = 1

    @staticmethod
    def forward(x: np.ndarray, state: Arrays, w: np.ndarray, b: np.ndarray) -> tuple[Arrays, Arrays]:
        """The new state, and what the backward step needs."""
        h = np.matmul(w, state[0])
        h += b
        h += x
        np.tanh(h, out=h)
        return (h,), (h,)

    @staticmethod
    def backward(g: Arrays, state: Arrays, saved: Arrays, w: np.ndarray, dx: np.ndarray, dh: np.ndarray) -> Arrays:
        """Writes the gradients for x and for W_hh h + b_hh, (gates·H, B) each, and returns that for the state."""
        tanh_backward(g[0], saved[0], dx)
        dh[...] = dx
        return (np.matmul(w.swapaxes(-1, -2), dx),)


class GRU:
    """r, z = σ(...), n = tanh(W_in x + b_in + r (W_hn h + b_hn)), h' = (1 - z) n + z h: PyTorch's."""

    gates = 3
    states = 1

    @staticmethod
    def forward(x: np.ndarray, state: Arrays, w: np.ndarray, b: np.ndarray) -> tuple[Arrays, Arrays]:
        """As RNN.forward."""
        (h,) = state
        size = h.shape[-2]
        recurrent = np.matmul(w, h)
        recurrent += b
        rz = recurrent[..., : 2 * size, :] + x[..., : 2 * size, :]
        sigmoid_(rz)
        hn = recurrent[..., 2 * size :, :]
        n = rz[..., :size, :] * hn
        n += x[..., 2 * size :, :]
        np.tanh(n, out=n)
        new = h - n
        new *= rz[..., size:, :]
        new += n
        return (new,), (rz, n, hn)

    @staticmethod
    def backward(g: Arrays, state: Arrays, saved: Arrays, w: np.ndarray, dx: np.ndarray, dh: np.ndarray) -> Arrays:
        """As RNN.backward."""
        (h,), (rz, n, hn) = state, saved
        size = h.shape[-2]
        r, z = rz[..., :size, :], rz[..., size:, :]
        difference = h - n
        difference *= g[0]
        sigmoid_backward(difference, z, dx[..., size : 2 * size, :])
        to_n = np.multiply(g[0], z)
        carried = to_n.copy()  # the part of the gradient that goes to h directly: z g
        np.subtract(g[0], to_n, out=to_n)
        tanh_backward(to_n, n, dx[..., 2 * size :, :])
        np.multiply(dx[..., 2 * size :, :], hn, out=difference)
        sigmoid_backward(difference, r, dx[..., :size, :])
        dh[..., : 2 * size, :] = dx[..., : 2 * size, :]
        np.multiply(dx[..., 2 * size :, :], r, out=dh[..., 2 * size :, :])
        carried += np.matmul(w.swapaxes(-1, -2), dh)
        return (carried,)


class ResetBeforeGRU:
    """r, z = σ(...), n = tanh(W_in x + b_in + W_hn (r h) + b_hn), h' = (1 - z) h + z n.

    Cho et al. 2014 and Bahdanau et al. 2015, A.1.1: the reset gate acts before the product, and z weighs the candidate.
    """

    gates = 3
    states = 1

    @staticmethod
    def forward(x: np.ndarray, state: Arrays, w: np.ndarray, b: np.ndarray) -> tuple[Arrays, Arrays]:
        """As RNN.forward."""
        (h,) = state
        size = h.shape[-2]
        rz = np.matmul(w[..., : 2 * size, :], h)
        rz += b[..., : 2 * size, :]
        rz += x[..., : 2 * size, :]
        sigmoid_(rz)
        reset = rz[..., :size, :] * h
        n = np.matmul(w[..., 2 * size :, :], reset)
        n += b[..., 2 * size :, :]
        n += x[..., 2 * size :, :]
        np.tanh(n, out=n)
        new = n - h
        new *= rz[..., size:, :]
        new += h
        return (new,), (rz, n, reset)

    @staticmethod
    def backward(g: Arrays, state: Arrays, saved: Arrays, w: np.ndarray, dx: np.ndarray, dh: np.ndarray) -> Arrays:
        """As RNN.backward."""
        (h,), (rz, n, _) = state, saved
        size = h.shape[-2]
        r, z = rz[..., :size, :], rz[..., size:, :]
        difference = n - h
        difference *= g[0]
        sigmoid_backward(difference, z, dx[..., size : 2 * size, :])
        to_n = np.multiply(g[0], z)
        carried = g[0] - to_n
        tanh_backward(to_n, n, dx[..., 2 * size :, :])
        to_reset = np.matmul(w[..., 2 * size :, :].swapaxes(-1, -2), dx[..., 2 * size :, :])
        sigmoid_backward(to_reset * h, r, dx[..., :size, :])
        to_reset *= r
        carried += to_reset
        carried += np.matmul(w[..., : 2 * size, :].swapaxes(-1, -2), dx[..., : 2 * size, :])
        dh[...] = dx
        return (carried,)


class LSTM:
    """i, f, o = σ(...), g = tanh(...), c' = f c + i g, h' = o tanh(c'): PyTorch's, gates in the order i, f, g, o."""

    gates = 4
    states = 2

    @staticmethod
    def forward(x: np.ndarray, state: Arrays, w: np.ndarray, b: np.ndarray) -> tuple[Arrays, Arrays]:
        """As RNN.forward; the state is (h, c)."""
        h, c = state
        a = np.matmul(w, h)
        a += b
        a += x
        new, tanh_new = lstm_memory_(a, c)
        return (a[..., 3 * c.shape[-2] :, :] * tanh_new, new), (a, tanh_new)

    @staticmethod
    def backward(g: Arrays, state: Arrays, saved: Arrays, w: np.ndarray, dx: np.ndarray, dh: np.ndarray) -> Arrays:
        """As RNN.backward."""
        (_, c), (a, tanh_new) = state, saved
        dc = lstm_backward(g[0], g[1], a, c, tanh_new, dx)
        dh[...] = dx
        return np.matmul(w.swapaxes(-1, -2), dx), dc


def lstm_memory_(a: np.ndarray, c: np.ndarray) -> Arrays:
    """Turns the pre-activations into gates, in place; returns the new memory and its tanh."""
    size = c.shape[-2]
    sigmoid_(a[..., : 2 * size, :])
    np.tanh(a[..., 2 * size : 3 * size, :], out=a[..., 2 * size : 3 * size, :])
    sigmoid_(a[..., 3 * size :, :])
    new = a[..., size : 2 * size, :] * c
    new += a[..., :size, :] * a[..., 2 * size : 3 * size, :]
    return new, np.tanh(new)


def lstm_backward(dh: np.ndarray, dc: np.ndarray, a: np.ndarray, c: np.ndarray, tanh_new: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Writes the gradient for the pre-activations into `out`; returns that for the old memory."""
    size = c.shape[-2]
    i, f, g, o = (a[..., k * size : (k + 1) * size, :] for k in range(4))
    total = np.empty_like(dc)
    tanh_backward(dh * o, tanh_new, total)
    total += dc
    sigmoid_backward(total * g, i, out[..., :size, :])
    sigmoid_backward(total * c, f, out[..., size : 2 * size, :])
    tanh_backward(total * i, g, out[..., 2 * size : 3 * size, :])
    sigmoid_backward(dh * tanh_new, o, out[..., 3 * size :, :])
    total *= f
    return total
