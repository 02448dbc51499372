"""Matrix products, and gradients that are sums of them over many uses, put off until all uses are known.

A weight used at every time step receives one product `leftᵀ right` a step. Summed one by one they cost a
small product and an addition each; laid end to end they are a single large product, which runs at the
processor's peak.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def matrix_product(a: Any, b: Any) -> Any:
    """np.matmul(a, b), which for products with a vector does not warn of invalid values.

    Builds of BLAS for AVX-512 raise the processor's flag for them where every number is finite and the
    result is right: for float32 vectors of five, OpenBLAS 0.3.31 computes with what happens to lie in unused
    memory as well, and throws it away. A NaN that is there is still in the result.
    """
    try:
        matrices = a.shape[-2] != 1 != b.shape[-1] and b.ndim > 1
    except (AttributeError, IndexError):  # a list, a vector or a number
        matrices = False
    if matrices:
        return np.matmul(a, b)
    with np.errstate(invalid="ignore"):
        return np.matmul(a, b)


class Product:
    """The gradient `leftᵀ right`, with `left` (..., n, p) and `right` (..., n, q), not computed yet.

    With `right` None it stands for the sum of `left` over its n rows, (..., p): the gradient of a bias.
    """

    __slots__ = ("left", "right")

    def __init__(self, left: np.ndarray, right: np.ndarray | None) -> None:
        self.left = left
        self.right = right

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the gradient."""
        outer = self.left.shape[:-2] + self.left.shape[-1:]
        return outer if self.right is None else outer + self.right.shape[-1:]

    def value(self) -> np.ndarray:
        """The gradient, computed now."""
        if self.right is None:
            return np.asarray(self.left.sum(axis=-2))
        return np.asarray(matrix_product(np.swapaxes(self.left, -1, -2), self.right))


class Joined:
    """Arrays laid end to end along their second-last axis; each sequence of arrays is joined once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], tuple[Sequence[np.ndarray], np.ndarray]] = {}

    def __call__(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """The arrays joined. They are kept alive with the result, so that their identities stay theirs."""
        if len(arrays) == 1:
            return arrays[0]
        key = tuple(map(id, arrays))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = (arrays, np.concatenate(arrays, axis=-2))
        return found[1]


class Sum:
    """Several gradients for one tensor: arrays added up, products collected."""

    __slots__ = ("_owned", "_products", "_total")

    def __init__(self, *gradients: Any) -> None:
        self._total: np.ndarray | None = None
        self._owned = False  # whether _total is an array of our own, that can be added to in place
        self._products: list[Product] = []
        for gradient in gradients:
            self.add(gradient)

    def add(self, gradient: Any) -> None:
        """Adds an array or a `Product`."""
        if type(gradient) is Product:
            self._products.append(gradient)
        elif self._total is None:
            self._total = gradient
        elif self._owned and self._total.dtype == gradient.dtype:
            np.add(self._total, gradient, out=self._total)
        else:
            self._total = np.asarray(self._total + gradient)
            self._owned = True

    def value(self, join: Joined) -> np.ndarray:
        """The gradient, as an array of its own."""
        if self._products:
            for group in _alike(self._products):
                left = join([product.left for product in group])
                rights = [product.right for product in group if product.right is not None]
                self.add(Product(left, join(rights) if rights else None).value())
            self._products = []
        assert self._total is not None
        return self._total


def _alike(products: Sequence[Product]) -> list[list[Product]]:
    """The products in groups that can be joined: of the same kind and batch shape."""
    groups: dict[Any, list[Product]] = {}
    for product in products:
        groups.setdefault((product.right is None, product.left.shape[:-2]), []).append(product)
    return list(groups.values())
