"""Products with vectors do not warn of invalid values, whose flag some builds of BLAS raise without cause."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tests.nn.support import make_batch

RNG = np.random.default_rng


@pytest.fixture(autouse=True)
def flagging(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """A BLAS that raises the flag in every product with a vector; the shapes of those products."""
    met: list[tuple[Any, ...]] = []

    def flagged(product: Any) -> Any:
        def multiplied(a: Any, b: Any, *rest: Any, **settings: Any) -> Any:
            if (a.ndim > 1 or b.ndim > 1) and (min(a.ndim, b.ndim) == 1 or 1 in (a.shape[-2], b.shape[-1])):
                np.subtract(np.float64(np.inf), np.inf)  # an error here, as warnings are
                met.append((a.shape, b.shape))
            return product(a, b, *rest, **settings)

        return multiplied

    monkeypatch.setattr(np, "matmul", flagged(np.matmul))
    monkeypatch.setattr(np, "dot", flagged(np.dot))
    return met


def test_the_flag_is_an_error_outside() -> None:
    with pytest.raises(RuntimeWarning, match="invalid value"):
        np.matmul(np.ones((2, 5)), np.ones(5))


@pytest.mark.parametrize(
    ("left", "right"),
    [((6, 5), 5), (5, (5, 6)), ((1, 5), (5, 6)), ((6, 5), (5, 1)), ((3, 2, 5), 5), (5, (3, 5, 2))],
)
def test_matmul(flagging: list[Any], left: Any, right: Any) -> None:
    a, b = (
        ta.Tensor(RNG(i).standard_normal(s).astype(np.float32), requires_grad=True)
        for i, s in enumerate((left, right))
    )
    (a @ b).sum().backward()
    assert flagging and a.grad is not None and b.grad is not None


def test_nan_is_still_there() -> None:
    assert np.isnan(ta.matmul(np.array([[np.nan, 1.0]]), np.ones((2, 3)))).all()


def test_einsum_asks_for_no_warning_either(flagging: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    einsum = np.einsum

    def looked_at(*operands: Any, **settings: Any) -> Any:
        seen.append(np.geterr()["invalid"])
        return einsum(*operands, **settings)

    monkeypatch.setattr(np, "einsum", looked_at)
    x = ta.Tensor(RNG(0).standard_normal((4, 5)), requires_grad=True)
    ta.einsum("ij,j,k->ik", x, np.ones(5), np.ones(2)).sum().backward()
    assert seen == ["ignore", "ignore"]


@pytest.mark.parametrize("explicit", [False, True])
@pytest.mark.parametrize("query", ["previous", "current"])
@pytest.mark.parametrize("cell", ["gru", "lstm", "rnn"])
@pytest.mark.parametrize("attention", ["additive", "concat", "general", "dot", "none"])
def test_models(flagging: list[Any], attention: str, cell: str, query: str, explicit: bool) -> None:
    hidden = 10 if attention == "dot" else 5
    model: Any = ta.nn.Seq2Seq(9, 9, 5, hidden, attention, cell, query, encoder_hidden_size=5, rng=RNG(0))
    optimiser = ta.optim.Adam(model.parameters())
    for length in (3, 1):
        batch = make_batch([length], [length])
        with ta.explicit() if explicit else nullcontext():
            loss = model.loss(batch)
            loss.backward()
        ta.optim.clip_grad_norm(model.parameters(), 1.0)
        optimiser.step()
        model.greedy(batch.source, max_length=3)
        model.beam_search(batch.source, max_length=3)
    assert flagging
