"""What modules ask of their arguments, with errors that name the module, what came and what was expected."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad_attn.engine import Tensor
from tinygrad_attn.engine.broadcast import reaches
from tinygrad_attn.ops.softmax import as_mask


def check_sizes(what: str, **sizes: Any) -> None:
    """Raises TypeError for a size that is no integer and ValueError for one below 1."""
    for name, size in sizes.items():
        if isinstance(size, (bool, np.bool_)) or not isinstance(size, (int, np.integer)):
            raise TypeError(f"{what}: {name} is {size!r}, expected an integer")
        if size < 1:
            raise ValueError(f"{what}: {name} is {size}, expected at least 1")


def check_width(what: str, x: Any, expected: int) -> None:
    """Raises ValueError unless the last axis of `x` has the expected size."""
    if not x.shape or x.shape[-1] != expected:
        got = f"{x.shape[-1]} features" if x.shape else "no axes"
        raise ValueError(f"{what} has {got}, expected {expected}")


def check_lengths(what: str, lengths: Any, batch: int, steps: int) -> np.ndarray:
    """The lengths as integers. Raises ValueError unless there is one for each row, from 1 to `steps`."""
    found = np.asarray(lengths.data if isinstance(lengths, Tensor) else lengths)
    if found.shape != (batch,) or found.dtype.kind not in "iu":
        raise ValueError(
            f"{what}: lengths have shape {found.shape} and dtype {found.dtype}, expected {batch} integers, "
            "one a sequence"
        )
    wrong = found[(found < 1) | (found > steps)]
    if wrong.size:
        raise ValueError(f"{what}: a length is {wrong[0]}, expected 1 to {steps}, the steps of the batch")
    return found.astype(np.intp)


def check_ids(what: str, name: str, ids: Any) -> np.ndarray:
    """The ids as an array. Raises ValueError unless they have the axes (batch, steps)."""
    try:
        array = np.asarray(ids.data if isinstance(ids, Tensor) else ids)
    except ValueError:
        raise ValueError(
            f"{what}: {name} has rows of different lengths, expected (batch, steps), with PAD beyond each end"
        ) from None
    if array.ndim != 2:
        raise ValueError(f"{what}: {name} has shape {array.shape}, expected (batch, steps)")
    return array


def check_mask(what: str, mask: Any, scores: tuple[int, ...]) -> np.ndarray:
    """The mask (B, T) or (B, N, T) as booleans that can be repeated to the shape of the scores.

    Raises:
        ValueError: if they cannot.
        TypeError: if it holds other than booleans, or zeros and ones.
    """
    found = as_mask(mask)
    per_query = found[:, None] if found.ndim == 2 and len(scores) == 3 else found
    if per_query.ndim != len(scores) or not reaches(per_query.shape, scores):
        expected = " or ".join(str(shape) for shape in dict.fromkeys([(scores[0], scores[-1]), scores]))
        raise ValueError(f"{what}: mask has shape {found.shape}, expected {expected}")
    return per_query


def numbers(x: Any, like: Tensor | None = None) -> Any:
    """`x` as operations on floats take it: a tensor or array, integers (and lists) in the dtype of `like`.

    Tensors and arrays of floating or complex numbers pass as they are. Without `like`, integers become
    float64.
    """
    if not isinstance(x, (Tensor, np.ndarray)):
        x = np.asarray(x)
    kind = x.dtype.kind
    if kind in "fc":
        return x
    if kind not in "iub":
        raise TypeError(f"expected numbers, got data of dtype {x.dtype}")
    return x.astype(np.float64 if like is None else like.dtype)
