"""Check what `make demo` left: the accuracy, the training time and the figures that it promises."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

LEAST_EXACT_MATCH = 0.995
MOST_TRAIN_SECONDS = 60.0
FIGURES = ("alignment.svg", "loss.svg", "graph.svg")
PAGE, MOST_PAGE_BYTES = "report.html", 3_000_000


def last_test_row(metrics: Path) -> dict[str, Any]:
    """The last row of `metrics.jsonl` that tells of the test set."""
    rows = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    tests = [row for row in rows if row.get("event") == "test"]
    if not tests:
        raise ValueError(f'{metrics}: none of its {len(rows)} rows has "event": "test"')
    return tests[-1]


def faults(run: Path) -> list[str]:
    """What is wrong with the run folder, one sentence each."""
    found = []
    try:
        row = last_test_row(run / "metrics.jsonl")
        exact_match, seconds = float(row["exact_match"]), float(row["train_seconds"])
    except KeyError as error:
        found.append(f"{run / 'metrics.jsonl'}: the test row has no {error}")
    except (OSError, TypeError, ValueError) as error:
        found.append(str(error))
    else:
        print(f"demo: exact match {exact_match:.2%}, {seconds:.1f} s of training")
        # Written so that NaN fails too.
        if not exact_match >= LEAST_EXACT_MATCH:
            found.append(f"exact match is {exact_match:.2%}, expected at least {LEAST_EXACT_MATCH:.1%}")
        if not seconds <= MOST_TRAIN_SECONDS:
            found.append(f"training took {seconds:.1f} s, expected at most {MOST_TRAIN_SECONDS:.0f} s")
    for name in FIGURES:
        try:
            root = ElementTree.parse(run / name).getroot()
        except (OSError, ElementTree.ParseError) as error:
            found.append(f"{run / name}: {error}")
        else:
            if root.tag != "{http://www.w3.org/2000/svg}svg":
                found.append(f"{run / name}: the root element is {root.tag}, expected an SVG")
    try:
        size = (run / PAGE).stat().st_size
    except OSError as error:
        found.append(f"{run / PAGE}: {error}")
    else:
        if not 0 < size < MOST_PAGE_BYTES:
            found.append(f"{run / PAGE} has {size:,} bytes, expected fewer than {MOST_PAGE_BYTES:,}")
    return found


def main() -> int:
    """Report each fault on a line of its own; 1 if there is any."""
    if len(sys.argv) != 2:
        print("usage: check_demo.py RUN_FOLDER", file=sys.stderr)
        return 2
    found = faults(Path(sys.argv[1]))
    for fault in found:
        print(f"demo: {fault}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
