"""Numbers and names as pictures show them: short, bounded, and literal."""

from __future__ import annotations

import cmath
import math
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_NAME, _SETTINGS = 60, 36  # characters of a name, and of settings
_FILLERS = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"  # letters and signs that nothing is drawn for
_SMALL, _ROW = 9, 4  # entries of an array that is shown in full, and of a row of it


def name_lines(name: str) -> list[str]:
    """A name for a label: at most three lines and 60 characters; what cannot be seen has a visible sign."""
    lines = _cut(name, _NAME).replace("\r\n", "\n").split("\n")
    if len(lines) > 3:
        lines = [*lines[:2], lines[2] + "…"]
    return [visible(line) for line in lines]


def one_line(name: str) -> str:
    """A name for running text."""
    return visible(_cut(name, _NAME))


def visible(text: str) -> str:
    """The text with a sign for each character that cannot be seen or would steer what follows; ∅ if empty."""
    last = len(text) - 1
    return "".join(
        # What joins two signs into one, such as those of a family, is part of them.
        sign if sign == "\u200d" and 0 < place < last else _visible(sign)
        for place, sign in enumerate(text)
    ) or "∅"  # fmt: skip


def _visible(character: str) -> str:
    number = ord(character)
    if number < 0x20:
        return chr(0x2400 + number)  # Unicode's pictures of the control characters
    if number == 0x7F:
        return "␡"
    # Other controls, marks that turn the direction of what follows, halves of pairs, no characters at all.
    if character in _FILLERS or unicodedata.category(character) in ("Cc", "Cf", "Cs", "Cn", "Zl", "Zp"):
        return "\ufffd"
    return character


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


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
        column = array.ndim > 1 and array.shape[-1] == 1
        rows = array.reshape(1, -1) if column else array.reshape(-1, array.shape[-1])
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
    """The Euclidean norm, also where the squares of the entries are out of range."""
    if array.size == 1:
        return float(abs(array.item()))
    flat = np.asarray(np.abs(array) if array.dtype.kind == "c" else array, np.float64).ravel()
    with np.errstate(all="ignore"):
        found = float(np.sqrt(np.dot(flat, flat)))
        if 1e-140 < found < 1e150:
            return found
        largest = float(np.abs(flat).max(initial=0.0))
        if largest == 0 or not math.isfinite(largest):
            return largest
        flat = flat / largest
        return largest * float(np.sqrt(np.dot(flat, flat)))


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
    text = _cut(", ".join(part for part in parts if part), _SETTINGS)
    return visible(text) if text else ""


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
    return _cut(value if isinstance(value, str) else repr(value), _SETTINGS)
