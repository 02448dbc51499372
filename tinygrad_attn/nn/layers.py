"""Linear, Embedding and Dropout."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad_attn.engine import Tensor
from tinygrad_attn.nn import init
from tinygrad_attn.nn.module import Module
from tinygrad_attn.ops.linear import embedding, linear


class Linear(Module):
    """y = x Wᵀ + b: (..., in_features) to (..., out_features).

    Parameters: `weight` (out, in) and, unless `bias` is False, `bias` (out,), both U(±1/√in).
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        dtype: Any = np.float32,
        rng: np.random.Generator | None = None,
    ) -> None:
        rng = init.generator(rng)
        self.weight = init.uniform((out_features, in_features), in_features, rng, dtype)
        self.bias = init.uniform((out_features,), in_features, rng, dtype) if bias else None

    def forward(self, x: Any) -> Tensor:
        """x (..., in) to (..., out). Raises ValueError for another number of features."""
        check_width("Linear: input", x, self.weight.shape[1])
        return linear(x, self.weight, self.bias)


class Embedding(Module):
    """A table of vectors: ids (...) to (..., size).

    Parameters: `weight` (count, size), drawn from N(0, 1). The row `padding_index` starts at zero and never trains.
    """

    def __init__(
        self,
        count: int,
        size: int,
        padding_index: int | None = None,
        *,
        dtype: Any = np.float32,
        rng: np.random.Generator | None = None,
    ) -> None:
        values = init.generator(rng).standard_normal((count, size))
        if padding_index is not None:
            if not 0 <= padding_index < count:
                raise ValueError(f"Embedding: padding_index {padding_index} is outside a table of {count} rows")
            values[padding_index] = 0
        self.weight = init.parameter(values, dtype)
        self.padding_index = padding_index

    def forward(self, ids: Any) -> Tensor:
        """The rows of the ids.

        Raises:
            TypeError: for ids that are not integers.
            IndexError: for an id outside the table; negative ones are.
        """
        ids = np.asarray(ids.data if isinstance(ids, Tensor) else ids)
        if ids.dtype.kind not in "iu":
            raise TypeError(f"Embedding: ids have dtype {ids.dtype}, expected integers")
        count = self.weight.shape[0]
        if ids.size and (ids.min() < 0 or ids.max() >= count):
            wrong = ids[(ids < 0) | (ids >= count)][0]
            raise IndexError(f"Embedding: id {wrong} is outside the table of {count} rows")
        return embedding(self.weight, ids, padding_index=self.padding_index)


class Dropout(Module):
    """While training, zeroes each entry with probability `p` and scales the others by 1/(1-p); else does nothing.

    Args:
        p: from 0 to below 1.
        rng: what the choices are drawn from.
    """

    def __init__(self, p: float = 0.5, *, rng: np.random.Generator | None = None) -> None:
        if not 0 <= p < 1:
            raise ValueError(f"Dropout: probability {p} is outside 0 <= p < 1")
        self.p = p
        self.rng = init.generator(rng)

    def forward(self, x: Any) -> Any:
        """x of any shape."""
        if not self.training or self.p == 0:
            return x
        kept = self.rng.random(x.shape, dtype=np.float32) >= self.p
        return x * (kept / (1 - self.p)).astype(x.dtype)


def check_width(what: str, x: Any, expected: int) -> None:
    """Raises ValueError unless the last axis of `x` has the expected size."""
    shape = np.shape(x.data if isinstance(x, Tensor) else x)
    if not shape or shape[-1] != expected:
        got = f"{shape[-1]} features" if shape else "no axes"
        raise ValueError(f"{what} has {got}, expected {expected}")
