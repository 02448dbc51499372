"""One step of each recurrent cell on plain arrays, forward and backward, as the numpy calls that make it: the
inner loops of the kernels.

A sentence is a column: a state is (H, B), and each gate is such a block, one below the other, in PyTorch's
order. So all gates are one product with the state, all their gradients one product back, and every block is
contiguous, which for numpy is one flat loop. The input's share of the gates comes negated, as σ(a) =
1 / (1 + exp(-a)); where a step then has -tanh(a), it goes on with that. Biases are part of that share, but
for the one that a GRU's reset gate scales.

The forward steps also serve blocks (B, H), a sentence a row, where states are picked row by row.

Everything is written into arrays that the caller gives, made once for all steps by `buffers`, which also runs
the calls. Exponentials may overflow, where σ is zero: numpy's warning of it is the caller's to turn off.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tinygrad_attn.ops.calls import Calls, call
from tinygrad_attn.ops.curves import constant, sigmoid_backward, sigmoid_of_minus_, tanh_, tanh_backward

Arrays = tuple[np.ndarray, ...]
Times = Callable[[np.ndarray, np.ndarray], Calls]
"""`times(x, out)`: out = a weight times x."""

add, multiply, subtract = np.add, np.multiply, np.subtract


class Products(NamedTuple):
    """The products with the recurrent weight, forward or back."""

    gates: Times  # of all gates, but for the last of a cell with `outer`
    outer: Times | None = None  # of that


class Gates(NamedTuple):
    """The blocks of all gates, and views of them made once."""

    whole: np.ndarray  # (G·H, B), or (G, B, H) of sentences in rows
    first: np.ndarray  # the first two blocks, of the same form
    each: Arrays

    @classmethod
    def of(cls, whole: np.ndarray, count: int) -> Gates:
        """The array with its views."""
        size = len(whole) // count
        blocks = whole if whole.ndim == 3 else whole.reshape(count, size, whole.shape[1])
        return cls(whole, whole[: 2 * size], tuple(blocks))


class GateGradients(NamedTuple):
    """The gradients for all gates, and views of them made once.

    Where a gate's recurrent share has a gradient of its own (`Step.inner`), that block is the first.
    """

    whole: np.ndarray
    to_state: np.ndarray  # of the recurrent shares, but for the last of a cell with `outer`
    to_input: np.ndarray  # (G·H, B)
    each: Arrays

    @classmethod
    def of(cls, whole: np.ndarray, step: type[Step]) -> GateGradients:
        """The array with its views."""
        units = step.gates + step.inner
        size = len(whole) // units
        return cls(
            whole,
            whole[: (step.gates - step.outer) * size],
            whole[size:] if step.inner else whole,
            tuple(whole.reshape(units, size, whole.shape[1])),
        )


class Step(ABC):
    """A cell's step. The classes stand for themselves; none has instances.

    Attributes:
        gates: G.
        states: how many arrays (H, B) the state has; the first is h.
        kept: how many blocks the backward step needs, besides the gates.
        inner: whether the last gate's recurrent share has a bias of its own, and so a gradient of its own.
        outer: whether the last gate's recurrent product is taken of the last kept block, instead of h.
    """

    gates: ClassVar[int]
    states: ClassVar[int] = 1
    kept: ClassVar[int] = 0
    inner: ClassVar[bool] = False
    outer: ClassVar[bool] = False

    @staticmethod
    @abstractmethod
    def forward(
        x: Gates, state: Arrays, w: Products, b: Any, new: Arrays, kept: Arrays, scratch: Gates
    ) -> Calls:
        """Writes the new state, and what the backward step needs: in `kept`, and the gates in place of `x`,
        the negated share of the input. `b`, a block, is the bias not in there."""

    @staticmethod
    @abstractmethod
    def backward(
        g: Arrays,
        state: Arrays,
        new: Arrays,
        gates: Gates,
        kept: Arrays,
        w: Products,
        to_gates: GateGradients,
        out: Arrays,
        scratch: Arrays,
    ) -> Calls:
        """From the gradient `g` for the new state, which is overwritten, that for the state, in `out`, and
        those for the gates. `scratch` are two blocks."""


class RNN(Step):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh)."""

    gates = 1

    @staticmethod
    def forward(
        x: Gates, state: Arrays, w: Products, b: Any, new: Arrays, kept: Arrays, scratch: Gates
    ) -> Calls:
        """As Step.forward."""
        (out,) = new
        return [
            *w.gates(state[0], scratch.whole),
            call(subtract, scratch.each[0], x.each[0], out),
            *tanh_(out),
        ]

    @staticmethod
    def backward(
        g: Arrays,
        state: Arrays,
        new: Arrays,
        gates: Gates,
        kept: Arrays,
        w: Products,
        to_gates: GateGradients,
        out: Arrays,
        scratch: Arrays,
    ) -> Calls:
        """As Step.backward."""
        return [
            *tanh_backward(g[0], new[0], to_gates.whole),
            *w.gates(to_gates.to_state, out[0]),
        ]


