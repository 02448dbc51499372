"""Linear, Embedding and Dropout."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad_attn.engine import Tensor
from tinygrad_attn.errors import check_number
from tinygrad_attn.nn import init
from tinygrad_attn.nn.checks import check_sizes, check_width, numbers
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
        check_sizes("Linear", in_features=in_features, out_features=out_features)
        rng = init.generator(rng)
        self.weight = init.uniform((out_features, in_features), in_features, rng, dtype)
        self.bias = init.uniform((out_features,), in_features, rng, dtype) if bias else None

    def forward(self, x: Any) -> Tensor:
        """x (..., in) to (..., out). Raises ValueError for another number of features."""
        x = numbers(x, self.weight)
        check_width(f"{self._title()}: input", x, self.weight.shape[1])
        y: Tensor = linear(x, self.weight, self.bias)
        return y


class Embedding(Module):
    """A table of vectors: ids (...) to (..., size).

    Parameters: `weight` (count, size), drawn from N(0, 1). The row `padding_index` starts at zero and never
        trains.
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
        check_sizes("Embedding", count=count, size=size)
        values = init.generator(rng).standard_normal((count, size))
        if padding_index is not None:
            if isinstance(padding_index, bool) or not isinstance(padding_index, (int, np.integer)):
                raise TypeError(f"Embedding: padding_index is {padding_index!r}, expected an integer or None")
            if not 0 <= padding_index < count:
                raise ValueError(
                    f"Embedding: padding_index {padding_index} is outside a table of {count} rows"
                )
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
            raise TypeError(f"{self._title()}: ids have dtype {ids.dtype}, expected integers")
        count = self.weight.shape[0]
        if ids.size and (ids.min() < 0 or ids.max() >= count):
            wrong = ids[(ids < 0) | (ids >= count)][0]
            raise IndexError(f"{self._title()}: id {wrong} is outside the table of {count} rows")
        rows: Tensor = embedding(self.weight, ids, padding_index=self.padding_index)
        return rows


class Dropout(Module):
    """In training, zeroes each entry with probability `p` and scales the others by 1/(1-p); else nothing.

    Args:
        p: from 0 to below 1.
        rng: what the choices are drawn from.
    """

    def __init__(self, p: float = 0.5, *, rng: np.random.Generator | None = None) -> None:
        check_number("Dropout: probability", p)
        if not 0 <= p < 1:
            raise ValueError(f"Dropout: probability {p} is outside 0 <= p < 1")
        self.p = p
        self.rng = init.generator(rng)

    def forward(self, x: Any) -> Any:
        """x of any shape."""
        if not self.training or self.p == 0:
            return x
        x = numbers(x)
        kept = self.rng.random(x.shape, dtype=np.float32) >= self.p
        return x * (kept / (1 - self.p)).astype(x.dtype)
