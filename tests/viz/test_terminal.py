from __future__ import annotations

import numpy as np
import pytest

from tinygrad_attn.viz import draw_alignment
from tinygrad_attn.viz.token_names import columns_of, shortened

WEIGHTS = np.array([[0.0, 0.0, 1.0], [0.1, 0.5, 0.4], [0.75, 0.25, 0.0]])


def test_a_line_for_each_target_token() -> None:
    assert draw_alignment(WEIGHTS, list("abc"), list("xyz")).split("\n") == [
        "  a  b  c",
        "x       ██",
        "y    ▒▒ ▒▒",
        "z ▓▓ ░░",
    ]


def test_without_other_signs_than_ascii() -> None:
    drawn = draw_alignment(WEIGHTS, list("abc"), list("xyz"), ascii_only=True)
    assert drawn.isascii() and drawn.split("\n")[1:] == ["x       ##", "y    :: ::", "z ** .."]


def test_colour_marks_the_largest_weight() -> None:
    plain, coloured = (draw_alignment(WEIGHTS, list("abc"), list("xyz"), colour=c) for c in (False, True))
    assert "\x1b" not in plain and coloured.count("\x1b[0m") == 3
    assert coloured.replace("\x1b[1;36m", "").replace("\x1b[0m", "") == plain


@pytest.mark.parametrize("width", [1, 20, 40, 80])
def test_what_does_not_fit_beside_is_drawn_below(width: int) -> None:
    source = [f"word{n}" for n in range(12)]
    drawn = draw_alignment(np.full((2, 12), 0.5), source, ["注意", "b"], width=width)
    panels = drawn.split("\n\n")
    assert sum(panel.count("word") for panel in panels) == 12
    assert all(len(panel.split("\n")) == 3 for panel in panels)
    if width > 10:
        assert max(columns_of(line) for line in drawn.split("\n")) <= width


@pytest.mark.parametrize(("text", "columns"), [("ab", 2), ("注意", 4), ("e\u0301", 1), ("한글", 4)])
def test_columns(text: str, columns: int) -> None:
    assert columns_of(text) == columns


@pytest.mark.parametrize("width", [11, 12, 30, 33, 80])
def test_long_words_are_cut_to_a_narrow_terminal(width: int) -> None:
    words = ["Donaudampfschifffahrt", "注意力注意力注意力注意力", "a"]
    drawn = draw_alignment(np.full((3, 3), 0.5), words, words, width=width)
    assert max(columns_of(line) for line in drawn.split("\n")) <= width


def test_tokens_cannot_steer_the_terminal() -> None:
    drawn = draw_alignment([[1.0, 0.0]], ["\x1b[2J", "x" * 50], ["\u202e\x07"])
    assert "\x1b" not in drawn and "\x07" not in drawn and "\u202e" not in drawn
    assert "x" * 15 + "…" in drawn and "x" * 16 not in drawn


def test_weights_must_fit_the_tokens() -> None:
    with pytest.raises(ValueError, match=r"draw_alignment: weights have shape \(3, 3\), expected \(2, 3\)"):
        draw_alignment(WEIGHTS, list("abc"), list("xy"))


def test_labels_are_cut_to_columns() -> None:
    for text in ("", "abc", "日本語", "e\u0301" * 5, "x" * 100_000):
        for columns in (2, 5, 16):
            cut = shortened(text, columns)
            assert columns_of(cut) <= columns
            assert cut == text if columns_of(text) <= columns else text.startswith(cut[:-1])
