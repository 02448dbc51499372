"""Whether a file can be written where --out says, told before anything is computed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tinygrad_attn.errors import UserError
from tinygrad_attn.files import is_stream
from tinygrad_attn.viz.render import FORMATS, GRAPH_FORMATS

PICTURE, GRAPH, PAGE = FORMATS, GRAPH_FORMATS, ("html", "htm")
"""The endings of what is written."""


def check_out(path: str, what: str, endings: Sequence[str]) -> None:
    """UserError if `path` does not end in one of `endings`, is a folder, or its folder takes no files.

    Args:
        path: what --out says.
        what: is written there, such as "a picture".
        endings: two or more, without the dot.
    """
    *some, last = (f".{ending}" for ending in endings)
    expected = f"{what} is saved as {', '.join(some)} or {last}"
    if not path:
        raise UserError(f"--out is empty; {expected}")
    if Path(path).suffix.lower().removeprefix(".") not in endings:
        raise UserError(f"{path}: {expected}")
    if os.path.isdir(path):
        raise UserError(f"{path}: a folder, expected a file")
    if is_stream(path):  # which is written to where it is
        return
    folder = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(folder):
        raise UserError(f"{path}: there is no folder {folder}")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(f"{path}: nothing can be written to {folder} ({error.strerror})") from error
