"""`tinygrad-attn bench`: how long things take here. Comparisons with others are in the folder benchmarks/."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
from collections.abc import Sequence
from typing import Any

from tinygrad_attn.cli.parser import OK

_DESCRIPTION = """\
Time a training step, single operations or decoding, or measure the memory of a step.

  tinygrad-attn bench step --size M             forward, backward, clipping and Adam
  tinygrad-attn bench ops                       single operations on (32, 32) arrays
  tinygrad-attn bench decode --size S           1,000 sequences, greedily and by beam search
  tinygrad-attn bench memory --size L --json

Single times say little on a busy machine: compare ratios, taken in turn.
"""


def add_parser(commands: Any) -> None:
    """Add the command to the others."""
    parser = commands.add_parser(
        "bench", help="time steps, operations, decoding; memory", description=_DESCRIPTION
    )
    parser.add_argument("what", choices=("step", "ops", "decode", "memory"), help="what to measure")
    parser.add_argument("--size", choices=("S", "M", "L"), help="of the workload (default: each of them)")
    parser.add_argument(
        "--seconds", type=_seconds, default=3.0, metavar="X", help="how long to measure each (default: 3)"
    )
    parser.add_argument(
        "--workers", type=_workers, metavar="N", help="processes that share a batch (default: as in training)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from tinygrad_attn import bench

    rows: list[dict[str, Any]] = []
    sizes = [arguments.size] if arguments.size else list(bench.SIZES)
    if arguments.what == "ops":
        rows = bench.operations(arguments.seconds)
        _show(rows, arguments.json)
        return OK
    for name in sizes:
        size = bench.SIZES[name]
        if arguments.what == "step":
            rows.append(bench.step(name, size, arguments.seconds, arguments.workers))
        elif arguments.what == "decode":
            rows += bench.decode(name, size, arguments.seconds, arguments.workers)
        else:
            rows.append(bench.memory(name, size, arguments.workers))
    _show(rows, arguments.json)
    return OK


def _show(rows: Sequence[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        for row in rows:
            print(json.dumps(row))
        return
    names = [name for name in rows[0] if name != "contender"]
    cells = [[str(row[name]) for name in names] for row in rows]
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    for line in [names, *cells]:
        print("  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)))


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < float(text) < math.inf:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a time above zero")


def _workers(text: str) -> int:
    with contextlib.suppress(ValueError):
        if int(text) >= 1:
            return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
