"""`tinygrad-attn flow`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from tinygrad_attn.cli.computation import ABOUT_INPUT, add_arguments, computed, or_user_error
from tinygrad_attn.cli.out import PICTURE, check_out
from tinygrad_attn.cli.parser import OK, as_text
from tinygrad_attn.errors import UserError
from tinygrad_attn.viz import gradient_flow
from tinygrad_attn.viz.flow import GradientFlow
from tinygrad_attn.viz.text import array_lines, norm, number

_DESCRIPTION = f"""\
Print how the gradient travels from the loss over logits, s, c, α and e to s and h: the norms over all
steps, or one step entry by entry; what reached each h as a value, through c, and as a key, through e.
--out draws what is printed: all steps, or the one of --step. A path is printed only.

{ABOUT_INPUT}
  tinygrad-attn flow
  tinygrad-attn flow runs/reverse "1 2 3" --step 2 --out flow.svg
  tinygrad-attn flow runs/reverse "1 2 3" --path loss logits c2 h
"""


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "flow", help="follow the gradient from the loss to h and s", description=_DESCRIPTION
    )
    parser.set_defaults(run=run)
    add_arguments(parser)
    parser.add_argument("--step", type=int, metavar="N", help="one step, from 1 (default: norms over all)")
    parser.add_argument(
        "--path",
        nargs="+",
        type=as_text,
        metavar="TENSOR",
        help="the gradient along one path, such as: loss logits c1 h",
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="also draw the gradients, of all steps or of --step, to an .svg, .png or .pdf file",
    )


def run(arguments: argparse.Namespace) -> int:
    """Compute, go back, and print what flowed."""
    if arguments.path is not None and arguments.out is not None:
        raise UserError("--path is printed, not drawn: leave out --out")
    if arguments.path is not None and arguments.step is not None:
        raise UserError("--path names its steps itself: leave out --step")
    if arguments.out is not None:
        check_out(arguments.out, "a picture", PICTURE)
    computation = computed(arguments)
    computation.loss.backward()
    flow = or_user_error(lambda: gradient_flow(computation.loss))
    if arguments.path is not None:
        _print_path(flow, arguments.path)
        return OK
    table = or_user_error(lambda: flow.table(arguments.step))
    if arguments.out is None:
        print(table)
    else:  # the picture first: who reads the table may leave
        or_user_error(
            lambda: flow.save(arguments.out, computation.source, computation.target, arguments.step)
        )
        print(table, arguments.out, sep="\n")
    return OK


def _print_path(flow: GradientFlow, labels: Sequence[str]) -> None:
    """The gradient along a path, and how long it is beside that along all paths to the same tensor."""
    gradient = or_user_error(lambda: flow.path(*labels))
    along, whole = norm(gradient), norm(flow.gradient(labels[-1]))
    print(" → ".join(map(flow.label, labels)))
    for line in array_lines(gradient):
        if not line.startswith("norm "):  # it stands in the last line
            print(line)
    cancels = along > whole and number(along) != number(whole)
    less = ", which is less because they cancel in part" if cancels else ""
    print(f"norm {number(along)}; on all paths together {number(whole)}{less}")
