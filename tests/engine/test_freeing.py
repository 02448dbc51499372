"""Deep graphs and freed graphs: loops in place of recursion, reference counting in place of the collector."""

from __future__ import annotations

import copy
import gc
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta


def leaf(data: Any) -> ta.Tensor:
    return ta.Tensor(data, requires_grad=True)


@pytest.fixture
def _without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_a_hundred_thousand_operations() -> None:
    assert sys.getrecursionlimit() <= 10_000
    x = y = leaf(1.0)
    for _ in range(100_000):
        y = y + 0.001
    repr(y)
    y.backward()
    assert x.grad == 1 and y.item() == pytest.approx(101, abs=1e-6)
    assert ta.grad(x * y.detach(), x)[0].item() == pytest.approx(101, abs=1e-6)
    with pytest.raises(RuntimeError, match="only leaves"):
        copy.deepcopy(y)
    alive = weakref.ref(y)
    del y
    assert alive() is None


def test_a_deep_graph_of_gradients() -> None:
    x = y = leaf(0.5)
    for _ in range(5000):
        y = y * 1.0001
    (g,) = ta.grad(y * y, x, create_graph=True)
    (second,) = ta.grad(g, x)
    factor = 1.0001**5000
    assert second.item() == pytest.approx(2 * factor**2, rel=1e-9)
    del y, g


def test_a_deep_chain_of_a_kernel_through_its_definition() -> None:
    x = y = leaf([0.1, 0.2])
    for _ in range(300):
        y = ta.softmax(y)
    (g,) = ta.grad((y * [1.0, 2.0]).sum(), x, create_graph=True)
    assert np.isfinite(ta.grad(g.sum(), x)[0].data).all()


@pytest.mark.usefixtures("_without_collector")
@pytest.mark.parametrize(
    "mode", ["forward", "backward", "grad", "create_graph", "failed", "explicit", "retained"]
)
def test_reference_counting_frees_the_graph(mode: str) -> None:
    x = leaf(np.ones((3, 3)))

    def run() -> list[Any]:
        inner = ta.softmax(ta.tanh(x @ x))
        inner.retain_grad()
        loss = (inner * inner).sum() + ta.cross_entropy(inner, [0, 1, 2])
        alive = [weakref.ref(t) for t in (inner, loss)]
        if mode == "backward":
            loss.backward()
        elif mode == "retained":
            loss.backward(retain_graph=True)
        elif mode == "grad":
            ta.grad(loss, (x, inner))
        elif mode == "create_graph":
            (g,) = ta.grad(loss, x, create_graph=True)
            (g * g).sum().backward()
            alive.append(weakref.ref(g))
        elif mode == "failed":
            with pytest.raises(ValueError, match="shape"):
                loss.backward(np.ones(3))
        elif mode == "explicit":
            with ta.explicit():
                ta.softmax(inner).sum().backward()
        return alive

    assert [ref() for ref in run()].count(None) >= 2
    assert all(ref() is None for ref in run())


@pytest.mark.usefixtures("_without_collector")
def test_training_does_not_grow() -> None:
    w = leaf(np.eye(8))
    counts = []
    for _ in range(4):
        for _ in range(5):
            x = ta.Tensor(np.ones((4, 8)))
            for _ in range(10):
                x = ta.tanh(x @ w)
            x.sum().backward()
            w.zero_grad()
            del x
        counts.append(len(gc.get_objects()))
    assert counts[-1] - counts[1] <= 10
