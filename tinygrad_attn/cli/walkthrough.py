"""`tinygrad-attn walkthrough`."""

from __future__ import annotations

import argparse
import json
import re
import shutil
from dataclasses import replace
from typing import Any

from tinygrad_attn.cli.drawing import coloured
from tinygrad_attn.cli.parser import OK
from tinygrad_attn.worked import RUNNING, SCORES, VECTOR, Example, ExampleError, Walk, walk
from tinygrad_attn.worked.text import text

_DESCRIPTION = """\
Work an example of attention through by hand: for each quantity its equation, the numbers put in and the
result, from the scores to the loss and back, with the two ways into every annotation, as a value and as a
key, shown apart and summed. All numbers are computed when the command runs.

  tinygrad-attn walkthrough                                   three words, one number for each
  tinygrad-attn walkthrough --vector                          two dimensions, where the ranking flips
  tinygrad-attn walkthrough --score dot
  tinygrad-attn walkthrough --h 0.2 0.9 0.1 --s 0.5 -1.5      your own numbers; a state for each target word
  tinygrad-attn walkthrough --h 1,0 0,1 1,1 --s 1,-1          entries of a vector are joined by commas
"""

_NAMES = {
    "additive": "additive score",
    "dot": "dot product",
    "scaled": "scaled dot product",
    "general": "general score",
}


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "walkthrough", help="work an example of attention through by hand", description=_DESCRIPTION
    )
    parser.set_defaults(run=run)
    # "-1,0" is a vector that begins with a negative number, and no option.
    parser._negative_number_matcher = re.compile(r"-\.?\d")
    parser.add_argument("--vector", action="store_true", help="the example in two dimensions")
    parser.add_argument(
        "--score", metavar="NAME", default="additive", help=f"{', '.join(SCORES)} (default: additive)"
    )
    parser.add_argument("--h", nargs="+", metavar="X", help="the annotation of each source word")
    parser.add_argument("--s", nargs="+", metavar="X", help="the decoder's state before each target word")
    parser.add_argument(
        "--target", nargs="+", type=int, metavar="N", help="the target words, counted from 1 (default: 1)"
    )
    parser.add_argument("--W-a", nargs="+", metavar="ROW", dest="W_a", help="default: the identity")
    parser.add_argument("--U-a", nargs="+", metavar="ROW", dest="U_a", help="default: the identity")
    parser.add_argument("--v-a", metavar="ROW", dest="v_a", help="default: ones")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Compute, and print."""
    example = _example(arguments)
    found = walk(example)
    if arguments.json:
        print(json.dumps(found.to_json(), allow_nan=False))
    else:
        width = shutil.get_terminal_size().columns
        print(text(found, _title(found, example in (RUNNING, VECTOR)), width=width, colour=coloured()))
    return OK


def _example(arguments: argparse.Namespace) -> Example:
    """The example that the command line asks for."""
    usual = VECTOR if arguments.vector else RUNNING
    h = usual.h if arguments.h is None else tuple(_row("--h", entry) for entry in arguments.h)
    s = usual.s if arguments.s is None else tuple(_row("--s", entry) for entry in arguments.s)
    if arguments.target is not None:
        targets = tuple(arguments.target)
    else:
        targets = usual.targets if (h, s) == (usual.h, usual.s) else (1,) * len(s)
    weights: dict[str, Any] = {
        name: tuple(_row(f"--{name.replace('_', '-')}", entry) for entry in getattr(arguments, name))
        for name in ("W_a", "U_a")
        if getattr(arguments, name) is not None
    }
    if arguments.v_a is not None:
        weights["v_a"] = _row("--v-a", arguments.v_a)
    return replace(usual, h=h, s=s, targets=targets, score=arguments.score, **weights)


def _row(option: str, entry: str) -> tuple[float, ...]:
    """The numbers of "1,0"."""
    try:
        return tuple(float(part) for part in entry.split(","))
    except ValueError:
        raise ExampleError(
            f"{option}: {entry!r} is not a number, nor numbers joined by commas such as 1,0"
        ) from None


def _title(found: Walk, usual: bool) -> str:
    words, width = len(found.example.h), len(found.example.h[0])
    numbers = "one number" if width == 1 else f"{width} numbers"
    name = _NAMES[found.example.score]
    example = "The running example" if usual and width == 1 else "Attention"
    return f"{example}: {words} source word{'s' * (words > 1)}, {numbers} for each, {name}"
