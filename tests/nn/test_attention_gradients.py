"""The gradients of every score, by a loop that computes one number at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tests.nn.test_attention import MASKS, RNG, inputs, make, mode

SCORES = ("additive", "concat", "general", "dot", "scaled")
Row = list[float]


class Loop:
    """Adds up the gradients of Σ upstream · (context, weights, scores), query by query, by the chain rule."""

    def __init__(self, name: str, module: Any, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> None:
        self.name, self.q, self.k, self.v = name, q, k, v
        self.weights = {key: tensor.data for key, tensor in module.named_parameters()}
        self.gradients = {"q": np.zeros(q.shape), "k": np.zeros(k.shape), "v": np.zeros(v.shape)}
        self.gradients |= {key: np.zeros(w.shape) for key, w in self.weights.items()}

    def score(self, q: Row, k: Row) -> float:
        if self.name in ("additive", "concat"):
            return math.fsum(
                v * t for v, t in zip(self.weights["v_a"].tolist(), self.inner(q, k), strict=True)
            )
        if self.name == "general":
            w = self.weights["W_a"].tolist()
            return math.fsum(q[a] * w[a][b] * k[b] for a in range(len(q)) for b in range(len(k)))
        dot = math.fsum(a * b for a, b in zip(q, k, strict=True))
        return dot / math.sqrt(len(q)) if self.name == "scaled" else dot

    def inner(self, q: Row, k: Row) -> Row:
        """tanh of each entry of the hidden layer."""
        w = self.weights["W_a"].tolist()
        if self.name == "concat":
            return [math.tanh(math.fsum(x * y for x, y in zip(row, [*q, *k], strict=True))) for row in w]
        u = self.weights["U_a"].tolist()
        return [
            math.tanh(
                math.fsum(
                    [
                        *(a * b for a, b in zip(w[i], q, strict=True)),
                        *(a * b for a, b in zip(u[i], k, strict=True)),
                    ]
                )
            )
            for i in range(len(w))
        ]

    def score_backward(self, g: float, place: Any, b: int, j: int) -> None:
        """Adds what the gradient `g` on e_j says to the query, the key and the weights."""
        q, k, to = self.q[place].tolist(), self.k[b, j].tolist(), self.gradients
        to_q, to_k = to["q"][place], to["k"][b, j]
        if self.name in ("dot", "scaled"):
            by = g / math.sqrt(len(q)) if self.name == "scaled" else g
            for a in range(len(q)):
                to_q[a] += by * k[a]
                to_k[a] += by * q[a]
            return
        w = self.weights["W_a"].tolist()
        if self.name == "general":
            for a in range(len(q)):
                for c in range(len(k)):
                    to_q[a] += g * w[a][c] * k[c]
                    to_k[c] += g * q[a] * w[a][c]
                    to["W_a"][a, c] += g * q[a] * k[c]
            return
        v = self.weights["v_a"].tolist()
        for i, t in enumerate(self.inner(q, k)):
            to["v_a"][i] += g * t
            before = g * v[i] * (1 - t * t)
            for a in range(len(q)):
                to_q[a] += before * w[i][a]
                to["W_a"][i, a] += before * q[a]
            for c in range(len(k)):
                if self.name == "concat":
                    to_k[c] += before * w[i][len(q) + c]
                    to["W_a"][i, len(q) + c] += before * k[c]
                else:
                    to_k[c] += before * float(self.weights["U_a"][i, c])
                    to["U_a"][i, c] += before * k[c]

    def query(self, place: Any, mask: Row, upstream: Any) -> None:
        """One query: back from the context over the weights to the scores."""
        b, steps = place[0], self.k.shape[1]
        to_c, to_alpha, to_e = (part[place].tolist() for part in upstream)
        scores = [self.score(self.q[place].tolist(), self.k[b, j].tolist()) for j in range(steps)]
        inside = [j for j in range(steps) if mask[j]]
        total = math.fsum(math.exp(scores[j]) for j in inside)
        alpha = [math.exp(scores[j]) / total if mask[j] else 0.0 for j in range(steps)]
        reached = []
        for j in range(steps):
            value = self.v[b, j].tolist()
            for d in range(len(value)):
                self.gradients["v"][b, j, d] += alpha[j] * to_c[d]
            reached.append(to_alpha[j] + math.fsum(c * x for c, x in zip(to_c, value, strict=True)))
        mean = math.fsum(a * r for a, r in zip(alpha, reached, strict=True))
        for j in range(steps):
            self.score_backward(alpha[j] * (reached[j] - mean) + to_e[j], place, b, j)


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("count", [None, 3], ids=["one query", "many"])
@pytest.mark.parametrize("mask", ["none", "lengths", "holes", "a row of nothing"])
@pytest.mark.parametrize("explicit", [False, True], ids=["kernel", "definition"])
def test_gradients_against_a_loop(name: str, count: int | None, mask: str, explicit: bool) -> None:
    module, (query, keys) = make(name), inputs(name, count)
    values, rng = RNG(2).standard_normal((2, 3, 2)), RNG(3)
    q, k, v = (ta.Tensor(x, requires_grad=True) for x in (query, keys, values))
    with mode(explicit):
        found = module(q, k, v, MASKS[mask])
        upstream = [rng.standard_normal(part.shape) for part in found]
        sum((part * g).sum() for part, g in zip(found, upstream, strict=True)).backward()
    loop = Loop(name, module, query, keys, values)
    whole = np.broadcast_to(True if MASKS[mask] is None else MASKS[mask], (2, 3))
    for place in np.ndindex(query.shape[:-1]):
        loop.query(place, whole[place[0]].tolist(), upstream)
    gradients = {
        "q": q.grad,
        "k": k.grad,
        "v": v.grad,
        **{key: p.grad for key, p in module.named_parameters()},
    }
    assert gradients.keys() == loop.gradients.keys()
    for key, gradient in gradients.items():
        expected = loop.gradients[key]
        np.testing.assert_allclose(
            gradient, expected, rtol=0, atol=1e-12 * np.abs(expected).max(), err_msg=key
        )
