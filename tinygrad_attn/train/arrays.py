"""Named arrays with a note, in one safetensors file that tells when it was damaged."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from tinygrad_attn.errors import CheckpointError
from tinygrad_attn.files import read_whole

_KEY = "tinygrad_attn"
"""The one entry of the file's metadata. Several would come in an order that changes with the process."""


def pack(arrays: Mapping[str, np.ndarray], note: Mapping[str, Any]) -> bytes:
    """A safetensors file of `arrays`, with `note` (plain JSON) and a digest of both in its metadata."""
    from safetensors.numpy import save

    text = json.dumps(note, sort_keys=True, allow_nan=False)
    entry = json.dumps({"sha256": _digest(arrays, text), "note": text})
    return save({name: np.asarray(array, order="C") for name, array in arrays.items()}, {_KEY: entry})


def unpack(path: str | os.PathLike[str]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and the note of the file `path`.

    Raises CheckpointError, naming the file, if it is missing, unreadable, damaged or of another program.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    path = os.fspath(path)
    try:
        content = read_whole(path)
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}") from error
    try:
        arrays = load(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    # The library reports damage in the header by errors of several kinds.
    except (SafetensorError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise CheckpointError(f"{path}: damaged, or no safetensors file") from error
    try:
        entry = json.loads(header["__metadata__"][_KEY])
        text, digest = entry["note"], entry["sha256"]
        note = json.loads(text)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{path}: not written by tinygrad_attn") from error
    if not isinstance(note, dict):
        raise CheckpointError(f"{path}: not written by tinygrad_attn")
    if digest != _digest(arrays, text):
        raise CheckpointError(f"{path}: damaged, its content is not what was written")
    return arrays, note


def is_finite(array: np.ndarray) -> bool:
    """Whether all entries are numbers that the weights of a model, in float32, can be."""
    with np.errstate(all="ignore"):
        return bool(np.isfinite(array.astype(np.float32)).all())


def _digest(arrays: Mapping[str, np.ndarray], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
