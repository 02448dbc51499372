"""One training step: forward, backward, clipping, Adam, with the calls that a user writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinygrad_attn import optim
from tinygrad_attn.bench.timing import time_calls
from tinygrad_attn.bench.workload import Size, make_batch, make_model
from tinygrad_attn.train import workers


def training_step(size: Size) -> Callable[[], float]:
    """A function that takes one step and returns the loss."""
    model, batch = make_model(size), make_batch(size)
    parameters = list(model.parameters())
    optimizer = optim.Adam(parameters, lr=1e-3)

    def take() -> float:
        optimizer.zero_grad()
        loss = model.loss(batch)
        loss.backward()
        optim.clip_grad_norm(parameters, 1.0)
        optimizer.step()
        return float(loss)

    return take


def step(name: str, size: Size, seconds: float, count: int | None = None) -> dict[str, Any]:
    """The time of a step, with `count` workers (the trainer's choice if None)."""
    with workers(count) as used:
        take = training_step(size)
        timing = time_calls(take, seconds)
        loss = take()
    return {
        "contender": "tinygrad_attn",
        "size": name,
        "threads": used,
        "median_ms": round(timing.median_ms, 4),
        "min_ms": round(timing.min_ms, 4),
        "steps": timing.calls,
        "first_call_s": round(timing.first_ms / 1e3, 4),
        "second_call_s": round(timing.second_ms / 1e3, 4),
        "loss": round(loss, 4),
    }
