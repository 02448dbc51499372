"""Broadcasting and its adjoint, the sum over what was repeated: each other's gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad_attn.engine.primitive import Primitive


def _sum_to(x: Any, *, shape: tuple[int, ...]) -> Any:
    extra = x.ndim - len(shape)
    repeated = tuple(axis for axis, size in enumerate(shape, extra) if size == 1 and x.shape[axis] != 1)
    if extra or repeated:
        x = np.add.reduce(x, axis=(*range(extra), *repeated), keepdims=True)
    return x.reshape(shape)


def _broadcast_to(x: Any, *, shape: tuple[int, ...]) -> Any:
    return np.broadcast_to(x, shape)


broadcast_to: Primitive = Primitive(
    "broadcast_to", _broadcast_to, lambda g, y, x, *, shape: sum_to(g, shape=x.shape)
)
sum_to: Primitive = Primitive("sum_to", _sum_to, lambda g, y, x, *, shape: broadcast_to(g, shape=x.shape))
identity = Primitive("identity", np.array, lambda g, y, x: g)  # with memory of its own
