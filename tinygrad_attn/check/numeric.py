"""Derivatives of a function of one number, from its values alone.

`complex_slope` needs the function to continue to complex numbers and loses nothing to cancellation. `slope`
takes real values on either side, extrapolates the step to zero, estimates its own error, and looks for a
kink.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

STEP = 1e-30  # of the complex step: its square is nothing beside one, so the formula is exact
EPSILON = 2.0**-52
_FIRST_STEP = 2.0**-7  # times the scale of the variable
_HALVINGS = 26
_ORDERS = 4  # columns of the extrapolation table, each removing an even power of the step
_SAME_GAP = (
    0.75,
    1.3,
)  # with half the step a smooth function's gap halves, rounding errors double, that of a kink stays


@dataclass(frozen=True)
class Slope:
    """What the values of a function around a point say of its derivative there.

    Attributes:
        value: the derivative, from both sides; NaN if the function has no finite values beside the point.
        error: how far off it may be, from how the extrapolation converges and the rounding of the values.
        grain: how far off it may be if the values are differences of numbers of about one.
        left: the derivative from below.
        right: the derivative from above.
        kink: whether the two differ.
    """

    value: float
    error: float
    grain: float
    left: float
    right: float
    kink: bool

    @property
    def settled(self) -> bool:
        """Whether the values determine a derivative at all: to three digits, or a kink with its two."""
        steepest = max(abs(self.value), abs(self.left), abs(self.right))
        return math.isfinite(self.value) and self.error <= 1e-3 * steepest

    def contradicts(self, derivative: float, tolerance: float) -> bool:
        """Whether the derivative cannot be `derivative`, give or take `tolerance`."""
        if self.kink:
            low, high = sorted((self.left, self.right))
            return not low - tolerance <= derivative <= high + tolerance
        return self.settled and abs(derivative - self.value) > max(tolerance, 20 * (self.error + self.grain))


def complex_slope(function: Callable[[complex], Any]) -> float:
    """The derivative at zero by the complex step, Im f(ih) / h (Squire and Trapp 1998)."""
    return float(complex(function(STEP * 1j)).imag / STEP)


def slope(function: Callable[[float], float], *, scale: float = 1.0, target: float = 0.0) -> Slope:
    """The derivative at zero by central differences, extrapolated to a vanishing step (Richardson; Ridders
    1982).

    Args:
        function: from the distance along a line to a value; it may give NaN or infinity outside its domain.
        scale: the distance over which the function changes, about the size of the variable that moves.
        target: an absolute error that is small enough to stop at.
    """
    middle = function(0.0)
    table: list[list[float]] = []
    gaps: list[_Gap] = []
    value, error, grain = math.nan, math.inf, math.inf
    step = _FIRST_STEP * scale
    for _ in range(_HALVINGS):
        up, down = function(step), function(-step)
        gaps.append(
            _Gap(
                step,
                (middle - down) / step,
                (up - middle) / step,
                EPSILON * max(abs(up), abs(middle), 1.0) / step,
            )
        )
        if math.isfinite(up) and math.isfinite(down):
            table.append(_extrapolated((up - down) / (2 * step), table[-1] if table else []))
            found, uncertain = _best(table)
            rounding = EPSILON * (abs(up) + abs(down) + abs(found) * scale) / step
            if uncertain + rounding <= error:
                value, error, grain = found, uncertain + rounding, EPSILON / step
            enough = (
                error <= max(target, 1e-12 * abs(value)) or rounding > error
            )  # which only grows from here on
            if enough and not _same_gap(gaps[-2:]):
                break
        if _same_gap(gaps[-6:], 6):
            break
        step /= 2
    left, right = _sides(gaps)
    return Slope(value, error, grain, left, right, _same_gap(gaps[-6:], 6))


@dataclass(frozen=True)
class _Gap:
    """The one-sided difference quotients with one step, and the rounding error of each."""

    step: float
    left: float
    right: float
    noise: float

    @property
    def size(self) -> float:
        return abs(self.right - self.left)


def _extrapolated(quotient: float, coarser: list[float]) -> list[float]:
    """A new row of the table: the quotient, then its combinations with the row of twice the step."""
    row = [quotient]
    for order, other in enumerate(coarser[: _ORDERS - 1], 1):
        row.append(row[-1] + (row[-1] - other) / (4.0**order - 1))
    return row


def _best(table: list[list[float]]) -> tuple[float, float]:
    """The entry of the last row that agrees best with its neighbours, and by how much they differ."""
    if len(table) == 1:
        return table[0][0], math.inf
    row, coarser = table[-1], table[-2]
    candidates = [
        (max(abs(row[k] - row[k - 1]), abs(row[k] - coarser[k - 1])), row[k]) for k in range(1, len(row))
    ]
    error, value = min(candidates, key=lambda pair: pair[0])
    return value, error


def _same_gap(gaps: list[_Gap], least: int = 2) -> bool:
    """Whether the two sides differ, and by the same amount while the step is halved again and again."""
    if len(gaps) < least or not all(math.isfinite(gap.size) for gap in gaps):
        return False
    steepest = max(abs(gaps[-1].left), abs(gaps[-1].right))
    return all(
        gap.size > max(1e-6 * steepest, 30 * gap.noise)
        and _SAME_GAP[0] * before.size < gap.size < _SAME_GAP[1] * before.size
        for before, gap in pairwise(gaps)
    )


def _sides(gaps: list[_Gap]) -> tuple[float, float]:
    """The one-sided derivatives, extrapolated from the last two steps."""
    last, before = gaps[-1], gaps[-2]
    return 2 * last.left - before.left, 2 * last.right - before.right
