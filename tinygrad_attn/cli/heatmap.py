"""`tinygrad-attn heatmap`."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from tinygrad_attn.cli.computation import ABOUT_INPUT, add_arguments, computed, or_user_error
from tinygrad_attn.cli.out import PICTURE, check_out
from tinygrad_attn.cli.parser import OK
from tinygrad_attn.errors import UserError
from tinygrad_attn.viz import gradient_flow, heatmap

_DESCRIPTION = f"""\
Draw where each output symbol looked: α, source symbols on x, output symbols on y. With --gradient, ∂loss/∂α.

{ABOUT_INPUT}
  tinygrad-attn heatmap runs/reverse "1 2 3 4" --out alignment.svg
  tinygrad-attn heatmap runs/reverse "1 2 3 4" --gradient --out gradient.png
"""


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("heatmap", help="draw where a model looks", description=_DESCRIPTION)
    parser.set_defaults(run=run)
    add_arguments(parser)
    parser.add_argument("--out", metavar="FILE", required=True, help="an .svg, .png or .pdf file")
    parser.add_argument("--gradient", action="store_true", help="draw ∂loss/∂α")


def run(arguments: argparse.Namespace) -> int:
    """Compute, and draw the weights or their gradients."""
    check_out(arguments.out, "a picture", PICTURE)
    computation = computed(arguments)
    computation.loss.backward()
    flow = gradient_flow(computation.loss)
    if arguments.gradient:
        rows, title = flow.rows("α"), "∂loss/∂α"
        if not rows:
            raise UserError(
                "without attention the weights are constants, with no gradient: leave out --gradient"
            )
    else:
        rows, title = flow.values("α"), "α"
    picture = heatmap(
        np.stack(rows), computation.source, computation.target, title=title, signed=arguments.gradient
    )
    or_user_error(lambda: picture.save(arguments.out))
    print(arguments.out)
    return OK
