"""docs/hooks.py, which makes the pages: its formulas stay within their paragraphs."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

HOOKS = Path(__file__).parents[2] / "docs" / "hooks.py"


def test_a_formula_at_the_start_of_a_line_ends_no_paragraph() -> None:
    pytest.importorskip("latex2mathml", reason="needs the extra docs")
    markdown = pytest.importorskip("markdown", reason="needs the extra docs")
    spec = importlib.util.spec_from_file_location("hooks", HOOKS)
    assert spec is not None and spec.loader is not None
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    text = "The imaginary part of\n$f(x)$, over\n$h$, is it.\n\n$c$ as well."
    html = markdown.markdown(hooks.typeset(text))
    assert html.count("<p>") == html.count("</p>") == 2
    assert html.count("<math") == 3
