"""What a gradient check found: `GradcheckReport`, and the error that carries one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

PASSING = ("ok", "kink", "rounding")


@dataclass(frozen=True)
class Entry:
    """One entry of a gradient, by the rules and by numbers.

    Attributes:
        input: the name of the input.
        order: 1 for the gradient, 2 for the gradient of the gradient.
        index: where in the input.
        analytic: what the rules give.
        numeric: what the values of the function give.
        error: the absolute difference.
        relative_error: the difference, relative to the largest entry of the gradient checked.
        verdict: "ok"; "kink" (one-sided derivatives differ, and the rules' value lies between them);
            "rounding" (the difference is within the rounding error of the gradient itself); "mismatch";
            "non-finite"; or "unsettled" (central differences do not converge).
        cause: what is likely to be wrong, where it can be told.
        left: the derivative from below, where it was looked at.
        right: the derivative from above.
    """

    input: str
    order: int
    index: tuple[int, ...]
    analytic: float
    numeric: float
    error: float
    relative_error: float
    verdict: str
    cause: str = ""
    left: float | None = None
    right: float | None = None

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong here."""
        return self.verdict in PASSING


@dataclass(frozen=True)
class Row:
    """An input (or parameter) of the function, and how its gradient fared.

    Attributes:
        name: of the input.
        shape: of the input.
        order: 1 for the gradient, 2 for the gradient of the gradient.
        checked: the number of entries looked at.
        size: the number of entries there are.
        error: the worst absolute error.
        relative_error: the worst, relative to the largest entry of the gradient checked.
        tolerance: the relative error allowed.
        verdict: as of the entries, the worst of them; "not checked" if the check ended before.
        cause: what is likely to be wrong with the gradient as a whole, such as a sign or a factor.
    """

    name: str
    shape: tuple[int, ...]
    order: int
    checked: int
    size: int
    error: float
    relative_error: float
    tolerance: float
    verdict: str
    cause: str = ""

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong with this input."""
        return self.verdict in PASSING


@dataclass(frozen=True)
class GradcheckReport:
    """The outcome of `gradcheck`; true if it passed, and printed as a table.

    Attributes:
        name: of the function.
        method: how the numeric derivatives were taken: "complex" or "central".
        rows: a `Row` for each input, and again for order 2.
        worst: the worst entries, an `Entry` each, the worst first.
        problems: what is wrong beyond single entries, such as a function that is not deterministic.
        notes: what to know about the check, such as inputs that were converted.
    """

    name: str
    method: str
    rows: tuple[Row, ...]
    worst: tuple[Entry, ...]
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return not self.problems and all(row.passed for row in self.rows)

    @property
    def passed(self) -> bool:
        """The same as `bool(report)`."""
        return bool(self)

    @property
    def relative_error(self) -> float:
        """The worst relative error of all rows."""
        return max((row.relative_error for row in self.rows), default=0.0)

    def __str__(self) -> str:
        mark = "passed" if self else "FAILED"
        lines = [f"gradcheck of {self.name}: {mark}, by {_METHODS[self.method]}", ""]
        lines += aligned(_ROW_HEAD, [_row_cells(row) for row in self.rows])
        causes = [f"{_label(row.name, row.order)}: {row.cause}" for row in self.rows if row.cause]
        for heading, sentences in (("problem", self.problems), ("cause", causes), ("note", self.notes)):
            lines += ["", *(f"  {heading}: {sentence}" for sentence in sentences)] if sentences else []
        shown = self._shown()
        if shown:
            lines += ["", f"  {_heading(shown)}"]
            lines += aligned(_ENTRY_HEAD, [_entry_cells(entry) for entry in shown])
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        colour = "#1a7f37" if self else "#cf222e"
        mark = "passed" if self else "failed"
        parts = [
            f'<div><p><b>gradcheck of {escape(self.name)}: <span style="color:{colour}">{mark}</span></b>, '
            f"by {_METHODS[self.method]}</p>",
            _html_table(_ROW_HEAD, [(_row_cells(row), row.passed) for row in self.rows]),
        ]
        sentences = [f"<b>{escape(sentence)}</b>" for sentence in self.problems]
        sentences += [
            f"{escape(_label(row.name, row.order))}: {escape(row.cause)}" for row in self.rows if row.cause
        ]
        sentences += [escape(sentence) for sentence in self.notes]
        parts += ["<ul>", *(f"<li>{sentence}</li>" for sentence in sentences), "</ul>"] if sentences else []
        shown = self._shown()
        if shown:
            parts.append(f"<p>{_heading(shown)}</p>")
            parts.append(_html_table(_ENTRY_HEAD, [(_entry_cells(entry), entry.passed) for entry in shown]))
        return "".join([*parts, "</div>"])

    def _shown(self) -> Sequence[Entry]:
        """The entries to print: those that are not simply right."""
        return [entry for entry in self.worst if entry.verdict != "ok"]


class GradcheckError(AssertionError):
    """A gradient is wrong. `report` says which and by how much; so does the message."""

    def __init__(self, report: GradcheckReport) -> None:
        super().__init__(str(report))
        self.report = report


_METHODS = {"complex": "complex steps", "central": "central differences"}
_ROW_HEAD = ("input", "shape", "entries", "abs. error", "rel. error", "tolerance", "verdict")
_ENTRY_HEAD = ("input", "index", "analytic", "numeric", "rel. error", "verdict", "")


def aligned(
    head: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = (2, 3, 4, 5)
) -> list[str]:
    """A table as lines: the columns numbered in `right` to the right, the others to the left."""
    table = [list(head), *map(list, rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "  " + "  ".join(padded).rstrip()

    return [line(table[0]), "  " + "  ".join("─" * width for width in widths if width), *map(line, table[1:])]


def _heading(shown: Sequence[Entry]) -> str:
    what = "entries to know of" if all(entry.passed for entry in shown) else "entries that differ most"
    return f"the {what} (derivatives of the outputs, weighted by random upstream gradients)"


def _label(name: str, order: int) -> str:
    return name if order == 1 else f"{name}, 2nd order"


def _row_cells(row: Row) -> list[str]:
    counted = str(row.size) if row.checked == row.size else f"{row.checked} of {row.size}"
    numbers = [f"{number:.1e}" for number in (row.error, row.relative_error, row.tolerance)]
    if row.verdict == "not checked":
        numbers[:2] = ["-", "-"]
    verdict = row.verdict if row.passed or row.verdict == "not checked" else row.verdict.upper()
    return [_label(row.name, row.order), str(row.shape), counted, *numbers, verdict]


def _entry_cells(entry: Entry) -> list[str]:
    remark = entry.cause
    if entry.left is not None and entry.right is not None:
        remark = f"from the left {entry.left:.6g}, from the right {entry.right:.6g}" + (
            f"; {remark}" if remark else ""
        )
    index = "[" + ", ".join(map(str, entry.index)) + "]"
    numbers = [f"{entry.analytic + 0.0:.10g}", f"{entry.numeric + 0.0:.10g}", f"{entry.relative_error:.1e}"]
    verdict = entry.verdict if entry.passed else entry.verdict.upper()
    return [_label(entry.input, entry.order), index, *numbers, verdict, remark]


def _html_table(head: Sequence[str], rows: Sequence[tuple[Sequence[str], bool]]) -> str:
    cells = "".join(f'<th style="text-align:left">{escape(cell)}</th>' for cell in head)
    lines = [f"<tr>{cells}</tr>"]
    for row, passed in rows:
        colour = "" if passed else ' style="color:#cf222e"'
        lines.append(
            f"<tr{colour}>"
            + "".join(f'<td style="text-align:left">{escape(cell)}</td>' for cell in row)
            + "</tr>"
        )
    return "<table>" + "".join(lines) + "</table>"
