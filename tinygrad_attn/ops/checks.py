"""What the recurrent operations ask of their arrays, so that none is broadcast by mistake."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinygrad_attn.ops.steps import Step


def check_shapes(**given: tuple[Any, tuple[int, ...]]) -> None:
    """Raises ValueError unless each array, given by its name, has the shape given with it."""
    for name, (array, expected) in given.items():
        if array.shape != expected:
            raise ValueError(f"{name} has shape {array.shape}, expected {expected}")


def check_weights(step: type[Step], width: int, weights: Sequence[Any]) -> None:
    """Raises ValueError unless a cell's four weights fit each other, and inputs of this width."""
    w_ih, w_hh, b_ih, b_hh = weights
    size = w_hh.shape[-1]
    rows = step.gates * size
    check_shapes(
        w_ih=(w_ih, (rows, width)), w_hh=(w_hh, (rows, size)), b_ih=(b_ih, (rows,)), b_hh=(b_hh, (rows,))
    )
