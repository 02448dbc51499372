"""The bidirectional encoder over padded batches."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tinygrad_attn.engine import Tensor
from tinygrad_attn.nn import init
from tinygrad_attn.nn.cells import make_cell
from tinygrad_attn.nn.layers import check_width
from tinygrad_attn.nn.module import Module, expose
from tinygrad_attn.ops import getitem
from tinygrad_attn.ops.sequence import bidirectional


class Encoding(NamedTuple):
    """What the encoder read."""

    annotations: Tensor  # (B, T, 2H): h_j = [forward; backward], zero beyond each length
    forward_state: Tensor  # (B, H): the forward state at each sequence's last position
    backward_state: Tensor  # (B, H): the backward state at the first position
    mask: np.ndarray  # (B, T): True at the positions within each length


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
        self.forward_cell = make_cell(cell, input_size, hidden_size, reset_after=reset_after, dtype=dtype, rng=rng)
        self.backward_cell = make_cell(cell, input_size, hidden_size, reset_after=reset_after, dtype=dtype, rng=rng)

    def forward(self, x: Any, lengths: Any = None) -> Encoding:
        """x (B, T, input), lengths (B,) from 1 to T, or None where nothing is padded.

        Raises:
            ValueError: if the shapes do not fit, or a length is not from 1 to T.
        """
        if x.ndim != 3:
            raise ValueError(f"BidirectionalEncoder: input has shape {x.shape}, expected (batch, steps, features)")
        check_width("BidirectionalEncoder: input", x, self.forward_cell.weight_ih.shape[1])
        batch, steps, _ = x.shape
        lengths = np.full(batch, steps) if lengths is None else check_lengths(lengths, batch, steps)
        mask = np.arange(steps) < lengths[:, None]
        weights = (*self.forward_cell.weights(), *self.backward_cell.weights())
        annotations = expose(bidirectional(x, mask, *weights, cell=self.forward_cell.kind), "h")
        size = self.forward_cell.hidden_size
        return Encoding(
            annotations,
            getitem(annotations, (np.arange(batch), lengths - 1, slice(size))),
            getitem(annotations, (slice(None), 0, slice(size, None))),
            mask,
        )


def check_lengths(lengths: Any, batch: int, steps: int) -> np.ndarray:
    """The lengths as an array of integers. Raises ValueError unless there is one for each row, from 1 to `steps`."""
    lengths = np.asarray(lengths.data if isinstance(lengths, Tensor) else lengths)
    if lengths.shape != (batch,) or lengths.dtype.kind not in "iu":
        raise ValueError(f"lengths: expected {batch} integers, got shape {lengths.shape} of {lengths.dtype}")
    if batch and not (lengths.min() >= 1 and lengths.max() <= steps):
        wrong = lengths[(lengths < 1) | (lengths > steps)][0]
        raise ValueError(f"lengths: {wrong} is not from 1 to the {steps} steps of the batch")
    return lengths
