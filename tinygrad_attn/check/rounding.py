"""How far rounding errors move an objective's value and its gradient."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from tinygrad_attn.check.numeric import EPSILON
from tinygrad_attn.check.objective import BackwardError, Objective
from tinygrad_attn.engine import Primitive, Tensor
from tinygrad_attn.engine.modes import changed_mode

_TRIES = 6
_SPACING = 2.0**-42  # of points so near that on a smooth function their third differences are rounding
_MOST = 1e4 * EPSILON  # beside the largest entry; a rule that is rougher than this has no excuse,
_MOST_OF_INPUTS = 64 * EPSILON  # or than this beside the largest input, from differences of such numbers


class Rounding:
    """Estimates of rounding errors, found in two ways, of which the larger counts.

    Everything that operations compute is made wrong by a few units in the last place, to see how far the
    result moves; that shows what is lost where a saturated value is subtracted from one. And the result is
    computed at points very near each other, to see how rough it is (Moré and Wild 2011, "Estimating
    computational noise"); that shows what is lost within operations.
    """

    def __init__(self, objective: Objective) -> None:
        self._objective = objective

    @cached_property
    def of_value(self) -> float:
        """How far the value may be off, here or a step beside."""
        rng = np.random.default_rng(0)
        here = self._objective.arrays
        beside = [
            np.asarray(x + rng.uniform(0.5, 1.0, x.shape) * np.maximum(1, np.abs(x)) / 128) for x in here
        ]
        found = 0.0
        for arrays in (here, beside):

            def value(recorded: bool, arrays: Sequence[np.ndarray] = arrays) -> list[np.ndarray]:
                return [np.asarray(self._objective.value(arrays, recorded))]

            with contextlib.suppress(ValueError, ArithmeticError):  # a function that refuses to go there
                rough = _roughness(lambda nearby: [np.asarray(self._objective.value(nearby))], arrays)
                found = np.fmax(found, np.fmax(_moves(value, 1)[0], rough[0]))
        return float(found)

    @cached_property
    def of_gradient(self) -> list[np.ndarray]:
        """How far each entry of the gradient for each array may be off.

        What moves as far with smaller errors is no matter of rounding, but of a bound that is crossed; it
        counts as nothing.
        """
        arrays = self._objective.arrays

        def gradient(recorded: bool) -> list[np.ndarray]:
            return self._objective.gradient(arrays, recorded)

        few, many = (_moves(gradient, units) for units in (4, 64))
        moves = [np.where(a < 0.5 * b, a, 0.0) for a, b in zip(few, many, strict=True)]
        rough = [np.zeros(x.shape) for x in arrays]
        with contextlib.suppress(ValueError, ArithmeticError):
            rough = _roughness(self._objective.gradient, arrays)
        largest = max(float(np.abs(x).max(initial=0.0)) for x in arrays)
        sizes = [max(1.0, float(np.abs(g).max(initial=0.0))) for g in gradient(False)]
        return [
            np.maximum(move, np.where(noise <= max(_MOST * size, _MOST_OF_INPUTS * largest), noise, 0.0))
            for move, noise, size in zip(moves, rough, sizes, strict=True)
        ]


def _moves(compute: Callable[[bool], list[np.ndarray]], units: int) -> list[np.ndarray]:
    """How far what is computed moves where the value of each operation does, by up to so many units."""
    with changed_mode(explicit=True):
        recorded = True
        try:
            still = compute(recorded)
        except BackwardError:  # a rule that takes arrays alone; what it rounds by itself is not seen
            recorded = False
            still = compute(recorded)
        moves = [np.zeros_like(array) for array in still]
        with changed_mode(watcher=_Off(np.random.default_rng(0), units)):
            for _ in range(_TRIES):
                for most, moved, array in zip(moves, compute(recorded), still, strict=True):
                    np.fmax(most, np.abs(moved - array), out=most)
    return moves


def _roughness(
    compute: Callable[[Sequence[np.ndarray]], list[np.ndarray]], arrays: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """How rough what is computed is along a line through `arrays`, from its third differences.

    With the smaller of two spacings: roughness is the same with both, what merely bends is less with one.
    """
    rng = np.random.default_rng(0)
    steps = [x * rng.uniform(0.5, 1.0, x.shape) if x.any() else np.ones(x.shape) for x in arrays]
    rough = []
    for spacing in (_SPACING, 16 * _SPACING):
        # Not at the point itself, where there may be a kink.
        points = [
            compute([np.asarray(x + k * spacing * step) for x, step in zip(arrays, steps, strict=True)])
            for k in range(1, 9)
        ]
        rough.append(
            [np.abs(np.diff(np.stack(values), 3, axis=0)).max(axis=0) for values in zip(*points, strict=True)]
        )
    # The third difference of independent errors deviates by √20 of theirs.
    return [np.fmin(a, b) / 20**0.5 for a, b in zip(*rough, strict=True)]


class _Off:
    """A watcher that makes the value of each operation wrong by up to so many units in the last place.

    Operations that only pick or move numbers round nothing, and are left alone.
    """

    def __init__(self, rng: np.random.Generator, units: int) -> None:
        self._rng, self._units = rng, units

    def forward(
        self, output: Tensor, primitive: Primitive, arrays: Sequence[Any], static: Mapping[str, Any]
    ) -> None:
        """As Watcher.forward."""
        value = output.data
        if value.dtype.kind in "fc" and not np.isin(value, _entries(arrays)).all():
            off = self._rng.integers(-self._units, self._units + 1, value.shape) * EPSILON
            output.data = np.asarray(value * (1 + off))

    def backward(self, output: Tensor, slot: int, upstream: Any, gradient: Any) -> None:
        """As Watcher.backward."""


def _entries(arrays: Sequence[Any]) -> np.ndarray:
    numbers = [np.ravel(x) for x in arrays if np.asarray(x).dtype.kind in "fciub"]
    return np.concatenate([np.zeros(0), *numbers])
