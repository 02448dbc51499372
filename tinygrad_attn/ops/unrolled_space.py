"""The arrays of the unrolled decoder's kernel, and what its loops call on them."""

from __future__ import annotations

from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from tinygrad_attn.ops.buffers import Buffers, Gradients, inputs_with_ones
from tinygrad_attn.ops.calls import BYTES, Calls, call
from tinygrad_attn.ops.curves import CACHED, constant, tanh_of_sum
from tinygrad_attn.ops.spaces import bytes_of
from tinygrad_attn.ops.steps import Step

ATTENDING = 25
"""About how many calls a step makes besides the cell's, forward and back."""


class Axes(NamedTuple):
    """How long the axes are."""

    batch: int  # B
    targets: int  # N, positions of the target
    positions: int  # T, of the source
    embedding: int  # E
    state: int  # H
    annotation: int  # V
    score: int  # A


class _Ahead(NamedTuple):
    """A step of the loop forward."""

    ask: Calls  # 2 W_a s
    near: Calls  # tanh(W_a s + U_a h), by way of exponentials
    score: Calls  # e
    weigh: Calls  # α
    enter: Calls  # the context's share of the gates
    tanh: np.ndarray  # (T, B, A)
    scores: np.ndarray  # (T, B): e, then α
    row: np.ndarray  # α, (B, 1, T)
    context: np.ndarray  # (B, 1, V)


class _Back(NamedTuple):
    """A step of the loop backward."""

    leave: Calls  # to the context, by way of the gates
    ask: Calls  # from the weights α to the state that asked
    context: np.ndarray  # (B, V, 1)
    weights: np.ndarray  # the weights' gradients, (B, T, 1), to which `ask` applies softmax's rule in place


