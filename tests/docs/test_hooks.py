"""docs/hooks.py, which makes the pages: how it typesets formulas."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

HOOKS = Path(__file__).parents[2] / "docs" / "hooks.py"


@pytest.fixture
def hooks() -> Any:
    pytest.importorskip("latex2mathml", reason="needs the extra docs")
    spec = importlib.util.spec_from_file_location("hooks", HOOKS)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_formula_at_the_start_of_a_line_ends_no_paragraph(hooks: Any) -> None:
    markdown = pytest.importorskip("markdown", reason="needs the extra docs")
    text = "The imaginary part of\n$f(x)$, over\n$h$, is it.\n\n$c$ as well."
    html = markdown.markdown(hooks.typeset(text))
    assert html.count("<p>") == html.count("</p>") == 2
    assert html.count("<math") == 3


def test_the_name_of_a_function_is_apart_from_its_argument(hooks: Any) -> None:
    shown = [hooks.typeset(f"${tex}$") for tex in (r"\tanh z", r"\exp e_j", r"\tanh(z)", r"\max_j e")]
    assert ["<mspace" in math for math in shown] == [True, True, False, False]
