"""The pages of the documentation: what they quote is there, and measurements are those promised."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest

from tinygrad_attn.worked import NUMBERS, number

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.glob("*.md"))
QUOTED = re.compile(r'number\("([^"]+)"(?:, (\w+))?\)')


def test_every_worked_number_stands_on_a_page_in_its_place() -> None:
    """Beside the table of all of them, which the build makes."""
    quoted = {key for page in PAGES for key, _ in QUOTED.findall(page.read_text(encoding="utf-8"))}
    assert quoted == {found.key for found in NUMBERS}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_quoted_numbers_exist(page: Path) -> None:
    for key, index in QUOTED.findall(page.read_text(encoding="utf-8")):
        assert not index.isdigit() or 1 <= int(index) <= len(number(key).printed)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_name_files_that_exist(page: Path) -> None:
    named = re.findall(
        r"`((?:examples|docs|benchmarks|tests|tinygrad_attn)/[\w/.]+\.\w+)", page.read_text("utf-8")
    )
    assert all((DOCS.parent / name).exists() for name in named)


def test_pages_need_nothing_from_elsewhere() -> None:
    for file in (*PAGES, DOCS / "style.css"):
        assert not re.search(
            r'(src|href|url|!\[[^]]*\])\(?\s*=?\s*["(]?https?:', file.read_text(encoding="utf-8")
        )


@pytest.mark.parametrize("cell", ["gru", "lstm", "rnn"])
def test_every_score_learns_both_tasks(cell: str) -> None:
    """At least 99 % of unseen sequences exactly right, as `benchmarks/combinations.py` found."""
    runs = json.loads((DOCS / "data" / "combinations.json").read_text(encoding="utf-8"))["runs"]
    scores = ("additive", "dot", "scaled", "general", "concat")
    for score, query, task in itertools.product(scores, ("previous", "current"), ("copy", "reverse")):
        assert runs[f"{score} {query} {cell}"][task]["exact_match"] >= 0.99


def test_none_does_without_attention() -> None:
    """As the page says; and to reverse is the harder task, for the plain RNN above all."""
    runs = json.loads((DOCS / "data" / "combinations.json").read_text(encoding="utf-8"))["runs"]
    for query, cell in itertools.product(("previous", "current"), ("gru", "lstm", "rnn")):
        assert all(run["exact_match"] < 0.99 for run in runs[f"none {query} {cell}"].values())
    for query in ("previous", "current"):
        lost = {}
        for cell in ("gru", "lstm", "rnn"):
            run = runs[f"none {query} {cell}"]
            lost[cell] = run["copy"]["exact_match"] - run["reverse"]["exact_match"]
        assert min(lost.values()) > 0 and max(lost, key=lambda cell: lost[cell]) == "rnn"
