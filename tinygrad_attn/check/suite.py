"""Every gradient of the package in one table; `tinygrad-attn check` prints what `run` gives."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType

from tinygrad_attn.check.cases import Case, model_cases, operation_cases
from tinygrad_attn.check.report import GradcheckReport, aligned


@dataclass
class Line:
    """A row of the table.

    Attributes:
        name: of the operation or model.
        way: see `Case`.
        cases: how many.
        entries: how many entries of gradients were compared.
        first: the worst relative error of order 1.
        second: the worst of order 2; None if that was not looked at.
        seconds: the time it took.
        failures: the reports that did not pass.
    """

    name: str
    way: str
    cases: int = 0
    entries: int = 0
    first: float = 0.0
    second: float | None = None
    seconds: float = 0.0
    failures: list[GradcheckReport] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether all its cases did."""
        return not self.failures

    def add(self, report: GradcheckReport, seconds: float) -> None:
        """Counts the report of a case in."""
        self.cases += 1
        self.seconds += seconds
        for row in report.rows:
            self.entries += row.checked
            if row.order == 1:
                self.first = max(self.first, row.relative_error)
            else:
                self.second = max(self.second or 0.0, row.relative_error)
        if not report:
            self.failures.append(report)


@dataclass
class SuiteResult:
    """The whole table; true if everything passed."""

    lines: list[Line]

    def __bool__(self) -> bool:
        return all(line.passed for line in self.lines)

    def __str__(self) -> str:
        table = aligned(_HEAD, [cells(line) for line in self.lines], _RIGHT)
        entries, seconds = sum(line.entries for line in self.lines), sum(line.seconds for line in self.lines)
        worst = max((max(line.first, line.second or 0.0) for line in self.lines), default=0.0)
        failed = [line for line in self.lines if not line.passed]
        outcome = f"{len(failed)} of {len(self.lines)} FAILED" if failed else "all passed"
        summary = f"{entries:,} entries of gradients in {seconds:.0f} s: {outcome}, worst error {worst:.1e}"
        parts = [f"\n{line.name} ({line.way})\n{report}" for line in failed for report in line.failures[:1]]
        return "\n".join([*table, "", summary, *parts])


_HEAD = ("operation or model", "way", "cases", "entries", "order 1", "order 2", "")
_RIGHT = (2, 3, 4, 5)


def cells(line: Line) -> list[str]:
    """A line of the table, in words."""
    errors = [f"{line.first:.1e}", "-" if line.second is None else f"{line.second:.1e}"]
    return [
        line.name,
        line.way,
        str(line.cases),
        str(line.entries),
        *errors,
        "ok" if line.passed else "FAILED",
    ]


def run(
    nn: ModuleType | None = None, *, seed: int = 0, on_line: Callable[[Line], None] | None = None
) -> SuiteResult:
    """Checks the table of samples, orders 1 and 2, and small models of `nn` with all their parameters.

    Args:
        nn: `tinygrad_attn.nn` (this package stands beside it and does not import it), or None for operations
        alone.
        seed: for inputs, weights and upstream gradients.
        on_line: called with each line of the table once it is complete, to show progress.
    """
    lines: dict[tuple[str, str], Line] = {}
    current: Line | None = None
    for case in _all_cases(nn, seed):
        line = lines.setdefault((case.name, case.way), Line(case.name, case.way))
        if current is not None and current is not line and on_line is not None:
            on_line(current)
        current = line
        start = time.perf_counter()
        line.add(case.report(seed), time.perf_counter() - start)
    if current is not None and on_line is not None:
        on_line(current)
    return SuiteResult(list(lines.values()))


def _all_cases(nn: ModuleType | None, seed: int) -> Iterator[Case]:
    # Grouped by name and way, so that a line of the table is complete when the next begins.
    by_line: dict[tuple[str, str], list[Case]] = {}
    for case in operation_cases(seed):
        by_line.setdefault((case.name, case.way), []).append(case)
    for cases in by_line.values():
        yield from cases
    if nn is not None:
        yield from model_cases(nn, seed)
