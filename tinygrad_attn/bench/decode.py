"""Decoding of a thousand sequences, greedily and by beam search."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad_attn.bench.timing import time_calls
from tinygrad_attn.bench.workload import Size, make_model
from tinygrad_attn.tokens import EOS, UNK
from tinygrad_attn.train import workers

SEQUENCES = 1000
BEAM = 5


def decode(name: str, size: Size, seconds: float, count: int | None = None) -> list[dict[str, Any]]:
    """Milliseconds for 1,000 sequences. None ends early (EOS is ruled out), so that all do the same work."""
    model = make_model(size)
    bias = model.decoder.output.bias
    assert bias is not None
    bias.data[EOS] = -1e4
    source = np.random.default_rng(1).integers(UNK + 1, size.vocabulary, (SEQUENCES, size.steps))
    lengths = np.full(SEQUENCES, size.steps)
    calls = {
        "greedy": lambda: model.greedy(source, lengths, size.steps),
        f"beam {BEAM}": lambda: model.beam_search(source, lengths, size.steps, BEAM),
    }
    rows = []
    with workers(count) as used:
        for search, call in calls.items():
            timing = time_calls(call, seconds / len(calls), least=3)
            rows.append(
                {
                    "contender": "tinygrad_attn",
                    "search": search,
                    "size": name,
                    "threads": used,
                    "median_ms": round(timing.median_ms, 2),
                    "min_ms": round(timing.min_ms, 2),
                    "calls": timing.calls,
                }
            )
    return rows
