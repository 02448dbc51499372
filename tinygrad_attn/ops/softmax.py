"""Softmax, with and without a mask, its logarithm, and the cross-entropy."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad_attn.engine import Primitive, Tensor, fused
from tinygrad_attn.engine.broadcast import reaches
from tinygrad_attn.engine.tensor import value_of
from tinygrad_attn.ops.elementwise import exp, where
from tinygrad_attn.ops.reductions import below, logsumexp, mean, normalized_axes, shared, sum
from tinygrad_attn.ops.shapes import getitem, reshape


def _row_maximum(x: Any, axis: int, mask: Any = None) -> np.ndarray:
    """The largest (real part of an) entry along `axis` that takes part: what is subtracted before exp.

    Softmax does not change when a row is shifted, so it counts as a constant.
    """
    real = np.real(value_of(x))
    if real.dtype.kind in "iub":
        real = real.astype(np.float64)
    if mask is not None:
        real = np.where(mask, real, -np.inf)
    largest = np.max(real, axis=axis, keepdims=True, initial=-np.inf)
    return np.asarray(np.where(np.isfinite(largest), largest, 0), real.dtype)


def softmax_definition(x: Any, mask: Any = None, *, axis: int) -> Any:
    """softmax(x)_j = exp(x_j) / Σ_k exp(x_k) over the entries that take part; zeros where none does."""
    shifted = below(x, _row_maximum(x, axis, mask))
    if mask is None:
        e = exp(shifted)
        return e / sum(e, axis, keepdims=True)
    e = where(mask, exp(where(mask, shifted, 0)), 0)
    total = sum(e, axis, keepdims=True)
    return e / where(np.equal(value_of(total), 0), 1, total)


def _softmax_kernel(x: np.ndarray, mask: Any = None, *, axis: int) -> Any:
    if mask is None:
        y = below(x, np.maximum.reduce(x, axis=axis, keepdims=True, initial=-np.inf))
        np.exp(y, out=y)
        y /= np.add.reduce(y, axis=axis, keepdims=True)
        return y
    y = np.where(mask, x, -np.inf)
    largest = np.maximum.reduce(y, axis=axis, keepdims=True, initial=-np.inf)
    largest[np.isneginf(largest)] = 0
    y = below(y, largest, y)
    np.exp(y, out=y)
    total = np.add.reduce(y, axis=axis, keepdims=True)
    total[total == 0] = 1
    y /= total
    return y


def _softmax_vjp(
    g: np.ndarray, y: np.ndarray, x: np.ndarray, mask: Any = None, *, axis: int
) -> tuple[Any, None]:
    """ē = α ∘ (ᾱ - Σ_k ᾱ_k α_k); zero where the mask is, since α is."""
    gradient = g * y
    gradient -= y * np.add.reduce(gradient, axis=axis, keepdims=True)
    return gradient, None


_softmax = fused(softmax_definition, _softmax_kernel, _softmax_vjp, name="softmax")


def softmax(x: Any, axis: int = -1, mask: Any = None) -> Tensor:
    """exp(x_j) / Σ_k exp(x_k) along `axis`, over the entries that take part.

    Args:
        x: scores of any shape; (B, T) for attention.
        axis: along which the result sums to one.
        mask: boolean, broadcast to the shape of `x`; True takes part. What does not gets a weight and a
            gradient of exactly zero, whatever its score. A row in which nothing takes part gives zeros.

    Raises:
        TypeError: if the mask is not boolean (or of zeros and ones).
        ValueError: if its shape cannot be broadcast to that of `x`.
    """
    x = _with_axis("softmax", x, axis)
    if mask is None:
        return _softmax(x, axis=axis)
    mask = as_mask(mask)
    if not reaches(mask.shape, np.shape(value_of(x))):
        raise ValueError(
            f"softmax: a mask of shape {mask.shape} does not broadcast to scores of shape "
            f"{np.shape(value_of(x))}"
        )
    return _softmax(x, mask, axis=axis)


def _with_axis(name: str, x: Any, axis: int) -> Any:
    """`x` as a tensor or array. Raises ValueError (numpy's AxisError) unless it has the axis (or axes)."""
    x = x if isinstance(x, (Tensor, np.ndarray)) else np.asarray(x)
    normalized_axes(name, axis, x.ndim)
    return x


def as_mask(mask: Any) -> np.ndarray:
    """`mask` as a boolean array. Raises TypeError for numbers other than zeros and ones."""
    array = np.asarray(value_of(mask))
    if array.dtype != bool:
        if not np.isin(array, (0, 1)).all():
            raise TypeError(f"mask: expected booleans, True for what takes part, got dtype {array.dtype}")
        array = array.astype(bool)
    return array


log_softmax_over = Primitive(
    "log_softmax",
    lambda x, *, axis: below(x, logsumexp(x, axis, keepdims=True)),
    lambda g, y, x, *, axis: g - exp(y) * sum(g, axis, keepdims=True),
)


def log_softmax(x: Any, axis: int = -1) -> Tensor:
    """The logarithm of softmax, x_j - log Σ_k exp(x_k), exact where the softmax itself underflows."""
    return log_softmax_over(_with_axis("log_softmax", x, axis), axis=axis)


def cross_entropy_definition(logits: Any, targets: np.ndarray, counted: np.ndarray) -> Any:
    """-1/n Σ log softmax(logits)[target] over the n rows that are counted."""
    rows = np.flatnonzero(counted)
    return -mean(getitem(log_softmax(getitem(logits, rows)), (np.arange(len(rows)), targets[rows])))


def _cross_entropy_kernel(logits: np.ndarray, targets: np.ndarray, counted: np.ndarray) -> tuple[Any, Any]:
    count = int(np.count_nonzero(counted))
    rows = None
    if count < len(targets):  # what does not count is not looked at, whatever it holds
        rows = np.flatnonzero(counted)
        logits, targets = logits[rows], targets[rows]
    p = np.array(logits.T, order="C")  # (V, n): a reduction over the first axis goes along whole rows
    p = below(p, np.maximum.reduce(p, axis=0), p)
    each = targets, np.arange(count)
    picked = p[each]
    np.exp(p, p)
    total = np.add.reduce(p, axis=0)
    p /= total
    return mean(np.log(total, total) - picked), (p, each, rows)


def _cross_entropy_vjp(
    g: np.ndarray, y: np.ndarray, logits: np.ndarray, targets: np.ndarray, counted: np.ndarray, *, saved: Any
) -> Any:
    """(softmax - onehot) / n for each row that is counted."""
    p, each, rows = saved
    scale = shared(g, p.shape[1])
    by_class = p * scale
    by_class[each] -= scale
    if rows is None:
        return by_class.T, None, None
    gradient = np.zeros_like(logits)
    gradient[rows] = by_class.T
    return gradient, None, None


_cross_entropy = fused(
    cross_entropy_definition, _cross_entropy_kernel, _cross_entropy_vjp, name="cross_entropy"
)


def cross_entropy(logits: Any, targets: Any, ignore_index: int | None = None) -> Tensor:
    """The mean negative log-likelihood, in nats, of the `targets` that count under softmax(logits).

    Args:
        logits: (..., V), unnormalised scores.
        targets: (...), integers from 0 to V - 1.
        ignore_index: a target that does not count, such as padding; it may lie outside 0 to V - 1.

    Raises:
        ValueError: if the shapes do not fit, or no target counts.
        IndexError: for a target outside 0 to V - 1.
        TypeError: for targets that are not integers.
    """
    targets = np.asarray(value_of(targets))
    shape = np.shape(value_of(logits))
    if targets.dtype.kind not in "iu":
        raise TypeError(f"cross_entropy: targets have dtype {targets.dtype}, expected integers")
    if not shape or targets.shape != shape[:-1]:
        raise ValueError(
            f"cross_entropy: logits of shape {shape} need targets of shape {shape[:-1]}, got {targets.shape}"
        )
    flat = targets.reshape(-1)
    counted = np.ones(flat.shape, bool) if ignore_index is None else flat != ignore_index
    count = np.count_nonzero(counted)
    if not count:
        raise ValueError("cross_entropy: no target counts, so there is no mean")
    if count < len(flat):
        flat = np.where(counted, flat, 0)
    if flat.min() < 0 or flat.max() >= shape[-1]:
        wrong = flat[(flat < 0) | (flat >= shape[-1])][0]
        raise IndexError(f"cross_entropy: target {wrong} is not one of the {shape[-1]} classes")
    return _cross_entropy(reshape(logits, (-1, shape[-1])), flat, counted)
