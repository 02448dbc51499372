"""The bidirectional encoder over padded batches."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tinygrad_attn.engine import Tensor
from tinygrad_attn.engine.tensor import expose
from tinygrad_attn.nn import init
from tinygrad_attn.nn.cells import FUSED_CELLS, Cell, State, make_cell, parts_of, state_like
from tinygrad_attn.nn.checks import check_lengths, check_width, numbers
from tinygrad_attn.nn.module import Module
from tinygrad_attn.ops import concatenate, getitem
from tinygrad_attn.ops.sequence import bidirectional, states_over


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
        title = self._title()
        for name, cell in (("forward_cell", self.forward_cell), ("backward_cell", self.backward_cell)):
            if not isinstance(cell, Cell):
                raise TypeError(f"{title}: {name} is a {type(cell).__name__}, expected a ta.nn.Cell")
        size = self.forward_cell.input_size
        x = numbers(x, getattr(self.forward_cell, "weight_ih", None))
        if x.ndim != 3 or not x.shape[1]:
            raise ValueError(
                f"{title}: input has shape {x.shape}, expected (batch, steps, {size}) with at least one step"
            )
        check_width(f"{title}: input", x, size)
        batch, steps, _ = x.shape
        lengths = np.full(batch, steps) if lengths is None else check_lengths(title, lengths, batch, steps)
        mask = np.arange(steps) < lengths[:, None]
        annotations = expose(self._read(x, mask), "h")
        size = self.forward_cell.hidden_size
        # Where nothing is padded, a plain slice, which is quicker.
        last = (slice(None), steps - 1) if mask.all() else (np.arange(batch), lengths - 1)
        return Encoding(
            annotations,
            getitem(annotations, (*last, slice(size))),
            getitem(annotations, (slice(None), 0, slice(size, None))),
            mask,
        )

    def _read(self, x: Any, mask: np.ndarray) -> Tensor:
        """The annotations. Cells that may compute something of their own are called step by step."""
        cells = self.forward_cell, self.backward_cell
        if all(cell._is_plain(*FUSED_CELLS) for cell in cells) and cells[0].kind == cells[1].kind:
            weights = (*cells[0].weights(), *cells[1].weights())
            annotations: Tensor = bidirectional(x, mask, *weights, cell=cells[0].kind)
            return annotations
        starts = [cell.zero_state(len(mask)) for cell in cells]
        directions = [
            states_over(x, mask, partial(_stepped, cell, start), parts_of(start), reverse=reverse)
            for cell, start, reverse in zip(cells, starts, (False, True), strict=True)
        ]
        return concatenate(directions, axis=-1)


def _stepped(cell: Cell, like: State, x: Any, parts: tuple[Any, ...]) -> tuple[Any, ...]:
    return parts_of(cell(x, state_like(like, parts)))
