"""Linear maps and tables of embeddings.

The kernels leave the gradients of weights as products, which the engine carries out once for all uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinygrad_attn.engine import Product, fused, matrix_product
from tinygrad_attn.engine.tensor import value_of
from tinygrad_attn.ops.elementwise import where
from tinygrad_attn.ops.linalg import matmul, rows
from tinygrad_attn.ops.shapes import getitem, transpose


def linear_definition(x: Any, weight: Any, bias: Any = None) -> Any:
    """x Wᵀ + b for x (..., I), W (O, I), b (O,): (..., O)."""
    y = matmul(x, transpose(weight))
    return y if bias is None else y + bias


def _linear_kernel(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None) -> Any:
    y = matrix_product(rows(x), weight.T)
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
    to_rows = rows(g)
    return (
        matrix_product(to_rows, weight).reshape(x.shape) if needs[0] else None,
        Product(to_rows, rows(x)),
        Product(to_rows, None),
    )


linear = fused(linear_definition, _linear_kernel, _linear_vjp, name="linear")


def embedding_definition(weight: Any, ids: np.ndarray, *, padding_index: int | None = None) -> Any:
    """The rows `ids` (...) of `weight` (V, E): (..., E). The padding row is a constant: no gradient reaches
    it."""
    found = getitem(weight, ids)
    if padding_index is None:
        return found
    return where((ids == padding_index)[..., None], np.real(value_of(weight)[ids]), found)


def _embedding_kernel(weight: np.ndarray, ids: np.ndarray, *, padding_index: int | None = None) -> Any:
    # take is quicker than an index, but numpy 2.0's does not know uint64.
    return weight.take(ids.astype(np.intp, casting="same_kind", copy=False), axis=0)


def _embedding_vjp(
    g: np.ndarray, y: np.ndarray, weight: np.ndarray, ids: np.ndarray, *, padding_index: int | None = None
) -> tuple[Any, None]:
    """Each row gets the sum over its uses."""
    flat, to_rows = ids.reshape(-1), rows(g)
    if len(weight) * len(flat) <= 2**18:  # a small table: the product with the ids' one-hot rows
        uses = np.zeros((len(weight), len(flat)), g.dtype)
        uses[flat, np.arange(len(flat))] = 1
        gradient = matrix_product(uses, to_rows)
    else:  # the rows' gradients, sorted by row, added up run by run
        order = np.argsort(flat, kind="stable")
        in_order = flat[order]
        starts = np.flatnonzero(np.concatenate([[True], in_order[1:] != in_order[:-1]]))
        gradient = np.zeros(weight.shape, g.dtype)
        gradient[in_order[starts]] = np.add.reduceat(to_rows[order], starts, axis=0)
    if padding_index is not None:
        gradient[padding_index] = 0
    return gradient, None


embedding = fused(embedding_definition, _embedding_kernel, _embedding_vjp, name="embedding")
