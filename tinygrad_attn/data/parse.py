"""Reading a file of pairs, one `source<TAB>target` a line."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass

from tinygrad_attn.data.text import normalise
from tinygrad_attn.errors import DataError

_BYTE_ORDER_MARK = "\ufeff"
_EXPECTED = "expected source<TAB>target"


@dataclass(frozen=True)
class ParsedFile:
    """The sides of all pairs, in Unicode normal form C and without spaces around them."""

    path: str
    sha256: str
    """Of the content of the file, in hexadecimal digits."""
    pairs: tuple[tuple[str, str], ...]


def parse_pairs(path: str | os.PathLike[str]) -> ParsedFile:
    """Read the UTF-8 file `path`, or raise a DataError that names the file, the line and what was expected.

    Lines end in LF or CRLF; a byte order mark at the start and empty lines at the end do not count.
    """
    path = os.fspath(path)
    content = _read(path)
    text = _decode(path, content).removeprefix(_BYTE_ORDER_MARK)
    lines = normalise(text).replace("\r\n", "\n").split("\n")  # and not at what else Unicode calls a line end
    while lines and not lines[-1].strip(" "):
        lines.pop()
    if not lines:
        raise DataError(f"{path}: no pairs, {_EXPECTED} on every line")
    for stray, name in (
        ("\0", "NUL character"),
        (_BYTE_ORDER_MARK, "byte order mark"),
        ("\r", "carriage return"),
    ):
        if stray in text:
            _check_absent(path, lines, stray, name)
    pairs = tuple(_parse_line(path, number, line) for number, line in enumerate(lines, 1))
    return ParsedFile(path, hashlib.sha256(content).hexdigest(), pairs)


def _parse_line(path: str, number: int, line: str) -> tuple[str, str]:
    source, tab, target = line.partition("\t")
    source, target = source.strip(" "), target.strip(" ")
    if tab and "\t" not in target and source.strip() and target.strip():
        return source, target
    if not line.strip():
        came = "empty line"
    elif "\t" in target:
        came = f"{line.count(chr(9))} tabs"
    elif not tab:
        came = "no tab"
    else:
        came = f"empty {'target' if source.strip() else 'source'}"
    raise DataError(f"{path}:{number}: {came} in {_shortened(line)}, {_EXPECTED}")


def _check_absent(path: str, lines: list[str], stray: str, name: str) -> None:
    for number, line in enumerate(lines, 1):
        if stray in line:
            raise DataError(f"{path}:{number}: stray {name} in {_shortened(line)}, {_EXPECTED}")


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except (OSError, ValueError) as error:  # ValueError for a name with a NUL character
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: {reason}, expected a file of pairs") from error


def _decode(path: str, content: bytes) -> str:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{path}:1: this looks like UTF-16, expected UTF-8")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}:{number}: byte 0x{content[error.start]:02x} is not UTF-8, expected UTF-8"
        ) from error


def _shortened(line: str) -> str:
    return repr(line if len(line) <= 40 else f"{line[:37]}...")
