"""How a line of text becomes symbols and back."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Literal, cast, get_args

from tinygrad_attn.data.vocabulary import Tokens
from tinygrad_attn.errors import DataError

SplitAt = Literal["characters", "spaces"]


def split(text: str, at: SplitAt) -> Tokens:
    """The symbols of `text`, which is first brought to Unicode normal form C; spaces around it do not count.

    "spaces": the parts between runs of U+0020. "characters": the code points, inner spaces included; so an
    `é` is one symbol however it was typed, and a mark or emoji part that has no composed form is a symbol of
    its own.
    """
    text = normalise(text).strip(" ")
    return tuple(text) if at == "characters" else tuple(part for part in text.split(" ") if part)


def join(tokens: Iterable[str], at: SplitAt) -> str:
    """The text of `tokens`, put together as `split` takes it apart."""
    return ("" if at == "characters" else " ").join(tokens)


def normalise(text: str) -> str:
    """Unicode normal form C."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def check_split_at(at: object, side: str) -> SplitAt:
    """`at` if it is a way to split; DataError otherwise."""
    if at in get_args(SplitAt):
        return cast(SplitAt, at)
    raise DataError(f"{side} split at {at!r}, expected one of {', '.join(get_args(SplitAt))}")


class TextFormat:
    """How the sources and the targets of a data set are split and joined; every data set is one."""

    def __init__(self, source_split: SplitAt, target_split: SplitAt) -> None:
        self.source_split = check_split_at(source_split, "source")
        self.target_split = check_split_at(target_split, "target")

    def split_source(self, text: str) -> Tokens:
        """The symbols of one source; DataError if there are none, or it was no text."""
        return self._split(text, self.source_split, "source")

    def split_target(self, text: str) -> Tokens:
        """The symbols of one target; DataError if there are none, or it was no text."""
        return self._split(text, self.target_split, "target")

    def join_source(self, tokens: Iterable[str]) -> str:
        """One source as text."""
        return join(tokens, self.source_split)

    def join_target(self, tokens: Iterable[str]) -> str:
        """One target as text."""
        return join(tokens, self.target_split)

    @staticmethod
    def _split(text: str, at: SplitAt, side: str) -> Tokens:
        tokens = split(text, at)
        if not tokens:
            least = "character" if at == "characters" else "symbol"
            raise DataError(f"{side} {text!r} is empty, expected at least one {least}")
        try:
            text.encode()
        except UnicodeEncodeError as error:  # such as bytes of a command line that no character stands for
            raise DataError(f"{side} {text!r} is not UTF-8 at character {error.start + 1}") from None
        return tokens
