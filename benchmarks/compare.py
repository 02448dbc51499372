"""Runs the contenders in turn, several rounds, and prints each one's time as a ratio to ours within a round.

    python benchmarks/compare.py step --size S --rounds 5 --peers torch jax
    python benchmarks/compare.py decode --size S --peers torch jax
    python benchmarks/compare.py ops --peers torch autograd mygrad
    python benchmarks/compare.py memory --size L --peers torch

Machines drift, so single times say little: what counts is the ratio within a round, and the table gives the
median of these over the rounds, with the smallest and the largest. Nothing else should be running. Variables
that pick OpenBLAS's kernel are taken out of the environment, so that each library chooses its own.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from measuring import above_zero, at_least_one, need
from peers import check_contenders

FIGURES = {"step": "median_ms", "decode": "median_ms", "ops": "median_us", "memory": "process_peak_mb"}


def rows_of(command: list[str]) -> list[dict[str, Any]]:
    """The JSON lines that the command prints."""
    environment = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    if run.returncode:
        raise SystemExit(f"failed: {' '.join(command)}\n{run.stderr[-2000:]}")
    return [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]


def machine(peers: list[str]) -> str:
    """What the figures were taken on."""
    name = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.processor(),
    )
    libraries = dict.fromkeys(["numpy", *(peer.removesuffix("-compile") for peer in peers)])
    versions = ", ".join(f"{name} {version(name)}" for name in libraries)
    return f"{os.cpu_count()} cores ({name}), Python {platform.python_version()}, {versions}"


def writable(text: str) -> Path:
    """The path of a file, which is made now: an error comes before what is kept in it is measured."""
    path = Path(text)
    try:
        path.open("a").close()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text}: {error.strerror}") from None
    return path


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=FIGURES)
    parser.add_argument("--size", choices=("S", "M", "L"), default="S")
    parser.add_argument("--rounds", type=at_least_one, default=5)
    parser.add_argument("--seconds", type=above_zero, default=3.0)
    parser.add_argument("--peers", nargs="+", default=["torch"])
    parser.add_argument("--json", metavar="FILE", type=writable, help="also keep every figure of every round")
    arguments = parser.parse_args()
    check_contenders(parser, arguments.what, arguments.peers)
    need(arguments.peers)
    options = ["--size", arguments.size]
    if arguments.what != "memory":
        options += ["--seconds", str(arguments.seconds)]
    ours = [sys.executable, "-m", "tinygrad_attn", "bench", arguments.what, "--json", *options]
    peer = [sys.executable, str(Path(__file__).with_name("peers.py")), arguments.what]
    commands = {"tinygrad_attn": ours, **{name: [*peer, name, *options] for name in arguments.peers}}
    rounds = [{name: rows_of(command) for name, command in commands.items()} for _ in range(arguments.rounds)]
    figure = FIGURES[arguments.what]
    for kind in [row.get("search", row.get("operation", "")) for row in rounds[0]["tinygrad_attn"]]:
        print(f"{arguments.what} {arguments.size if arguments.what != 'ops' else ''} {kind}".rstrip())
        for name in commands:
            found = [
                (row[figure], mine[figure])
                for one in rounds
                for row in one[name]
                for mine in one["tinygrad_attn"]
                if row.get("search", row.get("operation", ""))
                == kind
                == mine.get("search", mine.get("operation", ""))
            ]
            if found:
                ratios = [mine / theirs for theirs, mine in found]
                unit = figure.rpartition("_")[2]
                median = statistics.median(theirs for theirs, _ in found)
                spread = f"{statistics.median(ratios):5.2f} [{min(ratios):.2f}, {max(ratios):.2f}]"
                print(f"  {name:14} {median:9.3f} {unit}   ours / theirs {spread}")
    if arguments.json:
        kept = {"command": sys.argv[1:], "machine": machine(arguments.peers), "rounds": rounds}
        arguments.json.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
