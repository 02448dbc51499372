"""What a training step costs in numbers that no noise moves: operations, numpy calls, bytes allocated.

Operations and numpy calls are bounded by what is counted today, so that one more is noticed; bytes, which
depend on Python too, by a little more. A change that breaks a bound makes every step dearer; raise it only
with a reason.
"""

import sys
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tinygrad_attn import nn
from tinygrad_attn.bench import SIZES
from tinygrad_attn.bench.step import training_step
from tinygrad_attn.bench.workload import make_batch, make_model
from tinygrad_attn.engine.tensor import next_number
from tinygrad_attn.ops import spaces
from tinygrad_attn.train import workers

OPERATIONS = 12
COUNTED = tuple(f"tinygrad_attn.{part}" for part in ("engine", "ops", "nn", "optim"))
"""Where numpy is called within a step."""
NUMPY_CALLS = {"S": 816, "M": 1702, "L": 4078}
"""Where arrays are large, tanh is taken part by part, of what fits the cache, and the encoder's directions
one after the other: more calls, and less time."""
PEAK_MB = {"S": 0.65, "M": 6.2, "L": 40.0}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with workers(1):
        yield


class Counting:
    """Stands for numpy, one of its functions or its ufuncs, and counts the calls."""

    def __init__(self, target: Any, name: str, calls: Counter[str]) -> None:
        self._target, self._name, self._calls = target, name, calls

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if not callable(value) or isinstance(value, type):
            return value
        return Counting(value, f"{self._name}.{name}".removeprefix("numpy."), self._calls)

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        self._calls[self._name] += 1
        return self._target(*arguments, **settings)


@pytest.fixture
def numpy_calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    calls: Counter[str] = Counter()
    spaces.pool.clear()  # kernels prepare their calls with their workspaces
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith(COUNTED):
            for name, value in list(vars(module).items()):
                if value is np:
                    monkeypatch.setattr(module, name, Counting(np, "numpy", calls))
                elif isinstance(value, np.ufunc):
                    monkeypatch.setattr(module, name, Counting(value, value.__name__, calls))
    yield calls
    spaces.pool.clear()


@pytest.mark.parametrize("size", SIZES)
def test_operations_recorded(size: str) -> None:
    model, batch = make_model(SIZES[size]), make_batch(SIZES[size])
    before = next_number()
    model.loss(batch)
    assert next_number() - before - 1 == OPERATIONS


@pytest.mark.parametrize("size", SIZES)
def test_numpy_calls(size: str, numpy_calls: Counter[str]) -> None:
    take = training_step(SIZES[size])
    take()
    numpy_calls.clear()
    take()
    assert numpy_calls.total() <= NUMPY_CALLS[size], numpy_calls.most_common(8)


@pytest.mark.parametrize("size", SIZES)
def test_bytes_allocated(size: str) -> None:
    take = training_step(SIZES[size])
    take()
    tracemalloc.start()
    try:
        take()
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        take()
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (peak - before) / 1e6 <= PEAK_MB[size]
    assert abs(after - before) < 50_000  # nothing piles up from step to step


def array_bytes() -> int:
    """What numpy's arrays hold of what was allocated since tracing began."""
    only_arrays = tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)
    snapshot = tracemalloc.take_snapshot().filter_traces([only_arrays])
    return sum(trace.size for trace in snapshot.traces)


def test_nothing_grows_over_many_steps() -> None:
    take = training_step(SIZES["S"]._replace(batch=2, hidden=4, embedding=3))
    take()
    tracemalloc.start()
    try:
        take()
        before = array_bytes()
        for _ in range(300):
            take()
        assert array_bytes() == before
    finally:
        tracemalloc.stop()


def test_memory_is_linear_in_the_target() -> None:
    peaks = []
    for steps in (10, 20, 40):
        size = SIZES["S"]._replace(steps=8)
        model, batch = make_model(size), make_batch(size)
        wide = np.repeat(batch.target_in, 5, axis=1)[:, :steps]
        tracemalloc.start()
        try:
            loss = model.loss(nn_batch(batch, wide))
            loss.backward()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        peaks.append(peak)
    first, second = peaks[1] - peaks[0], peaks[2] - peaks[1]
    assert second == pytest.approx(2 * first, rel=0.1)


def nn_batch(batch: Any, target: np.ndarray) -> Any:
    return batch._replace(target_in=target, target_out=target)


def test_the_model_is_the_public_one() -> None:
    assert isinstance(make_model(SIZES["S"]), nn.Seq2Seq)
