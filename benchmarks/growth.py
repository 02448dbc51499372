"""How the time of a training step grows with the length, the width and the batch: ours, PyTorch's and JAX's.

    python benchmarks/growth.py --measure [--seconds 0.5]    measure, in turn, into docs/data/speed.json
    python benchmarks/growth.py                              draw docs/images/speed.svg from it

Starting from size S, one of the three grows while the others stay. Beside the contenders stands the time of
the matrix products alone, in numpy on one thread: what no arrangement of the rest can undercut there.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from measuring import above_zero, need

from tinygrad_attn.bench import SIZES, Size
from tinygrad_attn.bench.step import training_step
from tinygrad_attn.bench.timing import time_calls
from tinygrad_attn.files import write_atomically
from tinygrad_attn.train import workers

DOCS = Path(__file__).parents[1] / "docs"
BASE = SIZES["S"]
AXES = {
    "steps": ("time steps T", (8, 16, 32, 64, 128, 256, 512)),
    "hidden": ("width H", (16, 32, 64, 128, 256, 512, 1024)),
    "batch": ("sequences in a batch", (1, 4, 16, 32, 64, 128, 256, 512)),
}
CONTENDERS = {
    "tinygrad_attn": "tinygrad_attn",
    "torch": "PyTorch",
    "jax": "JAX, compiled",
    "matrix products": "matrix products alone",
}


def products(size: Size) -> Callable[[], None]:
    """The matrix products of a step, forward and twice backward, on arrays of the right shapes."""
    rng = np.random.default_rng(0)

    def array(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    b, t, e, h, v = size
    once = [(array(b, h), array(h, 3 * h))] * (3 * t)  # the recurrent products of three cells
    once += [(array(b, 2 * h), array(2 * h, 3 * h))] * t + [(array(b, h), array(h, h))] * t
    whole = [(array(b * t, e), array(e, 3 * h))] * 3
    whole += [(array(b * t, 2 * h), array(2 * h, h)), (array(b * t, 3 * h + e), array(3 * h + e, v))]

    def take() -> None:
        for _ in range(3):
            for left, right in once + whole:
                np.matmul(left, right)

    return take


def step_of(contender: str, size: Size) -> tuple[Callable[[], Any], Any]:
    """A function that takes a step, and what has to be entered around it."""
    if contender == "torch":
        from peers import torch_step

        return torch_step(size, compiled=False), None
    if contender == "jax":
        from peers import jax_step

        return jax_step(size), None
    if contender == "matrix products":
        return products(size), workers(1)
    return training_step(size), workers(None)


def one(contender: str, size: Size, seconds: float) -> float:
    """Milliseconds of a step, in a process of its own."""
    command = [sys.executable, __file__, "--one", contender, *map(str, size), "--seconds", str(seconds)]
    environment = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(run.stdout.split()[-1])


def measure(seconds: float) -> None:
    """Measure every point and keep what was found."""
    found: dict[str, Any] = {"machine": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    found["date"] = time.strftime("%Y-%m-%d")
    for axis, (_, values) in AXES.items():
        found[axis] = {"values": values, **{contender: [] for contender in CONTENDERS}}
        for value in values:
            size = BASE._replace(**{axis: value})
            for contender in CONTENDERS:
                found[axis][contender].append(one(contender, size, seconds))
            print(axis, value, [found[axis][contender][-1] for contender in CONTENDERS], flush=True)
    write_atomically(DOCS / "data" / "speed.json", json.dumps(found, indent=1) + "\n")


def draw() -> None:
    """Draw what was found."""
    found = json.loads((DOCS / "data" / "speed.json").read_text(encoding="utf-8"))
    figure = Figure(figsize=(11, 4), layout="constrained")
    for axes, (axis, (title, _)) in zip(figure.subplots(1, 3), AXES.items(), strict=True):
        for contender, label in CONTENDERS.items():
            style = {"color": "0.6", "linestyle": ":"} if contender == "matrix products" else {"marker": "o"}
            axes.plot(found[axis]["values"], found[axis][contender], label=label, **style)
        axes.set(xscale="log", yscale="log", xlabel=title, ylabel="milliseconds of a step")
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False)
    with rc_context({"svg.hashsalt": "growth"}):  # the same ids each time
        figure.savefig(DOCS / "images" / "speed.svg", metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--seconds", type=above_zero, default=0.5)
    parser.add_argument("--one", nargs=6, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        contender, *numbers = arguments.one
        take, around = step_of(contender, Size(*map(int, numbers)))
        if around is None:
            timing = time_calls(take, arguments.seconds)
        else:
            with around:
                timing = time_calls(take, arguments.seconds)
        print(timing.median_ms)
        return
    if arguments.measure:
        need(["torch", "jax"])
        measure(arguments.seconds)
    draw()


if __name__ == "__main__":
    main()
