"""An alignment as this terminal can show it."""

from __future__ import annotations

import os
import shutil
import sys

from tinygrad_attn.train import Prediction
from tinygrad_attn.viz.terminal import draw_alignment

MOST_LINES = 40
"""Output tokens that are drawn; a model that has not learned to end puts out a hundred and more."""


def draw(prediction: Prediction) -> str:
    """The weights of a prediction that has an output token, as wide as the terminal, in colour if it has."""
    drawn = draw_alignment(
        prediction.weights[:MOST_LINES],
        prediction.source,
        prediction.tokens[:MOST_LINES],
        width=shutil.get_terminal_size().columns,
        colour=coloured(),
        ascii_only=not _encodes("░▒▓█"),
    )
    count = len(prediction.tokens)
    if count <= MOST_LINES:
        return drawn
    return f"{drawn}\n(not drawn: the last {count - MOST_LINES} of {count} symbols)"


def coloured() -> bool:
    """Whether standard output is a terminal with colours; NO_COLOR, if it is set and not empty, says no."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _encodes(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
