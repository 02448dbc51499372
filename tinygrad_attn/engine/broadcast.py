"""Broadcasting and its adjoint, the sum over what was repeated: each other's gradient."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinygrad_attn.engine.primitive import Primitive
from tinygrad_attn.engine.tensor import Tensor

SMALL = 2**13
"""Entries up to which an array is written sooner than numpy makes a view that repeats another."""


def reaches(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Whether an array of this shape can be repeated to be one of the shape `whole`."""
    extra = len(whole) - len(shape)
    if extra < 0:
        return False
    for size, full in zip(shape, whole[extra:] if extra else whole, strict=True):
        if size != full and size != 1:
            return False
    return True


def _sum_to(x: Any, *, shape: tuple[int, ...]) -> Any:
    whole = x.shape
    axes = list(range(len(whole) - len(shape)))  # those that the shape lacks
    for axis, size in enumerate(shape, len(axes)):
        if size == 1 != whole[axis]:  # those along which it was repeated
            axes.append(axis)
    if axes:
        x = np.add.reduce(x, axis=tuple(axes), keepdims=True)
    return x if x.shape == shape else x.reshape(shape)


def _broadcast_to(x: Any, *, shape: tuple[int, ...]) -> Any:
    if math.prod(shape) > SMALL:
        return np.broadcast_to(x, shape)
    whole = np.empty(shape, x.dtype)
    whole[...] = x
    return whole


broadcast_to: Primitive = Primitive(
    "broadcast_to", _broadcast_to, lambda g, y, x, *, shape: sum_to(g, shape=x.shape)
)
sum_to: Primitive = Primitive("sum_to", _sum_to, lambda g, y, x, *, shape: broadcast_to(g, shape=x.shape))
identity = Primitive("identity", np.array, lambda g, y, x: g)  # with memory of its own


def to_shape(how: Primitive, x: Any, shape: tuple[int, ...]) -> Any:
    """`broadcast_to` or `sum_to`, for rules: of a tensor, recorded; of an array alone, for which a call takes
    longer than the work."""
    return how(x, shape=shape) if isinstance(x, Tensor) else how.forward(x, shape=shape)
