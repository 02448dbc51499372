"""A picture of the graph as a browser draws it: every text stands within its box."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.conftest import Open
from tinygrad_attn.cli import main

# The texts of a box that end right of its frame, measured without the spaces after them.
BEYOND = """() => [...document.querySelectorAll('g.node')].flatMap(box => {
    const frame = [...box.querySelectorAll('polygon')].map(p => p.getBBox());
    const right = Math.max(...frame.map(b => b.x + b.width));
    return [...box.querySelectorAll('text')].filter(text => {
        const length = text.getSubStringLength(0, text.textContent.trimEnd().length || 1);
        return text.getBBox().x + length > right;
    }).map(text => text.textContent);
})"""


@pytest.mark.parametrize("detail", ["paper", "primitive"])
def test_texts_stand_within_their_boxes(tmp_path: Path, open_page: Open, detail: str) -> None:
    assert main(["graph", "--backward", "--detail", detail, "--out", str(tmp_path / "g.svg")]) == 0
    page = open_page(tmp_path / "g.svg")
    assert page.evaluate("document.querySelectorAll('g.node').length") >= 9
    assert page.evaluate(BEYOND) == []


def test_texts_of_a_model_stand_within_their_boxes(run: Path, tmp_path: Path, open_page: Open) -> None:
    path = tmp_path / "g.svg"
    assert main(["graph", str(run), "1 2 3", "--backward", "--detail", "model", "--out", str(path)]) == 0
    assert open_page(path).evaluate(BEYOND) == []
