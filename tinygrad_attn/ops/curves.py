"""σ and tanh on plain arrays, written into arrays that are there, and their gradients, for the kernels. Most
functions here give the `Calls` that do so when they are run.

numpy's exp is quicker than its tanh, so where it pays tanh goes by way of exp. In float32 that stays
within a few roundings of 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad_attn.ops.calls import Calls, call

add, divide, exp = np.add, np.divide, np.exp
multiply, subtract, tanh = np.multiply, np.subtract, np.tanh

LARGE = 2**13
"""Entries from which tanh by way of exp is the quicker way."""

CACHED = 2**15
"""Entries that stay near the processor while several calls go over them."""

_REACH = {2: 2.0, 4: 20.0}
"""By the bytes of a number, see `reach`."""

_constants: dict[tuple[Any, float], np.ndarray] = {}


def constant(value: float, dtype: Any) -> np.ndarray:
    """A 0-d array: numpy takes it up faster than a Python number."""
    found = _constants.get((dtype, value))
    if found is None:
        found = _constants[dtype, value] = np.array(value, dtype)
        found.flags.writeable = False
    return found


def sigmoid_of(x: np.ndarray, out: np.ndarray) -> np.ndarray:
    """`out`, made σ(x) = 1 / (1 + exp(-x)); it may be `x`."""
    one = constant(1, x.dtype)
    multiply(x, constant(-1, x.dtype), out)  # numpy 2.4's negative errs on float32 with a stride of four
    with np.errstate(over="ignore"):
        exp(out, out)
    add(out, one, out)
    divide(one, out, out)
    return out


def sigmoid_of_minus_(x: np.ndarray) -> Calls:
    """Calls for σ(-x) = 1 / (1 + exp(x)), in place.

    exp may be infinite, and σ is zero then: no reason for a warning, which is the caller's to turn off, as
    that takes longer than a call on a small array.
    """
    one = constant(1, x.dtype)
    return [call(exp, x, x), call(add, x, one, x), call(divide, one, x, x)]


def tanh_(x: np.ndarray) -> Calls:
    """Calls for tanh x, in place, for a contiguous array; exp may overflow, as in `sigmoid_of_minus_`."""
    if x.size < LARGE:
        return [call(tanh, x, x)]
    return [call(multiply, x, constant(2, x.dtype), x), call(tanh_of_half_, x)]


def tanh_of_half_(x: np.ndarray) -> None:
    """tanh(x/2) = 1 - 2 / (1 + exp(x)), in place, for a contiguous array; exp may overflow, and tanh is 1
    then."""
    one, minus_two = constant(1, x.dtype), constant(-2, x.dtype)
    entries = x.reshape(-1)
    for start in range(0, len(entries), CACHED):
        part = entries[start : start + CACHED]
        exp(part, part)
        add(part, one, part)
        divide(minus_two, part, part)
        add(part, one, part)


def tanh_of_sum(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> Calls:
    """Calls for out = tanh(x + y) = 1 - 2 / (1 + a b), given a = exp(2x) and b = exp(2y), both `moderate`.

    For every pair of many x and y that takes as many exponentials as there are x and y, not pairs.
    """
    one = constant(1, out.dtype)
    return [
        call(multiply, a, b, out),
        call(add, out, one, out),
        call(divide, constant(-2, out.dtype), out, out),
        call(add, out, one, out),
    ]


def reach(dtype: Any) -> float:
    """How large x may be so that exp(2x) exp(2y) stays well within the range of floats, for y no larger."""
    return _REACH.get(dtype.itemsize, 150.0)


def moderate(x: np.ndarray, multiple: int = 1) -> bool:
    """Whether no entry of x, either way, is beyond a multiple of `reach`, or NaN."""
    most = multiple * reach(x.dtype)
    return bool(np.maximum.reduce(x, axis=None, initial=0) <= most) and bool(
        np.minimum.reduce(x, axis=None, initial=0) >= -most
    )


def sigmoid_backward(g: np.ndarray, y: np.ndarray, out: np.ndarray) -> Calls:
    """Calls for out = g y (1 - y)."""
    one = constant(1, y.dtype)
    return [call(subtract, one, y, out), call(multiply, out, y, out), call(multiply, out, g, out)]


def tanh_backward(g: np.ndarray, y: np.ndarray, out: np.ndarray) -> Calls:
    """Calls for out = g (1 - y²)."""
    one = constant(1, y.dtype)
    return [call(multiply, y, y, out), call(subtract, one, out, out), call(multiply, out, g, out)]
