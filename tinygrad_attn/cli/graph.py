"""`tinygrad-attn graph`."""

from __future__ import annotations

import argparse
from typing import Any

from tinygrad_attn.cli.computation import ABOUT_INPUT, add_arguments, computed, or_user_error
from tinygrad_attn.cli.out import GRAPH, check_out
from tinygrad_attn.cli.parser import OK, as_text, say
from tinygrad_attn.errors import UserError
from tinygrad_attn.viz import graph
from tinygrad_attn.viz.graph import DETAILS, LIMIT
from tinygrad_attn.viz.record import NO_GRADIENTS

_DESCRIPTION = f"""\
Draw how a loss is computed, with every value and, with --backward, the gradient of every tensor and along
every line.

{ABOUT_INPUT}
  tinygrad-attn graph --backward --out example.svg
  tinygrad-attn graph runs/reverse "1 2 3" --backward --detail model --out model.svg
  tinygrad-attn graph runs/reverse "1 2 3" --fold "step *" --open encoder --out graph.pdf
"""

_NO_GRADIENTS = "No gradients: add --backward to compute and draw them."


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "graph", help="draw a computation and its gradients", description=_DESCRIPTION
    )
    parser.set_defaults(run=run)
    add_arguments(parser)
    parser.add_argument(
        "--out", metavar="FILE", help="an .svg, .png, .pdf or .dot file (default: DOT text is printed)"
    )
    parser.add_argument("--backward", action="store_true", help="compute and draw the gradients")
    parser.add_argument(
        "--detail", choices=DETAILS, default="paper", help="how much is drawn (default: paper)"
    )
    parser.add_argument(
        "--fold",
        action="append",
        type=as_text,
        default=[],
        metavar="SCOPE",
        help="draw scopes as one box each, such as 'step *'; repeatable",
    )
    parser.add_argument(
        "--open",
        action="append",
        type=as_text,
        default=[],
        metavar="SCOPE",
        help="draw scopes in the next finer detail; repeatable",
    )
    parser.add_argument(
        "--limit", type=int, default=LIMIT, metavar="N", help=f"the most boxes (default: {LIMIT})"
    )
    parser.add_argument("--right", action="store_true", help="draw from left to right")


def run(arguments: argparse.Namespace) -> int:
    """Compute, draw, and say what the picture cannot show."""
    if arguments.limit < 2:
        raise UserError(f"--limit is {arguments.limit}, expected at least 2")
    if arguments.out is not None:
        check_out(arguments.out, "a graph", GRAPH)
    loss = computed(arguments).loss
    if arguments.backward:
        loss.backward()
    drawn = or_user_error(
        lambda: graph(
            loss,
            detail=arguments.detail,
            fold=arguments.fold,
            open=arguments.open,
            limit=arguments.limit,
            direction="right" if arguments.right else "down",
        )
    )
    drawn.notices = [_NO_GRADIENTS if notice == NO_GRADIENTS else notice for notice in drawn.notices]
    for notice in drawn.notices:
        say(notice)
    if arguments.out is None:
        print(drawn.dot.source, end="")
    else:
        or_user_error(lambda: drawn.save(arguments.out))
        print(arguments.out)
    return OK
