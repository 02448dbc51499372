"""Kernels that share a batch among threads compute what one thread does, and the same on every run."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn.engine import workers as module
from tinygrad_attn.engine.modes import changed_mode
from tinygrad_attn.engine.workers import Workers


@contextmanager
def working(count: int) -> Iterator[None]:
    workers = Workers(count)
    try:
        with changed_mode(workers=workers):
            yield
    finally:
        workers.close()


class Batch:
    def __init__(self, rng: np.random.Generator, size: int = 7) -> None:
        self.source = rng.integers(4, 14, (size, 5))
        self.lengths = rng.integers(1, 6, size)
        for row, length in zip(self.source, self.lengths, strict=True):
            row[length:] = ta.PAD
        target = rng.integers(4, 14, (size, 4))
        self.target_in = np.hstack([np.full((size, 1), ta.BOS), target])
        self.target_out = np.hstack([target, np.full((size, 1), ta.EOS)])


def losses_and_gradients(cell: str, count: int) -> tuple[float, dict[str, np.ndarray]]:
    model = ta.nn.Seq2Seq(14, 14, 5, 6, cell=cell, dtype=np.float64, rng=np.random.default_rng(0))
    with working(count):
        loss = model.loss(Batch(np.random.default_rng(1)))
        loss.backward()
    return loss.item(), {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("count", [2, 3, 7, 20])
def test_shards_compute_the_same(cell: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    alone, expected = losses_and_gradients(cell, 1)
    monkeypatch.setattr(module, "SMALLEST_SHARE", 1)
    shared, gradients = losses_and_gradients(cell, count)
    assert shared == pytest.approx(alone, rel=1e-13)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(gradient, expected[name], rtol=1e-10, atol=1e-13)
    again, repeated = losses_and_gradients(cell, count)
    assert again == shared
    assert all(np.array_equal(repeated[name], gradient) for name, gradient in gradients.items())


def test_small_work_stays_on_this_thread() -> None:
    seen = set()
    definition = ta.Primitive("noted", lambda x: seen.add(threading.get_ident()) or x, lambda g, y, x: g)
    with working(2):
        definition(ta.Tensor([1.0]))
    assert seen == {threading.get_ident()}
    assert losses_and_gradients("gru", 1)[0] == losses_and_gradients("gru", 2)[0]


def test_an_error_in_a_shard_is_raised() -> None:
    def fail() -> None:
        raise ValueError("in a shard")

    with working(2), pytest.raises(ValueError, match="in a shard"):
        Workers(2).run([int, fail])


def test_at_least_one_worker() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Workers(0)


def test_tasks_treat_overflow_as_their_caller_does() -> None:
    both_running = threading.Barrier(2, timeout=10)

    def overflow() -> float:
        both_running.wait()
        return float(np.float64(1e300) * np.float64(1e300))

    workers = Workers(2)
    try:
        with np.errstate(over="ignore"):
            assert workers.run([overflow, overflow]) == [np.inf, np.inf]
    finally:
        workers.close()