class GRU(Step):
    """r, z = σ(...), n = tanh(W_in x + b_in + r (W_hn h + b_hn)), h' = n + z (h - n): PyTorch's."""

    gates = 3
    kept = 2
    inner = True

    @staticmethod
    def forward(
        x: Gates, state: Arrays, w: Products, b: Any, new: Arrays, kept: Arrays, scratch: Gates
    ) -> Calls:
        """As Step.forward."""
        (h,), (out,), (recurrent, change), (r, z, minus_n), part = state, new, kept, x.each, scratch.each[2]
        return [
            *w.gates(h, scratch.whole),
            call(subtract, x.first, scratch.first, x.first),
            *sigmoid_of_minus_(x.first),
            call(add, part, b, recurrent),
            call(multiply, r, recurrent, part),
            call(subtract, minus_n, part, minus_n),
            *tanh_(minus_n),
            call(add, h, minus_n, change),
            call(multiply, change, z, out),
            call(subtract, out, minus_n, out),
        ]

    @staticmethod
    def backward(
        g: Arrays,
        state: Arrays,
        new: Arrays,
        gates: Gates,
        kept: Arrays,
        w: Products,
        to_gates: GateGradients,
        out: Arrays,
        scratch: Arrays,
    ) -> Calls:
        """As Step.backward."""
        (g_h,), (recurrent, change), (r, z, minus_n), (carried,), (a, b) = g, kept, gates.each, out, scratch
        inner, to_r, to_z, to_n = to_gates.each
        return [
            call(multiply, g_h, z, a),  # what goes to h directly
            call(subtract, g_h, a, g_h),  # g (1 - z)
            call(multiply, change, g_h, b),
            call(multiply, b, z, to_z),
            call(multiply, minus_n, minus_n, b),
            call(subtract, constant(1, b.dtype), b, b),
            call(multiply, g_h, b, to_n),
            call(multiply, to_n, r, inner),
            call(multiply, inner, recurrent, b),
            call(multiply, b, r, g_h),
            call(subtract, b, g_h, to_r),
            *w.gates(to_gates.to_state, carried),
            call(add, carried, a, carried),
        ]


