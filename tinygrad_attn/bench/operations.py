"""What a single operation costs, forward and backward, in a chain of a hundred."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tinygrad_attn import ops
from tinygrad_attn.bench.timing import time_calls
from tinygrad_attn.engine import Tensor

CHAIN = 100
SHAPE = (32, 32)

CHAINS: Mapping[str, Callable[[Any, Any], Any]] = {
    "tanh": lambda x, w: ops.tanh(x),
    "sigmoid": lambda x, w: ops.sigmoid(x),
    "add": lambda x, w: x + w,
    "mul": lambda x, w: x * w,
    "matmul": lambda x, w: x @ w,
    "softmax": lambda x, w: ops.softmax(x),
    "mean": lambda x, w: x - ops.mean(x, axis=-1, keepdims=True),
    "getitem": lambda x, w: x[::-1],
}
"""For each operation a function of the last value and of a constant, both of shape `SHAPE`."""


def operations(seconds: float) -> list[dict[str, Any]]:
    """Microseconds of each operation, forward and backward together, on float32 arrays of shape (32, 32)."""
    rng = np.random.default_rng(0)
    start = rng.standard_normal(SHAPE).astype(np.float32)
    weight = Tensor((0.1 * rng.standard_normal(SHAPE)).astype(np.float32))
    rows = []
    for name, operation in CHAINS.items():

        def chain(operation: Callable[[Any, Any], Any] = operation) -> None:
            x = y = Tensor(start, requires_grad=True)
            for _ in range(CHAIN):
                y = operation(y, weight)
            ops.sum(y).backward()
            assert x.grad is not None

        timing = time_calls(chain, seconds / len(CHAINS))
        rows.append(
            {
                "contender": "tinygrad_attn",
                "operation": name,
                "median_us": round(timing.median_ms * 1e3 / CHAIN, 3),
                "min_us": round(timing.min_ms * 1e3 / CHAIN, 3),
                "chains": timing.calls,
            }
        )
    return rows
