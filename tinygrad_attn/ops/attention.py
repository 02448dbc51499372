"""The fused operations that attention is made of: scores and weighted sums, for one query or many at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinygrad_attn.engine import Product, fused
from tinygrad_attn.ops.curves import constant, moderate, reach, tanh_, tanh_of_sum
from tinygrad_attn.ops.elementwise import tanh
from tinygrad_attn.ops.linalg import matmul
from tinygrad_attn.ops.linear import linear
from tinygrad_attn.ops.shapes import expand_dims, getitem, swapaxes


def additive_scores_definition(query: Any, w: Any, keys: Any, v: Any) -> Any:
    """e_j = vᵀ tanh(W s + k_j), for queries s and keys k = U_a h that were projected once per sentence.

    Shapes: query (B, Q) or (B, N, Q), w (A, Q), keys (B, T, A), v (A,); scores (B, T) or (B, N, T).
    Bahdanau et al. 2015, A.1.2.
    """
    if query.ndim == 3:
        keys = expand_dims(keys, 1)  # (B, 1, T, A)
    return matmul(tanh(expand_dims(linear(query, w), -2) + keys), v)


def _tanh_of_sums(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """tanh(a_n + b_t) for every pair: a (B, N, A) and b (B, T, A) to (B, N, T, A).

    By exponentials, but for pairs of which one is too large for that: so no pair depends on another, such as
    on what stands in a pad.
    """
    hidden = np.empty((*a.shape[:2], b.shape[1], a.shape[2]), a.dtype)
    if min(a.shape[1], b.shape[1]) < 2:
        np.add(a[:, :, None], b[:, None], hidden)
        tanh_(hidden)
        return hidden
    with np.errstate(over="ignore", invalid="ignore"):  # of the pairs that are computed anew
        tanh_of_sum(np.exp(a + a)[:, :, None], np.exp(b + b)[:, None], hidden)
    if not (moderate(a) and moderate(b)):
        most = reach(a.dtype)
        near = [(np.abs(x) <= most).all(axis=2) for x in (a, b)]
        row, n, t = np.nonzero(~(near[0][:, :, None] & near[1][:, None]))
        hidden[row, n, t] = np.tanh(a[row, n] + b[row, t])
    return hidden


def _additive_scores_kernel(
    query: np.ndarray, w: np.ndarray, keys: np.ndarray, v: np.ndarray
) -> tuple[Any, Any]:
    asking = np.matmul(query, w.T)
    if query.ndim == 2:
        hidden = asking[:, None] + keys  # (B, T, A)
        np.tanh(hidden, out=hidden)
    else:
        hidden = _tanh_of_sums(asking, keys)  # (B, N, T, A)
    return np.matmul(hidden.reshape(-1, len(v)), v).reshape(hidden.shape[:-1]), hidden


def _additive_scores_vjp(
    g: np.ndarray,
    y: np.ndarray,
    query: np.ndarray,
    w: np.ndarray,
    keys: np.ndarray,
    v: np.ndarray,
    *,
    saved: np.ndarray,
    needs: Sequence[bool],
) -> tuple[Any, ...]:
    v_gradient = np.matmul(saved.reshape(-1, len(v)).T, g.reshape(-1)) if needs[3] else None
    inner = np.multiply(saved, saved)  # becomes (1 - tanh²) v ē
    np.subtract(constant(1, v.dtype), inner, out=inner)
    inner *= v
    inner *= g[..., None]
    to_projected = np.add.reduce(inner, axis=-2).reshape(-1, len(v))
    return (
        np.matmul(to_projected, w).reshape(query.shape) if needs[0] else None,
        Product(to_projected, query.reshape(-1, query.shape[-1])),
        np.add.reduce(inner, axis=1) if inner.ndim == 4 else inner,
        v_gradient,
    )


additive_scores = fused(
    additive_scores_definition, _additive_scores_kernel, _additive_scores_vjp, name="additive_scores"
)


def dot_scores_definition(query: Any, keys: Any) -> Any:
    """e_j = q · k_j for query (B, Q) or (B, N, Q) and keys (B, T, Q): (B, T) or (B, N, T).

    Luong et al. 2015, eq. 8.
    """
    if query.ndim == 3:
        return matmul(query, swapaxes(keys, 1, 2))
    return getitem(matmul(keys, expand_dims(query, -1)), (..., 0))


def _dot_scores_kernel(query: np.ndarray, keys: np.ndarray) -> Any:
    if query.ndim == 3:
        return np.matmul(query, keys.swapaxes(1, 2))
    return np.matmul(keys, query[:, :, None])[:, :, 0]


def _dot_scores_vjp(
    g: np.ndarray, y: np.ndarray, query: np.ndarray, keys: np.ndarray, *, needs: Sequence[bool]
) -> tuple[Any, ...]:
    if query.ndim == 3:
        return np.matmul(g, keys) if needs[0] else None, Product(g, query)
    return np.matmul(g[:, None], keys)[:, 0] if needs[0] else None, Product(g[:, None], query[:, None])


dot_scores = fused(dot_scores_definition, _dot_scores_kernel, _dot_scores_vjp, name="dot_scores")


def weighted_sum_definition(weights: Any, values: Any) -> Any:
    """c = Σ_j α_j v_j for weights (B, T) or (B, N, T) and values (B, T, V): (B, V) or (B, N, V)."""
    if weights.ndim == 3:
        return matmul(weights, values)
    return getitem(matmul(expand_dims(weights, 1), values), (slice(None), 0))


def _weighted_sum_kernel(weights: np.ndarray, values: np.ndarray) -> Any:
    if weights.ndim == 3:
        return np.matmul(weights, values)
    return np.matmul(weights[:, None], values)[:, 0]


def _weighted_sum_vjp(
    g: np.ndarray, y: np.ndarray, weights: np.ndarray, values: np.ndarray, *, needs: Sequence[bool]
) -> tuple[Any, ...]:
    if weights.ndim == 3:
        return np.matmul(g, values.swapaxes(1, 2)) if needs[0] else None, Product(weights, g)
    return np.matmul(values, g[:, :, None])[:, :, 0] if needs[0] else None, Product(
        weights[:, None], g[:, None]
    )


weighted_sum = fused(weighted_sum_definition, _weighted_sum_kernel, _weighted_sum_vjp, name="weighted_sum")
