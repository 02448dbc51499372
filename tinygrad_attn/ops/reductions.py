"""Operations over axes: sums, means, extremes, spreads.

A rule first puts the reduced axes back with length one (`_restored`); broadcasting does the rest.
"""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

from tinygrad_attn.engine import Primitive, Tensor
from tinygrad_attn.engine.broadcast import broadcast_to, to_shape
from tinygrad_attn.engine.tensor import Axis, value_of
from tinygrad_attn.ops.elementwise import exp, where

_total: Any = np.add.reduce  # the sum of an array, by the short way
_LARGEST_HALF = 65504
"""The largest number in half precision."""


def normalized_axes(name: str, axis: Axis, ndim: int) -> tuple[int, ...]:
    """The axes that `axis` names, each from 0 to ndim - 1, in order; all for None.

    Raises:
        ValueError: (numpy's AxisError) for an axis out of range or named twice.
        TypeError: for one that is no integer.
    """
    if axis is None:
        return tuple(range(ndim))
    if type(axis) is int and -ndim <= axis < ndim:
        return (axis % ndim,)
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    if any(isinstance(one, bool) for one in axes):
        raise TypeError(f"{name}: axis is {axis}, expected integers")
    return tuple(sorted(np.lib.array_utils.normalize_axis_tuple(axes, ndim, name)))


def _restored(g: Any, x: Any, axis: tuple[int, ...]) -> Any:
    """`g` with the axes that were reduced back, of length one."""
    if g.ndim == x.ndim:
        return g
    return g.reshape(tuple([1 if i in axis else size for i, size in enumerate(x.shape)]))


def _repeated(g: Any, x: Any, axis: tuple[int, ...]) -> Any:
    """`g` over the axes that were reduced, in the shape of `x`."""
    return to_shape(broadcast_to, _restored(g, x, axis), x.shape)


