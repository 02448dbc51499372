"""From DOT text to pictures, with the Graphviz that comes with pygraphviz, or else the system's."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from tinygrad_attn.errors import UserError
from tinygrad_attn.files import write_atomically

FORMATS = ("svg", "png", "pdf")
_TEXT = ("dot", "gv")
GRAPH_FORMATS = (*FORMATS, *_TEXT)
_lock = threading.Lock()


class RenderError(UserError, RuntimeError):
    """A picture could not be drawn; the message says what to install, and the DOT text is still there."""


def render(source: str, format: str) -> bytes:
    """The DOT text laid out, as "svg", "png" or "pdf".

    Raises:
        RenderError: if there is neither pygraphviz 2 nor a `dot` program, or the layout fails.
        ValueError: for another format.
    """
    if format not in FORMATS:
        raise ValueError(f"graph: format '{format}' is not one of {', '.join(FORMATS)}")
    failures = []
    for draw in (_with_wheel, _with_program):
        try:
            picture = draw(source, format)
            return _undated(picture) if format == "pdf" else picture
        except ImportError:
            continue
        except Exception as error:
            failures.append(f"{type(error).__name__}: {str(error).strip()[:400]}")
    if failures:
        raise RenderError(
            f"Graphviz could not lay the graph out ({'; '.join(failures)}); its DOT text is in .dot.source"
        )
    raise RenderError(
        "drawing needs Graphviz: `pip install 'pygraphviz>=2'` brings it along, or install the program "
        "(`apt install graphviz`, `brew install graphviz`). The DOT text needs neither: .dot.source, or "
        ".save('graph.dot')"
    )


def _undated(picture: bytes) -> bytes:
    """A PDF with 1970 for when it was made, and as long as before: the same picture is the same file."""
    return re.sub(rb"(/CreationDate \(D:)\d{14}", rb"\g<1>19700101000000", picture)


def save(source: str, path: str | os.PathLike[str]) -> None:
    """Writes the picture to `path`, whole or not at all; .svg, .png, .pdf, .dot or .gv says as what."""
    kind = Path(path).suffix.lower().removeprefix(".")
    if kind in _TEXT:
        write_atomically(path, source)
    elif kind in FORMATS:
        write_atomically(path, render(source, kind))
    else:
        raise ValueError(
            f"{os.fspath(path)}: a graph is saved as {', '.join('.' + k for k in GRAPH_FORMATS)}"
        )


def _with_wheel(source: str, format: str) -> bytes:
    import pygraphviz

    settings = "-Gdpi=144" if format == "png" else ""
    with _without_font_warnings():
        drawn = pygraphviz.AGraph(string=source).draw(format=format, prog="dot", args=settings)
    if not drawn:
        raise RuntimeError("nothing was drawn")
    return bytes(drawn)


def _with_program(source: str, format: str) -> bytes:
    import graphviz

    if shutil.which("dot") is None:
        raise ImportError
    return bytes(graphviz.Source(source).pipe(format=format))


@contextlib.contextmanager
def _without_font_warnings() -> Iterator[None]:
    """Keeps fontconfig's complaints about the system, which concern nobody here, from standard error.

    They are written by the library itself, so the file descriptor is turned away, by one thread at a time;
    anything else is written afterwards.
    """
    with _lock:
        try:
            kept = os.dup(2)
        except OSError:  # no standard error
            yield
            return
        try:
            with tempfile.TemporaryFile() as file:
                sys.stderr.flush() if sys.stderr is not None else None
                os.dup2(file.fileno(), 2)
                try:
                    yield
                finally:
                    os.dup2(kept, 2)
                    file.seek(0)
                    written = file.read().splitlines(keepends=True)
                    os.write(2, b"".join(line for line in written if not line.startswith(b"Fontconfig ")))
        finally:
            os.close(kept)
