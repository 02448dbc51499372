"""Numerical derivatives of an objective, by one entry of one of its arrays or along a direction."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tinygrad_attn.check.numeric import STEP, Slope, complex_slope, slope
from tinygrad_attn.check.objective import Objective
from tinygrad_attn.check.rounding import Rounding


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
        self.rounding = Rounding(objective)

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
                    step = _step_from(held.real)
                    moved.flat[entry] = complex(held.real, step)
                    found[which][place] = self._complex_value(arrays).imag / step
                    moved.flat[entry] = held
        return found

    def complex_direction(self, direction: Sequence[np.ndarray]) -> float:
        """The derivative along a direction, by a complex step. Raises as `complex_steps`."""
        with warnings.catch_warnings():
            warnings.simplefilter("error", np.exceptions.ComplexWarning)
            return complex_slope(lambda s: self._complex_value(self._moved(direction, s)))

    def slope(self, which: int, entry: int, target: float, claim: float) -> Slope:
        """The derivative by one entry, by central differences that stop at the absolute error `target`, but
        only where they do not contradict the `claim`."""
        arrays = list(self.objective.arrays)
        moved = arrays[which] = arrays[which].copy()
        held = float(moved.flat[entry])

        def along(distance: float) -> float:
            moved.flat[entry] = held + distance
            return self._value(arrays)

        take = partial(slope, along, target=target, claim=claim, noise=lambda: self.rounding.of_value)
        found = take(scale=max(1.0, abs(held)))
        if held and not (found.settled or found.error <= target or found.jump):
            # A domain that ends near by, such as the logarithm's.
            nearer = take(scale=abs(held))
            return nearer if nearer.settled else found
        return found

    def slope_along(self, direction: Sequence[np.ndarray], target: float, claim: float) -> Slope:
        """The derivative along a direction, as `slope`."""
        scale = max((float(np.abs(array).max(initial=1.0)) for array in self.objective.arrays), default=1.0)
        return slope(
            lambda s: self._value(self._moved(direction, s)),
            scale=scale,
            target=target,
            claim=claim,
            noise=lambda: self.rounding.of_value,
        )

    def _value(self, arrays: Sequence[np.ndarray]) -> float:
        """The value at arrays other than those that were given, where the function may refuse to go."""
        try:
            return float(self.objective.value(arrays))
        except (ValueError, ArithmeticError):
            return math.nan

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


def _step_from(at: float) -> float:
    """A step that is small beside the number it is taken from."""
    return STEP * max(abs(at), 1e-200) if 0 < abs(at) < 1e-10 else STEP
