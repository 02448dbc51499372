"""Initial values as PyTorch gives them to each layer. For those of the paper see `nn.paper`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad_attn.engine import Tensor


def generator(rng: np.random.Generator | None) -> np.random.Generator:
    """`rng`, or, if None, a generator seeded by the operating system.

    Raises:
        TypeError: for anything but a numpy Generator.
    """
    if rng is None:
        return np.random.default_rng()
    if not isinstance(rng, np.random.Generator):
        raise TypeError(
            f"rng: expected a numpy.random.Generator such as numpy.random.default_rng(0), got {rng!r}"
        )
    return rng


def parameter(values: Any, dtype: Any) -> Tensor:
    """A leaf tensor that requires a gradient. Raises TypeError for a dtype of other than floating numbers."""
    if np.dtype(dtype).kind not in "fc":
        raise TypeError(f"dtype: {np.dtype(dtype)} is not a floating dtype such as numpy.float32")
    return Tensor(np.asarray(values, dtype=dtype), requires_grad=True)


def uniform(shape: tuple[int, ...], fan_in: int, rng: np.random.Generator, dtype: Any) -> Tensor:
    """U(±1/√fan_in), as PyTorch draws for linear layers and, with the hidden size as fan_in, for cells."""
    bound = 1 / np.sqrt(fan_in)
    return parameter(rng.uniform(-bound, bound, shape), dtype)
