"""Derivatives of a function of one number, from its values alone.

`complex_slope` needs the function to continue to complex numbers and loses nothing to cancellation. `slope`
takes real values on either side, extrapolates the step to zero, estimates its own error, and looks for a
kink or a jump.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

STEP = 1e-30  # of the complex step: its square is nothing beside one, so the formula is exact
EPSILON = 2.0**-52
_FIRST_STEP = 2.0**-7  # times the scale of the variable
_HALVINGS = 40  # down to where the quotients of numbers of about one hold nothing but rounding
_ORDERS = 4  # columns of the extrapolation table, each removing an even power of the step
_GRAIN = 1e-3  # of a value: that of half precision
_LARGE_ENOUGH = 14  # halvings after which a jump, divided by the step, does not drown the slopes beside it
_SEEN = 6  # halvings of the step over which a kink or a jump must show


@dataclass(frozen=True)
class Slope:
    """What the values of a function around a point say of its derivative there.

    Attributes:
        value: the derivative, from both sides; NaN if the function has no finite values beside the point.
        error: how far off it may be, from how the extrapolation converges and the rounding of the values; at
            a kink, how far off the two sides may be.
        left: the derivative from below; where the value jumps, that below the jump.
        right: the derivative from above; where the value jumps, that above the jump.
        kink: whether the two differ, at the point itself, as far as that can be seen.
        jump: whether the value does.
        cramped: whether a kink near by leaves only small steps, which hold much rounding.
    """

    value: float
    error: float
    left: float
    right: float
    kink: bool = False
    jump: bool = False
    cramped: bool = False

    @property
    def bent(self) -> bool:
        """Whether there is no derivative here, for a kink or a jump."""
        return self.kink or self.jump

    @property
    def settled(self) -> bool:
        """Whether the values determine a derivative at all: to three digits, or a kink with its two."""
        return self._settled_beside(0.0)

    def contradicts(self, derivative: float, tolerance: float) -> bool:
        """Whether the derivative cannot be `derivative`, give or take `tolerance`."""
        if self.kink:
            return not self.lies_between(derivative, tolerance)
        if self.jump or not self._settled_beside(derivative):
            return False
        return abs(derivative - self.value) > max(tolerance, 20 * self.error)

    def lies_between(self, derivative: float, tolerance: float) -> bool:
        """Whether a derivative is one of the two sides' or between them, give or take `tolerance`."""
        low, high = sorted((self.left, self.right))
        slack = max(tolerance, 20 * self.error)
        return low - slack <= derivative <= high + slack

    def _settled_beside(self, derivative: float) -> bool:
        steepest = max(abs(self.value), abs(self.left), abs(self.right), abs(derivative))
        return math.isfinite(self.value) and self.error <= 1e-3 * steepest


def complex_slope(function: Callable[[complex], Any]) -> float:
    """The derivative at zero by the complex step, Im f(ih) / h (Squire and Trapp 1998)."""
    return float(complex(function(STEP * 1j)).imag / STEP)


def slope(
    function: Callable[[float], float],
    *,
    scale: float = 1.0,
    target: float = 0.0,
    claim: float = math.nan,
    noise: Callable[[], float] = lambda: EPSILON,
) -> Slope:
    """The derivative at zero by central differences, extrapolated to a vanishing step (Richardson; Ridders
    1982).

    Args:
        function: from the distance along a line to a value; it may give NaN or infinity outside its domain.
        scale: the distance over which the function changes, about the size of the variable that moves.
        target: an absolute error that is small enough to stop at.
        claim: what the derivative is said to be. Where large steps seem to settle on something else, all
            smaller ones are looked at, since beside a pole, or in a fast oscillation, large ones deceive.
        noise: gives how far the values may be off for rounding on the way to them; asked only if they tell
            little, contradict the claim or look bent when taken for differences of numbers of about one.
    """
    scan = _Scan(function, scale, target, claim, EPSILON)
    found = scan.told()
    vague = not scan.best.error <= max(target, 1e-7 * abs(scan.best.value), 1e-10)
    if vague or scan.is_doubted() or found.bent:
        # Values may be in coarser grains, such as what is left of a difference of large numbers.
        grain = scan.grain() if scan.is_doubted() else 0.0
        scan = _Scan(function, scale, target, claim, max(grain, noise()))
        found = scan.told()
    return found


