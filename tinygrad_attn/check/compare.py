"""The gradient by the rules against the gradient by numbers, entry by entry."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tinygrad_attn.check.diagnosis import causes
from tinygrad_attn.check.numeric import Slope
from tinygrad_attn.check.objective import Objective
from tinygrad_attn.check.probe import NotAnalyticError, Probe
from tinygrad_attn.check.report import PASSING, Entry, Row

COMPLEX_TOLERANCE = 1e-12
CENTRAL_TOLERANCE = 1e-7
_LEFT_OF_A_STEP = 1e-50  # what a complex step of 1e-30 leaves of third derivatives
_LISTED = 10  # entries of each input that the report keeps
_ASKED = (
    6  # entries that central differences look at before they decide whether complex steps are to be trusted
)
_PLAIN = 1e-3  # of the sum of a gradient's entries, by which a rule is seen to be wrong along any direction
_DOUBTED = 50  # entries that all steps are looked at for; where so many are wrong, no more need the work


@dataclass(frozen=True)
class Settings:
    """As the arguments of `gradcheck` with these names."""

    method: str
    rtol: float | None
    atol: float
    entries: int | None
    rng: np.random.Generator

    def tolerance(self, method: str) -> float:
        """The relative error allowed."""
        if self.rtol is None:
            return COMPLEX_TOLERANCE if method == "complex" else CENTRAL_TOLERANCE
        return self.rtol if method == self.method else max(self.rtol, CENTRAL_TOLERANCE)


@dataclass
class Found:
    """What a comparison adds to the report."""

    method: str
    rows: list[Row] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    bent: bool = False  # whether a kink hides what is beyond the sample
    plain: bool = False  # whether a gradient is wrong by so much that a rule which is would be found


class Comparison:
    """The check of one objective: numeric derivatives, verdicts and their causes.

    Complex steps are believed as long as central differences, less exact but right for any real function, do
    not contradict them: those are asked about the entries that seem wrong, and along one direction through
    all entries.
    """

    def __init__(self, objective: Objective, order: int, settings: Settings) -> None:
        self.objective = objective
        self.order = order
        self.settings = settings
        self.gradient = objective.gradient(objective.arrays)
        rng = settings.rng
        self.picked = [_chosen(array.size, settings.entries, rng) for array in objective.arrays]
        self.direction = [
            rng.uniform(0.5, 1.0, a.shape) * rng.choice([-1.0, 1.0], a.shape) for a in objective.arrays
        ]
        self.probe = Probe(objective, self.picked)
        self.analytic = [g.reshape(-1)[picked] for g, picked in zip(self.gradient, self.picked, strict=True)]
        self.slopes: dict[tuple[int, int], Slope] = {}
        self.doubted = 0
        self.found = Found(settings.method)

    def run(self) -> Found:
        """Compares, and tells."""
        if self.settings.method == "complex":
            try:
                self.numeric = self.probe.complex_steps()
            except NotAnalyticError as error:
                self._fall_back(str(error))
            else:
                self._question_complex_steps()
        else:
            self._take_central_differences()
        self._ask_beyond_the_sample()
        self._judge()
        return self.found

    # Numeric derivatives

    def _largest(self, which: int) -> float:
        """The largest entry of the gradient for an array, which errors are relative to."""
        sizes = [np.abs(self.gradient[which]).ravel(), np.abs(self.numeric[which])]
        finite = np.concatenate(sizes)
        return float(finite[np.isfinite(finite)].max(initial=0.0))

    def _take_central_differences(self) -> None:
        self.found.method = "central"
        self.numeric = [np.full(len(picked), math.nan) for picked in self.picked]
        for which, picked in enumerate(self.picked):
            for place in range(len(picked)):
                self.numeric[which][place] = self._slope(which, place).value

    def _slope(self, which: int, place: int) -> Slope:
        found = self.slopes.get((which, place))
        if found is None:
            gradient = np.abs(self.gradient[which])
            largest = float(gradient[np.isfinite(gradient)].max(initial=0.0))
            said = self.numeric if self.found.method == "complex" else self.analytic
            claim = float(said[which][place]) if self.doubted < _DOUBTED else math.nan
            entry = int(self.picked[which][place])
            found = self.slopes[which, place] = self.probe.slope(which, entry, 1e-10 * largest, claim)
            self.doubted += found.contradicts(claim, 1e-6 * largest)
        return found

    def _fall_back(self, reason: str) -> None:
        self.found.notes.append(
            f"order {self.order}: not complex-analytic ({reason}), so central differences were taken instead"
        )
        self._take_central_differences()

    def _question_complex_steps(self) -> None:
        """Has central differences confirm what complex steps say, and believes those if they contradict."""
        wrong = sorted(self._wrong(), key=lambda pair: -self._error(*pair))
        doubted = any(self._contradicts(*pair) or self._slope(*pair).bent for pair in wrong[:_ASKED])
        if not doubted and (wrong or not self._hides_something()):
            return
        everywhere = [
            (which, place) for which, picked in enumerate(self.picked) for place in range(len(picked))
        ]
        contradicted = next((pair for pair in [*wrong, *everywhere] if self._contradicts(*pair)), None)
        if contradicted:
            which, place = contradicted
            by_complex, by_differences = self.numeric[which][place], self._slope(which, place).value
            self._fall_back(
                f"its derivative by {self._place(which, place)} is {by_complex:.6g} by a complex step, "
                f"{by_differences:.6g} on real numbers"
            )

    def _contradicts(self, which: int, place: int) -> bool:
        by_complex = float(self.numeric[which][place])
        scale = max(abs(by_complex), self._largest(which))
        return math.isfinite(by_complex) and self._slope(which, place).contradicts(by_complex, 1e-6 * scale)

    def _along(self) -> tuple[float, float]:
        """The derivative by the gradient along the direction, and the same without cancellation."""
        terms = [g * d for g, d in zip(self.gradient, self.direction, strict=True)]
        return float(sum(term.sum() for term in terms)), float(sum(np.abs(term).sum() for term in terms))

    def _hides_something(self) -> bool:
        """Whether central differences along a direction see a kink, or another derivative than the rules."""
        by_rules, size = self._along()
        found = self.probe.slope_along(self.direction, 1e-9 * size, by_rules)
        return found.bent or found.contradicts(by_rules, 1e-7 * size)

    def _ask_beyond_the_sample(self) -> None:
        """Compares along a direction through all entries too, where only some were looked at one by one."""
        if all(
            len(picked) == array.size
            for picked, array in zip(self.picked, self.objective.arrays, strict=True)
        ):
            return
        by_rules, size = self._along()
        numeric, allowed = math.nan, COMPLEX_TOLERANCE
        if self.found.method == "complex":
            with contextlib.suppress(NotAnalyticError):
                numeric = self.probe.complex_direction(self.direction)
        tolerance = self.settings.tolerance(self.found.method)
        if abs(numeric - by_rules) <= max(allowed, tolerance) * size:
            return
        found = self.probe.slope_along(self.direction, 1e-9 * size, by_rules)
        if found.bent:
            self.found.bent = True
            return
        if not math.isfinite(numeric) or found.contradicts(numeric, 1e-6 * size):
            numeric, allowed = found.value, CENTRAL_TOLERANCE
        off = abs(numeric - by_rules)
        if off <= max(allowed, tolerance) * size or self._is_rounding_along(off, found):
            return
        self.found.problems.append(
            f"order {self.order}: along a random direction through all entries, also those not in the "
            f"sample, the derivative is {numeric:.10g}, by the gradient {by_rules:.10g}"
        )

    def _is_rounding_along(self, off: float, found: Slope) -> bool:
        if self.found.method == "central":
            return off <= 20 * found.error <= self._small()
        if not self._may_be_rounding(off):
            return False
        pairs = zip(self.probe.rounding.of_gradient, self.direction, strict=True)
        return off <= 16 * sum(float(np.sum(spread * np.abs(d))) for spread, d in pairs)

    # Verdicts

    def _error(self, which: int, place: int) -> float:
        error = abs(self.analytic[which][place] - self.numeric[which][place])
        return float(error) if math.isfinite(error) else math.inf

    def _allowed(self, which: int) -> float:
        relative = self.settings.tolerance(self.found.method) * self._largest(which)
        return max(relative, self.settings.atol, _LEFT_OF_A_STEP * max(1.0, self.probe.magnitude))

    def _wrong(self) -> list[tuple[int, int]]:
        return [
            (which, int(place))
            for which in range(len(self.picked))
            for place in np.flatnonzero(
                ~(np.abs(self.analytic[which] - self.numeric[which]) <= self._allowed(which))
            )
        ]

    def _judge(self) -> None:
        for which, picked in enumerate(self.picked):
            verdicts = [self._verdict(which, place) for place in range(len(picked))]
            wrong = [place for place, verdict in enumerate(verdicts) if verdict == "mismatch"]
            if wrong and self.found.method == "complex":
                for place in self._rounded(which, wrong):
                    verdicts[place] = "rounding"
            off = np.abs(self.analytic[which] - self.numeric[which])
            self.found.plain |= "mismatch" in verdicts and bool(
                off.sum() > _PLAIN * np.abs(self.numeric[which]).sum()
            )
            self._tell(which, verdicts)

    def _verdict(self, which: int, place: int) -> str:
        analytic, numeric = self.analytic[which][place], self.numeric[which][place]
        error, allowed = abs(analytic - numeric), self._allowed(which)
        found = self.slopes.get((which, place))
        if found is not None and (found.kink or (found.jump and self.order == 2)) and math.isfinite(analytic):
            return self._verdict_where_bent(which, found, float(analytic))
        if found is not None and found.jump and not error <= allowed:
            return "unsettled"
        if not (math.isfinite(analytic) and math.isfinite(numeric)):
            return "non-finite"
        if error <= allowed:
            return "ok"
        if found is None or self.found.method == "complex":
            return "mismatch"
        # Central differences know their own error, which counts if it is that of rounding or cannot be less.
        small = max(1e-6 * self._largest(which), self._small())
        if (found.error <= small or found.cramped) and error <= 20 * found.error:
            return "rounding"
        told = found.settled or found.error <= small or found.contradicts(float(analytic), allowed)
        return "mismatch" if told else "unsettled"

    def _verdict_where_bent(self, which: int, found: Slope, analytic: float) -> str:
        sizes = abs(found.left) + abs(found.right)
        slack = max(self._allowed(which), 1e-6 * sizes)
        if found.kink:
            fits = found.lies_between(analytic, slack)
        else:  # of the function, whose gradient jumps: its derivative may be any, but not of any size
            fits = abs(analytic) <= 4 * (sizes + max(1.0, self.probe.magnitude)) + slack
        return "kink" if fits else "mismatch"

    def _small(self) -> float:
        """An error that may be one of rounding where differences are taken of numbers of about one."""
        return max(1e-9 * max(1.0, self.probe.magnitude), 1e3 * self.probe.rounding.of_value)

    def _rounded(self, which: int, wrong: Sequence[int]) -> list[int]:
        """Those of the wrong entries that differ by no more than the rounding of the gradient explains."""
        if not self._may_be_rounding(min(self._error(which, place) for place in wrong)):
            return []
        spread = self.probe.rounding.of_gradient[which].reshape(-1)
        least = 0.125 * float(spread.max(initial=0.0))  # of a few tries, none may have moved an entry
        return [
            place
            for place, entry in zip(wrong, self.picked[which][wrong], strict=True)
            if self._error(which, place) <= 16 * max(least, float(spread[entry]))
        ]

    def _may_be_rounding(self, error: float) -> bool:
        """Whether it is worth the work to ask."""
        largest = max((self._largest(which) for which in range(len(self.numeric))), default=0.0)
        return error <= 1e-4 * max(1.0, largest, self.probe.magnitude)

    def _tell(self, which: int, verdicts: Sequence[str]) -> None:
        name, array, picked = self.objective.names[which], self.objective.arrays[which], self.picked[which]
        tolerance = self.settings.tolerance(self.found.method)
        scale = self._largest(which)
        if tolerance:
            scale = max(scale, self.settings.atol / tolerance)
        wrong = [place for place, verdict in enumerate(verdicts) if verdict not in PASSING]
        whole, single = causes(self, which, wrong) if wrong else ("", {})
        entries = []
        for place, verdict in enumerate(verdicts):
            error = self._error(which, place)
            slope = self.slopes.get((which, place))
            sides = (slope.left, slope.right) if slope is not None and slope.bent else (None, None)
            analytic, numeric = float(self.analytic[which][place]), float(self.numeric[which][place])
            relative = error / scale if scale else 0.0 if not error else math.inf
            index, cause = self._index(which, place), single.get(place, "")
            entries.append(
                Entry(name, self.order, index, analytic, numeric, error, relative, verdict, cause, *sides)
            )
        entries.sort(key=lambda entry: (entry.passed, entry.verdict == "ok", -entry.relative_error))
        regular = [entry for entry in entries if entry.verdict not in ("kink", "rounding")]
        self.found.entries += entries[:_LISTED]
        self.found.rows.append(
            Row(
                name,
                array.shape,
                self.order,
                checked=len(picked),
                size=array.size,
                error=max((entry.error for entry in regular), default=0.0),
                relative_error=max((entry.relative_error for entry in regular), default=0.0),
                tolerance=tolerance,
                verdict=entries[0].verdict if entries else "ok",
                cause=whole,
            )
        )

    def _index(self, which: int, place: int) -> tuple[int, ...]:
        shape = self.objective.arrays[which].shape
        return tuple(int(i) for i in np.unravel_index(int(self.picked[which][place]), shape)) if shape else ()

    def _place(self, which: int, place: int) -> str:
        return f"{self.objective.names[which]}[{', '.join(map(str, self._index(which, place)))}]"


def _chosen(size: int, limit: int | None, rng: np.random.Generator) -> np.ndarray:
    if limit is None or size <= limit:
        return np.arange(size)
    return np.sort(rng.choice(size, limit, replace=False))
