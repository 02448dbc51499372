"""The model and the batch that every contender is measured with, in three sizes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tinygrad_attn.nn import Seq2Seq
from tinygrad_attn.tokens import BOS, UNK


class Size(NamedTuple):
    """A size of the workload."""

    batch: int
    steps: int  # of the source, and of the target
    embedding: int
    hidden: int  # also the inner width of the scores
    vocabulary: int


SIZES = {
    "S": Size(32, 8, 16, 32, 16),
    "M": Size(64, 12, 32, 128, 32),
    "L": Size(128, 20, 64, 256, 48),
}


class TeacherForced(NamedTuple):
    """A batch without padding: random words, and the same reversed."""

    source: np.ndarray
    lengths: np.ndarray
    target_in: np.ndarray
    target_out: np.ndarray


def make_model(size: Size) -> Seq2Seq:
    """Bahdanau's model: a bidirectional GRU, additive scores, a GRU decoder; float32."""
    return Seq2Seq(
        size.vocabulary,
        size.vocabulary,
        size.embedding,
        size.hidden,
        attention_size=size.hidden,
        rng=np.random.default_rng(0),
    )


def make_batch(size: Size) -> TeacherForced:
    """The batch of this size."""
    source = np.random.default_rng(1).integers(UNK + 1, size.vocabulary, (size.batch, size.steps))
    target = source[:, ::-1].copy()
    begin = np.full((size.batch, 1), BOS)
    return TeacherForced(source, np.full(size.batch, size.steps), np.hstack([begin, target[:, :-1]]), target)
