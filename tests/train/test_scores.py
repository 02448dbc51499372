from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygrad_attn.data import Vocabulary
from tinygrad_attn.train.scores import edit_distance, nearest_reference, right_tokens, spelled

TARGET = np.array([[4, 5, 2, 0, 0, 0], [4, 5, 6, 7, 2, 0]])
PREDICTED = np.array([[4, 5, 2, 0, 0, 0], [4, 9, 9, 9, 2, 0]])
JUNK = np.array([[4, 5, 2, 9, 9, 9], [4, 9, 9, 9, 2, 0]])
DIGITS = Vocabulary(tuple("0123456789"))


@pytest.mark.parametrize("predicted", [PREDICTED, JUNK], ids=["padded", "junk after the end"])
def test_padding_counts_neither_for_tokens_nor_for_whole_sequences(predicted: np.ndarray) -> None:
    assert right_tokens(predicted, TARGET) / np.count_nonzero(TARGET) == 0.625
    right = [spelled(DIGITS, p) == spelled(DIGITS, t) for p, t in zip(predicted, TARGET, strict=True)]
    assert right == [True, False]


def test_an_unknown_symbol_equals_no_symbol() -> None:
    vocabulary = Vocabulary(("a", "<unk>"))
    assert spelled(vocabulary, [4, 3, 5, 2, 4]) == ("a", None, "<unk>")


def naive_distance(a: str, b: str) -> int:
    @cache
    def d(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        return min(d(i - 1, j) + 1, d(i, j - 1) + 1, d(i - 1, j - 1) + (a[i - 1] != b[j - 1]))

    return d(len(a), len(b))


@given(st.text("abc", max_size=7), st.text("abc", max_size=7))
def test_edit_distance_is_that_of_the_recursion(a: str, b: str) -> None:
    assert edit_distance(a, b) == naive_distance(a, b) == edit_distance(b, a)


@pytest.mark.parametrize(
    ("output", "references", "expected"),
    [
        ("abc", ["abd", "abc"], (0, 3)),
        ("abc", ["xyz", "abcd"], (1, 4)),
        ("abc", ["ab", "abcd"], (1, 4)),  # equally near: the longer one
        ("", ["ab", "a"], (1, 1)),
    ],
)
def test_nearest_reference(output: str, references: list[str], expected: tuple[int, int]) -> None:
    assert nearest_reference(tuple(output), [tuple(reference) for reference in references]) == expected
