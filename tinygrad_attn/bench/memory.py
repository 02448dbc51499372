"""Memory of a training step: what numpy allocates, and the process's largest."""

from __future__ import annotations

import sys
import tracemalloc
from typing import Any

from tinygrad_attn.bench.step import training_step
from tinygrad_attn.bench.workload import Size
from tinygrad_attn.train import workers


def memory(name: str, size: Size, count: int | None = None) -> dict[str, Any]:
    """Megabytes: the peak of what a step allocates here, what stays after it, and that of all processes."""
    with workers(count) as used:
        take = training_step(size)
        for _ in range(10):
            take()
        largest = _largest_resident_mb("RUSAGE_SELF")
        tracemalloc.start()
        take()
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        take()
        after, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    helpers = _largest_resident_mb("RUSAGE_CHILDREN")  # of the largest of them, now that they have ended
    if largest is not None and helpers is not None:
        largest = round(largest + (used - 1) * helpers, 1)
    return {
        "contender": "tinygrad_attn",
        "size": name,
        "threads": used,
        "step_peak_mb": round((peak - before) / 1e6, 2),
        "step_left_mb": round((after - before) / 1e6, 3),
        "process_peak_mb": largest,
    }


def _largest_resident_mb(of: str) -> float | None:
    """The largest resident size so far, of this process or its children; None if the system does not say."""
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024  # bytes, or kilobytes
    return round(resource.getrusage(getattr(resource, of)).ru_maxrss * unit / 1e6, 1)
