"""Text to symbols and back."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygrad_attn.data import TextFormat
from tinygrad_attn.errors import DataError

text = st.text(st.characters(exclude_categories=("Cs",)))


@given(text)
def test_characters_join_to_the_normalised_text(value: str) -> None:
    expected = unicodedata.normalize("NFC", value).strip(" ")
    form = TextFormat("characters", "spaces")
    if not expected:
        with pytest.raises(DataError, match="is empty, expected at least one character"):
            form.split_source(value)
        return
    tokens = form.split_source(value)
    assert all(len(token) == 1 for token in tokens)
    assert form.join_source(tokens) == expected
    assert form.split_source(form.join_source(tokens)) == tokens


@given(text)
def test_spaces_split_and_join_round_trips(value: str) -> None:
    form = TextFormat("characters", "spaces")
    if not value.strip(" "):
        with pytest.raises(DataError, match="is empty, expected at least one symbol"):
            form.split_target(value)
        return
    tokens = form.split_target(value)
    assert all(tokens) and not any(" " in token for token in tokens)
    assert form.split_target(form.join_target(tokens)) == tokens


def test_composed_and_decomposed_forms_are_the_same_symbol() -> None:
    form = TextFormat("characters", "characters")
    assert form.split_source("e\u0301a") == form.split_source("\u00e9a") == ("\u00e9", "a")
    assert TextFormat("spaces", "spaces").split_source("e\u0301 a") == ("\u00e9", "a")


def test_marks_without_composed_form_and_joined_emoji_are_symbols_of_their_own() -> None:
    form = TextFormat("characters", "characters")
    assert form.split_source("q\u0303") == ("q", "\u0303")
    family = "\U0001f469\u200d\U0001f467"
    assert form.split_source(family) == ("\U0001f469", "\u200d", "\U0001f467")
    assert form.join_source(form.split_source(family)) == family


def test_spaces_inside_are_characters_and_around_are_not() -> None:
    assert TextFormat("characters", "spaces").split_source("  a b ") == ("a", " ", "b")
    assert TextFormat("spaces", "spaces").split_source("  a   bc ") == ("a", "bc")


def test_only_the_space_splits() -> None:
    assert TextFormat("spaces", "spaces").split_source("a\u00a0b c") == ("a\u00a0b", "c")


def test_an_unknown_way_to_split() -> None:
    with pytest.raises(DataError, match="target split at 'words', expected one of characters, spaces"):
        TextFormat("spaces", "words")


@pytest.mark.parametrize("at", ["characters", "spaces"])
def test_bytes_that_are_no_text(at: Any) -> None:
    form = TextFormat(at, at)
    for split_side, side in ((form.split_source, "source"), (form.split_target, "target")):
        with pytest.raises(DataError, match=f"{side} 'ab.*' is not UTF-8 at character 3"):
            split_side("ab\udcff")