def _extreme(choose: Any) -> Any:
    """The reduction by `choose` (np.max or np.min), of the real part where entries are complex."""

    def forward(x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
        if x.dtype.kind != "c":
            return choose(x, axis=axis, keepdims=keepdims)
        chosen = np.real(x) == choose(np.real(x), axis=axis, keepdims=True)
        count = _total(chosen, axis=axis, keepdims=keepdims, dtype=x.real.dtype)
        return _total(np.where(chosen, x, 0), axis=axis, keepdims=keepdims) / count

    return forward


def _extreme_rule(g: Any, y: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    """The gradient goes to the entries that attain the extreme (NaN, where there is one), in equal parts."""
    real = np.real(value_of(x))
    chosen = (real == np.real(_restored(value_of(y), x, axis))) | np.isnan(real)
    share = chosen / _total(chosen, axis=axis, keepdims=True, dtype=real.dtype.newbyteorder("="))
    return _restored(g, x, axis) * share.astype(real.dtype, copy=False)


def _size(x: Any, axis: tuple[int, ...]) -> int:
    """How many entries a reduction over `axis` takes together."""
    count = 1
    for i in axis:
        count *= x.shape[i]
    return count


def _mean_over(x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    if x.dtype == np.float16:  # whose sum may overflow where the mean does not
        return np.mean(x, axis=axis, keepdims=keepdims)
    return _total(x, axis=axis, keepdims=keepdims) / _size(x, axis)


def shared(g: Any, count: int) -> Any:
    """g / count, also where the count is beyond what half precision holds."""
    return g * (1 / count) if count > _LARGEST_HALF and g.dtype == np.float16 else g / count


def _norm(x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    if x.dtype.kind in "iub":
        x = x.astype(np.float64)
    return np.sqrt(_total(x * x, axis=axis, keepdims=keepdims))


def _norm_rule(g: Any, y: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    """g · x / ‖x‖, and zero (a subgradient) where the norm is zero."""
    norm_of_x = _restored(y, x, axis)
    return _restored(g, x, axis) * x / where(np.equal(value_of(norm_of_x), 0), 1, norm_of_x)


def below(x: Any, largest: Any, out: np.ndarray | None = None) -> Any:
    """x - largest, which may overflow to minus infinity: its exponential is zero all the same."""
    with np.errstate(over="ignore"):
        return x - largest if out is None else np.subtract(x, largest, out=out)


def _logsumexp(x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    if x.dtype.kind in "iub":
        x = x.astype(np.float64)
    shift = np.max(np.real(x), axis=axis, keepdims=True, initial=-np.inf)
    shift = np.where(np.isfinite(shift), shift, 0)
    # A row of minus infinities has the logarithm of zero; beside infinity anything may overflow.
    with np.errstate(divide="ignore", over="ignore"):
        y = np.log(_total(np.exp(x - shift), axis=axis, keepdims=True)) + shift
    return y if keepdims else np.squeeze(y, axis)


def _logsumexp_rule(g: Any, y: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    """g · softmax(x), and zero where nothing but minus infinity was summed."""
    total = _restored(y, x, axis)
    return _restored(g, x, axis) * exp(below(x, where(np.isneginf(np.real(value_of(total))), 0, total)))


_sum = Primitive(
    "sum",
    lambda x, *, axis, keepdims: _total(x, axis=axis, keepdims=keepdims),
    lambda g, y, x, *, axis, keepdims: _repeated(g, x, axis),
)
_mean = Primitive(
    "mean",
    _mean_over,
    lambda g, y, x, *, axis, keepdims: _repeated(shared(g, _size(x, axis)), x, axis),
)
_max = Primitive("max", _extreme(np.max), _extreme_rule)
_min = Primitive("min", _extreme(np.min), _extreme_rule)
_norm_over = Primitive("norm", _norm, _norm_rule)
_logsumexp_over = Primitive("logsumexp", _logsumexp, _logsumexp_rule)


def _reduce(primitive: Primitive, x: Any, axis: Axis, keepdims: bool) -> Tensor:
    x = x if isinstance(x, Tensor) else np.asarray(x)
    return primitive(x, axis=normalized_axes(primitive.name, axis, x.ndim), keepdims=keepdims)


def _count(name: str, x: Any, axis: Axis) -> int:
    array = np.asarray(value_of(x))
    return _size(array, normalized_axes(name, axis, array.ndim))


def _freedom(name: str, x: Any, axis: Axis, ddof: int) -> int:
    """The count less `ddof`; not below zero, where numpy too warns and gives infinity or NaN."""
    return builtins.max(_count(name, x, axis) - ddof, 0)


def sum(x: Any, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The sum over `axis`: one, several or (None) all; `keepdims` leaves them with length one."""
    return _reduce(_sum, x, axis, keepdims)


def mean(x: Any, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The mean over `axis`."""
    return _reduce(_mean, x, axis, keepdims)


def max(x: Any, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The maximum over `axis`; entries that tie share the gradient."""
    return _reduce(_max, x, axis, keepdims)


def min(x: Any, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The minimum over `axis`; entries that tie share the gradient."""
    return _reduce(_min, x, axis, keepdims)


def var(x: Any, axis: Axis = None, ddof: int = 0, keepdims: bool = False) -> Tensor:
    """The variance over `axis`: the sum of squared deviations divided by the count minus `ddof`."""
    freedom = _freedom("var", x, axis, ddof)
    deviation = x - mean(x, axis, keepdims=True)
    return sum(deviation * deviation, axis, keepdims) / freedom


def std(x: Any, axis: Axis = None, ddof: int = 0, keepdims: bool = False) -> Tensor:
    """The standard deviation over `axis`; its gradient is zero where all entries are equal."""
    freedom = _freedom("std", x, axis, ddof)
    return norm(x - mean(x, axis, keepdims=True), axis, keepdims) / math.sqrt(freedom)


def norm(x: Any, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The Euclidean norm over `axis`, √Σx²; its gradient is zero where the norm is.

    (Written out as `sqrt(sum(x * x))`, the gradient at zero is 0/0; add a small constant under the root.)
    """
    return _reduce(_norm_over, x, axis, keepdims)


def logsumexp(x: Any, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """log Σ exp(x) over `axis`, without overflow."""
    return _reduce(_logsumexp_over, x, axis, keepdims)
