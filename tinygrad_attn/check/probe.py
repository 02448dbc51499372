"""Numerical derivatives of an objective, by one entry of one of its arrays or along a direction."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tinygrad_attn.check.numeric import EPSILON, STEP, Slope, complex_slope, slope
from tinygrad_attn.check.objective import BackwardError, Objective
from tinygrad_attn.engine import Primitive, Tensor
from tinygrad_attn.engine.modes import changed_mode


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
                    step = _complex_step(held.real)
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
            return float(self.objective.value(arrays))

        found = slope(along, scale=max(1.0, abs(held)), target=target, claim=claim)
        if held and not (found.settled or found.error <= target or found.jump):
            # A domain that ends near by, such as the logarithm's.
            nearer = slope(along, scale=abs(held), target=target, claim=claim)
            return nearer if nearer.settled else found
        return found

    def slope_along(self, direction: Sequence[np.ndarray], target: float, claim: float) -> Slope:
        """The derivative along a direction, as `slope`."""
        scale = max((float(np.abs(array).max(initial=1.0)) for array in self.objective.arrays), default=1.0)
        return slope(
            lambda s: float(self.objective.value(self._moved(direction, s))),
            scale=scale,
            target=target,
            claim=claim,
        )

    def rounding(self, rng: np.random.Generator) -> list[np.ndarray]:
        """How far each entry of the gradient for each array moves with rounding errors.

        That is by how much it differs where the inputs, and all values that operations compute on the way
        forward and back, are off by a few units in the last place. What moves as far with smaller errors is
        no matter of rounding, but of a bound that is crossed; it counts as nothing.
        """
        gradient: Any = partial(self.objective.gradient, recorded=True)
        with changed_mode(explicit=True):
            try:
                still = gradient(self.objective.arrays)
            except BackwardError:  # a rule that takes arrays alone; what it rounds by itself is not seen
                gradient = self.objective.gradient
                still = gradient(self.objective.arrays)
            spreads = [self._spread(gradient, still, rng, units) for units in (4, 64)]
        return [np.where(few < 0.5 * many, few, 0.0) for few, many in zip(*spreads, strict=True)]

    def _spread(
        self, gradient: Any, still: Sequence[np.ndarray], rng: np.random.Generator, units: int
    ) -> list[np.ndarray]:
        spread = [np.zeros_like(g) for g in still]
        with changed_mode(watcher=_Rounding(rng, units)):
            for _ in range(6):
                nearby = [_rounded(array, rng, units) for array in self.objective.arrays]
                for most, moved, g in zip(spread, gradient(nearby), still, strict=True):
                    np.fmax(most, np.abs(moved - g), out=most)
        return spread

    def complex_spread(self, which: int, entry: int, rng: np.random.Generator) -> float:
        """How far the complex step by one entry moves with the rounding of its inputs."""
        still = self._complex_step(which, entry, self.objective.arrays)
        nearby = ([_rounded(array, rng, 4) for array in self.objective.arrays] for _ in range(3))
        return max(abs(self._complex_step(which, entry, arrays) - still) for arrays in nearby)

    def _complex_step(self, which: int, entry: int, at: Sequence[np.ndarray]) -> float:
        arrays = list(at)
        moved = arrays[which] = arrays[which].astype(np.complex128)
        step = _complex_step(moved.flat[entry].real)
        moved.flat[entry] += step * 1j
        return float(complex(self.objective.value(arrays)).imag / step)

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


class _Rounding:
    """A watcher that moves the value of each operation by up to so many units in the last place.

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
            output.data = np.asarray(_rounded(value, self._rng, self._units))

    def backward(self, output: Tensor, slot: int, upstream: Any, gradient: Any) -> None:
        """As Watcher.backward."""


def _entries(arrays: Sequence[Any]) -> np.ndarray:
    numbers = [np.ravel(x) for x in arrays if np.asarray(x).dtype.kind in "fciub"]
    return np.concatenate([np.zeros(0), *numbers])


def _rounded(array: np.ndarray, rng: np.random.Generator, units: int) -> np.ndarray:
    return np.asarray(array * (1 + rng.integers(-units, units + 1, array.shape) * EPSILON))


def _complex_step(at: float) -> float:
    """A step that is small beside the number it is taken from."""
    return STEP * max(abs(at), 1e-200) if 0 < abs(at) < 1e-10 else STEP