class _Scan:
    """A look at smaller and smaller steps, down to where one tells the slope, or all hold is rounding."""

    def __init__(
        self, function: Callable[[float], float], scale: float, target: float, claim: float, noise: float
    ) -> None:
        self._scale, self._target, self._claim, self._noise = scale, target, claim, noise
        self._near: list[_Gap] = []  # the gaps that show a kink near by
        self._forget()
        middle = function(0.0)
        self._coarsest = _GRAIN * max(1.0, abs(middle))  # beyond that a difference is a jump, no grain
        for halvings in range(_HALVINGS):
            self._finest = step = _FIRST_STEP * scale / 2**halvings
            if self._is_told_by(function(-step), middle, function(step), step):
                break
        self._recall()

    def is_doubted(self) -> bool:
        """Whether what was found is not the claim."""
        return abs(self.best.value - self._claim) > 10 * max(self.best.error, self._target)

    def grain(self) -> float:
        """The smallest difference of two values that do differ, if it is more than the slope over the finest
        step, which any smooth function has; else zero."""
        by_slope = 2 * abs(self.best.value) * self._finest
        return self._quantum if 2 * by_slope < self._quantum <= self._coarsest else 0.0

    def told(self) -> Slope:
        """What the values say of the slope."""
        return replace(_told(self.best, self.gaps), cramped=bool(self._near))

    def _forget(self) -> None:
        self.gaps: list[_Gap] = []
        self._quantum = math.inf  # the smallest difference of two values that do differ
        self.best = _Estimate(math.nan, math.inf, 0.0, 0)
        self._table: list[list[float]] = []
        self._latest: list[_Estimate] = []

    def _recall(self) -> None:
        """Takes a kink near by for one in the point, if too few steps do not reach it to tell them apart."""
        if self._near and not self.best.error <= 1e-3 * self._near[-1].steepness:
            self.gaps = self._near

    def _is_told_by(self, down: float, middle: float, up: float, step: float) -> bool:
        """Takes a step's values; whether smaller steps need not be looked at."""
        unsure = max(self._noise, EPSILON * max(abs(up), abs(middle)))
        self.gaps.append(_Gap((middle - down) / step, (up - middle) / step, unsure / step))
        if _is_gone(self.gaps, _KINK):  # a kink near by: what reached beyond it counts for nothing
            self._near = self.gaps[: _ends(self.gaps, _KINK)[-1] + 1]
            self._forget()
            return False
        # Beside a slope that is known, values that do not differ are too coarse to tell.
        blind = up == down and self.best.error <= 1e-6 * abs(self.best.value)
        if blind or not (math.isfinite(up) and math.isfinite(down)):
            return False
        self._quantum = min(self._quantum, abs(up - down) or math.inf)
        self._table.append(_extrapolated((up - down) / (2 * step), self._table[-1] if self._table else []))
        found, uncertain = _best(self._table)
        rounding = max(self._noise, EPSILON * (abs(up) + abs(down) + abs(found) * self._scale)) / step
        new = _Estimate(found, uncertain + rounding, step, len(self.gaps) - 1)
        self._latest = [*self._latest[-2:], new]
        if new.error < self.best.error or self.best.is_refuted_by(self._latest):
            self.best = new
        best = self.best
        enough = best.error <= max(self._target, 1e-12 * abs(best.value)) or rounding > best.error
        kinked = _alike(self.gaps[-2:], _KINK) or bool(_ends(self.gaps, _KINK))
        return enough and not kinked and not self.is_doubted()


@dataclass(frozen=True)
class _Estimate:
    """A derivative, with its error and the step, number `place`, that gave it."""

    value: float
    error: float
    step: float
    place: int

    def is_refuted_by(self, others: Sequence[_Estimate]) -> bool:
        """Whether three others, with smaller steps, agree on something else, by more than their errors."""
        values = [other.value for other in others]
        return len(others) == 3 and all(
            other.step < self.step
            and abs(other.value - self.value) > max(30 * other.error, 10 * (max(values) - min(values)))
            for other in others
        )


