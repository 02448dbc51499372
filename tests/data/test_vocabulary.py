"""Symbols and ids: the special ones apart from content, whatever the content is spelled like."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygrad_attn.data import Vocabulary
from tinygrad_attn.errors import DataError
from tinygrad_attn.tokens import BOS, EOS, PAD, SPECIAL_TOKENS, UNK

symbols = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=4) | st.sampled_from(
    SPECIAL_TOKENS
)


def test_special_ids_are_the_first_four() -> None:
    assert (PAD, BOS, EOS, UNK) == (0, 1, 2, 3)
    assert len(SPECIAL_TOKENS) == 4


@given(st.lists(symbols, unique=True, max_size=20))
def test_round_trips(content: list[str]) -> None:
    vocabulary = Vocabulary(tuple(content))
    ids = vocabulary.encode(content)
    assert ids.dtype == np.int64
    assert ids.tolist() == list(range(4, 4 + len(content)))
    assert vocabulary.decode(ids) == content
    assert [vocabulary.token(number) for number in ids] == content
    assert len(vocabulary) == 4 + len(content)
    assert all(symbol in vocabulary for symbol in content)
    assert Vocabulary.from_json(json.loads(json.dumps(vocabulary.to_json()))) == vocabulary


@given(st.lists(st.lists(symbols)))
def test_of_takes_every_symbol_once_in_the_order_of_code_points(sequences: list[list[str]]) -> None:
    vocabulary = Vocabulary.of(sequences)
    assert list(vocabulary.symbols) == sorted({symbol for sequence in sequences for symbol in sequence})
    assert vocabulary == Vocabulary.of(reversed(sequences))


def test_content_spelled_like_a_special_token_has_its_own_id() -> None:
    vocabulary = Vocabulary.of([["<unk>", "<pad>", "a", "<eos>"]])
    ids = vocabulary.encode(["<unk>", "<pad>", "<eos>", "<bos>"])
    assert (ids[:3] >= 4).all()
    assert ids[3] == UNK  # not among the symbols
    assert vocabulary.decode(ids[:3]) == ["<unk>", "<pad>", "<eos>"]
    assert vocabulary.encode(SPECIAL_TOKENS).tolist() != [PAD, BOS, EOS, UNK]


def test_unknown_symbols_become_unk_and_can_be_named() -> None:
    vocabulary = Vocabulary(("a", "b"))
    tokens = ["x", "a", "y", "x", "b"]
    assert vocabulary.encode(tokens).tolist() == [UNK, 4, UNK, UNK, 5]
    assert vocabulary.unknown(tokens) == ["x", "y"]
    assert vocabulary.unknown(["a"]) == []
    assert vocabulary.decode([UNK, 4]) == ["<unk>", "a"]


def test_encoding_nothing_gives_an_empty_integer_array() -> None:
    ids = Vocabulary(("a",)).encode([])
    assert ids.shape == (0,) and ids.dtype == np.int64


@pytest.mark.parametrize("wrong", [np.array([[4, 5]]), [4.0], "45"])
def test_decode_takes_one_row_of_integers(wrong: Any) -> None:
    with pytest.raises(TypeError, match="expected an integer; decode takes one sequence"):
        Vocabulary(("a", "b")).decode(wrong)


def test_decode_stops_at_eos_and_skips_bos_and_pad() -> None:
    vocabulary = Vocabulary(("a", "b"))
    assert vocabulary.decode(np.array([BOS, 4, PAD, 5, EOS, 4, 99])) == ["a", "b"]
    assert vocabulary.decode([]) == []


@pytest.mark.parametrize("number", [-1, 6])
def test_an_id_outside_the_table_is_an_error(number: int) -> None:
    vocabulary = Vocabulary(("a", "b"))
    with pytest.raises(IndexError, match=f"id {number}, expected 0 to 5"):
        vocabulary.decode([number])
    with pytest.raises(IndexError, match=f"id {number}, expected 0 to 5"):
        vocabulary.token(number)


def test_token_spells_special_ids_too() -> None:
    assert [Vocabulary(()).token(number) for number in range(4)] == list(SPECIAL_TOKENS)


def test_a_vocabulary_cannot_be_changed() -> None:
    vocabulary = Vocabulary(("a",))
    with pytest.raises(dataclasses.FrozenInstanceError):
        vocabulary.symbols = ("b",)
    assert hash(vocabulary) == hash(Vocabulary(("a",)))
    assert "_ids" not in repr(vocabulary)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (("a", "b", "a"), "symbol 'a' comes twice"),
        (("a", ""), "symbol '', expected a string"),
        (("a", 3), "symbol 3, expected a string"),
        ((["a"],), r"symbol \['a'\], expected a string"),
    ],
)
def test_symbols_that_are_none(content: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Vocabulary(content)


SPECIAL = list(SPECIAL_TOKENS)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "NoneType, expected a dictionary"),
        ([], "list, expected a dictionary"),
        ({}, r"keys \[\], expected a dictionary with the keys \['special', 'symbols'\]"),
        (
            {"special": SPECIAL, "symbols": ["a"], "more": 1},
            r"keys \['more', 'special', 'symbols'\], expected",
        ),
        ({1: SPECIAL, "symbols": ["a"]}, r"keys \['1', 'symbols'\], expected"),
        ({"special": SPECIAL[::-1], "symbols": ["a"]}, "special tokens .*, expected"),
        ({"special": SPECIAL, "symbols": "abc"}, "symbols are a str, expected a list"),
        ({"special": SPECIAL, "symbols": ["a", "a"]}, "'a' comes twice"),
        ({"special": SPECIAL, "symbols": ["a", None]}, "symbol None, expected a string"),
    ],
)
def test_damaged_or_foreign_json_is_named(content: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Vocabulary.from_json(content)
