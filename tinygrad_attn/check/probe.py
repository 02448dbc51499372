"""Numerical derivatives of an objective, by one entry of one of its arrays or along a direction."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinygrad_attn.check.numeric import EPSILON, STEP, Slope, complex_slope, slope
from tinygrad_attn.check.objective import Objective


class NotAnalyticError(Exception):
    """The function cannot be run on complex numbers, or has another value there."""


class Probe:
    """The derivatives of an objective at the values it comes with.

    Args:
        objective: what to differentiate.
        picked: for each of its arrays the entries to look at, as positions in the flattened array.
    """

    def __init__(self, objective: Objective, picked: Sequence[np.ndarray]) -> None:
        self.objective = objective
        self.picked = picked
        self.middle = float(objective.value(objective.arrays))
        self.magnitude = objective.magnitude()

    def complex_steps(self) -> list[np.ndarray]:
        """For each array the derivatives by its picked entries, by complex steps.

        Raises:
            NotAnalyticError: if the function raises on complex numbers, drops imaginary parts with numpy's
                warning, or has another real part there than on real numbers.
        """
        found = [np.zeros(len(entries)) for entries in self.picked]
        with warnings.catch_warnings():
            warnings.simplefilter("error", np.exceptions.ComplexWarning)
            for which, entries in enumerate(self.picked):
                arrays = list(self.objective.arrays)
                moved = arrays[which] = arrays[which].astype(np.complex128)
                for place, entry in enumerate(entries):
                    held = moved.flat[entry]
                    moved.flat[entry] = complex(held.real, STEP)
                    found[which][place] = self._complex_value(arrays).imag / STEP
                    moved.flat[entry] = held
        return found

    def complex_direction(self, direction: Sequence[np.ndarray]) -> float:
        """The derivative along a direction, by a complex step. Raises as `complex_steps`."""
        with warnings.catch_warnings():
            warnings.simplefilter("error", np.exceptions.ComplexWarning)
            return complex_slope(lambda s: self._complex_value(self._moved(direction, s)))

    def slope(self, which: int, entry: int, target: float) -> Slope:
        """The derivative by one entry, by central differences that stop at the absolute error `target`."""
        arrays = list(self.objective.arrays)
        moved = arrays[which] = arrays[which].copy()
        held = float(moved.flat[entry])

        def along(distance: float) -> float:
            moved.flat[entry] = held + distance
            return float(self.objective.value(arrays))

        found = slope(along, scale=max(1.0, abs(held)), target=target)
        if not math.isfinite(found.value) and held:  # a domain that ends near by, such as the logarithm's
            found = slope(along, scale=abs(held), target=target)
        return found

    def slope_along(self, direction: Sequence[np.ndarray], target: float) -> Slope:
        """The derivative along a direction, by central differences."""
        scale = max((float(np.abs(array).max(initial=1.0)) for array in self.objective.arrays), default=1.0)
        return slope(
            lambda s: float(self.objective.value(self._moved(direction, s))), scale=scale, target=target
        )

    def rounding(self, which: int, entry: int, gradient: np.ndarray, rng: np.random.Generator) -> float:
        """How far a gradient moves when all values move by a few units in the last place.

        That is how far `gradient`, by the rules for array number `which`, moves in any entry, and the
        derivative by a complex step in the given one.
        """
        by_step = self._complex_step(which, entry, self.objective.arrays)
        spread = 0.0
        for _ in range(3):
            nearby = [
                np.asarray(array * (1 + rng.integers(-4, 5, array.shape) * EPSILON))
                for array in self.objective.arrays
            ]
            moved = self.objective.gradient(nearby)[which]
            spread = max(
                spread,
                float(np.abs(moved - gradient).max(initial=0.0)),
                abs(self._complex_step(which, entry, nearby) - by_step),
            )
        return spread

    def _complex_step(self, which: int, entry: int, at: Sequence[np.ndarray]) -> float:
        arrays = list(at)
        arrays[which] = arrays[which].astype(np.complex128)
        arrays[which].flat[entry] += STEP * 1j
        return float(complex(self.objective.value(arrays)).imag / STEP)

    def _moved(self, direction: Sequence[np.ndarray], distance: Any) -> list[np.ndarray]:
        pairs = zip(self.objective.arrays, direction, strict=True)
        return [np.asarray(array + distance * d) for array, d in pairs]

    def _complex_value(self, arrays: Sequence[np.ndarray]) -> complex:
        try:
            value = complex(self.objective.value(arrays))
        except Exception as error:
            raise NotAnalyticError(f"on complex numbers it raises {type(error).__name__}: {error}") from error
        if not abs(value.real - self.middle) <= 1e-9 * self.magnitude + 1e-12:
            raise NotAnalyticError(
                f"on complex numbers its real part is {value.real:.6g}, on real ones {self.middle:.6g}"
            )
        return value
