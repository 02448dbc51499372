"""docs/checking.md: its code runs and prints what it says, and its gradients are right to 1e-12."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta

PAGE = Path(__file__).parents[2] / "docs" / "checking.md"
BLOCKS = re.findall(
    r"^```(python|text)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
)


def _rounded(text: str) -> str:
    """Rounding errors differ from machine to machine; their size does not."""
    return re.sub(r"\d\.\de-1[5-9]|0\.0e\+00", "rounding", text)


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """What the code of the page defines; its printed lines are compared on the way."""
    names: dict[str, Any] = {}
    printed = ""
    for kind, text in BLOCKS:
        if kind == "text":
            assert _rounded(printed) == _rounded(text)
            printed = ""
            continue
        assert not printed, "the page leaves out what its code prints"
        with redirect_stdout(StringIO()) as caught:
            exec(compile(text, str(PAGE), "exec"), names)
        printed = caught.getvalue()
    assert not printed
    return names


def test_the_page_runs_and_prints_what_it_says(names: dict[str, Any]) -> None:
    assert {"attend", "by_hand", "forgetful"} <= names.keys()


@pytest.mark.parametrize("seed", range(5))
def test_the_chain_derived_on_paper(names: dict[str, Any], seed: int) -> None:
    rng = np.random.default_rng(seed)
    s, h, W, U, v = (rng.standard_normal(shape) for shape in names["shapes"].values())
    report = ta.gradcheck(names["attend"], [s, h, W, U, v], rtol=1e-12, rng=seed)
    assert report.method == "complex" and report.relative_error <= 1e-12
    # And against the engine's own chain of rules.
    upstream = rng.standard_normal(h.shape[1])
    leaves = [ta.Tensor(x, requires_grad=True) for x in (s, h, W, U, v)]
    with ta.explicit():
        found = ta.grad(names["context"](*leaves), leaves, upstream)
    c, saved = names["kernel"](s, h, W, U, v)
    by_hand = names["by_hand"](upstream, c, s, h, W, U, v, saved=saved)
    for g, right in zip(found, by_hand, strict=True):
        assert np.abs(g.data - right).max() <= 1e-12 * np.abs(right).max()
    # The scores' gradients sum to zero, as the page says.
    _, alpha = saved
    e_bar = alpha * (h @ upstream - alpha @ (h @ upstream))
    assert abs(e_bar.sum()) <= 1e-15


def test_the_number_of_entries_the_page_states(names: dict[str, Any]) -> None:
    (stated,) = map(int, re.findall(r"Each of the (\d+) entries", PAGE.read_text(encoding="utf-8")))
    assert stated == sum(x.size for x in names["inputs"])
