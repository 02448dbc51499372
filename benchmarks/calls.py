"""How much of a step numpy's functions take: all calls of one step, made again with nothing in between.

    python benchmarks/calls.py [--rounds 15]     measure, in turn, into docs/data/calls.json

And the same of its matrix products alone. The arrays are those of the step. What numpy does without a call of
a function, such as writing to a part of an array, is not among the calls. Nothing else should be running.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from measuring import rounds_asked, seconds

from tinygrad_attn.bench import SIZES
from tinygrad_attn.bench.step import training_step
from tinygrad_attn.files import write_atomically
from tinygrad_attn.ops import spaces
from tinygrad_attn.ops.calls import run
from tinygrad_attn.train import workers

PATH = Path(__file__).parents[1] / "docs" / "data" / "calls.json"

_SETTINGS = ("geterr", "seterr", "errstate")


class Recorder:
    """Stands for numpy or one of its functions: does the same, and keeps each call."""

    def __init__(self, target: Any, kept: list[partial[Any]]) -> None:
        self._target, self._kept = target, kept

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if not callable(value) or isinstance(value, type) or name in _SETTINGS:
            return value
        return Recorder(value, self._kept)

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        self._kept.append(partial(self._target, *arguments, **settings))
        return self._target(*arguments, **settings)


@contextlib.contextmanager
def recording() -> Iterator[list[partial[Any]]]:
    """The calls that the package makes from here on."""
    kept: list[partial[Any]] = []
    spaces.pool.clear()  # kernels prepare their calls with their workspaces
    with contextlib.ExitStack() as patched:
        for module_name, module in list(sys.modules.items()):
            if module_name.startswith("tinygrad_attn."):
                for name, value in list(vars(module).items()):
                    if value is np or isinstance(value, np.ufunc):
                        patched.enter_context(mock.patch.object(module, name, Recorder(value, kept)))
        yield kept
    spaces.pool.clear()


def measure(size: str, rounds: int) -> dict[str, Any]:
    """The number of calls, and the share of a step (a median) that they and the products among them take."""
    take = training_step(SIZES[size])
    with recording() as kept:
        take()
        kept.clear()
        take()
    products = [call for call in kept if call.func in (np.matmul, np.dot)]
    shares: dict[str, list[float]] = {"share": [], "products": []}
    with np.errstate(all="ignore"):  # what is computed again and again may leave the range of floats
        for number in range(rounds + 1):
            step, every, some = (seconds(what) for what in (take, partial(run, kept), partial(run, products)))
            if number:
                shares["share"].append(every / step)
                shares["products"].append(some / step)
    medians = {name: round(statistics.median(found), 3) for name, found in shares.items()}
    return {"size": size, "calls": len(kept), **medians}


def main() -> None:
    rounds = rounds_asked(__doc__)
    with workers(1):
        rows = [measure(size, rounds) for size in SIZES]
    write_atomically(PATH, json.dumps(rows, indent=1) + "\n")
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
