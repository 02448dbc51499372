"""`tinygrad-attn check`."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from tinygrad_attn import nn
from tinygrad_attn.check import suite
from tinygrad_attn.check.userfile import check_target
from tinygrad_attn.cli.parser import CHECK_FAILED, OK, show
from tinygrad_attn.train import ConfigError

_DESCRIPTION = """\
Check the gradient of every operation, and of small models with respect to all their parameters, entry by
entry against complex steps, at order 1 and 2; or that of a function, operation or nn module of your own.
Prints a table; the exit code is 1 if anything fails.

The file of your own is imported, which runs it. What to check at stands there as gradcheck_inputs, a tuple
of inputs, a function that gives one, or a mapping from names to either; defaults of the arguments do as well.

  tinygrad-attn check
  tinygrad-attn check mine.py::operation
"""
_CLEARED = "\r\x1b[K"


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("check", help="check every gradient", description=_DESCRIPTION)
    parser.set_defaults(run=run)
    parser.add_argument(
        "target",
        nargs="?",
        metavar="FILE::NAME",
        help="a function, operation or nn module of your own (default: all of these)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="for inputs and weights (default: 0)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Check, naming on a terminal what was checked last, and print the table."""
    if arguments.seed < 0:
        raise ConfigError(f"--seed is {arguments.seed}, expected at least 0")
    if arguments.target is not None:
        report = check_target(arguments.target, order=2, rng=arguments.seed)
        show(report)
        return OK if report else CHECK_FAILED
    watched = sys.stderr.isatty()

    def tell(line: suite.Line) -> None:
        if watched:
            print(f"{_CLEARED}{line.name}", end="", file=sys.stderr, flush=True)

    result = suite.run(nn, seed=arguments.seed, on_line=tell)
    if watched:
        print(_CLEARED, end="", file=sys.stderr, flush=True)
    show(result)
    return OK if result else CHECK_FAILED
