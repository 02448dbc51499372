"""What a sample of an operation is, and how its inputs are drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tinygrad_attn.engine import Tensor

Draw = Callable[[np.random.Generator], np.ndarray]


@dataclass(frozen=True)
class Sample:
    """A use of an operation.

    Attributes:
        operation: the name of the operation, such as `matmul`.
        case: what is particular, such as `stack of matrices`.
        fn: takes as many tensors as `draws` has entries, gives one tensor.
        draws: for each input, how to draw it: a float64 array, differentiable at that point.
        analytic: whether a complex step can check it, because `fn` continues to complex numbers near the
            inputs.
    """

    operation: str
    case: str
    fn: Callable[..., Tensor]
    draws: tuple[Draw, ...]
    analytic: bool = True

    @property
    def name(self) -> str:
        """The operation and the case, unique in the table."""
        return f"{self.operation}: {self.case}"

    def inputs(self, rng: np.random.Generator) -> list[np.ndarray]:
        """New inputs, one array for each argument of `fn`."""
        return [draw(rng) for draw in self.draws]


def normal(*shape: int) -> Draw:
    """Standard normal entries."""
    return lambda rng: np.asarray(rng.standard_normal(shape))


def positive(*shape: int) -> Draw:
    """Entries from 0.5 to 2."""
    return lambda rng: np.asarray(rng.uniform(0.5, 2.0, shape))


def spaced(*shape: int) -> Draw:
    """Entries of either sign that are at least 0.1 from each other and from zero."""

    def draw(rng: np.random.Generator) -> np.ndarray:
        size = int(np.prod(shape, dtype=np.int64))
        values = 0.2 * (np.arange(size) - size // 2) + 0.1 + rng.uniform(-0.04, 0.04, size)
        return np.asarray(rng.permutation(values).reshape(shape))

    return draw
