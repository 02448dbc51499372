"""Recurrent cells: pure functions of (input, state) with PyTorch's parameters.

`weight_ih` (G·hidden, input), `weight_hh` (G·hidden, hidden), `bias_ih` and `bias_hh` (G·hidden,), all
U(±1/√hidden).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

from tinygrad_attn.engine import Tensor
from tinygrad_attn.nn import init
from tinygrad_attn.nn.checks import check_sizes, check_width, numbers
from tinygrad_attn.nn.module import Module
from tinygrad_attn.ops.recurrent import gru_cell, lstm_cell, reset_before_gru_cell, rnn_cell

State = Any  # a Tensor h (B, H), or a tuple that begins with it, for an LSTM (h, c)


def parts_of(state: State) -> tuple[Any, ...]:
    """What a state consists of."""
    return tuple(state) if isinstance(state, (tuple, list)) else (state,)


def state_like(state: State, parts: Iterable[Any]) -> State:
    """A state of the same kind: one tensor, a tuple, or one whose parts have names."""
    if not isinstance(state, (tuple, list)):
        (part,) = parts
        return part
    return state._make(parts) if hasattr(state, "_make") else tuple(parts)


class Cell(Module):
    """What the cells share: a base for one's own, too.

    A subclass has the number of `gates`, and so the weights, and `forward(x, state)`, which takes x (B,
    input) and the state, None for zeros, to the new state h (B, hidden), or a tuple that begins with it. In
    place of the weights it may have others, with an `__init__`, `input_size`, `hidden_size` and
    `zero_state(batch)` of its own. Encoders and decoders take such a cell as their attribute and run it step
    by step.
    """

    gates: ClassVar[int]

    @property
    def kind(self) -> str:
        """The cell's name among the recurrences of `tinygrad_attn.ops.sequence`."""
        raise TypeError(f"{type(self).__name__} is none of the recurrences that run as one operation")

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        dtype: Any = np.float32,
        rng: np.random.Generator | None = None,
    ) -> None:
        check_sizes(type(self).__name__, input_size=input_size, hidden_size=hidden_size)
        rng = init.generator(rng)
        rows = self.gates * hidden_size
        self.weight_ih = init.uniform((rows, input_size), hidden_size, rng, dtype)
        self.weight_hh = init.uniform((rows, hidden_size), hidden_size, rng, dtype)
        self.bias_ih = init.uniform((rows,), hidden_size, rng, dtype)
        self.bias_hh = init.uniform((rows,), hidden_size, rng, dtype)

    @property
    def input_size(self) -> int:
        """I, the width of the input."""
        return self.weight_ih.shape[1]

    @property
    def hidden_size(self) -> int:
        """H, the width of the state."""
        return self.weight_hh.shape[1]

    def weights(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The parameters, in the order the operations take them."""
        return self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh

    def zero_state(self, batch: int) -> State:
        """The state of zeros, for `batch` sequences."""
        return Tensor(np.zeros((batch, self.hidden_size), self.weight_hh.dtype))

    def _checked(self, x: Any, state: State) -> tuple[Any, Any]:
        """The input and the state, zeros if None, as what the operations take. Raises if they do not fit."""
        title, size = self._title(), self.input_size
        x = numbers(x, self.weight_ih)
        if x.ndim != 2:
            raise ValueError(f"{title}: input has shape {x.shape}, expected (batch, {size})")
        check_width(f"{title}: input", x, size)
        if state is None:
            return x, self.zero_state(x.shape[0])
        if isinstance(state, (tuple, list)):
            raise TypeError(
                f"{title}: state is a {type(state).__name__}, expected one tensor (batch, {self.hidden_size})"
            )
        return x, self._checked_state(state, x.shape[0])

    def _checked_state(self, part: Any, batch: int) -> Any:
        part = numbers(part, self.weight_hh)
        if part.shape != (batch, self.hidden_size):
            raise ValueError(
                f"{self._title()}: state has shape {part.shape}, expected {(batch, self.hidden_size)}"
            )
        return part


class RNNCell(Cell):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), PyTorch's RNNCell (Elman 1990)."""

    gates = 1

    @property
    def kind(self) -> str:
        """As Cell.kind."""
        return "rnn"

    def forward(self, x: Any, state: State = None) -> Tensor:
        """x (B, input), state (B, hidden) or None for zeros: the new state (B, hidden)."""
        x, h = self._checked(x, state)
        new: Tensor = rnn_cell(x, h, *self.weights())
        return new


class GRUCell(Cell):
    """The gated recurrent unit, rows of the weights in the order r, z, n.

    With `reset_after` it is PyTorch's:
    n = tanh(W_in x + b_in + r ∘ (W_hn h + b_hn)), h' = (1 - z) ∘ n + z ∘ h.

    Without, it is that of Bahdanau et al. 2015, A.1.1:
    n = tanh(W_in x + b_in + W_hn (r ∘ h) + b_hn), h' = (1 - z) ∘ h + z ∘ n.

    They are different cells: the reset gate acts at another place, and z has the opposite meaning. (Cho et
    al. 2014 reset as the latter and mix as the former.)
    """

    gates = 3

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        reset_after: bool = True,
        *,
        dtype: Any = np.float32,
        rng: np.random.Generator | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, dtype=dtype, rng=rng)
        self.reset_after = reset_after

    @property
    def kind(self) -> str:
        """As Cell.kind."""
        return "gru" if self.reset_after else "reset_before_gru"

    def forward(self, x: Any, state: State = None) -> Tensor:
        """x (B, input), state (B, hidden) or None for zeros: the new state (B, hidden)."""
        x, h = self._checked(x, state)
        operation = gru_cell if self.reset_after else reset_before_gru_cell
        new: Tensor = operation(x, h, *self.weights())
        return new


