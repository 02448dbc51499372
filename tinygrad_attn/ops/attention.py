"""The fused operations that attention is made of: scores and weighted sums, for one query or many at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinygrad_attn.engine import Product, fused, matrix_product
from tinygrad_attn.ops.calls import run
from tinygrad_attn.ops.curves import CACHED, constant, moderate, reach, tanh_of_sum
from tinygrad_attn.ops.elementwise import tanh
from tinygrad_attn.ops.linalg import matmul, rows
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
    """exp(2 k) of keys (B, T, A), position by position, (T, B, A), for the scores to be given beside them.

    NaN where k is beyond the reach of exponentials.
    """
    by_position = keys.swapaxes(0, 1)
    return _exp_of_double(by_position, np.empty(by_position.shape, keys.dtype))


def _exp_of_double(x: np.ndarray, out: np.ndarray) -> np.ndarray:
    """exp(2 x); NaN where x is beyond the reach of exponentials."""
    with np.errstate(over="ignore"):
        np.add(x, x, out)
    if not moderate(out, 2):
        out[np.abs(out) > 2 * reach(out.dtype)] = np.nan
    np.exp(out, out)
    return out


def _additive_scores_kernel(
    query: np.ndarray, w: np.ndarray, keys: np.ndarray, v: np.ndarray, exponentials: np.ndarray | None = None
) -> tuple[Any, Any]:
    (batch, length, size), count = keys.shape, query.shape[1] if query.ndim == 3 else 1
    shape = (*query.shape[:-1], length)
    a = matrix_product(rows(query), w.T).reshape(batch, count, size)
    if exponentials is not None:
        return _scores_asked_again(a, keys, v, exponentials).reshape(shape), None
    if min(count, length) < 2:  # as many pairs as keys, or as queries
        hidden = a[:, :, None] + keys[:, None]
        np.tanh(hidden, hidden)
    else:
        hidden = _tanh_of_sums(a, keys)
    return matrix_product(rows(hidden), v).reshape(shape), hidden.reshape(*shape, size)


def _tanh_of_sums(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """tanh(a_n + b_t) for every pair: a (B, N, A) and b (B, T, A) to (B, N, T, A).

    By exponentials, but for pairs of which one is too large for that: so no pair depends on another, such as
    on what stands in a pad.
    """
    hidden = np.empty((*a.shape[:2], *b.shape[1:]), a.dtype)
    exp_a, exp_b = (_exp_of_double(x, np.empty_like(x)) for x in (a, b))
    # Sentences in parts that stay near the processor while several calls go over them.
    together = max(1, CACHED // max(1, hidden[:1].size))
    for start in range(0, len(hidden), together):
        part = slice(start, start + together)
        run(tanh_of_sum(exp_a[part, :, None], exp_b[part, None], hidden[part]))
    far = [np.isnan(x).any(axis=2) for x in (exp_a, exp_b)]
    if far[0].any() or far[1].any():
        row, n, t = np.nonzero(far[0][:, :, None] | far[1][:, None])
        hidden[row, n, t] = np.tanh(a[row, n] + b[row, t])
    return hidden


def _scores_asked_again(a: np.ndarray, keys: np.ndarray, v: np.ndarray, exp_keys: np.ndarray) -> np.ndarray:
    """Σ v tanh(a_n + k_t) = 2 (Σ v/2 - Σ v / (1 + exp(2 a_n) exp(2 k_t))), (B, N, T), for a (B, N, A).

    As in `_tanh_of_sums`, pairs that are too large are computed anew.
    """
    batch, count, size = a.shape
    by_query = a.swapaxes(0, 1)  # (N, B, A), so that a call goes along all sentences
    asks = _exp_of_double(by_query, np.empty(by_query.shape, a.dtype))
    one, two, minus_v = constant(1, v.dtype), constant(2, v.dtype), np.negative(v)
    scores = np.empty((count, len(exp_keys), batch), v.dtype)
    # Sentences, and positions, in parts that stay near the processor.
    sentences = max(1, CACHED // max(1, count * size))
    for start in range(0, batch, sentences):
        part = slice(start, start + sentences)
        asking = asks[:, None, part]
        positions = max(1, CACHED // max(1, asking.size))
        for first in range(0, len(exp_keys), positions):
            some = slice(first, first + positions)
            pairs = asking * exp_keys[some, part]  # (N, positions, sentences, A)
            np.add(pairs, one, pairs)
            np.divide(one, pairs, pairs)
            scores[:, some, part] = matrix_product(rows(pairs), minus_v).reshape(pairs.shape[:-1])
    scores += np.add.reduce(v / two)
    scores *= two
    scores = np.ascontiguousarray(scores.transpose(2, 0, 1))
    anew = np.isnan(scores)
    if anew.any():
        row, n, t = np.nonzero(anew)
        scores[row, n, t] = matrix_product(np.tanh(a[row, n] + keys[row, t]), v)
    return scores


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
        a = matrix_product(query, w.T)[..., None, :]
        saved = np.tanh(a + (keys if query.ndim == 2 else keys[:, None]))
    v_gradient = matrix_product(rows(saved).T, g.reshape(-1)) if needs[3] else None
    inner = np.multiply(saved, saved)  # becomes (1 - tanh²) v ē
    np.subtract(constant(1, v.dtype), inner, out=inner)
    inner *= v
    inner *= g[..., None]
    to_projected = rows(np.add.reduce(inner, axis=-2))
    return (
        matrix_product(to_projected, w).reshape(query.shape) if needs[0] else None,
        Product(to_projected, rows(query)),
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
        return matrix_product(query, keys.swapaxes(1, 2))
    return matrix_product(keys, query[:, :, None])[:, :, 0]


def _dot_scores_vjp(
    g: np.ndarray, y: np.ndarray, query: np.ndarray, keys: np.ndarray, *, needs: Sequence[bool]
) -> tuple[Any, ...]:
    if query.ndim == 3:
        return matrix_product(g, keys) if needs[0] else None, Product(g, query)
    return matrix_product(g[:, None], keys)[:, 0] if needs[0] else None, Product(g[:, None], query[:, None])


dot_scores = fused(dot_scores_definition, _dot_scores_kernel, _dot_scores_vjp, name="dot_scores")


def weighted_sum_definition(weights: Any, values: Any) -> Any:
    """c = Σ_j α_j v_j for weights (B, T) or (B, N, T) and values (B, T, V): (B, V) or (B, N, V)."""
    if weights.ndim == 3:
        return matmul(weights, values)
    return getitem(matmul(expand_dims(weights, 1), values), (slice(None), 0))


def _weighted_sum_kernel(weights: np.ndarray, values: np.ndarray) -> Any:
    if weights.ndim == 3:
        return matrix_product(weights, values)
    return matrix_product(weights[:, None], values)[:, 0]


def _weighted_sum_vjp(
    g: np.ndarray, y: np.ndarray, weights: np.ndarray, values: np.ndarray, *, needs: Sequence[bool]
) -> tuple[Any, ...]:
    if weights.ndim == 3:
        return matrix_product(g, values.swapaxes(1, 2)) if needs[0] else None, Product(weights, g)
    return matrix_product(values, g[:, :, None])[:, :, 0] if needs[0] else None, Product(
        weights[:, None], g[:, None]
    )


weighted_sum = fused(weighted_sum_definition, _weighted_sum_kernel, _weighted_sum_vjp, name="weighted_sum")
