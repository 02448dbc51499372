"""An alignment as this terminal can show it."""

from __future__ import annotations

import os
import shutil
import sys

from tinygrad_attn.train import Prediction
from tinygrad_attn.viz.terminal import draw_alignment


def draw(prediction: Prediction) -> str:
    """The weights of a prediction that has an output token, as wide as the terminal, in colour if it has."""
    return draw_alignment(
        prediction.weights,
        prediction.source,
        prediction.tokens,
        width=shutil.get_terminal_size().columns,
        colour=coloured(),
        ascii_only=not _encodes("░▒▓█"),
    )


def coloured() -> bool:
    """Whether standard output is a terminal with colours; NO_COLOR, if it is set and not empty, says no."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _encodes(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
