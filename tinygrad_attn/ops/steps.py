"""One step of each recurrent cell on plain arrays, forward and backward: the inner loops of the kernels.

Each gate is one contiguous block, and so is all that a forward step writes: (G, B, H), gates in PyTorch's
order, or (G, D, B, H) with D directions side by side. For numpy that is one flat loop, where one over strided
blocks costs small arrays more. Everything is written into arrays that the caller gives, made once for all
steps by `buffers.Buffers`. Biases are part of `x`, the input's share of the gates, but for the one that a
GRU's reset gate scales.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np

from tinygrad_attn.ops.curves import constant, sigmoid_, sigmoid_backward, tanh_, tanh_backward

Arrays = tuple[np.ndarray, ...]

add, matmul, multiply, subtract = np.add, np.matmul, np.multiply, np.subtract


class Gates(NamedTuple):
    """An array of one block a gate, and views of it made once."""

    whole: np.ndarray  # (G, ..., B, H)
    first: np.ndarray  # all but the last gate
    last: np.ndarray
    each: Arrays

    @classmethod
    def of(cls, whole: np.ndarray) -> Gates:
        """The array with its views."""
        return cls(whole, whole[:-1], whole[-1], tuple(whole))


class Scratch(NamedTuple):
    """Arrays that the steps use in between."""

    gates: Gates  # one block for each gate
    a: np.ndarray  # (..., B, H)
    b: np.ndarray


def _sum(parts: Arrays, out: np.ndarray) -> None:
    """out = Σ parts, which are at least two."""
    add(parts[0], parts[1], out)
    for part in parts[2:]:
        add(out, part, out)


class Step:
    """A cell's step.

    Attributes:
        gates: G.
        states: how many arrays (B, H) the state has; the first is h.
        kept: the arrays that the backward step needs, each by its number of blocks (B, H). The steps are
            given each array, followed by its blocks if there are several.
        inner: whether the last gate's recurrent share has a bias of its own, and so a gradient of its own.
        outer: whether the last gate's recurrent product is taken of something else than h.
    """

    gates: ClassVar[int]
    states: ClassVar[int] = 1
    kept: ClassVar[tuple[int, ...]] = ()
    inner: ClassVar[bool] = False
    outer: ClassVar[bool] = False

    @staticmethod
    def forward(x: Gates, state: Arrays, w: Any, b: Any, new: Arrays, kept: Arrays, scratch: Scratch) -> None:
        """Writes the new state and what the backward step needs.

        `w` is W_hh (G, ..., H, H) of each gate, transposed; `b`, of a shape that fits (..., B, H), is the
        bias not in `x`.
        """
        raise NotImplementedError

    @staticmethod
    def backward(
        g: Arrays,
        state: Arrays,
        new: Arrays,
        kept: Arrays,
        w: Any,
        blocks: Gates,
        out: Arrays,
        scratch: Scratch,
    ) -> None:
        """From the gradient `g` for the new state, which is overwritten, that for the state, in `out`, and
        those for `x`, in `blocks`; before them that of the last gate's recurrent share (`inner`).

        `w` is W_hh (G, ..., H, H) in the order of the blocks, see `buffers.weight_backward`.
        """
        raise NotImplementedError


class RNN(Step):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh)."""

    gates = 1

    @staticmethod
    def forward(x: Gates, state: Arrays, w: Any, b: Any, new: Arrays, kept: Arrays, scratch: Scratch) -> None:
        """As Step.forward."""
        (out,) = new
        matmul(state[0], w, scratch.gates.whole)
        add(scratch.gates.last, x.last, out)
        tanh_(out)

    @staticmethod
    def backward(
        g: Arrays,
        state: Arrays,
        new: Arrays,
        kept: Arrays,
        w: Any,
        blocks: Gates,
        out: Arrays,
        scratch: Scratch,
    ) -> None:
        """As Step.backward."""
        tanh_backward(g[0], new[0], blocks.last)
        matmul(blocks.last, w[0], out[0])


class GRU(Step):
    """r, z = σ(...), n = tanh(W_in x + b_in + r (W_hn h + b_hn)), h' = (1 - z) n + z h: PyTorch's."""

    gates = 3
    kept = (2, 1, 1)
    inner = True

    @staticmethod
    def forward(x: Gates, state: Arrays, w: Any, b: Any, new: Arrays, kept: Arrays, scratch: Scratch) -> None:
        """As Step.forward."""
        (h,), (out,), (rz, r, z, n, recurrent), gates = state, new, kept, scratch.gates
        matmul(h, w, gates.whole)
        add(gates.first, x.first, rz)
        sigmoid_(rz)
        add(gates.last, b, recurrent)
        multiply(r, recurrent, n)
        add(n, x.last, n)
        tanh_(n)
        subtract(h, n, out)
        multiply(out, z, out)
        add(out, n, out)

    @staticmethod
    def backward(
        g: Arrays,
        state: Arrays,
        new: Arrays,
        kept: Arrays,
        w: Any,
        blocks: Gates,
        out: Arrays,
        scratch: Scratch,
    ) -> None:
        """As Step.backward."""
        (g_h,), (h,), (rz, r, z, n, recurrent), (carried,) = g, state, kept, out
        gates, a, b = scratch
        slope_r, slope_z, slope_n = gates.each
        inner, to_r, to_z, to_n = blocks.each  # not side by side, so each is written once
        one = constant(1, g_h.dtype)
        subtract(one, rz, gates.first)
        multiply(gates.first, rz, gates.first)
        subtract(h, n, a)
        multiply(a, g_h, a)
        multiply(slope_z, a, to_z)
        multiply(g_h, z, a)  # what goes to h directly
        subtract(g_h, a, g_h)
        multiply(n, n, slope_n)
        subtract(one, slope_n, slope_n)
        multiply(slope_n, g_h, to_n)
        multiply(to_n, r, inner)
        multiply(to_n, recurrent, b)
        multiply(slope_r, b, to_r)
        matmul(blocks.first, w, gates.whole)
        _sum(gates.each, carried)
        add(carried, a, carried)


