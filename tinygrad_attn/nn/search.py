"""Decoding without a target: greedy, and beam search. Sentences of a batch do not influence each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tinygrad_attn.engine import no_grad
from tinygrad_attn.engine.tensor import value_of
from tinygrad_attn.errors import check_number
from tinygrad_attn.nn.beam import Beams
from tinygrad_attn.nn.checks import check_ids, check_sizes
from tinygrad_attn.nn.module import evaluating
from tinygrad_attn.nn.sharing import shared_search
from tinygrad_attn.nn.stepping import Steps, rows_of_memory, rows_of_state, stepping
from tinygrad_attn.tokens import BOS, EOS, PAD

if TYPE_CHECKING:
    from tinygrad_attn.nn.seq2seq import Seq2Seq

LEAST_SENTENCES = 64
"""Fewer than these are not worth a worker's while."""

MOST_LOG_WORTH = 600.0
"""How large the logarithm of length^length_penalty may be, so that log-probabilities can be divided by it."""

ROWS_AT_A_TIME = 1000
"""How many candidates are decoded at a time: enough for matrix products, few enough for the cache."""


class Decoded(NamedTuple):
    """One decoded sequence for each sentence of the batch. PAD and BOS have probability zero."""

    tokens: np.ndarray  # (B, L): ids up to and with EOS (or cut at max_length), PAD after
    lengths: np.ndarray  # (B,): how many of them, EOS included
    log_probabilities: np.ndarray  # (B,): of the whole sequence, in nats
    weights: np.ndarray  # (B, L, T): α of each step, zero after the end

    def sequences(self) -> list[np.ndarray]:
        """The ids of each sentence, without EOS and PAD."""
        return [row[row_ids(row)] for row in self.tokens]


def row_ids(row: np.ndarray) -> slice:
    """The part of a row before EOS or PAD."""
    ends = np.flatnonzero((row == EOS) | (row == PAD))
    return slice(0, int(ends[0]) if len(ends) else len(row))


def greedy(model: Seq2Seq, source: Any, lengths: Any, max_length: int) -> Decoded:
    """The likeliest word at each step, fed back, until every sentence has ended or has `max_length` words.

    PAD and BOS are never chosen. Sentences that have ended leave the batch.
    """
    check_sizes("greedy", max_length=max_length)
    return _shared(model, source, lengths, "greedy", [int(max_length)], _greedy)


def _greedy(model: Seq2Seq, source: Any, lengths: Any, max_length: int) -> Decoded:
    """A beam of one: its candidate takes the likeliest word, and the search ends where that is EOS."""
    return _beam_search(model, source, lengths, max_length, beam_size=1, length_penalty=0.0)


def beam_search(
    model: Seq2Seq, source: Any, lengths: Any, max_length: int, beam_size: int, length_penalty: float
) -> Decoded:
    """The sequence of highest log-probability / length^length_penalty found with `beam_size` candidates.

    A candidate that ends with EOS is set aside; a sentence is done when no open candidate can overtake its
    best one (without a length penalty), or when `beam_size` have ended. With `beam_size` 1 the result is the
    greedy one.
    """
    check_sizes("beam_search", max_length=max_length, beam_size=beam_size)
    check_number("beam_search: length_penalty", length_penalty)
    if not np.isfinite(length_penalty):
        raise ValueError(f"beam_search: length_penalty is {length_penalty}, expected a finite number")
    if abs(length_penalty) * math.log(max_length) > MOST_LOG_WORTH:
        raise ValueError(
            f"beam_search: length_penalty is {length_penalty}, so large that {max_length} (max_length) to "
            "its power is beyond floating numbers"
        )
    settings = [int(max_length), int(beam_size), float(length_penalty)]
    return _shared(model, source, lengths, "beam_search", settings, _beam_search)


def _beam_search(
    model: Seq2Seq, source: Any, lengths: Any, max_length: int, beam_size: int, length_penalty: float
) -> Decoded:
    # Weights that are not finite show in the logits; numpy need not warn on the way there.
    with no_grad(), np.errstate(over="ignore", invalid="ignore"):
        encoding = model.encode(source, lengths)
        memory, state = model.decoder.memory(encoding), model.decoder.initial_state(encoding)
        (batch, length), size = memory.annotations.shape[:2], max(1, ROWS_AT_A_TIME // beam_size)
        steps_of, parts = stepping(model), []
        for first in range(0, max(1, batch), size):
            part, count = slice(first, first + size), min(size, batch - first)
            steps = steps_of(rows_of_memory(memory, part), rows_of_state(state, part))
            beams = Beams(count, beam_size, max_length, length_penalty)
            parts.append(_searched(steps, beams, count, length))
    return _joined(parts)


def _searched(steps: Steps, beams: Beams, batch: int, length: int) -> Decoded:
    """The result for `batch` sentences of a memory of `length` positions."""
    words = np.full(batch, BOS)
    while (going := beams.advance(*steps.take(words))) is not None:
        steps.follow(going)
        words = going.words
    tokens, weights = beams.traced(length)
    lengths = np.count_nonzero(tokens != PAD, axis=1)
    return Decoded(tokens, lengths, beams.total, weights)


def _shared(
    model: Seq2Seq,
    source: Any,
    lengths: Any,
    search: str,
    settings: Sequence[Any],
    decode: Callable[..., Decoded],
) -> Decoded:
    """`decode` in evaluation mode; where there are workers, each takes a part of the sentences."""
    source = check_ids(model._title(), "source", source)
    lengths = None if lengths is None else np.asarray(value_of(lengths))
    with evaluating(model):
        found = shared_search(model, search, source, lengths, settings, LEAST_SENTENCES)
        if found is None:
            return decode(model, source, lengths, *settings)
        return _joined([Decoded(*arrays) for arrays in found])


def _joined(parts: Sequence[Decoded]) -> Decoded:
    """The parts one below the other, filled up to the longest."""
    longest = max(part.tokens.shape[1] for part in parts)
    tokens = [
        np.pad(part.tokens, ((0, 0), (0, longest - part.tokens.shape[1])), constant_values=PAD)
        for part in parts
    ]
    weights = [np.pad(part.weights, ((0, 0), (0, longest - part.weights.shape[1]), (0, 0))) for part in parts]
    return Decoded(
        np.concatenate(tokens),
        np.concatenate([part.lengths for part in parts]),
        np.concatenate([part.log_probabilities for part in parts]),
        np.concatenate(weights),
    )
