"""Decoding without a target: greedy, and beam search. Sentences of a batch do not influence each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tinygrad_attn.engine import Tensor, no_grad
from tinygrad_attn.engine.tensor import value_of
from tinygrad_attn.nn.cells import State
from tinygrad_attn.nn.checks import check_sizes
from tinygrad_attn.nn.decoder import DecoderState, Memory
from tinygrad_attn.nn.sharing import shared_search
from tinygrad_attn.tokens import BOS, EOS, PAD

if TYPE_CHECKING:
    from tinygrad_attn.nn.seq2seq import Seq2Seq


LEAST_SENTENCES = 64
"""Fewer than these are not worth a worker's while."""


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

    PAD and BOS are never chosen. A sentence that has ended leaves the batch.
    """
    check_sizes("greedy", max_length=max_length)
    return _shared(model, source, lengths, "greedy", [int(max_length)], _greedy)


def _greedy(model: Seq2Seq, source: Any, lengths: Any, max_length: int) -> Decoded:
    with no_grad():
        encoding = model.encode(source, lengths)
        memory, state = model.decoder.memory(encoding), model.decoder.initial_state(encoding)
        batch, length = encoding.annotations.shape[:2]
        tokens = np.full((batch, max_length), PAD, np.int64)
        weights = np.zeros((batch, max_length, length), encoding.annotations.dtype)
        total = np.zeros(batch)
        open_rows = np.arange(batch)
        word = np.full(batch, BOS)
        for i in range(max_length):
            step = model.decoder.step(model.target_embedding(word), state, memory)
            scores = _log_probabilities(step.logits)
            word = scores.argmax(axis=1)
            tokens[open_rows, i] = word
            weights[open_rows, i] = step.weights.data
            total[open_rows] += scores[np.arange(len(word)), word]
            going = word != EOS
            if not going.any():
                break
            state = step.state
            if not going.all():
                kept = np.flatnonzero(going)
                open_rows, word = open_rows[kept], word[kept]
                memory, state = _rows_of_memory(memory, kept), _rows_of_state(state, kept)
    return _trimmed(tokens, weights, total)


def beam_search(
    model: Seq2Seq, source: Any, lengths: Any, max_length: int, beam_size: int, length_penalty: float
) -> Decoded:
    """The sequence of highest log-probability / length^length_penalty found with `beam_size` candidates.

    A candidate that ends with EOS is set aside; a sentence is done when no open candidate can overtake its
    best one (without a length penalty), or when `beam_size` have ended. With `beam_size` 1 the result is the
    greedy one.
    """
    check_sizes("beam_search", max_length=max_length, beam_size=beam_size)
    if not np.isfinite(length_penalty):
        raise ValueError(f"beam_search: length_penalty is {length_penalty}, expected a finite number")
    settings = [int(max_length), int(beam_size), float(length_penalty)]
    return _shared(model, source, lengths, "beam_search", settings, _beam_search)


def _beam_search(
    model: Seq2Seq, source: Any, lengths: Any, max_length: int, beam_size: int, length_penalty: float
) -> Decoded:
    with no_grad():
        encoding = model.encode(source, lengths)
        batch, length = encoding.annotations.shape[:2]
        rows = np.repeat(np.arange(batch), beam_size)
        memory = _rows_of_memory(model.decoder.memory(encoding), rows)
        state = _rows_of_state(model.decoder.initial_state(encoding), rows)
        tokens = np.full((batch, beam_size, max_length), PAD, np.int64)
        weights = np.zeros((batch, beam_size, max_length, length), encoding.annotations.dtype)
        score = np.full((batch, beam_size), -np.inf)
        score[:, 0] = 0  # all candidates start equal, so one of them stands for all
        best = _Best(batch, max_length, length, weights.dtype, length_penalty)
        sentences = np.arange(batch)  # those not yet done
        word = np.full(batch * beam_size, BOS)
        for i in range(max_length):
            step = model.decoder.step(model.target_embedding(word), state, memory)
            each = _log_probabilities(step.logits)  # (sentences · beam_size, vocabulary)
            vocabulary = each.shape[1]
            scores = each.reshape(len(sentences), beam_size, vocabulary) + score[:, :, None]
            order = np.argsort(
                -scores.reshape(len(sentences), beam_size * vocabulary), axis=1, kind="stable"
            )[:, : 2 * beam_size]
            parent, chosen = order // vocabulary, order % vocabulary
            value = np.take_along_axis(scores.reshape(len(sentences), beam_size * vocabulary), order, axis=1)
            at = np.arange(len(sentences))[:, None]
            attended = step.weights.data.reshape(len(sentences), beam_size, length)
            ended = (chosen == EOS) & (np.arange(order.shape[1]) < beam_size)
            for row, rank in zip(*np.nonzero(ended & np.isfinite(value)), strict=True):
                beam = parent[row, rank]
                best.offer(
                    sentences[row],
                    value[row, rank],
                    np.append(tokens[row, beam, :i], EOS),
                    np.concatenate([weights[row, beam, :i], attended[row, beam, None]]),
                )
            # The beam_size best candidates that go on, in order.
            rank = np.argsort(chosen == EOS, axis=1, kind="stable")[:, :beam_size]
            parent, chosen, value = (np.take_along_axis(a, rank, axis=1) for a in (parent, chosen, value))
            value = np.where(chosen == EOS, -np.inf, value)
            tokens, weights = tokens[at, parent], weights[at, parent]
            tokens[:, :, i] = chosen
            weights[:, :, i] = attended[at, parent]
            score = value
            going = best.may_improve(sentences, score[:, 0], beam_size)
            if i + 1 == max_length or not going.any():
                if i + 1 == max_length:
                    for row in np.flatnonzero(going):
                        best.offer(sentences[row], score[row, 0], tokens[row, 0], weights[row, 0])
                break
            kept = np.flatnonzero(going)
            rows = (kept[:, None] * beam_size + parent[kept]).reshape(-1)
            state = _rows_of_state(step.state, rows)
            if len(kept) < len(sentences):  # the candidates of a sentence share its memory
                memory = _rows_of_memory(memory, rows)
            tokens, weights, score, sentences = tokens[kept], weights[kept], score[kept], sentences[kept]
            word = chosen[kept].reshape(-1)
    return _trimmed(best.tokens, best.weights, best.total)


class _Best:
    """The best ended candidate of each sentence."""

    def __init__(self, batch: int, max_length: int, length: int, dtype: Any, penalty: float) -> None:
        self.tokens = np.full((batch, max_length), PAD, np.int64)
        self.weights = np.zeros((batch, max_length, length), dtype)
        self.total = np.full(batch, -np.inf)
        self._value = np.full(batch, -np.inf)
        self._ended = np.zeros(batch, int)
        self._penalty = penalty

    def offer(self, sentence: int, log_probability: float, tokens: np.ndarray, weights: np.ndarray) -> None:
        """A candidate has ended."""
        self._ended[sentence] += 1
        value = log_probability / len(tokens) ** self._penalty
        if value > self._value[sentence]:
            self._value[sentence] = value
            self.total[sentence] = log_probability
            self.tokens[sentence] = PAD
            self.tokens[sentence, : len(tokens)] = tokens
            self.weights[sentence] = 0
            self.weights[sentence, : len(tokens)] = weights

    def may_improve(self, sentences: np.ndarray, best_open: np.ndarray, beam_size: int) -> Any:
        """Whether an open candidate of each sentence could still win, with the best that is open.

        Without a penalty that is sure, as probabilities only fall.
        """
        improves = (
            best_open > self.total[sentences] if self._penalty == 0 else self._ended[sentences] < beam_size
        )
        return improves & np.isfinite(best_open)


def _shared(
    model: Seq2Seq,
    source: Any,
    lengths: Any,
    search: str,
    settings: Sequence[Any],
    decode: Callable[..., Decoded],
) -> Decoded:
    """`decode` in evaluation mode; where there are workers, each takes a part of the sentences."""
    source = np.asarray(value_of(source))
    lengths = None if lengths is None else np.asarray(value_of(lengths))

    def part(source: Any, lengths: Any) -> Decoded:
        return decode(model, source, lengths, *settings)

    with _evaluating(model):
        found = shared_search(model, search, source, lengths, settings, part, LEAST_SENTENCES)
        return part(source, lengths) if found is None else _joined([Decoded(*arrays) for arrays in found])


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


class _evaluating:  # noqa: N801 - a context manager, named as its use reads
    """The model in evaluation mode within, as it was afterwards."""

    def __init__(self, model: Seq2Seq) -> None:
        self._found = [(module, module.training) for module in model.modules()]

    def __enter__(self) -> None:
        for module, _ in self._found:
            module.training = False

    def __exit__(self, *exception: object) -> None:
        for module, training in self._found:
            module.training = training


def _log_probabilities(logits: Tensor | None) -> np.ndarray:
    """log softmax in float64, with PAD and BOS impossible."""
    assert logits is not None
    x = logits.data.astype(np.float64)
    if np.isnan(x).any() or np.isposinf(x).any():
        raise FloatingPointError(
            "the decoder's logits hold NaN or infinity, so no word is the likeliest; look at the weights"
        )
    x[:, [PAD, BOS]] = -np.inf
    x -= x.max(axis=1, keepdims=True)
    x -= np.log(np.exp(x).sum(axis=1, keepdims=True))
    return x


def _rows_of_memory(memory: Memory, rows: np.ndarray) -> Memory:
    projected = memory.projected
    return Memory(
        _rows(memory.annotations, rows),
        _rows(projected, rows) if projected is not memory.annotations else _rows(memory.annotations, rows),
        None if memory.mask is None else memory.mask[rows],
    )


def _rows_of_state(state: DecoderState, rows: np.ndarray) -> DecoderState:
    cell: State = (
        tuple(_rows(part, rows) for part in state.cell)
        if isinstance(state.cell, tuple)
        else _rows(state.cell, rows)
    )
    return DecoderState(cell, None if state.attentional is None else _rows(state.attentional, rows))


def _rows(tensor: Tensor, rows: np.ndarray) -> Tensor:
    return tensor[rows]


def _trimmed(tokens: np.ndarray, weights: np.ndarray, total: np.ndarray) -> Decoded:
    lengths = np.count_nonzero(tokens != PAD, axis=1)
    longest = int(lengths.max(initial=0))
    return Decoded(tokens[:, :longest], lengths, total, weights[:, :longest])
