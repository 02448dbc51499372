"""Writing files so that a reader, or a later run, finds the whole file or the one before, never a part; and
reading them."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import secrets
from typing import Any

TEMPORARY_PREFIX = ".tinygrad_attn-"
"""How temporary files are named; only a process that was killed while writing leaves one behind."""


def write_atomically(path: str | os.PathLike[str], data: str | bytes) -> None:
    """Write `data` (text as UTF-8, without newline translation) to `path`, whole or not at all.

    The data go to a temporary file in the same folder, are forced to the disk, and take the place of `path`
    in one step; a symbolic link keeps pointing to where it did. Once this returns, the file outlives a crash
    of the machine. If anything fails, including an interrupt, `path` is as it was and nothing else is left
    behind. The permissions are those of any new file of the user. A device or a pipe takes the data as it is.

    Raises OSError, naming `path`, if it cannot be written.
    """
    content = data.encode("utf-8") if isinstance(data, str) else data
    try:
        if is_stream(path):  # replaced, a device would be gone for everybody
            with open(path, "wb") as file:
                file.write(content)
        else:
            _replace(os.path.realpath(path), content)
    except OSError as error:  # raised again with the name that the caller knows
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


def read_whole(path: str | os.PathLike[str]) -> bytes:
    """The content of a file. OSError if it cannot be read, or is a device or a pipe, which may never end."""
    if is_stream(path):
        raise OSError(errno.EINVAL, "a device or a pipe, expected a file", os.fspath(path))
    with open(path, "rb") as file:
        return file.read()


def is_stream(path: str | os.PathLike[str]) -> bool:
    """Whether a device or a pipe is there."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def from_json(text: str) -> Any:
    """What JSON text says. ValueError for what is none: its numbers are finite."""
    return json.loads(text, parse_float=_finite, parse_constant=_finite)


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits} is not a finite number")
    return number


def _replace(target: str, content: bytes) -> None:
    folder = os.path.dirname(target)
    # The name of the target is no part of the temporary name: it may already be as long as names can be.
    temporary = os.path.join(folder, f"{TEMPORARY_PREFIX}{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(folder)


def _sync_folder(folder: str) -> None:
    """Force the new name to the disk. Windows cannot open a folder, and needs no such step."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
