"""`tinygrad-attn check`."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from tinygrad_attn import nn
from tinygrad_attn.check import suite
from tinygrad_attn.cli.parser import CHECK_FAILED, OK
from tinygrad_attn.train import ConfigError

_DESCRIPTION = """\
Check the gradient of every operation, and of small models with respect to all their parameters, entry by
entry against complex steps, at order 1 and 2. Prints a table; the exit code is 1 if anything fails.

  tinygrad-attn check
"""
_CLEARED = "\r\x1b[K"


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("check", help="check every gradient", description=_DESCRIPTION)
    parser.set_defaults(run=run)
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="for inputs and weights (default: 0)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Check, naming on a terminal what was checked last, and print the table."""
    if arguments.seed < 0:
        raise ConfigError(f"--seed is {arguments.seed}, expected at least 0")
    watched = sys.stderr.isatty()

    def tell(line: suite.Line) -> None:
        if watched:
            print(f"{_CLEARED}{line.name}", end="", file=sys.stderr, flush=True)

    result = suite.run(nn, seed=arguments.seed, on_line=tell)
    if watched:
        print(_CLEARED, end="", file=sys.stderr, flush=True)
    print(result)
    return OK if result else CHECK_FAILED
