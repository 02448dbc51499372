"""Gradients as optimisers meet them: named, checked for what is not finite, clipped by their norm."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from tinygrad_attn.engine import Tensor
from tinygrad_attn.errors import check_number

Parameters = Iterable[Tensor] | Iterable[tuple[str, Tensor]]

MOST_NAMED = 5
"""How many of the parameters whose gradients are not finite an error lists."""


class NonFiniteError(FloatingPointError):
    """A gradient holds NaN or infinity; nothing was updated."""


def clip_grad_norm(parameters: Parameters, max_norm: float) -> float:
    """Scales all gradients together so that their norm over all entries is at most `max_norm`, as PyTorch.

    Args:
        parameters: tensors, or (name, tensor) pairs; those without a gradient are passed over.
        max_norm: at least zero; infinity to measure the norm alone.

    Returns:
        The norm before clipping.

    Raises:
        NonFiniteError: if a gradient holds NaN or infinity; nothing is scaled then.
        TypeError: for anything but tensors, and a number.
        ValueError: if `max_norm` is negative, or `parameters` is a generator that has none left.
    """
    check_number("max_norm", max_norm)
    if not max_norm >= 0:
        raise ValueError(f"max_norm is {max_norm}, expected a number of at least 0")
    named = all_named("clip_grad_norm", parameters)
    if not named and isinstance(parameters, Iterator):
        raise ValueError("clip_grad_norm: a generator gives its parameters only once, and these are used up")
    unique = {id(parameter): parameter for _, parameter in named if parameter.grad is not None}.values()
    gradients = [np.asarray(parameter.grad) for parameter in unique]
    with np.errstate(over="ignore", invalid="ignore"):
        norm = math.sqrt(sum(map(_square, gradients)))
    if not 1e-12 < norm < math.inf:  # squares may have overflowed, or vanished
        names = {id(parameter): name for name, parameter in labelled(named)}
        check_finite(zip([names[id(parameter)] for parameter in unique], gradients, strict=True))
        norm = _scaled_norm(gradients)
    scale = max_norm / (norm + 1e-6)
    if scale < 1:
        for parameter in unique:
            gradient = gradient_of(parameter)
            if isinstance(gradient, np.ndarray) and gradient.dtype.kind in "fc":
                gradient *= scale
            else:  # numbers that somebody put there
                parameter.grad = np.asarray(np.multiply(gradient, scale))
    return norm


def _square(array: np.ndarray) -> float:
    """Σ |x|² over all entries."""
    flat = array.ravel()
    if flat.dtype.char == "e":  # in float16 squares of common gradients lose their digits, or vanish
        flat = flat.astype(np.float32)
    return float((flat.conj() if flat.dtype.kind == "c" else flat).dot(flat).real)


def _scaled_norm(arrays: list[np.ndarray]) -> float:
    """The norm over all entries, divided by the largest before they are squared."""
    largest = max((float(np.abs(array).max(initial=0)) for array in arrays), default=0.0)
    if largest == 0:
        return 0.0
    squares = (np.square(np.abs(array).astype(np.float64) / largest).sum() for array in arrays)
    return largest * math.sqrt(sum(map(float, squares)))


def all_named(title: str, parameters: Any) -> list[tuple[str | None, Tensor]]:
    """(name, parameter) for each entry, where it has a name of its own; see `labelled`."""
    if isinstance(parameters, Tensor) or not isinstance(parameters, Iterable):
        kind = type(parameters).__name__
        raise TypeError(
            f"{title}: expected tensors in a list or the like, such as model.parameters(), got a {kind}"
        )
    found = []
    for position, entry in enumerate(parameters):
        name, parameter = entry if isinstance(entry, tuple) and len(entry) == 2 else (None, entry)
        if not isinstance(parameter, Tensor):
            raise TypeError(
                f"{title}: parameter number {position} is a {type(parameter).__name__}, expected a Tensor"
            )
        found.append((name, parameter))
    return found


def labelled(named: list[tuple[str | None, Tensor]]) -> list[tuple[str, Tensor]]:
    """The same, with the tensor's name and its position for what has no name of its own."""
    return [
        (name or f"{parameter.name or 'parameter'} (number {position})", parameter)
        for position, (name, parameter) in enumerate(named)
    ]


def gradient_of(parameter: Tensor) -> np.ndarray:
    """The gradient, where it is known to be there."""
    assert parameter.grad is not None
    return parameter.grad


def check_shape(name: str, what: str, array: Any, expected: tuple[int, ...]) -> None:
    """Raises ValueError, naming the parameter, if an array of it has another shape."""
    if np.shape(array) != expected:
        raise ValueError(f"{name}: {what} has shape {np.shape(array)}, expected {expected}")


def check_finite(named: Iterable[tuple[str, np.ndarray]]) -> None:
    """Raises NonFiniteError naming the parameters whose gradients are not finite."""
    faults = []
    for name, gradient in named:
        wrong = ~np.isfinite(gradient)
        if wrong.any():
            first = tuple(int(i) for i in np.argwhere(wrong)[0])
            count = np.count_nonzero(wrong)
            faults.append(f"{name} {gradient.shape}: {count} entries, the first {gradient[first]} at {first}")
    if faults:
        more = len(faults) - MOST_NAMED
        listed = "; ".join(faults[:MOST_NAMED]) + (f"; and {more} more parameters" if more > 0 else "")
        raise NonFiniteError(f"gradients are not finite, nothing was updated: {listed}")
