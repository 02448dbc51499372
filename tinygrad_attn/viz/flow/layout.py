"""Which axes of a model's tensors are the batch and the steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tinygrad_attn.viz.checks import integer


class Layout:
    """How the tensors of an attention model hold sequences and steps.

    Args:
        weights: α, or else e: of each step (T,) or (B, T), or of all (N, T) or (B, N, T).
        annotations: h, (T, H) or (B, T, H), or one by one (H,) or (B, H).
        example: which sequence of the batch is looked at.

    Attributes:
        count: N, how many steps there are.
        together: whether one tensor holds all of them. Nothing is known of a single step then.

    Raises:
        ValueError: if `example` is none of the batch.
    """

    def __init__(
        self, weights: Sequence[np.ndarray], annotations: Sequence[np.ndarray], example: int
    ) -> None:
        first = weights[0]
        self.example = example = integer("gradient_flow: example", example)
        self._batched = _has_batch(first, annotations)
        self.together = len(weights) == 1 and first.ndim == 2 + self._batched
        self.count = first.shape[-2] if self.together else len(weights)
        self._positions = first.shape[-1:]
        if self._batched and not 0 <= example < len(first):
            raise ValueError(f"gradient_flow: example {example} is not one of the {len(first)} in the batch")
        if not self._batched and example != 0:
            raise ValueError(
                f"gradient_flow: example {example}: there is one sequence, without an axis for a batch"
            )

    def of_example(self, array: np.ndarray) -> np.ndarray:
        """The example's part of an array."""
        return array[self.example] if self._batched and array.ndim else array

    def split(self, role: str, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The example's part of each array, and of a single one its rows: the positions, or the steps."""
        found = [self.of_example(array) for array in arrays]
        if len(found) == 1 and self._holds_all(role, found[0].shape[:1]):
            return [np.asarray(row) for row in found[0]]
        return found

    def _holds_all(self, role: str, first_axis: tuple[int, ...]) -> bool:
        """Whether the array of this first axis holds all positions, or all steps, and not just one."""
        if role == "h":
            return first_axis != () and first_axis == (self._positions or first_axis)
        return self.count > 1 and first_axis == (self.count,)

    def checked(self, step: int) -> int:
        """`step`, if something can be said of it alone; ValueError otherwise, TypeError for no integer."""
        step = integer("gradient_flow: step", step)
        if self.together:
            raise ValueError(
                f"gradient_flow: nothing is known of step {step} alone: one tensor holds all {self.count} "
                "steps; name or pass a tensor for each"
            )
        if not 1 <= step <= self.count:
            raise ValueError(f"gradient_flow: step is {step}, expected one from 1 to {self.count}")
        return step


def _has_batch(weights: np.ndarray, annotations: Sequence[np.ndarray]) -> bool:
    """Whether arrays have an axis for the batch; of weights with two axes the annotations tell."""
    if weights.ndim != 2 or not annotations:
        return weights.ndim > 1
    h = annotations[0]
    if len(annotations) > 1:
        return h.ndim > 1
    return h.ndim > 2 or (h.ndim == 2 and len(h) != weights.shape[1])
