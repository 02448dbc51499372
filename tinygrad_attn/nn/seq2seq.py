"""`Seq2Seq`: words in, words out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from tinygrad_attn.engine import Tensor
from tinygrad_attn.nn import init
from tinygrad_attn.nn.attention import make_attention
from tinygrad_attn.nn.checks import check_ids, check_sizes
from tinygrad_attn.nn.decoder import AttentionDecoder, DecoderState, DecoderStep
from tinygrad_attn.nn.encoder import BidirectionalEncoder, Encoding
from tinygrad_attn.nn.layers import Dropout, Embedding
from tinygrad_attn.nn.module import Module
from tinygrad_attn.nn.search import Decoded, beam_search, greedy
from tinygrad_attn.nn.sharing import shared_loss
from tinygrad_attn.ops import cross_entropy, stack
from tinygrad_attn.tokens import EOS, PAD


class BatchLike(Protocol):
    """What `loss` needs of a batch; `tinygrad_attn.data.Batch` has it."""

    @property
    def source(self) -> np.ndarray:
        """(B, T) word ids, PAD beyond each length."""

    @property
    def lengths(self) -> np.ndarray:
        """(B,) source lengths."""

    @property
    def target_in(self) -> np.ndarray:
        """(B, N) BOS and the target."""

    @property
    def target_out(self) -> np.ndarray:
        """(B, N) the target and EOS, PAD where nothing counts."""


class Seq2SeqOutput(NamedTuple):
    """A teacher-forced pass. Every tensor named here keeps its gradient after `backward()`.

    Those of all steps together are put together anew each time they are asked for, with the steps' gradients;
    the loss does not come from them, so `ta.grad` needs the steps' own: `[step.weights for step in steps]`.
    """

    logits: Tensor  # (B, N, target_size)
    encoding: Encoding
    steps: list[DecoderStep]  # e, α, c, s of each target position
    initial: DecoderState

    @property
    def annotations(self) -> Tensor:
        """h, (B, T, 2H)."""
        return self.encoding.annotations

    @property
    def weights(self) -> Tensor:
        """α of all steps, (B, N, T)."""
        return _together([step.weights for step in self.steps])

    @property
    def scores(self) -> Tensor:
        """e of all steps, (B, N, T)."""
        return _together([step.scores for step in self.steps])

    @property
    def contexts(self) -> Tensor:
        """c of all steps, (B, N, 2H)."""
        return _together([step.context for step in self.steps])

    @property
    def states(self) -> Tensor:
        """s_1 to s_N, (B, N, H)."""
        return _together([step.s for step in self.steps])


def _together(parts: Sequence[Tensor]) -> Tensor:
    """The tensors beside each other along axis 1, with gradients if any has come (zeros for the rest)."""
    joined = stack(parts, axis=1)
    if any(part.grad is not None for part in parts):
        joined.grad = np.stack(
            [np.zeros_like(part.data) if part.grad is None else part.grad for part in parts], axis=1
        )
    return joined


class Seq2Seq(Module):
    """Embeddings, a bidirectional encoder, a decoder with attention. Bahdanau et al., Luong et al. 2015.

    Args:
        source_size: how many source words there are, special tokens included.
        target_size: how many target words.
        embedding_size: E, the width of both embeddings.
        hidden_size: H, the width of the decoder's state, and of each direction of the encoder unless
            `encoder_hidden_size` says otherwise.
        attention: "additive", "dot", "scaled", "general", "concat" or "none".
        cell: "gru", "lstm" or "rnn", in the encoder and the decoder.
        query: "previous" (Bahdanau) or "current" (Luong).
        attention_size: A, the inner width of additive and concat scores; H if None.
        encoder_hidden_size: dot products need it to be H / 2.
        input_feeding, output, reset_after, dropout: see `AttentionDecoder`.
        dtype: of the parameters.
        rng: what initial values and dropout are drawn from.
    """

    def __init__(
        self,
        source_size: int,
        target_size: int,
        embedding_size: int = 32,
        hidden_size: int = 64,
        attention: str = "additive",
        cell: str = "gru",
        query: str = "previous",
        *,
        attention_size: int | None = None,
        encoder_hidden_size: int | None = None,
        input_feeding: bool = False,
        output: str = "linear",
        reset_after: bool = True,
        dropout: float = 0.0,
        dtype: Any = np.float32,
        rng: np.random.Generator | None = None,
    ) -> None:
        rng = init.generator(rng)
        check_sizes(
            "Seq2Seq",
            source_size=source_size,
            target_size=target_size,
            embedding_size=embedding_size,
            hidden_size=hidden_size,
        )
        if target_size <= EOS:
            raise ValueError(
                f"Seq2Seq: target_size is {target_size}, expected at least {EOS + 1}, for PAD, BOS and EOS"
            )
        each = hidden_size if encoder_hidden_size is None else encoder_hidden_size
        options: dict[str, Any] = {"dtype": dtype, "rng": rng}
        self.source_embedding = Embedding(source_size, embedding_size, PAD, **options)
        self.target_embedding = Embedding(target_size, embedding_size, PAD, **options)
        self.encoder = BidirectionalEncoder(embedding_size, each, cell, reset_after=reset_after, **options)
        inner = hidden_size if attention_size is None else attention_size
        self.decoder = AttentionDecoder(
            embedding_size,
            hidden_size,
            2 * each,
            target_size,
            make_attention(attention, hidden_size, 2 * each, inner, **options),
            cell,
            query,
            input_feeding=input_feeding,
            output=output,
            reset_after=reset_after,
            dropout=dropout,
            **options,
        )
        self.dropout = Dropout(dropout, rng=rng)

    def encode(self, source: Any, lengths: Any = None) -> Encoding:
        """The source (B, T) read by the encoder; lengths (B,), or None to count what is not PAD."""
        source = check_ids(self._title(), "source", source)
        if lengths is None:
            lengths = np.count_nonzero(source != PAD, axis=1)
        encoding: Encoding = self.encoder(self.dropout(self.source_embedding(source)), lengths)
        return encoding

    def forward(self, source: Any, lengths: Any, target_in: Any) -> Seq2SeqOutput:
        """Teacher forcing: the logits of every target position, given the target before it.

        Args:
            source: (B, T) word ids, PAD beyond each length.
            lengths: (B,), or None to count what is not PAD.
            target_in: (B, N), BOS and the target.

        Raises:
            ValueError, TypeError, IndexError: if shapes do not fit, or an id is outside its vocabulary.
        """
        encoding = self.encode(source, lengths)
        logits, steps, initial = self.decoder.unroll(self._embedded_target(target_in), encoding)
        return Seq2SeqOutput(logits, encoding, steps, initial)

    def loss(self, batch: BatchLike) -> Tensor:
        """The mean cross-entropy, in nats, over the target tokens of the batch that are not PAD.

        It takes the quickest way there; for gradients on α, e, s and h, call the model and `cross_entropy`.
        Within `train.workers`, processes share a large batch. A subclass with a `forward` of its own has its
        logits from there.

        Raises:
            TypeError: for something else than a batch.
            ValueError, IndexError: as `forward`, and if no target counts.
        """
        if not hasattr(batch, "target_out"):
            raise TypeError(
                f"{self._title()}: loss takes a batch with source, lengths, target_in and target_out, as "
                f"ta.data.make_batch makes them, got a {type(batch).__name__}"
            )
        shared = shared_loss(self, batch)
        if shared is not None:
            shared.name = "loss"
            return shared
        if self._has_own(Seq2Seq, "forward"):
            logits = self(batch.source, batch.lengths, batch.target_in).logits
        else:
            encoding = self.encode(batch.source, batch.lengths)
            logits = self.decoder.logits(self._embedded_target(batch.target_in), encoding)
        loss = cross_entropy(logits, batch.target_out, ignore_index=PAD)
        loss.name = "loss"
        return loss

    def _embedded_target(self, target_in: Any) -> Tensor:
        embedded: Tensor = self.target_embedding(check_ids(self._title(), "target_in", target_in))
        return embedded

    def greedy(self, source: Any, lengths: Any = None, max_length: int = 100) -> Decoded:
        """The likeliest word at each step, fed back, until EOS or `max_length` words; see `search.greedy`."""
        return greedy(self, source, lengths, max_length)

    def beam_search(
        self,
        source: Any,
        lengths: Any = None,
        max_length: int = 100,
        beam_size: int = 5,
        length_penalty: float = 0.0,
    ) -> Decoded:
        """The likeliest sequence found with `beam_size` candidates at a time; see `search.beam_search`."""
        return beam_search(self, source, lengths, max_length, beam_size, length_penalty)