@dataclass(frozen=True)
class _Gap:
    """The one-sided difference quotients with one step, and the rounding error of each."""

    left: float
    right: float
    noise: float

    @property
    def size(self) -> float:
        """By how much the quotients differ."""
        return abs(self.right - self.left)

    @property
    def steepness(self) -> float:
        """The larger of the quotients."""
        return max(abs(self.left), abs(self.right))


@dataclass(frozen=True)
class _Sign:
    """What does not go away as the step is halved: some size, whose ratio to that before lies in a range."""

    size: Callable[[_Gap], float]
    low: float
    high: float


# A smooth function's gap halves, rounding errors double, the gap of a kink stays.
_KINK = _Sign(lambda gap: gap.size, 0.75, 1.3)
_JUMP = _Sign(lambda gap: gap.steepness, 1.8, 2.2)


def _told(best: _Estimate, gaps: Sequence[_Gap]) -> Slope:
    """The estimate, with what the gaps show."""
    if not gaps:
        return Slope(math.nan, math.inf, math.nan, math.nan)
    converges = best.error <= 1e-3 * abs(best.value)
    if not converges and (at := _persistent(gaps, _JUMP)) is not None:
        # From f(0) - f(-h) = h q(h) and the same with 2h, the slope between -2h and -h; and so above.
        at = min(at, _LARGE_ENOUGH)
        last, before = gaps[at], gaps[at - 1]
        left, right = 2 * before.left - last.left, 2 * before.right - last.right
        return Slope(math.nan, math.inf, left, right, jump=True)
    if (at := _persistent(gaps, _KINK)) is not None:
        left, right, error = _sides(gaps[: at + 1])
        return Slope(best.value, error, left, right, kink=True)
    last, before = gaps[best.place], gaps[max(best.place - 1, 0)]
    left, right = 2 * last.left - before.left, 2 * last.right - before.right
    return Slope(best.value, best.error, left, right)


def _sides(gaps: Sequence[_Gap]) -> tuple[float, float, float]:
    """The one-sided derivatives and their error, extrapolated from the two steps that serve best for it:
    smaller ones hold more rounding, larger ones more of what bends."""
    both = [
        (2 * gap.left - before.left, 2 * gap.right - before.right, gap.noise)
        for before, gap in pairwise(gaps[-2 * _SEEN :])
    ]
    left, right, error = min(
        (
            (left, right, max(abs(left - a), abs(right - b)) + 4 * noise)
            for (a, b, _), (left, right, noise) in pairwise(both)
        ),
        key=lambda sides: sides[2],
    )
    return left, right, error


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


def _alike(gaps: Sequence[_Gap], sign: _Sign) -> bool:
    """Whether the gaps, each of half the step of the one before, show the sign, by more than rounding."""
    if len(gaps) < 2 or not all(math.isfinite(gap.size) for gap in gaps):
        return False
    return all(
        sign.size(gap) > max(1e-6 * gaps[-1].steepness, 30 * gap.noise)
        and sign.low * sign.size(before) < sign.size(gap) < sign.high * sign.size(before)
        for before, gap in pairwise(gaps)
    )


def _ends(gaps: Sequence[_Gap], sign: _Sign) -> list[int]:
    """The numbers of gaps that end a run which shows the sign."""
    return [end for end in range(_SEEN - 1, len(gaps)) if _alike(gaps[end + 1 - _SEEN : end + 1], sign)]


def _is_gone(gaps: Sequence[_Gap], sign: _Sign) -> bool:
    """Whether large steps showed the sign and small ones do not: then it lies beside the point, not in it."""
    ends = _ends(gaps, sign)
    if not ends:
        return False
    size = sign.size(gaps[ends[-1]])
    small = [sign.size(gap) < 0.1 * size and 30 * gap.noise < size for gap in gaps[ends[-1] + 1 :]]
    return any(all(small[first : first + 3]) for first in range(len(small) - 2))


def _persistent(gaps: Sequence[_Gap], sign: _Sign) -> int | None:
    """The number of the finest gap that shows the sign, down to where rounding hides it; or None."""
    ends = _ends(gaps, sign)
    return ends[-1] if ends and not _is_gone(gaps, sign) else None