class Space:
    """The arrays of the kernel, and what its loops call. Scores stand position by position, (T, B): what is
    the same for all positions is added block by block."""

    def __init__(self, step: type[Step], axes: Axes, dtype: Any) -> None:
        batch, targets, positions, embedding, state, annotation, score = axes
        gates = step.gates * state
        self.inputs = inputs_with_ones(targets, batch, embedding + annotation, dtype)  # [1 ; E y ; c]
        self.words = self.inputs[:, :, : 1 + embedding]
        self.contexts = self.inputs[:, :, 1 + embedding :]
        self.rows = np.empty((targets + 1, batch, state), dtype)  # the states
        self.w_hh = np.empty((gates, state), dtype)
        self.w_c = np.empty((gates, annotation), dtype)
        self.w_v = np.empty((score, state), dtype)  # -W_a, each row times its entry of v; W_a where `far`
        self.w_q = np.empty((state, score), dtype)  # 2 W_aᵀ
        self.v_a = np.empty(score, dtype)
        self.minus_v = np.empty(score, dtype)
        self.entering = np.empty((gates, batch), dtype)
        self.leaving = np.empty((batch, annotation), dtype)
        self.query = np.empty((batch, score), dtype)  # 2 W_a s, or its exponential
        self.asking = np.empty((state, batch), dtype)
        self.keys = np.empty((positions, batch, score), dtype)  # exp(2 U_a h)
        self.tanh = np.empty((targets, positions, batch, score), dtype)  # tanh(W_a s + U_a h)
        self.term = np.empty((positions, batch, score), dtype)
        self.squared = np.empty((positions, batch, score), dtype)  # Σ_i ē_i tanh², less Σ_i ē_i where `far`
        self.alpha = np.empty((targets, positions, batch), dtype)
        self.total = np.empty(batch, dtype)
        # A product with ones sums over positions, quicker than numpy's sum.
        self.ones = np.ones(positions, dtype)
        self.upstream = np.empty((targets, state, batch), dtype)
        self.to_context = np.empty((targets, batch, annotation), dtype)
        self.to_scores = np.empty((targets, positions, batch), dtype)
        self.shared = np.empty((positions, batch), dtype)
        self.to_query = np.empty((targets, batch, score), dtype)
        arrays = [
            array for array in vars(self).values() if isinstance(array, np.ndarray) and array.base is None
        ]
        self.axes = axes
        self.buffers = Buffers(step, targets, batch, state, dtype, self.w_hh[None])
        self.gradients = Gradients(self.buffers)
        calls = targets * ATTENDING * BYTES
        self.nbytes = bytes_of(*arrays) + calls + self.buffers.nbytes + self.gradients.nbytes
        self.ahead = [self._ahead(i) for i in range(targets)]
        self._steps_back: dict[bool, list[_Back]] = {}
        self.far = False
        """Whether W_a or U_a h of this use are so large that errors of rounding may not meet them."""

    def back(self) -> list[_Back]:
        """The steps of the loop backward; not made before a gradient is asked for."""
        if self.far not in self._steps_back:
            self._steps_back[self.far] = [self._back(i) for i in range(self.axes.targets)]
        return self._steps_back[self.far]

    def _ahead(self, i: int) -> _Ahead:
        state, share = self.buffers.states[0][i].T, self.buffers.shares[i]
        tanh, scores = self.tanh[i], self.alpha[i]
        rows = self.axes.positions * self.axes.batch
        # Positions in parts that stay near the processor while several calls go over them.
        together = max(1, CACHED // max(1, self.axes.batch * self.axes.score))
        parts = [slice(start, start + together) for start in range(0, self.axes.positions, together)]
        return _Ahead(
            ask=[call(np.dot, state, self.w_q, self.query)],
            near=[
                call(np.exp, self.query, self.query),
                *chain.from_iterable(tanh_of_sum(self.keys[part], self.query, tanh[part]) for part in parts),
            ],
            score=[call(np.dot, tanh.reshape(rows, self.axes.score), self.v_a, scores.reshape(-1))],
            weigh=[
                call(np.exp, scores, scores),
                call(np.dot, self.ones, scores, self.total),
                call(np.divide, scores, self.total, scores),
            ],
            enter=[
                call(np.matmul, self.w_c, self.contexts[i].T, self.entering),
                call(np.subtract, share, self.entering, share),
            ],
            tanh=tanh,
            scores=scores,
            row=scores.T[:, None],
            context=self.contexts[i][:, None],
        )

    def _back(self, i: int) -> _Back:
        context, carried = self.to_context[i], self.gradients.carried[0]
        tanh, weight, e, query = self.tanh[i], self.alpha[i], self.to_scores[i], self.to_query[i]
        by_position, one = self.term.reshape(len(e), -1), constant(1, self.term.dtype)
        return _Back(
            leave=[
                call(np.dot, self.gradients.gates.to_input.T, self.w_c, self.leaving),
                call(np.add, context, self.leaving, context),
            ],
            ask=[
                call(np.multiply, e, weight, e),
                call(np.dot, self.ones, e, self.total),
                call(np.multiply, weight, self.total, self.shared),
                call(np.subtract, e, self.shared, e),
                # The query enters every score: its gradient is v Σ_j ē_j (1 - tanh²_j), where Σ_j ē_j = 0, as
                # a softmax does not change when all scores do. The gradient of a key is one term of that sum.
                # Here it lacks -v, which goes with W_a. Far from zero Σ_j ē_j, which rounding leaves, would
                # count: each term is exact there, and no product of v and W_a is taken, as it may overflow.
                call(np.multiply, tanh, tanh, self.term),
                *([call(np.subtract, self.term, one, self.term)] if self.far else []),
                call(np.multiply, self.term, e[:, :, None], self.term),
                call(np.add, self.squared, self.term, self.squared),
                call(np.dot, self.ones, by_position, query.reshape(-1)),
                *([call(np.multiply, query, self.minus_v, query)] if self.far else []),
                call(np.dot, self.w_v.T, query.T, self.asking),
                call(np.add, carried, self.asking, carried),
            ],
            context=context[:, :, None],
            weights=e.T[:, :, None],
        )