class LSTMCell(Cell):
    """Long short-term memory, rows of the weights in the order i, f, g, o: PyTorch's LSTMCell.

    c' = σ(f) ∘ c + σ(i) ∘ tanh(g), h' = σ(o) ∘ tanh(c').
    """

    gates = 4

    @property
    def kind(self) -> str:
        """As Cell.kind."""
        return "lstm"

    def zero_state(self, batch: int) -> State:
        """(h, c) of zeros."""
        return super().zero_state(batch), super().zero_state(batch)

    def forward(self, x: Any, state: State = None) -> tuple[Tensor, Tensor]:
        """x (B, input), state (h, c) of (B, hidden) each or None for zeros: the new (h, c)."""
        x, (h, c) = self._checked(x, state)
        return lstm_cell(x, h, c, *self.weights())

    def _checked(self, x: Any, state: State) -> tuple[Any, Any]:
        if state is None:
            return super()._checked(x, None)
        if not isinstance(state, (tuple, list)) or len(state) != 2:
            raise TypeError(f"{self._title()}: state is a {type(state).__name__}, expected the pair (h, c)")
        x, h = super()._checked(x, state[0])
        return x, (h, self._checked_state(state[1], x.shape[0]))


FUSED_CELLS = (RNNCell, GRUCell, LSTMCell)
"""Those that whole sequences are one operation for; subclasses run step by step, as they are written."""

CELLS = ("gru", "lstm", "rnn")
"""The names that `make_cell` knows."""


def make_cell(
    name: str,
    input_size: int,
    hidden_size: int,
    *,
    reset_after: bool = True,
    dtype: Any = np.float32,
    rng: np.random.Generator | None = None,
) -> Cell:
    """The cell called `name`, one of `CELLS`. Raises ValueError for another name."""
    if name not in CELLS:
        raise ValueError(f"cell: '{name}' is not one of {', '.join(CELLS)}")
    if name == "gru":
        return GRUCell(input_size, hidden_size, reset_after, dtype=dtype, rng=rng)
    return (LSTMCell if name == "lstm" else RNNCell)(input_size, hidden_size, dtype=dtype, rng=rng)
