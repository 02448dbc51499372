"""The decoder a step at a time, as a search needs it: for words, the logits of the next.

Any decoder is asked by its own `step`. For Bahdanau's with additive scores the same is computed on plain
arrays, with what does not change from step to step prepared once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tinygrad_attn.engine.modes import thread
from tinygrad_attn.engine.primitive import suits_kernel
from tinygrad_attn.nn.attention import (
    AdditiveAttention,
    ConcatAttention,
    DotAttention,
    FixedContext,
    GeneralAttention,
    ScaledDotAttention,
)
from tinygrad_attn.nn.beam import Going
from tinygrad_attn.nn.cells import Cell, parts_of, state_like
from tinygrad_attn.nn.copies import describe
from tinygrad_attn.nn.decoder import AttentionDecoder, DecoderState, Memory
from tinygrad_attn.ops import softmax
from tinygrad_attn.ops.attention import additive_scores, key_exponentials, weighted_sum
from tinygrad_attn.ops.buffers import Buffers, by_gate, input_weight
from tinygrad_attn.ops.steps import STEPS

if TYPE_CHECKING:
    from tinygrad_attn.nn.seq2seq import Seq2Seq

_FAMILY = (
    AdditiveAttention,
    ConcatAttention,
    DotAttention,
    ScaledDotAttention,
    GeneralAttention,
    FixedContext,
)


class Steps(Protocol):
    """The states of a search's candidates, those of a sentence beside each other."""

    def take(self, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A step from the last words, (rows,): logits (rows, vocabulary) and weights α (rows, T)."""

    def follow(self, going: Going) -> None:
        """Leaves the states from which the search goes on."""


def stepping(model: Seq2Seq) -> Callable[[Memory, DecoderState], Steps]:
    """What makes the steps of a search with this model, quickly where it is known what they compute."""
    decoder, embedding = model.decoder, model.target_embedding
    parts = (decoder, embedding)
    parameters = [parameter for part in parts for parameter in part.parameters()]
    known = (
        type(decoder) is AttentionDecoder
        and type(decoder.attention) is AdditiveAttention
        and decoder.query == "previous"
        and decoder.deep is None
        and isinstance(decoder.cell, Cell)
        and not thread.mode.explicit
        and thread.mode.watcher is None
        and suits_kernel([parameter.data for parameter in parameters])
        and all(describe(part, parameters) is not None for part in parts)
        and _fits(decoder, embedding)
    )
    if known:
        return lambda memory, state: PlainSteps(decoder, embedding.weight.data, memory, state)
    return lambda memory, state: ModuleSteps(model, memory, state)


def _fits(decoder: Any, embedding: Any) -> bool:
    """Whether the parts fit each other; where they do not, the decoder's own step says so."""
    words, inner = embedding.weight.shape
    (a, size), cell = decoder.attention.W_a.shape, decoder.cell
    width = cell.input_size - inner
    return bool(
        decoder.embedding_size == inner
        and cell.hidden_size == size == len(decoder.initial.weight)
        and decoder.attention.U_a.shape == (a, width)
        and decoder.attention.v_a.shape == (a,)
        and decoder.output.weight.shape[1] == size + width + inner
        and len(decoder.output.weight) <= words
    )


class ModuleSteps:
    """The decoder's own steps."""

    def __init__(self, model: Seq2Seq, memory: Memory, state: DecoderState) -> None:
        self._model, self._memory, self._state = model, memory, state
        self._asked = memory  # as so many candidates a sentence ask it

    def take(self, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As Steps.take."""
        step = self._model.decoder.step(self._model.target_embedding(words), self._state, self._asked)
        assert step.logits is not None
        self._state = step.state
        return step.logits.data, step.weights.data

    def follow(self, going: Going) -> None:
        """As Steps.follow."""
        first = self._asked is self._memory
        if going.kept is not None:
            self._memory = rows_of_memory(self._memory, going.kept)
        if going.kept is not None or first:
            self._asked = self._asked_by(len(going.words) // len(self._memory.annotations))
        self._state = rows_of_state(self._state, going.rows)

    def _asked_by(self, candidates: int) -> Memory:
        """The memory as so many states of each sentence consult it.

        Subclasses may compute something else, so they are given a row for each state.
        """
        decoder: Any = self._model.decoder
        if type(decoder) is AttentionDecoder and type(decoder.attention) in _FAMILY:
            return self._memory._replace(candidates=candidates)
        rows = np.repeat(np.arange(len(self._memory.annotations)), candidates)
        return rows_of_memory(self._memory, rows)


class PlainSteps:
    """The steps of Bahdanau's decoder with additive scores and a linear output.

    `AttentionDecoder.step` defines what they compute. Each candidate has a row [s ; 1 ; c ; E y], of which
    the cell reads all but s, and the output layer the whole.
    """

    def __init__(
        self, decoder: AttentionDecoder, table: np.ndarray, memory: Memory, state: DecoderState
    ) -> None:
        attention: Any = decoder.attention
        w_ih, w_hh, b_ih, self._b_hh = (weight.data for weight in decoder.cell.weights())
        self._step = STEPS[decoder.cell.kind]
        self._size, self._inner, self._width = w_hh.shape[1], table.shape[1], w_ih.shape[1] - table.shape[1]
        self._table, self._w_a, self._v_a = table, attention.W_a.data, attention.v_a.data
        entering = np.concatenate([w_ih[:, self._inner :], w_ih[:, : self._inner]], axis=1)
        enters = input_weight(self._step, entering, b_ih, self._b_hh)
        self._enters = by_gate(enters, self._size)  # (G, 1 + V + E, H)
        self._recurs = by_gate(w_hh, self._size)
        output = decoder.output
        bias = 0 if output.bias is None else output.bias.data
        self._leaves = np.insert(output.weight.data.T, self._size, bias, axis=0)
        self._annotations, self._keys = memory.annotations.data, memory.projected.data
        self._mask = memory.mask
        self._exponentials = key_exponentials(self._keys)
        cell = state.cell if isinstance(state.cell, tuple) else (state.cell,)
        self._make_room(len(self._annotations))
        self._buffers.start(*(part.data for part in cell))

    def _make_room(self, rows: int) -> None:
        dtype = self._enters.dtype
        self._buffers = Buffers(self._step, 1, rows, self._size, dtype, self._recurs, rows=True)
        self._buffers.set_bias(self._b_hh)
        used = self._size + self._width + self._inner + 1
        # Products of a part of the columns are quicker where rows begin at the bounds of cache lines.
        self._rows = np.empty((rows, used + -used % 16), dtype)[:, :used]
        self._rows[:, self._size] = 1

    def take(self, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As Steps.take."""
        (before, after), size, rows = self._buffers.state, self._size, self._rows
        word = 1 + size + self._width  # the column where E y begins
        query, mask, batch = before[0], self._mask, len(self._annotations)
        if len(words) > batch:
            query = query.reshape(batch, len(words) // batch, size)
            mask = None if mask is None else mask[:, None]
        scores = additive_scores(query, self._w_a, self._keys, self._v_a, self._exponentials)
        weights = softmax(scores, mask=mask)
        context = np.asarray(weighted_sum(weights, self._annotations))
        rows[:, 1 + size : word] = context.reshape(len(words), self._width)
        rows[:, word:] = self._table[words]
        np.matmul(rows[:, size:], self._enters, self._buffers.shares[0])
        self._buffers.step_on(0)
        rows[:, :size] = after[0]
        return np.matmul(rows, self._leaves), np.asarray(weights).reshape(len(words), self._keys.shape[1])

    def follow(self, going: Going) -> None:
        """As Steps.follow."""
        _, after = self._buffers.state
        if going.kept is not None:
            self._annotations, self._keys = self._annotations[going.kept], self._keys[going.kept]
            self._exponentials = self._exponentials[:, going.kept]
            self._mask = None if self._mask is None else self._mask[going.kept]
        if len(going.rows) != len(self._rows):
            self._make_room(len(going.rows))
        for part, taken in zip(self._buffers.state[0], after, strict=True):
            np.take(taken, going.rows, axis=0, out=part, mode="clip")


def rows_of_memory(memory: Memory, rows: np.ndarray | slice) -> Memory:
    """The memory of some of the sentences."""
    return Memory(
        memory.annotations[rows],
        memory.projected[rows],
        None if memory.mask is None else memory.mask[rows],
        memory.candidates,
    )


def rows_of_state(state: DecoderState, rows: np.ndarray | slice) -> DecoderState:
    """The states of some of the candidates."""
    cell = state_like(state.cell, (part[rows] for part in parts_of(state.cell)))
    return DecoderState(cell, None if state.attentional is None else state.attentional[rows])
