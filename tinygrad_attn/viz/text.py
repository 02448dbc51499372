"""Numbers and names as pictures show them: short, bounded, and literal."""

from __future__ import annotations

import cmath
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_NAME, _SETTINGS, _SMALL, _ROW = (
    60,
    36,
    9,
    4,
)  # characters of a name and of settings; entries of an array, and of a row


def name_lines(name: str) -> list[str]:
    """A name for a label: at most three lines and 60 characters; what cannot be seen has a visible sign."""
    cut = name if len(name) <= _NAME else name[: _NAME - 1] + "…"
    lines = cut.replace("\r\n", "\n").split("\n")
    if len(lines) > 3:
        lines = [*lines[:2], lines[2] + "…"]
    return ["".join(map(_visible, line)) for line in lines]


def one_line(name: str) -> str:
    """A name for running text."""
    return "".join(map(_visible, name if len(name) <= _NAME else name[: _NAME - 1] + "…"))


def _visible(character: str) -> str:
    number = ord(character)
    if number < 0x20:
        return chr(0x2400 + number)  # Unicode's pictures of the control characters
    if number == 0x7F:
        return "␡"
    if unicodedata.category(character) in ("Cc", "Cs", "Cn", "Zl", "Zp"):
        return "\ufffd"
    return character


def number(x: Any) -> str:
    """A number to four significant digits."""
    if isinstance(x, (complex, np.complexfloating)):
        return f"{x.real:.4g}{x.imag:+.4g}i"
    if isinstance(x, (bool, np.bool_)):
        return str(bool(x))
    if isinstance(x, (int, np.integer)):
        return str(x)
    text = f"{x:.4g}"
    return "NaN" if text == "nan" else text.replace("inf", "∞")


def is_small(array: np.ndarray) -> bool:
    """Whether an array is shown entry by entry."""
    return bool(array.size <= _SMALL and (array.ndim < 1 or array.shape[-1] <= _SMALL))


def array_lines(array: np.ndarray) -> list[str]:
    """An array for a label: the entries of a small one, the range and the Euclidean norm of a large one."""
    if array.ndim == 0:
        return [number(array.item())]
    if array.size == 0:
        return ["empty"]
    if is_small(array):
        rows = (
            array.reshape(-1, array.shape[-1])
            if array.shape[-1] > 1 or array.ndim == 1
            else array.reshape(1, -1)
        )
        if len(rows) <= 3:
            return [line for row in rows for line in _wrapped([number(x) for x in row])]
    strange = strange_entries(array)
    if strange:
        return [strange, *([] if not np.isfinite(array).any() else [_range(array[np.isfinite(array)])])]
    return [_range(array)] if array.dtype.kind in "iub" else [_range(array), f"norm {number(norm(array))}"]


def _wrapped(entries: list[str]) -> list[str]:
    width = len(entries) if len(entries) <= 6 else _ROW
    return ["  ".join(entries[i : i + width]) for i in range(0, len(entries), width)]


def _range(array: np.ndarray) -> str:
    if array.dtype.kind == "c":
        return f"|x| to {number(float(np.abs(array).max()))}"
    if array.dtype.kind == "b":
        return f"{int(np.count_nonzero(array))} of {array.size} true"
    return f"{number(array.min())} … {number(array.max())}"


def norm(array: np.ndarray) -> float:
    """The Euclidean norm."""
    if array.size == 1:
        return float(abs(array.item()))
    flat = np.abs(array).ravel() if array.dtype.kind == "c" else array.ravel()
    with np.errstate(all="ignore"):
        found = (
            float(np.sqrt(np.dot(flat, flat)))
            if flat.dtype == np.float64
            else float(np.linalg.norm(flat.astype(np.float64)))
        )
    return found


def strange_entries(array: np.ndarray) -> str | None:
    """How many entries are NaN and infinite, such as "NaN × 3, ∞ × 1"; None if all are finite."""
    if array.size == 1 and cmath.isfinite(array.item()):
        return None
    if array.dtype.kind not in "fc" or np.isfinite(array).all():
        return None
    nans, infinities = int(np.isnan(array).sum()), int(np.isinf(array).sum())
    return ", ".join(f"{sign} × {count}" for sign, count in (("NaN", nans), ("∞", infinities)) if count)


def shape_text(shape: tuple[int, ...]) -> str:
    """A shape as the papers write it: 2×5×8; nothing for a number."""
    return "×".join(map(str, shape))


def settings_text(static: Mapping[str, Any], constants: Sequence[Any]) -> str:
    """An operation's settings and constants, at most 36 characters."""
    parts = [
        f"{key}={_setting(value)}"
        for key, value in static.items()
        if value is not None and value is not False
    ]
    parts += [_setting(value) for value in constants if value is not None]
    text = ", ".join(part for part in parts if part)
    text = text if len(text) <= _SETTINGS else text[: _SETTINGS - 1] + "…"
    return "".join(map(_visible, text))


def _setting(value: Any) -> str:
    if isinstance(value, np.ndarray):
        if value.ndim == 0:
            return number(value[()])
        if value.dtype.kind == "b":
            return ""
        return (
            f"[{', '.join(map(number, value.ravel()))}]"
            if value.size <= 6
            else f"[{shape_text(value.shape)}]"
        )
    if isinstance(value, slice):
        ends = ["" if end is None else str(end) for end in (value.start, value.stop, value.step)]
        return ":".join(ends if ends[2] else ends[:2])
    if value is Ellipsis:
        return "…"
    if isinstance(value, tuple):
        if len(value) == 1:
            return _setting(value[0])
        shown = [_setting(entry) for entry in value[:6]] + ["…"] * (len(value) > 6)
        return f"({', '.join(shown)})"
    if isinstance(value, (bool, int, float, complex, np.number, np.bool_)):
        return number(value)
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _SETTINGS else text[: _SETTINGS - 1] + "…"
