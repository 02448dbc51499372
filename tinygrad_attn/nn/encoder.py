"""The bidirectional encoder over padded batches."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tinygrad_attn.engine import Tensor
from tinygrad_attn.engine.tensor import expose
from tinygrad_attn.nn import init
from tinygrad_attn.nn.cells import make_cell
from tinygrad_attn.nn.checks import check_lengths, check_width, numbers
from tinygrad_attn.nn.module import Module
from tinygrad_attn.ops import getitem
from tinygrad_attn.ops.sequence import bidirectional


class Encoding(NamedTuple):
    """What the encoder read."""

    annotations: Tensor  # (B, T, 2H): h_j = [forward; backward], zero beyond each length
    forward_state: Tensor  # (B, H): the forward state at each sequence's last position
    backward_state: Tensor  # (B, H): the backward state at the first position
    mask: np.ndarray | None  # (B, T): True at the positions within each length; None for all


class BidirectionalEncoder(Module):
    """Reads a sequence from both ends; h_j = [→h_j ; ←h_j]. Bahdanau et al. 2015, 3.2.

    Both directions start from zero, the backward one at each sequence's own end; states are held beyond it.

    Args:
        input_size: width of the embedded words.
        hidden_size: H, the width of each direction's state.
        cell: "gru", "lstm" or "rnn".
        reset_after: which GRU, see `GRUCell`.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        cell: str = "gru",
        *,
        reset_after: bool = True,
        dtype: Any = np.float32,
        rng: np.random.Generator | None = None,
    ) -> None:
        rng = init.generator(rng)
        self.forward_cell = make_cell(
            cell, input_size, hidden_size, reset_after=reset_after, dtype=dtype, rng=rng
        )
        self.backward_cell = make_cell(
            cell, input_size, hidden_size, reset_after=reset_after, dtype=dtype, rng=rng
        )

    def forward(self, x: Any, lengths: Any = None) -> Encoding:
        """x (B, T, input), lengths (B,) from 1 to T, or None where nothing is padded.

        Raises:
            ValueError: if the shapes do not fit, T is 0, or a length is not from 1 to T.
        """
        title, size = self._title(), self.forward_cell.weight_ih.shape[1]
        x = numbers(x, self.forward_cell.weight_ih)
        if x.ndim != 3 or not x.shape[1]:
            raise ValueError(
                f"{title}: input has shape {x.shape}, expected (batch, steps, {size}) with at least one step"
            )
        check_width(f"{title}: input", x, size)
        batch, steps, _ = x.shape
        lengths = np.full(batch, steps) if lengths is None else check_lengths(title, lengths, batch, steps)
        mask = np.arange(steps) < lengths[:, None]
        weights = (*self.forward_cell.weights(), *self.backward_cell.weights())
        annotations = expose(bidirectional(x, mask, *weights, cell=self.forward_cell.kind), "h")
        size = self.forward_cell.hidden_size
        # Where nothing is padded, a plain slice, which is quicker.
        last = (slice(None), steps - 1) if mask.all() else (np.arange(batch), lengths - 1)
        return Encoding(
            annotations,
            getitem(annotations, (*last, slice(size))),
            getitem(annotations, (slice(None), 0, slice(size, None))),
            mask,
        )