class ResetBeforeGRU(Step):
    """r, z = σ(...), n = tanh(W_in x + b_in + W_hn (r h) + b_hn), h' = (1 - z) h + z n.

    Cho et al. 2014 and Bahdanau et al. 2015, A.1.1: the reset gate acts before the product, and z weighs the
    candidate.
    """

    gates = 3
    kept = (2, 1, 1)
    outer = True

    @staticmethod
    def forward(x: Gates, state: Arrays, w: Any, b: Any, new: Arrays, kept: Arrays, scratch: Scratch) -> None:
        """As Step.forward."""
        (h,), (out,), (rz, r, z, n, reset), gates = state, new, kept, scratch.gates
        matmul(h, w[:2], gates.first)
        add(gates.first, x.first, rz)
        sigmoid_(rz)
        multiply(r, h, reset)
        matmul(reset, w[2], n)
        add(n, x.last, n)
        tanh_(n)
        subtract(n, h, out)
        multiply(out, z, out)
        add(out, h, out)

    @staticmethod
    def backward(
        g: Arrays,
        state: Arrays,
        new: Arrays,
        kept: Arrays,
        w: Any,
        blocks: Gates,
        out: Arrays,
        scratch: Scratch,
    ) -> None:
        """As Step.backward."""
        (g_h,), (h,), (_, r, z, n, _), (carried,) = g, state, kept, out
        gates, a, _ = scratch
        to_r, to_z, to_n = blocks.each
        subtract(n, h, a)
        multiply(a, g_h, a)
        sigmoid_backward(a, z, to_z)
        multiply(g_h, z, a)
        subtract(g_h, a, g_h)  # what goes to h directly
        tanh_backward(a, n, to_n)
        matmul(to_n, w[2], a)  # the gradient for r h
        multiply(a, h, carried)
        sigmoid_backward(carried, r, to_r)
        multiply(a, r, gates.last)
        matmul(blocks.first, w[:2], gates.first)
        _sum(gates.each, carried)
        add(carried, g_h, carried)


class LSTM(Step):
    """i, f, o = σ(...), g = tanh(...), c' = f c + i g, h' = o tanh(c'): PyTorch's, in the order i f g o."""

    gates = 4
    states = 2
    kept = (4, 1)

    @staticmethod
    def forward(x: Gates, state: Arrays, w: Any, b: Any, new: Arrays, kept: Arrays, scratch: Scratch) -> None:
        """As Step.forward; the state is (h, c)."""
        (h, c), (h_new, c_new), (a, i, f, candidate, o, squashed) = state, new, kept
        matmul(h, w, scratch.gates.whole)
        add(scratch.gates.whole, x.whole, a)
        sigmoid_(a[:2])
        tanh_(candidate)
        sigmoid_(o)
        multiply(i, candidate, squashed)
        multiply(f, c, c_new)
        add(c_new, squashed, c_new)
        np.copyto(squashed, c_new)
        tanh_(squashed)
        multiply(o, squashed, h_new)

    @staticmethod
    def backward(
        g: Arrays,
        state: Arrays,
        new: Arrays,
        kept: Arrays,
        w: Any,
        blocks: Gates,
        out: Arrays,
        scratch: Scratch,
    ) -> None:
        """As Step.backward."""
        (g_h, g_c), (_, c), (_, i, f, candidate, o, squashed), (to_h, to_c) = g, state, kept, out
        to_i, to_f, to_candidate, to_o = blocks.each
        part = scratch.a
        multiply(g_h, squashed, part)
        sigmoid_backward(part, o, to_o)
        multiply(g_h, o, g_h)
        tanh_backward(g_h, squashed, part)
        add(g_c, part, g_c)
        multiply(g_c, candidate, part)
        sigmoid_backward(part, i, to_i)
        multiply(g_c, c, part)
        sigmoid_backward(part, f, to_f)
        multiply(g_c, i, part)
        tanh_backward(part, candidate, to_candidate)
        multiply(g_c, f, to_c)
        matmul(blocks.whole, w, scratch.gates.whole)
        _sum(scratch.gates.each, to_h)


STEPS: dict[str, type[Step]] = {"rnn": RNN, "gru": GRU, "reset_before_gru": ResetBeforeGRU, "lstm": LSTM}
"""The cells by the names that the recurrences know them by."""
