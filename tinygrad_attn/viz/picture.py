"""Matplotlib figures that need no global state and save the same bytes every time."""

from __future__ import annotations

import io
import math
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinygrad_attn.files import write_atomically

_METADATA: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
_SETTINGS = {
    "svg.fonttype": "none",  # text stays text: small, selectable, in the reader's fonts
    "svg.hashsalt": "tinygrad_attn",
    "pdf.fonttype": 42,
    "figure.dpi": 144,
    "savefig.dpi": 144,
    "axes.edgecolor": "#666666",
    "axes.linewidth": 0.8,
}
_lock = threading.RLock()
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_OTHER_SCRIPTS = (
    "Noto Sans CJK JP",
    "Noto Sans CJK SC",
    "Noto Sans",
    "Noto Emoji",
    "WenQuanYi Zen Hei",
    "Droid Sans Fallback",
    "IPAGothic",
    "Hiragino Sans",
    "Apple SD Gothic Neo",
    "Yu Gothic",
    "Microsoft YaHei",
    "Malgun Gothic",
    "Arial Unicode MS",
    "Segoe UI Emoji",
)
"""Fonts that, where they are installed, draw what DejaVu Sans lacks."""


def new_picture(width: float, height: float) -> Picture:
    """An empty picture of that many inches."""
    picture: Picture = _picture_class()(figsize=(width, height), layout="constrained")
    return picture


def unit_of(largest: float) -> tuple[float, str]:
    """A power of ten to count in, and how to say so ("in 10⁻⁵"); 1 and "" where none is needed."""
    if not math.isfinite(largest) or largest == 0 or 1e-2 <= largest < 1e4:
        return 1.0, ""
    exponent = max(math.floor(math.log10(largest)), -300)  # its power has to be a number
    return 10.0**exponent, f"in 10{str(exponent).translate(_RAISED)}"


def count_in_unit(axis: Any, name: str) -> None:
    """Writes the ticks of a matplotlib axis of numbers that were divided by the `unit_of` that name."""
    axis.set_major_formatter(lambda value, _: f"{value:.6g}".replace("-", "−"))
    axis.set_label_text(name, fontsize=8)


@contextmanager
def settings() -> Iterator[None]:
    """Within a `with` block, matplotlib draws as pictures are to look; everything is as before afterwards.

    Nothing of the user's own style is in the pictures: it may turn a matrix upside down, or ask for LaTeX.
    The settings are those of the process, so one thread at a time has them.
    """
    from matplotlib import style

    chosen: Any = {**_SETTINGS, "font.family": _fonts()}
    with _lock, style.context(["default", chosen]):
        yield


@cache
def _fonts() -> list[str]:
    from matplotlib.font_manager import fontManager

    installed = set(fontManager.get_font_names())
    return ["DejaVu Sans", *(name for name in _OTHER_SCRIPTS if name in installed)]


class Saving:
    """A matplotlib Figure that saves whole files, and shows itself in a notebook."""

    def svg(self) -> str:
        """The picture as SVG text: the same text for the same picture."""
        return self._rendered("svg").decode()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to `path`, as SVG, PNG or PDF by its ending; ValueError for another."""
        kind = Path(path).suffix.lower().removeprefix(".")
        if kind not in _METADATA:
            raise ValueError(
                f"{os.fspath(path)}: a picture is saved as {', '.join(f'.{k}' for k in _METADATA)}"
            )
        write_atomically(path, self._rendered(kind))

    def _repr_svg_(self) -> str:
        return self.svg()

    def _rendered(self, kind: str) -> bytes:
        buffer = io.BytesIO()
        figure: Any = self
        with settings(), warnings.catch_warnings():
            # A sign that no installed font has becomes a box in PNG and PDF; in SVG it stays what it is.
            warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from font", category=UserWarning)
            figure.savefig(
                buffer, format=kind, metadata=_METADATA[kind], bbox_inches="tight", pad_inches=0.08
            )
        return buffer.getvalue()


if TYPE_CHECKING:
    from matplotlib.figure import Figure

    class Picture(Saving, Figure):
        """What `_picture_class` makes, for those who name its type."""


@cache
def _picture_class() -> Any:
    # Made here and not at the top, so that importing this module does not import matplotlib.
    from matplotlib.figure import Figure

    return type("Picture", (Saving, Figure), {"__doc__": Saving.__doc__})
