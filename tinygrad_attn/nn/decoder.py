"""The decoder: a recurrent cell that looks at the source before (Bahdanau) or after (Luong) each step.

One step and the unrolled sequence are kept apart: `step` gives the logits of one target position, `unroll`
reads a known target (teacher forcing) and computes all logits in one product at the end.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tinygrad_attn.engine import Tensor, scope
from tinygrad_attn.engine.tensor import expose
from tinygrad_attn.nn import init
from tinygrad_attn.nn.attention import AdditiveAttention, Attended, Attention
from tinygrad_attn.nn.cells import FUSED_CELLS, Cell, State, make_cell, parts_of, state_like
from tinygrad_attn.nn.checks import check_sizes, check_width, numbers
from tinygrad_attn.nn.encoder import Encoding
from tinygrad_attn.nn.layers import Dropout, Linear
from tinygrad_attn.nn.module import Module, scoped
from tinygrad_attn.ops import concatenate, max, reshape, stack, tanh
from tinygrad_attn.ops.unrolled import bahdanau_decoder


class Memory(NamedTuple):
    """The source as the decoder consults it: annotations, their projections by the attention, the mask.

    With several candidates, as in beam search, each sentence is there once and B·N states ask, those of a
    sentence beside each other.
    """

    annotations: Tensor  # (B, T, V)
    projected: Any
    mask: np.ndarray | None  # (B, T)
    candidates: int = 1  # N


class DecoderState(NamedTuple):
    """What is carried from step to step."""

    cell: State  # s (B, H), or a tuple that begins with it, for an LSTM (s, memory)
    attentional: Tensor | None = None  # h̃ (B, H), where it is fed to the next step

    @property
    def s(self) -> Tensor:
        """The decoder state s_i, (B, H)."""
        s: Tensor = parts_of(self.cell)[0]
        return s


class DecoderStep(NamedTuple):
    """One step of the decoder."""

    state: DecoderState
    context: Tensor  # (B, V): c_i
    weights: Tensor  # (B, T): α_i
    scores: Tensor  # (B, T): e_i
    logits: Tensor | None  # (B, vocabulary)

    @property
    def s(self) -> Tensor:
        """The decoder state s_i, (B, H)."""
        return self.state.s


class Unrolled(NamedTuple):
    """A whole target sequence."""

    logits: Tensor  # (B, N, vocabulary)
    steps: list[DecoderStep]  # without logits of their own
    initial: DecoderState


class AttentionDecoder(Module):
    """s_i = f(s_{i-1}, y_{i-1}, c_i), with c_i retrieved from the source anew for each target position.

    With `query="previous"` (Bahdanau et al. 2015) the state before the step asks, and the context enters the
    cell: c_i = attention(s_{i-1}), s_i = cell([E y_{i-1}; c_i], s_{i-1}), logits from [s_i; c_i; E y_{i-1}].

    With `query="current"` (Luong et al. 2015) the state after the step asks: s_i = cell(E y_{i-1}, s_{i-1}),
    c_i = attention(s_i), h̃_i = tanh(W_c [c_i; s_i]), logits from h̃_i; `input_feeding` puts h̃_{i-1} beside
    E y_{i-1}.

    s_0 = tanh(W_s ←h_1 + b), from the encoder's backward state at the first position; what the cell's state
    has besides, such as an LSTM's memory, starts as in its `zero_state`.

    Args:
        embedding_size: width of an embedded target word.
        hidden_size: H, the width of s.
        memory_size: V, the width of an annotation.
        vocabulary_size: how many target words there are.
        attention: a module of the attention family, with queries of width H and values of width V.
        cell: "gru", "lstm" or "rnn".
        query: "previous" or "current".
        encoder_state_size: the width of ←h_1; half of `memory_size` if None.
        input_feeding: with `query="current"` alone.
        output: "linear", or "maxout", the paper's deep output: the pairwise maximum of a layer twice as wide
            as s, then a product (A.2.2 there; s_i stands where its formula prints s_{i-1}). With
            `query="previous"` alone.
        reset_after: which GRU, see `GRUCell`.
        dropout: applied to embedded words and to what the output layer reads.
    """

    def __init__(
        self,
        embedding_size: int,
        hidden_size: int,
        memory_size: int,
        vocabulary_size: int,
        attention: Attention,
        cell: str = "gru",
        query: str = "previous",
        *,
        encoder_state_size: int | None = None,
        input_feeding: bool = False,
        output: str = "linear",
        reset_after: bool = True,
        dropout: float = 0.0,
        dtype: Any = np.float32,
        rng: np.random.Generator | None = None,
    ) -> None:
        rng = init.generator(rng)
        if query not in ("previous", "current"):
            raise ValueError(f"query: '{query}' is not one of previous, current")
        if output not in ("linear", "maxout"):
            raise ValueError(f"output: '{output}' is not one of linear, maxout")
        if input_feeding and query != "current":
            raise ValueError(
                "input_feeding needs query='current': it feeds the attentional state, which that has"
            )
        if output == "maxout" and query != "previous":
            raise ValueError("output='maxout' needs query='previous': it is the output layer of that decoder")
        check_sizes(
            "AttentionDecoder",
            embedding_size=embedding_size,
            hidden_size=hidden_size,
            memory_size=memory_size,
            vocabulary_size=vocabulary_size,
        )
        self.embedding_size = embedding_size
        self.query = query
        self.input_feeding = input_feeding
        state_size = memory_size // 2 if encoder_state_size is None else encoder_state_size
        previous = query == "previous"
        beside = memory_size if previous else hidden_size if input_feeding else 0
        self.initial = Linear(state_size, hidden_size, dtype=dtype, rng=rng)
        self.attention = attention
        self.cell = make_cell(
            cell, embedding_size + beside, hidden_size, reset_after=reset_after, dtype=dtype, rng=rng
        )
        self.combine = (
            None if previous else Linear(memory_size + hidden_size, hidden_size, dtype=dtype, rng=rng)
        )
        read = hidden_size + memory_size + embedding_size
        self.deep = Linear(read, 2 * hidden_size, dtype=dtype, rng=rng) if output == "maxout" else None
        width = read if previous and self.deep is None else hidden_size
        self.output = Linear(width, vocabulary_size, dtype=dtype, rng=rng)
        self.dropout = Dropout(dropout, rng=rng)

    @scoped
    def memory(self, encoding: Encoding) -> Memory:
        """The encoding prepared for the steps: keys projected once."""
        mask = None if encoding.mask is None or encoding.mask.all() else encoding.mask
        return Memory(encoding.annotations, self.attention.project(encoding.annotations), mask)

    @scoped
    def initial_state(self, encoding: Encoding) -> DecoderState:
        """s_0 = tanh(W_s ←h_1 + b)."""
        s = expose(tanh(self.initial(encoding.backward_state)), "s")
        cell: State = s
        if isinstance(self.cell, Cell) and self.cell._has_own(Cell, "zero_state"):
            zeros = self.cell.zero_state(len(s))
            cell = state_like(zeros, (s, *parts_of(zeros)[1:]))
        return DecoderState(cell, Tensor(np.zeros(s.shape, s.dtype)) if self.input_feeding else None)

    @scoped
    def step(
        self, token_embedding: Any, state: DecoderState | State, memory: Memory | Encoding
    ) -> DecoderStep:
        """One target position.

        Args:
            token_embedding: E y_{i-1}, (B, E); (B·N, E) if the memory is for N candidates a sentence, and
                the state and the result have as many rows.
            state: the state before the step, of `initial_state` or a step.
            memory: what `memory(encoding)` returned; an `Encoding` is projected here and now.

        Raises:
            ValueError: if widths or batch sizes do not fit.
        """
        if isinstance(memory, Encoding):
            memory = self.memory(memory)
        token_embedding = self.dropout(
            self._checked(token_embedding, len(memory.annotations) * memory.candidates, 2)
        )
        taken = self._advance(token_embedding, state, memory)
        if self.combine is None:
            read = self._read(taken.s, taken.context, token_embedding)
        else:
            read = self.dropout(_present(taken.state.attentional))
        return taken._replace(logits=expose(self.output(read), "logits"), state=self._carried(taken.state))

    @scoped
    def unroll(self, embedded: Tensor, encoding: Encoding) -> Unrolled:
        """Every position of a known target: `embedded` (B, N, E) holds E y_0 to E y_{N-1}.

        A subclass with a `step` of its own is unrolled by it.

        Raises:
            ValueError: if widths or batch sizes do not fit, or N is 0.
        """
        embedded = self._checked(embedded, len(encoding.annotations), 3)
        memory = self.memory(encoding)
        initial = state = self.initial_state(encoding)
        if self._has_own(AttentionDecoder, "step"):
            return self._stepped(embedded, memory, initial)
        embedded = self.dropout(embedded)
        taken = []
        for i in range(embedded.shape[1]):
            with scope(f"step {i + 1}"):
                step = self._advance(embedded[:, i], state, memory)
            taken.append(step)
            state = self._carried(step.state)
        if self.combine is None:
            states = stack([step.s for step in taken], axis=1)  # (B, N, H)
            contexts = stack([step.context for step in taken], axis=1)  # (B, N, V)
            read = self._read(states, contexts, embedded)
        else:
            attentional = stack([_present(step.state.attentional) for step in taken], axis=1)  # (B, N, H)
            read = self.dropout(attentional)
        logits = self.output(read)
        return Unrolled(expose(logits, "logits"), taken, initial)

    @scoped
    def logits(self, embedded: Tensor, encoding: Encoding) -> Tensor:
        """The logits of `unroll`, (B, N, vocabulary), and nothing else.

        Bahdanau's decoder with additive scores is one fused operation then, an order of magnitude less to
        record; under `ta.explicit()`, and when a graph is drawn in detail, its definition shows every e, α, c
        and s.
        """
        attention, cell = self.attention, self.cell
        # Subclasses may compute something else, so they run as they are written.
        if (
            self.query != "previous"
            or not self._is_plain(AttentionDecoder)
            or not (isinstance(attention, AdditiveAttention) and attention._is_plain(AdditiveAttention))
            or not cell._is_plain(*FUSED_CELLS)
        ):
            return self.unroll(embedded, encoding).logits
        embedded = self._checked(embedded, len(encoding.annotations), 3)
        memory = self.memory(encoding)
        read = bahdanau_decoder(
            self.dropout(embedded),
            self.initial_state(encoding).s,
            memory.annotations,
            memory.projected,
            memory.mask,
            attention.W_a,
            attention.v_a,
            *cell.weights(),
            cell=cell.kind,
        )
        logits: Tensor = expose(self.output(self._deepened(read)), "logits")
        return logits

    def _stepped(self, embedded: Tensor, memory: Memory, initial: DecoderState) -> Unrolled:
        """`unroll` of a decoder that has a `step` of its own."""
        state, taken, logits = initial, [], []
        for i in range(embedded.shape[1]):
            with scope(f"step {i + 1}"):
                step = self.step(embedded[:, i], state, memory)
            if step.logits is None:
                raise ValueError(f"{self._title()}: its step gives no logits")
            state = step.state
            taken.append(step)
            logits.append(step.logits)
        return Unrolled(expose(stack(logits, axis=1), "logits"), taken, initial)

    def _checked(self, embedded: Any, batch: int, ndim: int) -> Any:
        """The embedded words as numbers. Raises ValueError if they do not fit the decoder and the memory."""
        embedded = numbers(embedded, getattr(self.initial, "weight", None))
        shape = "(batch, features)" if ndim == 2 else "(batch, steps, features) with at least one step"
        if embedded.ndim != ndim or not all(embedded.shape[1:]):
            raise ValueError(f"{self._title()}: embedded words have shape {embedded.shape}, expected {shape}")
        check_width(f"{self._title()}: an embedded word", embedded, self.embedding_size)
        if len(embedded) != batch:
            raise ValueError(
                f"{self._title()}: there are {len(embedded)} rows of words, expected {batch} as in the source"
            )
        return embedded

    def _advance(self, word: Tensor, state: DecoderState | State, memory: Memory) -> DecoderStep:
        """The step without its logits; its state holds h̃ where there is one."""
        if not isinstance(state, DecoderState):
            state = DecoderState(state)
        if self.combine is None:
            found = self._attend(state.s, memory)
            cell = self._moved(concatenate([word, found.context], axis=-1), state.cell)
            return DecoderStep(DecoderState(cell), found.context, found.weights, found.scores, None)
        entering = word
        if self.input_feeding:
            entering = concatenate([word, _present(state.attentional)], axis=-1)
        cell = self._moved(entering, state.cell)
        s = parts_of(cell)[0]
        found = self._attend(s, memory)
        attentional = expose(tanh(self.combine(concatenate([found.context, s], axis=-1))), "h̃")
        return DecoderStep(DecoderState(cell, attentional), found.context, found.weights, found.scores, None)

    def _moved(self, entering: Tensor, cell: State) -> State:
        moved = self.cell(entering, cell)
        expose(parts_of(moved)[0], "s")
        return moved

    def _attend(self, query: Tensor, memory: Memory) -> Attended:
        batch, several = len(memory.annotations), memory.candidates > 1
        if several:
            query = reshape(query, (batch, memory.candidates, query.shape[1]))
        found: Attended = self.attention(
            query, memory.annotations, mask=memory.mask, projected=memory.projected
        )
        if several:
            rows = batch * memory.candidates
            return Attended(*(reshape(part, (rows, part.shape[2])) for part in found))
        return found

    def _carried(self, state: DecoderState) -> DecoderState:
        return state if self.input_feeding else DecoderState(state.cell)

    def _read(self, s: Tensor, context: Tensor, word: Tensor) -> Tensor:
        """What the output layer reads, of Bahdanau's decoder."""
        return self._deepened(concatenate([s, context, word], axis=-1))

    def _deepened(self, read: Tensor) -> Tensor:
        """[s; c; E y] through dropout and, with the maxout output, through its layer."""
        read = self.dropout(read)
        if self.deep is None:
            return read
        deep = self.deep(read)
        pairs = reshape(deep, (*deep.shape[:-1], deep.shape[-1] // 2, 2))
        return max(pairs, axis=-1)


def _present(tensor: Tensor | None) -> Tensor:
    if tensor is None:
        raise ValueError(
            "AttentionDecoder: the state lacks the attentional state; begin with initial_state()"
        )
    return tensor
