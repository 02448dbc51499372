"""The fused operations that attention is made of: scores and weighted sums, for one query or many at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinygrad_attn.engine import Product, fused
from tinygrad_attn.ops.curves import CACHED, constant, moderate, reach, tanh_of_sum
from tinygrad_attn.ops.elementwise import tanh
from tinygrad_attn.ops.linalg import matmul
from tinygrad_attn.ops.linear import linear
from tinygrad_attn.ops.shapes import expand_dims, getitem, swapaxes


def additive_scores_definition(query: Any, w: Any, keys: Any, v: Any, exponentials: Any = None) -> Any:
    """e_j = vᵀ tanh(W s + k_j), for queries s and keys k = U_a h that were projected once per sentence.

    Shapes: query (B, Q) or (B, N, Q), w (A, Q), keys (B, T, A), v (A,); scores (B, T) or (B, N, T).
    The kernel may be given `exponentials`, the `key_exponentials` of the keys, where the same keys are asked
    again and again without a gradient in mind: it keeps nothing then. Bahdanau et al. 2015, A.1.2.
    """
    if query.ndim == 3:
        keys = expand_dims(keys, 1)  # (B, 1, T, A)
    return matmul(tanh(expand_dims(linear(query, w), -2) + keys), v)


def key_exponentials(keys: np.ndarray) -> np.ndarray:
    """exp(2 k), infinite where it is too large: what `additive_scores` may be given beside the keys."""
    exponentials: np.ndarray = keys + keys
    with np.errstate(over="ignore"):
        np.exp(exponentials, exponentials)
    return exponentials


def _tanh_anew(a: np.ndarray, b: np.ndarray, far: tuple[np.ndarray, np.ndarray], out: np.ndarray) -> None:
    """out = tanh(a_n + b_t) for the pairs of which one is `far`, of a (B, N, A) and b (B, T, A)."""
    row, n, t = np.nonzero(far[0][:, :, None] | far[1][:, None])
    out[row, n, t] = np.tanh(a[row, n] + b[row, t])


def _far(a: np.ndarray) -> np.ndarray:
    """Which vectors (B, N) of a (B, N, A) are too large for exponentials, or hold NaN."""
    near: np.ndarray = (np.abs(a) <= reach(a.dtype)).all(axis=2)
    return ~near


def _additive_scores_kernel(
    query: np.ndarray, w: np.ndarray, keys: np.ndarray, v: np.ndarray, exponentials: np.ndarray | None = None
) -> tuple[Any, Any]:
    (batch, length, size), count = keys.shape, query.shape[1] if query.ndim == 3 else 1
    shape = (*query.shape[:-1], length)
    a = np.matmul(query.reshape(-1, query.shape[-1]), w.T).reshape(batch, count, size)
    if exponentials is None and min(count, length) < 2:  # as many pairs as keys, or as queries
        hidden = a[:, :, None] + keys[:, None]
        np.tanh(hidden, hidden)
        return np.matmul(hidden.reshape(-1, size), v).reshape(shape), hidden.reshape(*shape, size)
    exp_a = key_exponentials(a)
    exp_b = key_exponentials(keys) if exponentials is None else exponentials
    # A pair does not depend on others, such as on what stands in a pad: the far ones alone are computed anew.
    far = None if moderate(a) and moderate(keys) else (_far(a), _far(keys))
    # Sentences in parts that stay near the processor while several calls go over them.
    together = max(1, CACHED // max(1, count * length * size))
    room = batch if exponentials is None else min(together, batch)  # with exponentials nothing is kept
    hidden = np.empty((room, count, length, size), keys.dtype)
    scores = np.empty((batch, count * length), keys.dtype)
    with np.errstate(over="ignore", invalid="ignore"):  # of the pairs that are far
        for start in range(0, batch, together):
            part = slice(start, start + together)
            tanh_of_part = hidden[part] if exponentials is None else hidden[: batch - start]
            tanh_of_sum(exp_a[part, :, None], exp_b[part, None], tanh_of_part)
            if far is not None:
                _tanh_anew(a[part], keys[part], (far[0][part], far[1][part]), tanh_of_part)
            np.matmul(tanh_of_part.reshape(-1, size), v, scores[part].reshape(-1))
    return scores.reshape(shape), None if exponentials is not None else hidden.reshape(*shape, size)


def _additive_scores_vjp(
    g: np.ndarray,
    y: np.ndarray,
    query: np.ndarray,
    w: np.ndarray,
    keys: np.ndarray,
    v: np.ndarray,
    exponentials: np.ndarray | None = None,
    *,
    saved: np.ndarray | None,
    needs: Sequence[bool],
) -> tuple[Any, ...]:
    if saved is None:
        saved = np.tanh(np.matmul(query, w.T)[..., None, :] + (keys if query.ndim == 2 else keys[:, None]))
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
        None,
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
