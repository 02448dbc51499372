"""Symbols and their ids."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from operator import index

import numpy as np
import numpy.typing as npt

from tinygrad_attn.errors import DataError
from tinygrad_attn.tokens import BOS, EOS, PAD, SPECIAL_TOKENS, UNK

Ids = npt.NDArray[np.int64]
Tokens = tuple[str, ...]

FIRST_CONTENT_ID = len(SPECIAL_TOKENS)


@dataclass(frozen=True)
class Vocabulary:
    """The symbols of one side of the data; immutable, comparable, hashable.

    Ids 0 to 3 are PAD, BOS, EOS and UNK; the content symbols follow from 4 on in the order of `symbols`. The
    two never mix: a content symbol that is spelled `<unk>` has an id of its own, and `<unk>` without such a
    symbol is unknown like any other.

    Raises DataError if a symbol is empty, is no string or comes twice.
    """

    symbols: Tokens
    _ids: dict[str, int] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "symbols", tuple(self.symbols))
        for symbol in self.symbols:
            if not isinstance(symbol, str) or not symbol:
                raise DataError(f"Vocabulary: symbol {symbol!r}, expected a string of at least one character")
        ids = {symbol: number for number, symbol in enumerate(self.symbols, FIRST_CONTENT_ID)}
        if len(ids) < len(self.symbols):
            twice = next(s for number, s in enumerate(self.symbols, FIRST_CONTENT_ID) if ids[s] != number)
            raise DataError(f"Vocabulary: symbol {twice!r} comes twice, expected different symbols")
        object.__setattr__(self, "_ids", ids)

    @classmethod
    def of(cls, sequences: Iterable[Iterable[str]]) -> Vocabulary:
        """The vocabulary of all symbols that occur in `sequences`, in the order of their code points."""
        return cls(tuple(sorted(set(chain.from_iterable(sequences)))))

    def __len__(self) -> int:
        """The number of ids, the special tokens included."""
        return FIRST_CONTENT_ID + len(self.symbols)

    def __repr__(self) -> str:
        return f"Vocabulary({reprlib.repr(self.symbols)}, {len(self)} ids)"

    def __contains__(self, symbol: object) -> bool:
        """Whether `symbol` is a content symbol."""
        return symbol in self._ids

    def encode(self, tokens: Iterable[str]) -> Ids:
        """The ids of `tokens` (n,); a symbol that is not in the vocabulary becomes UNK (see `unknown`)."""
        ids = self._ids
        return np.array([ids.get(token, UNK) for token in tokens], dtype=np.int64)

    def unknown(self, tokens: Iterable[str]) -> list[str]:
        """The different symbols of `tokens` that `encode` turns into UNK, in the order they first come."""
        return [token for token in dict.fromkeys(tokens) if token not in self._ids]

    def token(self, number: int) -> str:
        """How one id is spelled, special tokens included (`<eos>`); IndexError outside the table."""
        if not 0 <= number < len(self):
            raise IndexError(f"Vocabulary: id {number}, expected 0 to {len(self) - 1}")
        if number < FIRST_CONTENT_ID:
            return SPECIAL_TOKENS[number]
        return self.symbols[number - FIRST_CONTENT_ID]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The symbols of one sequence of `ids` up to EOS, without BOS and PAD; UNK gives `<unk>`.

        Raises IndexError for an id outside the table, TypeError for what is no integer, such as a row of a
        batch (ids after EOS are not looked at).
        """
        tokens = []
        for entry in ids:
            try:
                number = index(entry)
            except TypeError:
                raise TypeError(
                    f"Vocabulary: id {entry!r}, expected an integer; decode takes one sequence"
                ) from None
            if number == EOS:
                break
            if number not in (BOS, PAD):
                tokens.append(self.token(number))
        return tokens

    def to_json(self) -> dict[str, object]:
        """A plain dictionary for `json`; `from_json` is its inverse."""
        return {"special": list(SPECIAL_TOKENS), "symbols": list(self.symbols)}

    @classmethod
    def from_json(cls, content: object) -> Vocabulary:
        """The vocabulary that `to_json` gave; DataError says what is wrong with anything else."""
        if not isinstance(content, Mapping) or set(content) != {"special", "symbols"}:
            came = (
                f"keys {sorted(map(str, content))}"
                if isinstance(content, Mapping)
                else type(content).__name__
            )
            raise DataError(f"Vocabulary: {came}, expected a dictionary with the keys ['special', 'symbols']")
        if content["special"] != list(SPECIAL_TOKENS):
            raise DataError(
                f"Vocabulary: special tokens {content['special']!r}, expected {list(SPECIAL_TOKENS)}"
            )
        if not isinstance(content["symbols"], list):
            raise DataError(f"Vocabulary: symbols are a {type(content['symbols']).__name__}, expected a list")
        return cls(tuple(content["symbols"]))
