"""The arrays that a recurrence over several steps reads and writes, and what is done with them all at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad_attn.ops.steps import Step


class Buffers:
    """The arrays of `count` steps of a cell, each (count, *lead, features, B); `lead` holds the
    directions."""

    def __init__(
        self, step: type[Step], count: int, lead: tuple[int, ...], size: int, batch: int, dtype: Any
    ) -> None:
        self.step = step
        self._shape = (lead, size, batch, dtype)
        self.states = [np.empty((count + 1, *lead, size, batch), dtype) for _ in range(step.states)]
        self._kept = [np.empty((count, *lead, units * size, batch), dtype) for units in step.kept]
        self.state = list(zip(*self.states, strict=True))  # before step k, and after the last
        self.kept = list(zip(*self._kept, strict=True))

    def start(self, *initial: np.ndarray) -> None:
        """Sets the state before the first step; what is not given is zero."""
        for position, states in enumerate(self.states):
            states[0] = initial[position] if position < len(initial) else 0

    def gradients(self, count: int) -> Gradients:
        """The arrays of the backward pass."""
        return Gradients(self.step, count, *self._shape)

    def reset_states(self) -> np.ndarray:
        """r ∘ h of every step, for the gradient of W_hn, where the reset gate acts before the product."""
        return self._kept[2]


class Gradients:
    """The arrays of the backward pass: for the inputs of every step, and for the state on its way back."""

    def __init__(
        self, step: type[Step], count: int, lead: tuple[int, ...], size: int, batch: int, dtype: Any
    ) -> None:
        self.dx = np.empty((count, *lead, step.gates * size, batch), dtype)
        self.dh = self.dx if step.shares_gradient else np.empty_like(self.dx)
        self.carried = tuple(np.zeros((*lead, size, batch), dtype) for _ in range(step.states))
        self.arriving = tuple(np.empty((*lead, size, batch), dtype) for _ in range(step.states))
        self.scratch = tuple(np.empty((*lead, size, batch), dtype) for _ in range(step.scratch))


def end_to_end(x: np.ndarray) -> np.ndarray:
    """All steps laid end to end: (N, F, B) as (F, N·B)."""
    return x.transpose(1, 0, 2).reshape(x.shape[1], -1)


def recurrent_weight_gradient(
    step: type[Step], from_h: np.ndarray, before: np.ndarray, reset: np.ndarray | None
) -> Any:
    """The gradient of W_hh from (G·H, N·B) and the states before each step (H, N·B).

    Where the reset gate acts before the product, the candidate's rows met r ∘ h, `reset`, in place of h.
    """
    if reset is None:
        return np.matmul(from_h, before.T)
    size = len(before)
    return np.concatenate([from_h[: 2 * size] @ before.T, from_h[2 * size :] @ reset.T])
