"""Computations that the pictures are tested on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

import tinygrad_attn as ta

CELLS = ("gru", "lstm", "rnn")
SCORES = ("additive", "dot", "scaled", "general", "concat", "none")


def running_example() -> ta.Tensor:
    """Scalar attention: h = (0.2, 0.9, 0.1), s0 = 0.5, e = tanh(s0 + h), and a loss on c."""
    h = ta.Tensor([0.2, 0.9, 0.1], requires_grad=True, name="h")
    s0 = ta.Tensor(0.5, requires_grad=True, name="s₀")
    e = ta.tanh(s0 + h)
    e.name = "e"
    alpha = ta.softmax(e)
    alpha.name = "α"
    c = (alpha * h).sum()
    c.name = "c"
    loss = (c - 1.0) ** 2
    loss.name = "loss"
    return loss


def batch(steps: int = 3, length: int = 4, size: int = 1) -> Any:
    """Sequences for a small model; in a batch of several, the first source is shorter."""
    rng = np.random.default_rng(1)
    source = rng.integers(4, 10, (size, length))
    lengths = np.full(size, length)
    if size > 1:
        lengths[0] = length - 1
        source[0, -1] = ta.PAD
    target = rng.integers(4, 9, (size, steps - 1))
    ends = np.full((size, 1), ta.EOS)
    return SimpleNamespace(
        source=source,
        lengths=lengths,
        target_in=np.concatenate([np.full((size, 1), ta.BOS), target], axis=1),
        target_out=np.concatenate([target, ends], axis=1),
    )


def small_model(**settings: Any) -> ta.nn.Seq2Seq:
    """In float64. Dot products need annotations as wide as states."""
    if settings.get("attention") in ("dot", "scaled"):
        settings.setdefault("encoder_hidden_size", 2)
    settings.setdefault("rng", np.random.default_rng(0))
    return ta.nn.Seq2Seq(10, 9, embedding_size=3, hidden_size=4, dtype=np.float64, **settings)


def small_loss(data: Any = None, **settings: Any) -> ta.Tensor:
    """The loss of a small model, after backward()."""
    loss = small_model(**settings).loss(batch() if data is None else data)
    loss.backward()
    return loss
