"""What is put in: annotations, decoder states, the weights of the score, the words that should come out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinygrad_attn.errors import UserError
from tinygrad_attn.nn import AdditiveAttention, Attention, DotAttention, GeneralAttention, ScaledDotAttention

Vector = tuple[float, ...]

SCORES = ("additive", "dot", "scaled", "general")


class ExampleError(UserError, ValueError):
    """Numbers that no example can be made of."""


@dataclass(frozen=True)
class Example:
    """An attention small enough to follow by hand.

    The score is additive, v_a · tanh(W_a s + U_a h_j), with identities and ones for weights that are None; or
    a dot product, s · h_j, that scaled, s · h_j / √d, or the general s · W_a h_j.

    The context is read by an output layer without weights to learn: the vocabulary has a word for each entry
    of c, whose logit that entry is; if c has one entry, there is a second word with logit 0. The loss is
    -log p of the target word, summed over the steps.
    """

    h: tuple[Vector, ...]
    """The annotation of each source word."""
    s: tuple[Vector, ...]
    """The decoder's state before each target word."""
    targets: tuple[int, ...]
    """The target word of each step, counted from 1."""
    score: str = "additive"
    W_a: tuple[Vector, ...] | None = None
    """(attention, query) for the additive score, (query, key) for the general one."""
    U_a: tuple[Vector, ...] | None = None
    """(attention, key), for the additive score."""
    v_a: Vector | None = None
    """(attention,), for the additive score."""

    def __post_init__(self) -> None:
        if self.score not in SCORES:
            raise ExampleError(f"score is '{self.score}', expected one of {', '.join(SCORES)}")
        for name, rows in (("h", self.h), ("s", self.s), ("W_a", self.W_a), ("U_a", self.U_a)):
            if rows is not None:
                _check_rows(name, rows)
        if self.v_a is not None:
            _check_rows("v_a", (self.v_a,))
        self._check_weights()
        if len(self.targets) != len(self.s):
            raise ExampleError(
                f"target is {self.targets}, expected a word for each state, {len(self.s)} in all"
            )
        for target in self.targets:
            if not 1 <= target <= self.words:
                raise ExampleError(f"target is {target}, expected 1 to {self.words}, the words there are")

    @property
    def words(self) -> int:
        """The size of the vocabulary: a word for each entry of the context, and at least two."""
        return max(2, len(self.h[0]))

    @property
    def output(self) -> np.ndarray:
        """W_o (words, width of c)."""
        return np.eye(self.words, len(self.h[0]))

    @property
    def plain(self) -> bool:
        """Whether every weight is an identity or one, and need not be written."""
        return all(
            weight is None or np.array_equal(weight, np.eye(len(weight))) for weight in (self.W_a, self.U_a)
        ) and (self.v_a is None or set(self.v_a) == {1.0})

    def weights(self) -> dict[str, np.ndarray]:
        """The weights of the score, by name."""
        query, key = len(self.s[0]), len(self.h[0])
        if self.score == "general":
            return {"W_a": np.eye(query, key) if self.W_a is None else np.array(self.W_a)}
        if self.score != "additive":
            return {}
        w = np.eye(query) if self.W_a is None else np.array(self.W_a)
        u = np.eye(key) if self.U_a is None else np.array(self.U_a)
        return {"W_a": w, "U_a": u, "v_a": np.ones(len(w)) if self.v_a is None else np.array(self.v_a)}

    def attention(self) -> Attention:
        """The module of the family that scores, in double precision."""
        weights = self.weights()
        if not weights:
            return DotAttention() if self.score == "dot" else ScaledDotAttention()
        settings: dict[str, Any] = {"dtype": np.float64, "rng": np.random.default_rng(0)}
        query, key = len(self.s[0]), len(self.h[0])
        module: Attention = (
            GeneralAttention(query, key, **settings)
            if self.score == "general"
            else AdditiveAttention(query, key, len(weights["v_a"]), **settings)
        )
        module.load_state_dict(weights)
        return module

    def _check_weights(self) -> None:
        """Raises ExampleError if weights are given that the score lacks, or widths do not fit."""
        query, key = len(self.s[0]), len(self.h[0])
        has = {"additive": ("W_a", "U_a", "v_a"), "general": ("W_a",)}.get(self.score, ())
        for name in ("W_a", "U_a", "v_a"):
            if getattr(self, name) is not None and name not in has:
                raise ExampleError(f"{name} is given, but the {self.score} score has none")
        if not has and query != key:
            raise ExampleError(
                f"s has {query} entries and an annotation {key}, expected the same for the {self.score} "
                "score; choose the general score, and give W_a"
            )
        if self.score == "general":
            if self.W_a is None and query != key:
                raise ExampleError(f"s has {query} entries and an annotation {key}, so W_a has to be given")
            _check_shape("W_a", self.weights()["W_a"], (query, key))
        elif has:
            found = self.weights()
            if len(found["W_a"]) != len(found["U_a"]) and (self.W_a is None or self.U_a is None):
                raise ExampleError(
                    f"s has {query} entries and an annotation {key}, so W_a and U_a have to be given, with "
                    "equally many rows"
                )
            _check_shape("W_a", found["W_a"], (len(found["v_a"]), query))
            _check_shape("U_a", found["U_a"], (len(found["v_a"]), key))


def _check_rows(name: str, rows: tuple[Vector, ...]) -> None:
    if not rows or not all(rows):
        raise ExampleError(f"{name} is empty, expected at least one number")
    widths = {len(row) for row in rows}
    if len(widths) > 1:
        raise ExampleError(f"{name} has rows of {sorted(widths)} entries, expected one width")
    for value in (value for row in rows for value in row):
        if not math.isfinite(value):
            raise ExampleError(f"{name} holds {value}, expected finite numbers")


def _check_shape(name: str, array: np.ndarray, expected: tuple[int, int]) -> None:
    if array.shape != expected:
        raise ExampleError(f"{name} has shape {array.shape}, expected {expected} to go with s and h")


RUNNING = Example(h=((0.2,), (0.9,), (0.1,)), s=((0.5,),), targets=(1,))
"""Three source words with one number for each, and the state before the first target word."""

VECTOR = Example(h=((1.0, 0.0), (0.0, 1.0)), s=((1.0, 0.0), (0.0, 1.0)), targets=(2, 1))
"""Two source words in two dimensions: the state decides which has the higher score, and the ranking flips."""
