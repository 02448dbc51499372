"""What each idea behind the speed is worth: the time of a step without it, beside the step as it is.

    python benchmarks/ideas.py [--rounds 15]     measure, in turn, into docs/data/ideas.json

Each idea is taken back alone, by what the package offers or by putting the plain way in its place here. The
figure is the median over the rounds of the ratio within a round. Nothing else should be running.
"""

from __future__ import annotations

import contextlib
import json
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from measuring import rounds_asked, seconds

import tinygrad_attn as ta
from tinygrad_attn.bench import SIZES
from tinygrad_attn.bench.workload import make_batch, make_model
from tinygrad_attn.engine.modes import changed_mode, thread
from tinygrad_attn.engine.product import Product, Sum
from tinygrad_attn.files import write_atomically
from tinygrad_attn.ops import curves, spaces, steps, unrolled
from tinygrad_attn.ops.calls import call
from tinygrad_attn.optim import Adam, clip_grad_norm
from tinygrad_attn.train import workers

PATH = Path(__file__).parents[1] / "docs" / "data" / "ideas.json"

Step = Callable[[], Any]


def training_step(size: str, loss_of: Callable[[Any, Any], Any]) -> Step:
    """One step: forward, backward, clipping, Adam."""
    model, batch = make_model(SIZES[size]), make_batch(SIZES[size])
    optimiser = Adam(model.named_parameters())

    def take() -> None:
        optimiser.zero_grad()
        loss_of(model, batch).backward()
        clip_grad_norm(model.parameters(), 1.0)
        optimiser.step()

    return take


def whole(model: Any, batch: Any) -> Any:
    """The loss as it is."""
    return model.loss(batch)


def stepwise(model: Any, batch: Any) -> Any:
    """The loss with an operation recorded for each score, softmax, sum and cell of each step."""
    logits = model(batch.source, batch.lengths, batch.target_in).logits
    return ta.cross_entropy(logits, batch.target_out, ignore_index=ta.PAD)


@contextlib.contextmanager
def fresh_arrays() -> Iterator[None]:
    """Workspaces, and what the kernels call on them, made for each call."""

    def borrow(kind: Callable[..., Any], *shape: Any) -> Any:
        return spaces.Loan(spaces.Pool(0), (), kind(*shape))

    with mock.patch.object(spaces.pool, "borrow", borrow):
        yield


_numpy_tanh_pool = spaces.Pool(spaces.MOST_FREE_BYTES)
"""The kernels prepare their calls with their workspaces, so these are kept apart."""


@contextlib.contextmanager
def numpy_tanh() -> Iterator[None]:
    """tanh by numpy's function."""

    def tanh_of_half(x: np.ndarray) -> None:
        np.multiply(x, curves.constant(0.5, x.dtype), x)
        np.tanh(x, x)

    with (
        mock.patch.object(spaces.pool, "borrow", _numpy_tanh_pool.borrow),
        mock.patch.object(unrolled, "moderate", return_value=False),
        # which is not for numbers so large that they are taken care of on the way back
        mock.patch.object(
            unrolled.Space, "far", new_callable=mock.PropertyMock, return_value=False, create=True
        ),
        mock.patch.object(unrolled, "tanh_of_half_", tanh_of_half),
        mock.patch.object(steps, "tanh_", lambda x: [call(np.tanh, x, x)]),
    ):
        yield


@contextlib.contextmanager
def sums_at_once() -> Iterator[None]:
    """The gradient of a weight summed use by use, in place of one product."""
    add = Sum.add

    def at_once(self: Sum, gradient: Any) -> None:
        add(self, gradient.value() if type(gradient) is Product else gradient)

    with mock.patch.object(Sum, "add", at_once):
        yield


# name, what is taken back, the loss, processes, and the context in which the step is taken
IDEAS: dict[str, tuple[str, Callable[[Any, Any], Any], int, Callable[[], Any]]] = {
    "two": ("nothing, with two processes", whole, 2, contextlib.nullcontext),
    "all": ("nothing, with one process", whole, 1, contextlib.nullcontext),
    "tanh": ("tanh by way of exp", whole, 1, numpy_tanh),
    "kept": ("arrays and calls kept from step to step", whole, 1, fresh_arrays),
    "sequences": ("one operation for a whole sequence", stepwise, 1, contextlib.nullcontext),
    "products": ("that, and one product for a weight's gradient", stepwise, 1, sums_at_once),
    "fused": ("all fused operations: primitives alone", whole, 1, ta.explicit),
}


def measure(size: str, rounds: int) -> dict[str, list[float]]:
    """Seconds a step, for each idea and round."""
    found: dict[str, list[float]] = {name: [] for name in IDEAS}
    learners = {name: training_step(size, loss_of) for name, (_, loss_of, _, _) in IDEAS.items()}
    with workers(2):
        crew = thread.mode.workers
        for _ in range(30):  # until the second process is ready, and all is warm
            learners["two"]()
        for number in range(rounds + 1):
            for name, (_, _, count, context) in IDEAS.items():
                with changed_mode(workers=crew if count == 2 else None), context():
                    took = seconds(learners[name])
                    if number:
                        found[name].append(took)
    return found


def main() -> None:
    rounds = rounds_asked(__doc__)
    table: dict[str, dict[str, float]] = {name: {} for name in IDEAS}
    for size in SIZES:
        found = measure(size, rounds)
        for name, took in found.items():
            ratios = [mine / base for mine, base in zip(took, found["all"], strict=True)]
            table[name][size] = round(statistics.median(ratios), 3)
        table["all"][f"{size} ms"] = round(statistics.median(found["all"]) * 1e3, 2)
    rows = [{"without": IDEAS[name][0], **figures} for name, figures in table.items()]
    write_atomically(PATH, json.dumps(rows, indent=1) + "\n")
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
