"""The fused operations that attention is made of: linear maps, additive scores, weighted sums.

Each is stated by its definition; the kernel computes the same in few passes over memory and leaves the gradients of
weights as products, which the engine carries out once for all uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinygrad_attn.engine import Product, fused
from tinygrad_attn.ops.elementwise import tanh
from tinygrad_attn.ops.linalg import matmul
from tinygrad_attn.ops.shapes import expand_dims, getitem, transpose


def linear_definition(x: Any, weight: Any, bias: Any = None) -> Any:
    """x Wᵀ + b for x (..., I), W (O, I), b (O,): (..., O)."""
    y = matmul(x, transpose(weight))
    return y if bias is None else y + bias


def _linear_kernel(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    y = np.matmul(x.reshape(-1, x.shape[-1]), weight.T)
    if bias is not None:
        y += bias
    return y.reshape(*x.shape[:-1], len(weight))


def _linear_vjp(
    g: np.ndarray,
    y: np.ndarray,
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    needs: Sequence[bool],
) -> tuple[Any, ...]:
    rows = g.reshape(-1, g.shape[-1])
    return (
        np.matmul(rows, weight).reshape(x.shape) if needs[0] else None,
        Product(rows, x.reshape(-1, x.shape[-1])),
        Product(rows, None),
    )


linear = fused(linear_definition, _linear_kernel, _linear_vjp, name="linear")


def additive_scores_definition(query: Any, keys: Any, v: Any) -> Any:
    """e_j = vᵀ tanh(q + k_j), for projected queries q = W_a s and projected keys k = U_a h.

    Shapes: query (B, A) or (B, N, A), keys (B, T, A), v (A,); scores (B, T) or (B, N, T). Bahdanau et al. 2015, A.1.2.
    """
    if query.ndim == 3:
        keys = expand_dims(keys, 1)  # (B, 1, T, A)
    return matmul(tanh(expand_dims(query, -2) + keys), v)


def _additive_scores_kernel(query: np.ndarray, keys: np.ndarray, v: np.ndarray) -> tuple[Any, Any]:
    if query.ndim == 3:
        keys = keys[:, None]
    hidden = query[..., None, :] + keys  # (B, [N,] T, A)
    np.tanh(hidden, out=hidden)
    return np.matmul(hidden.reshape(-1, len(v)), v).reshape(hidden.shape[:-1]), hidden


def _additive_scores_vjp(
    g: np.ndarray, y: np.ndarray, query: np.ndarray, keys: np.ndarray, v: np.ndarray, *, saved: np.ndarray, needs: Sequence[bool]
) -> tuple[Any, ...]:
    v_gradient = np.matmul(saved.reshape(-1, len(v)).T, g.reshape(-1)) if needs[2] else None
    inner = np.multiply(saved, saved)  # becomes (1 - tanh²) v ē
    np.subtract(np.ones((), v.dtype), inner, out=inner)
    inner *= v
    inner *= g[..., None]
    return (
        np.add.reduce(inner, axis=-2) if needs[0] else None,
        np.add.reduce(inner, axis=1) if inner.ndim == 4 else inner,
        v_gradient,
    )


additive_scores = fused(additive_scores_definition, _additive_scores_kernel, _additive_scores_vjp, name="additive_scores")


def weighted_sum_definition(weights: Any, values: Any) -> Any:
    """c = Σ_j α_j v_j for weights (B, T) or (B, N, T) and values (B, T, V): (B, V) or (B, N, V)."""
    if weights.ndim == 3:
        return matmul(weights, values)
    return getitem(matmul(expand_dims(weights, 1), values), (slice(None), 0))


def _weighted_sum_kernel(weights: np.ndarray, values: np.ndarray) -> np.ndarray:
    if weights.ndim == 3:
        return np.matmul(weights, values)
    return np.matmul(weights[:, None], values)[:, 0]


def _weighted_sum_vjp(
    g: np.ndarray, y: np.ndarray, weights: np.ndarray, values: np.ndarray, *, needs: Sequence[bool]
) -> tuple[Any, ...]:
    if weights.ndim == 3:
        return np.matmul(g, values.swapaxes(1, 2)) if needs[0] else None, Product(weights, g)
    return np.matmul(values, g[:, :, None])[:, :, 0] if needs[0] else None, Product(weights[:, None], g[:, None])


weighted_sum = fused(weighted_sum_definition, _weighted_sum_kernel, _weighted_sum_vjp, name="weighted_sum")
