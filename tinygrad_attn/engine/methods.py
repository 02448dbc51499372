"""The methods of a `Tensor`: numpy's where it has them, with numpy's arguments. Each names its rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tinygrad_attn.engine.operators import rules

if TYPE_CHECKING:
    from tinygrad_attn.engine.tensor import Tensor

Axis = int | tuple[int, ...] | None


class Methods:
    """The operations of a `Tensor` that are methods."""

    __slots__ = ()

    data: np.ndarray

    @property
    def T(self) -> Tensor:
        """The tensor with its axes reversed."""
        return rules.transpose(self)

    def tanh(self) -> Tensor:
        """The hyperbolic tangent of each entry."""
        return rules.tanh(self)

    def sigmoid(self) -> Tensor:
        """1 / (1 + exp(-x)) of each entry."""
        return rules.sigmoid(self)

    def relu(self) -> Tensor:
        """max(x, 0) of each entry."""
        return rules.relu(self)

    def exp(self) -> Tensor:
        """The exponential of each entry."""
        return rules.exp(self)

    def log(self) -> Tensor:
        """The natural logarithm of each entry."""
        return rules.log(self)

    def sqrt(self) -> Tensor:
        """The square root of each entry."""
        return rules.sqrt(self)

    def sin(self) -> Tensor:
        """The sine of each entry."""
        return rules.sin(self)

    def cos(self) -> Tensor:
        """The cosine of each entry."""
        return rules.cos(self)

    def abs(self) -> Tensor:
        """The absolute value of each entry."""
        return rules.abs(self)

    def clip(self, min: Any = None, max: Any = None) -> Tensor:
        """See `ta.clip`."""
        return rules.clip(self, min, max)

    def sum(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """The sum over `axis`, one, several or (None) all."""
        return rules.sum(self, axis, keepdims)

    def mean(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """The mean over `axis`."""
        return rules.mean(self, axis, keepdims)

    def max(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """The maximum over `axis`; entries that tie share the gradient."""
        return rules.max(self, axis, keepdims)

    def min(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """The minimum over `axis`; entries that tie share the gradient."""
        return rules.min(self, axis, keepdims)

    def var(self, axis: Axis = None, ddof: int = 0, keepdims: bool = False) -> Tensor:
        """The variance over `axis`, divided by the count minus `ddof`."""
        return rules.var(self, axis, ddof, keepdims)

    def std(self, axis: Axis = None, ddof: int = 0, keepdims: bool = False) -> Tensor:
        """The standard deviation over `axis`."""
        return rules.std(self, axis, ddof, keepdims)

    def norm(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """The Euclidean norm over `axis`."""
        return rules.norm(self, axis, keepdims)

    def logsumexp(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """log of the sum of exponentials over `axis`, without overflow."""
        return rules.logsumexp(self, axis, keepdims)

    def softmax(self, axis: int = -1, mask: Any = None) -> Tensor:
        """See `ta.softmax`."""
        return rules.softmax(self, axis, mask)

    def log_softmax(self, axis: int = -1) -> Tensor:
        """See `ta.log_softmax`."""
        return rules.log_softmax(self, axis)

    def matmul(self, other: Any) -> Tensor:
        """The matrix product, as numpy's `@`."""
        return rules.matmul(self, other)

    def dot(self, other: Any) -> Tensor:
        """numpy's `dot`: `@` for vectors and matrices, but for every pair of matrices of two stacks."""
        return rules.dot(self, other)

    def transpose(self, *axes: Any) -> Tensor:
        """The tensor with its axes in the order `axes` (reversed when left out)."""
        return rules.transpose(self, _one_or_several(axes))

    def swapaxes(self, axis1: int, axis2: int) -> Tensor:
        """The tensor with two axes exchanged."""
        return rules.swapaxes(self, axis1, axis2)

    def reshape(self, *shape: Any) -> Tensor:
        """The tensor with another shape of the same size; one entry may be -1."""
        return rules.reshape(self, _one_or_several(shape))

    def ravel(self) -> Tensor:
        """The entries in a row."""
        return rules.reshape(self, (-1,))

    def flatten(self) -> Tensor:
        """The entries in a row."""
        return rules.reshape(self, (-1,))

    def squeeze(self, axis: Axis = None) -> Tensor:
        """The tensor without its axes of length one, all of them or those given."""
        return rules.squeeze(self, axis)

    def take(self, indices: Any, axis: int | None = None) -> Tensor:
        """The entries at `indices` along `axis`."""
        return rules.take(self, indices, axis)

    def astype(self, dtype: Any) -> Tensor:
        """The tensor in another dtype; the gradient comes back in this one."""
        return rules.astype(self, dtype)

    def all(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """Whether all entries along `axis` are true."""
        return rules.leaf(np.all(self.data, axis=axis, keepdims=keepdims))

    def any(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """Whether any entry along `axis` is true."""
        return rules.leaf(np.any(self.data, axis=axis, keepdims=keepdims))

    def argmax(self, axis: int | None = None, keepdims: bool = False) -> Tensor:
        """Where the maximum along `axis` stands; no gradient passes a choice."""
        return rules.leaf(np.argmax(self.data, axis=axis, keepdims=keepdims))

    def argmin(self, axis: int | None = None, keepdims: bool = False) -> Tensor:
        """Where the minimum along `axis` stands; no gradient passes a choice."""
        return rules.leaf(np.argmin(self.data, axis=axis, keepdims=keepdims))


def _one_or_several(arguments: Sequence[Any]) -> Any:
    if not arguments:
        return None
    return (
        arguments[0]
        if len(arguments) == 1 and not isinstance(arguments[0], (int, np.integer))
        else tuple(arguments)
    )
