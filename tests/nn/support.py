"""What the tests of `nn` compare with: the papers' equations, one number at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from tinygrad_attn.tokens import BOS, EOS

MODELS: dict[str, dict[str, Any]] = {
    "bahdanau": {},
    "the paper's": {"reset_after": False, "output": "maxout"},
    "bahdanau lstm": {"cell": "lstm"},
    "bahdanau rnn concat": {"cell": "rnn", "attention": "concat"},
    "luong general": {"query": "current", "attention": "general", "input_feeding": True},
    "luong dot lstm": {"query": "current", "attention": "dot", "cell": "lstm", "encoder_hidden_size": 2},
    "scaled": {"attention": "scaled", "encoder_hidden_size": 2},
    "no attention": {"attention": "none"},
}
"""Settings of `Seq2Seq` that between them have every cell, attention, query and output."""


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def cell_step(kind: str, weights: Sequence[np.ndarray], x: Sequence[float], state: Any) -> Any:
    """One step of a cell for one sequence; `state` is h, or (h, c) for an LSTM."""
    w_ih, w_hh, b_ih, b_hh = (w.tolist() for w in weights)
    h = list(state[0] if kind == "lstm" else state)
    size = len(h)

    def from_x(row: int) -> float:
        return math.fsum([b_ih[row], *(w * v for w, v in zip(w_ih[row], x, strict=True))])

    def from_h(row: int, values: Sequence[float]) -> float:
        return math.fsum([b_hh[row], *(w * v for w, v in zip(w_hh[row], values, strict=True))])

    def gate(number: int) -> list[float]:
        return [from_x(number * size + k) + from_h(number * size + k, h) for k in range(size)]

    if kind == "rnn":
        return [math.tanh(a) for a in gate(0)]
    if kind == "lstm":
        i, f, g, o = gate(0), gate(1), gate(2), gate(3)
        c = [sigmoid(f[k]) * state[1][k] + sigmoid(i[k]) * math.tanh(g[k]) for k in range(size)]
        return [sigmoid(o[k]) * math.tanh(c[k]) for k in range(size)], c
    r, z = [sigmoid(a) for a in gate(0)], [sigmoid(a) for a in gate(1)]
    if kind == "gru":
        n = [math.tanh(from_x(2 * size + k) + r[k] * from_h(2 * size + k, h)) for k in range(size)]
        return [(1 - z[k]) * n[k] + z[k] * h[k] for k in range(size)]
    reset = [r[k] * h[k] for k in range(size)]
    n = [math.tanh(from_x(2 * size + k) + from_h(2 * size + k, reset)) for k in range(size)]
    return [(1 - z[k]) * h[k] + z[k] * n[k] for k in range(size)]


def annotations(kind: str, forward: Any, backward: Any, x: Sequence[Sequence[float]]) -> np.ndarray:
    """The annotations (T, 2H) of one sequence, from the weights of both directions."""
    size = forward[1].shape[1]

    def run(weights: Any, inputs: Any) -> list[list[float]]:
        zero = [0.0] * size
        state: Any = (zero, zero) if kind == "lstm" else zero
        out = []
        for value in inputs:
            state = cell_step(kind, weights, value, state)
            out.append(state[0] if kind == "lstm" else state)
        return out

    return np.array([a + b for a, b in zip(run(forward, x), run(backward, x[::-1])[::-1], strict=True)])


def arrays(module: Any) -> list[np.ndarray]:
    """The arrays of a cell's weights."""
    return [w.data for w in module.weights()]


def largest_error(found: Any, expected: Any) -> float:
    """The largest difference, relative to the largest entry expected."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    return float(np.abs(found - expected).max(initial=0) / max(np.abs(expected).max(initial=0), 1e-30))


def make_batch(source_lengths: list[int], target_lengths: list[int], seed: int = 1) -> SimpleNamespace:
    """Content ids from UNK on; target_out ends with EOS, and all rows are padded with PAD."""
    rng, rows = np.random.default_rng(seed), len(source_lengths)
    source = np.zeros((rows, max(source_lengths)), int)
    target_in = np.zeros((rows, max(target_lengths) + 1), int)
    target_out = np.zeros_like(target_in)
    for b, (n, m) in enumerate(zip(source_lengths, target_lengths, strict=True)):
        source[b, :n] = rng.integers(3, 9, n)
        words = rng.integers(3, 8, m)
        target_in[b, : m + 1] = [BOS, *words]
        target_out[b, : m + 1] = [*words, EOS]
    return SimpleNamespace(
        source=source, lengths=np.array(source_lengths), target_in=target_in, target_out=target_out
    )