class ResetBeforeGRU(Step):
    """r, z = σ(...), n = tanh(W_in x + b_in + W_hn (r h) + b_hn), h' = h + z (n - h).

    Cho et al. 2014 and Bahdanau et al. 2015, A.1.1: the reset gate acts before the product, and z weighs the
    candidate.
    """

    gates = 3
    kept = 2
    outer = True

    @staticmethod
    def forward(
        x: Gates, state: Arrays, w: Products, b: Any, new: Arrays, kept: Arrays, scratch: Gates
    ) -> Calls:
        """As Step.forward."""
        assert w.outer is not None
        (h,), (out,), (change, reset), (r, z, minus_n), part = state, new, kept, x.each, scratch.each[2]
        return [
            *w.gates(h, scratch.first),
            call(subtract, x.first, scratch.first, x.first),
            *sigmoid_of_minus_(x.first),
            call(multiply, r, h, reset),
            *w.outer(reset, part),
            call(subtract, minus_n, part, minus_n),
            *tanh_(minus_n),
            call(add, h, minus_n, change),
            call(multiply, change, z, out),
            call(subtract, h, out, out),
        ]

    @staticmethod
    def backward(
        g: Arrays,
        state: Arrays,
        new: Arrays,
        gates: Gates,
        kept: Arrays,
        w: Products,
        to_gates: GateGradients,
        out: Arrays,
        scratch: Arrays,
    ) -> Calls:
        """As Step.backward."""
        assert w.outer is not None
        (g_h,), (h,), (change, _), (r, z, minus_n) = g, state, kept, gates.each
        (carried,), (a, b) = out, scratch
        to_r, to_z, to_n = to_gates.each
        return [
            call(multiply, g_h, z, a),
            call(multiply, a, change, b),
            call(multiply, b, z, to_z),
            call(subtract, to_z, b, to_z),  # -g z (1 - z) (h - n)
            call(subtract, g_h, a, g_h),  # what goes to h directly
            *tanh_backward(a, minus_n, to_n),
            *w.outer(to_n, a),  # the gradient for r h
            call(multiply, a, h, b),
            *sigmoid_backward(b, r, to_r),
            call(multiply, a, r, a),
            *w.gates(to_gates.to_state, carried),
            call(add, carried, a, carried),
            call(add, carried, g_h, carried),
        ]


class LSTM(Step):
    """i, f, o = σ(...), g = tanh(...), c' = f c + i g, h' = o tanh(c'): PyTorch's, in the order i f g o."""

    gates = 4
    states = 2
    kept = 1

    @staticmethod
    def forward(
        x: Gates, state: Arrays, w: Products, b: Any, new: Arrays, kept: Arrays, scratch: Gates
    ) -> Calls:
        """As Step.forward; the state is (h, c)."""
        (h, c), (h_new, c_new), (squashed,), (i, f, minus_candidate, o) = state, new, kept, x.each
        return [
            *w.gates(h, scratch.whole),
            call(subtract, x.whole, scratch.whole, x.whole),
            *sigmoid_of_minus_(x.first),
            *tanh_(minus_candidate),
            *sigmoid_of_minus_(o),
            call(multiply, i, minus_candidate, squashed),
            call(multiply, f, c, c_new),
            call(subtract, c_new, squashed, c_new),
            call(np.copyto, squashed, c_new),
            *tanh_(squashed),
            call(multiply, o, squashed, h_new),
        ]

    @staticmethod
    def backward(
        g: Arrays,
        state: Arrays,
        new: Arrays,
        gates: Gates,
        kept: Arrays,
        w: Products,
        to_gates: GateGradients,
        out: Arrays,
        scratch: Arrays,
    ) -> Calls:
        """As Step.backward."""
        (g_h, g_c), (_, c), (squashed,), (i, f, minus_candidate, o) = g, state, kept, gates.each
        (to_h, to_c), (part, _) = out, scratch
        to_i, to_f, to_candidate, to_o = to_gates.each
        return [
            call(multiply, g_h, squashed, part),
            *sigmoid_backward(part, o, to_o),
            call(multiply, g_h, o, g_h),
            *tanh_backward(g_h, squashed, part),
            call(add, g_c, part, g_c),
            call(multiply, g_c, minus_candidate, part),
            call(subtract, i, constant(1, part.dtype), to_i),  # the sign of minus_candidate undone
            call(multiply, to_i, i, to_i),
            call(multiply, to_i, part, to_i),
            call(multiply, g_c, c, part),
            *sigmoid_backward(part, f, to_f),
            call(multiply, g_c, i, part),
            *tanh_backward(part, minus_candidate, to_candidate),
            call(multiply, g_c, f, to_c),
            *w.gates(to_gates.to_state, to_h),
        ]


STEPS: dict[str, type[Step]] = {"rnn": RNN, "gru": GRU, "reset_before_gru": ResetBeforeGRU, "lstm": LSTM}
"""The cells by the names that the recurrences know them by."""
