"""Operations entry by entry. A row is the function, then for each input the gradient: a table of derivatives.

`g` is the gradient for the value `y`. Choices (the side of a kink, the larger of two) are made by the real
part, so that complex steps pass through the branch the real value takes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinygrad_attn.engine import Primitive, Tensor
from tinygrad_attn.engine.broadcast import reaches
from tinygrad_attn.engine.tensor import value_of
from tinygrad_attn.ops.curves import sigmoid_of


def _sigmoid(x: Any) -> Any:
    x = np.asarray(x)
    if x.dtype.kind != "c":
        x = x.astype(np.float64) if x.dtype.kind in "iub" else x
        return sigmoid_of(x, np.empty_like(x))
    e = np.exp(np.where(np.real(x) < 0, x, np.negative(x)))  # at most 1: complex infinities do not divide
    return np.where(np.real(x) < 0, e, 1) / (1 + e)


def _times_complement(a: Any, y: Any) -> Any:
    """a (1 - y), multiplied out as below."""
    return a - a * y


def _choose(condition: Any, a: Any, b: Any) -> Any:
    return np.where(value_of(condition), a, b)


def _power(g: Any, x: Any, p: Any) -> Any:
    """g · p · x^(p-1), and zero (not 0 · 0⁻¹) where both are zero."""
    if isinstance(p, (int, float)):  # a plain number leaves the precision of x as it is
        return g * (p * x ** (p - 1)) if p else g * 0
    both = np.equal(value_of(p), 0) & np.equal(value_of(x), 0)
    return g * p * x ** where(both, 1, p - 1)


def _power_exponent(g: Any, y: Any, x: Any, p: Any) -> Any:
    """g · x^p · log x, and its limit, zero, where x is zero and p is not negative."""
    if isinstance(x, (int, float)) and x > 0:
        return g * y * math.log(x)
    limit = np.equal(value_of(x), 0) & (np.real(value_of(p)) >= 0)
    return where(limit, 0, g * y * log(where(limit, 1, x)))


def _larger(a: Any, b: Any) -> Any:
    return np.where(np.real(a) >= np.real(b), a, b) if _is_complex(a, b) else np.maximum(a, b)


def _smaller(a: Any, b: Any) -> Any:
    return np.where(np.real(a) <= np.real(b), a, b) if _is_complex(a, b) else np.minimum(a, b)


def _within(x: Any, low: Any, high: Any) -> Any:
    below, _ = _beyond(x, low, None)
    x = np.where(below, 0 if low is None else low, x)
    _, above = _beyond(x, None, high)
    return np.where(above, 0 if high is None else high, x)


def _beyond(x: Any, low: Any, high: Any) -> tuple[Any, Any]:
    """Where the real part of x is below `low`, and where it is above `high`; nowhere for None, everywhere for
    NaN."""
    real = np.real(value_of(x))
    return (
        False if low is None else (real < low) | np.isnan(low),
        False if high is None else (real > high) | np.isnan(high),
    )


def _absolute(x: Any) -> Any:
    return x * np.sign(np.real(x)) if _is_complex(x) else np.abs(x)


def _is_complex(*arrays: Any) -> bool:
    return any(np.iscomplexobj(array) for array in arrays)


def _sign(x: Any) -> Any:
    return np.sign(np.real(value_of(x)))


def _to_larger(g: Any, chosen: Any, other: Any) -> Any:
    """`g` where `chosen` is the larger by its real part, half of it where both are equal, else zero."""
    a, b = np.real(value_of(chosen)), np.real(value_of(other))
    return where(a < b, 0, where(a == b, g / 2, g))


add = Primitive("add", np.add, lambda g, y, a, b: g, lambda g, y, a, b: g)
sub = Primitive("sub", np.subtract, lambda g, y, a, b: g, lambda g, y, a, b: -g)
mul = Primitive("mul", np.multiply, lambda g, y, a, b: g * b, lambda g, y, a, b: g * a)
div = Primitive("div", np.true_divide, lambda g, y, a, b: g / b, lambda g, y, a, b: -g * y / b)
pow = Primitive("pow", np.power, lambda g, y, x, p: _power(g, x, p), _power_exponent)
neg = Primitive("neg", np.negative, lambda g, y, x: -g)
exp = Primitive("exp", np.exp, lambda g, y, x: g * y)
log = Primitive("log", np.log, lambda g, y, x: g / x)
sqrt = Primitive("sqrt", np.sqrt, lambda g, y, x: g / (2 * y))
sin: Primitive = Primitive("sin", np.sin, lambda g, y, x: g * cos(x))
cos: Primitive = Primitive("cos", np.cos, lambda g, y, x: -g * sin(x))
# g (1 - y²), multiplied out: numpy is slow where a Python number meets a small array, and this rule is hot.
tanh = Primitive("tanh", np.tanh, lambda g, y, x: g - g * (y * y))
sigmoid = Primitive("sigmoid", _sigmoid, lambda g, y, x: _times_complement(g * y, y))
relu = Primitive(
    "relu", lambda x: np.where(np.real(x) <= 0, 0, x), lambda g, y, x: where(np.real(value_of(x)) <= 0, 0, g)
)
abs = Primitive("abs", _absolute, lambda g, y, x: g * _sign(x))
maximum = Primitive(
    "maximum",
    _larger,
    lambda g, y, a, b: _to_larger(g, a, b),
    lambda g, y, a, b: _to_larger(g, b, a),
)
minimum = Primitive(
    "minimum",
    _smaller,
    lambda g, y, a, b: _to_larger(g, b, a),
    lambda g, y, a, b: _to_larger(g, a, b),
)
where: Primitive = Primitive(
    "where",
    _choose,
    lambda g, y, condition, a, b: None,  # a choice has no slope
    lambda g, y, condition, a, b: where(condition, g, 0),
    lambda g, y, condition, a, b: where(condition, 0, g),
)
_clip = Primitive(
    "clip", _within, lambda g, y, x, low, high: where(np.logical_or(*_beyond(x, low, high)), 0, g), None, None
)
astype: Primitive = Primitive(
    "astype",
    lambda x, *, dtype: x.astype(np.result_type(dtype, np.complex64) if x.dtype.kind == "c" else dtype),
    lambda g, y, x, *, dtype: g if g.dtype.kind == "c" else astype(g, dtype=x.dtype),
)


def clip(x: Any, min: Any = None, max: Any = None) -> Tensor:
    """`x` where it is from `min` to `max`, else the nearer of them; None for no bound.

    The bounds, numbers or arrays that broadcast to the shape of `x`, have no gradient. That of `x` passes
    within them, bounds included, as in PyTorch. Raises ValueError for bounds of another shape.
    """
    shape = np.shape(value_of(x))
    for name, bound in (("min", np.shape(value_of(min))), ("max", np.shape(value_of(max)))):
        if not reaches(bound, shape):
            raise ValueError(f"clip: {name} of shape {bound} does not broadcast to x of shape {shape}")
    return _clip(x, min, max)
