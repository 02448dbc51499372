"""What workers cost on a busy machine: a step with two, in multiples of a step with one.

    python benchmarks/busy.py [--rounds 15]     measure, in turn, into docs/data/busy.json

Beside the steps run no, one or two other processes that do nothing but count. The figure is the median over
the rounds of the ratio within a round.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from measuring import rounds_asked, seconds

from tinygrad_attn.bench import SIZES
from tinygrad_attn.bench.step import training_step
from tinygrad_attn.engine.modes import changed_mode, thread
from tinygrad_attn.files import write_atomically
from tinygrad_attn.train import workers

PATH = Path(__file__).parents[1] / "docs" / "data" / "busy.json"
OTHERS = 0, 1, 2
WARM, TURN = 2.0, 0.3  # seconds


@contextlib.contextmanager
def beside(count: int) -> Iterator[None]:
    """So many other processes, each as much of a processor as it can get."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def ratio(size: str, others: int, rounds: int) -> float:
    """The time of a step with two workers over that with one."""
    one, two = training_step(SIZES[size]), training_step(SIZES[size])
    found = []
    with workers(2):
        crew = thread.mode.workers
        seconds(two, WARM)  # until the second process is ready, and all is warm
        with beside(others):
            for number in range(rounds + 1):
                with changed_mode(workers=None):
                    alone = seconds(one, TURN)
                with changed_mode(workers=crew):
                    together = seconds(two, TURN)
                if number:
                    found.append(together / alone)
    return round(statistics.median(found), 2)


def main() -> None:
    rounds = rounds_asked(__doc__)
    rows = [{"others": others, **{size: ratio(size, others, rounds) for size in SIZES}} for others in OTHERS]
    write_atomically(PATH, json.dumps(rows, indent=1) + "\n")
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
