"""Operations that move entries without changing them. A rule is the move back: they come in adjoint pairs."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from tinygrad_attn.engine import Primitive, Tensor
from tinygrad_attn.engine import broadcast as pairs
from tinygrad_attn.engine.tensor import Axis, value_of


def _scatter(g: Any, *, index: Any, shape: tuple[int, ...]) -> Any:
    """Zeros of `shape` with `g` added at `index`; entries indexed several times get the sum."""
    out = np.zeros(shape, dtype=g.dtype)
    if _repeats(index):
        np.add.at(out, index, g)
    else:
        out[index] = g
    return out


def _repeats(index: Any) -> bool:
    """Whether an index may name an entry twice: only arrays of integers can."""
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(part, np.ndarray) and part.dtype.kind in "iu" and part.ndim for part in parts)


def _piece(g: Any, inputs: Sequence[Any], index: int, axis: int) -> Any:
    """The part of `g` that belongs to input number `index` of a concatenation along `axis`."""
    start = 0
    for x in inputs[:index]:
        start += x.shape[axis]
    return g[(slice(None),) * axis + (slice(start, start + inputs[index].shape[axis]),)]


_reshape = Primitive(
    "reshape",
    lambda x, *, shape: np.reshape(x, shape),
    lambda g, y, x, *, shape: reshape(g, x.shape),
)
_transpose: Primitive = Primitive(
    "transpose",
    lambda x, *, axes: np.transpose(x, axes),
    lambda g, y, x, *, axes: _transpose(g, axes=tuple(sorted(range(len(axes)), key=axes.__getitem__))),
)
_getitem = Primitive(
    "getitem",
    lambda x, *, index: x[index],
    lambda g, y, x, *, index: scatter(g, index=index, shape=x.shape),
)
scatter: Primitive = Primitive(
    "scatter",
    _scatter,
    lambda g, y, x, *, index, shape: _getitem(g, index=index),
)
_concatenate = Primitive(
    "concatenate",
    lambda *xs, axis: np.concatenate(xs, axis=axis),
    each=lambda g, y, *xs, index, axis: _piece(g, xs, index, axis),
)
_stack = Primitive(
    "stack",
    lambda *xs, axis: np.stack(xs, axis=axis),
    each=lambda g, y, *xs, index, axis: g[(slice(None),) * axis + (index,)],
)


def reshape(x: Any, shape: int | Sequence[int]) -> Tensor:
    """`x` with another shape of the same size; one entry may be -1."""
    return _reshape(x, shape=_sizes(shape))


def _sizes(shape: int | Sequence[int]) -> tuple[int, ...]:
    if np.iterable(shape):
        return tuple(map(operator.index, shape))
    try:
        return (operator.index(shape),)
    except TypeError:
        raise TypeError(f"shape is {shape}, expected an integer or several") from None


def transpose(x: Any, axes: Sequence[int] | None = None) -> Tensor:
    """`x` with its axes in the order `axes`; reversed if None."""
    ndim = np.ndim(value_of(x))
    order = tuple(range(ndim))[::-1] if axes is None else normalize_axis_tuple(axes, ndim, "transpose")
    if len(order) != ndim:
        raise ValueError(f"transpose: {len(order)} axes given for a tensor of {ndim}")
    return _transpose(x, axes=tuple(order))


def swapaxes(x: Any, axis1: int, axis2: int) -> Tensor:
    """`x` with two axes exchanged."""
    ndim = np.ndim(value_of(x))
    order = list(range(ndim))
    first, second = normalize_axis_tuple((axis1, axis2), ndim, "swapaxes", allow_duplicate=True)
    order[first], order[second] = second, first
    return _transpose(x, axes=tuple(order))


def squeeze(x: Any, axis: Axis = None) -> Tensor:
    """`x` without its axes of length one: all of them, or those given (ValueError if longer)."""
    shape = np.shape(value_of(x))
    axes = (
        [i for i, size in enumerate(shape) if size == 1]
        if axis is None
        else normalize_axis_tuple(axis, len(shape), "squeeze")
    )
    for i in axes:
        if shape[i] != 1:
            raise ValueError(f"squeeze: axis {i} of a tensor of shape {shape} is not of length one")
    return reshape(x, [size for i, size in enumerate(shape) if i not in axes])


def expand_dims(x: Any, axis: int | tuple[int, ...]) -> Tensor:
    """`x` with new axes of length one at the places `axis` of the result."""
    shape = list(np.shape(value_of(x)))
    count = len(axis) if isinstance(axis, tuple) else 1
    for i in sorted(normalize_axis_tuple(axis, len(shape) + count, "expand_dims")):
        shape.insert(i, 1)
    return reshape(x, shape)


def broadcast_to(x: Any, shape: int | Sequence[int]) -> Tensor:
    """`x` repeated to `shape` by numpy's rules of broadcasting."""
    return pairs.broadcast_to(x, shape=_sizes(shape))


def getitem(x: Any, index: Any) -> Tensor:
    """`x[index]` as numpy has it: integers, slices, None, Ellipsis, masks, arrays of (repeated) integers."""
    return _getitem(x, index=tuple(map(_plain, index)) if isinstance(index, tuple) else _plain(index))


def _plain(index: Any) -> Any:
    """An index entry in which all that numpy takes for an array is one: only of arrays it is known whether
    they repeat themselves."""
    if index is None or index is Ellipsis or isinstance(index, (slice, bool, int, np.ndarray)):
        return index
    if isinstance(index, Tensor):
        return index.data
    if isinstance(index, (list, tuple)):
        array = np.asarray([value_of(entry) for entry in index])
        return array if array.size else array.astype(np.intp)
    try:
        return operator.index(index)
    except TypeError:
        array = np.asarray(index)
        return array if array.ndim else index  # which numpy refuses


def take(x: Any, indices: Any, axis: int | None = None) -> Tensor:
    """The entries of `x` at `indices` (integers of any shape) along `axis`; of `x` in a row if None.

    Raises:
        TypeError: for indices that are not integers.
        IndexError: for an index out of range.
    """
    indices = np.asarray(value_of(indices))
    if indices.dtype.kind not in "iu":
        if indices.size:
            raise TypeError(f"take: indices have dtype {indices.dtype}, expected integers")
        indices = indices.astype(np.intp)
    if axis is None:
        return getitem(reshape(x, (-1,)), indices)
    ndim = np.ndim(value_of(x))
    (axis,) = normalize_axis_tuple(axis, ndim, "take")
    return getitem(x, (slice(None),) * axis + (indices,))


def concatenate(tensors: Sequence[Any], axis: int | None = 0) -> Tensor:
    """The tensors end to end along `axis`, or in a row if None. ValueError where their other sizes differ."""
    tensors = _all_tensors("concatenate", tensors)
    if len(tensors) > _MANY:
        tensors = [concatenate(group, axis) for group in _groups(tensors)]
    if axis is None:
        tensors, axis = [reshape(x, -1) for x in tensors], 0
    (axis,) = normalize_axis_tuple(axis, tensors[0].ndim, "concatenate")
    return _concatenate(*tensors, axis=axis)


def stack(tensors: Sequence[Any], axis: int = 0) -> Tensor:
    """The tensors, of one shape, beside each other along a new `axis`."""
    tensors = _all_tensors("stack", tensors)
    if len(tensors) > _MANY:
        return concatenate([stack(group, axis) for group in _groups(tensors)], axis)
    (axis,) = normalize_axis_tuple(axis, tensors[0].ndim + 1, "stack")
    return _stack(*tensors, axis=axis)


_MANY = 256
"""Inputs beyond which they are joined group by group. The rule for each input is given all of them, which for
thousands would take a time with the square of their number."""


def _groups(tensors: list[Any]) -> list[list[Any]]:
    return [tensors[start : start + _MANY] for start in range(0, len(tensors), _MANY)]


def _all_tensors(name: str, tensors: Sequence[Any]) -> list[Any]:
    """The entries as tensors or arrays; lists of tensors inside are stacked, so that no gradient is lost."""
    entries = list(tensors)
    if not entries:
        raise ValueError(f"{name}: expected at least one tensor, got none")
    return [_nested(entry) for entry in entries]


def _nested(entry: Any) -> Any:
    if isinstance(entry, Tensor):
        return entry
    if isinstance(entry, (list, tuple)) and any(isinstance(part, (Tensor, list, tuple)) for part in entry):
        return stack(entry)
    return np.asarray(entry)


def split(x: Any, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """`x` cut along `axis` into equal sections, or before each of the given indices, as numpy.split.

    Raises:
        ValueError: if the axis cannot be cut into that many equal sections.
    """
    (axis,) = normalize_axis_tuple(axis, np.ndim(value_of(x)), "split")
    length = np.shape(value_of(x))[axis]
    if isinstance(indices_or_sections, (int, np.integer)):
        sections = int(indices_or_sections)
        if sections < 1 or length % sections:
            raise ValueError(
                f"split: an axis of length {length} cannot be cut into {sections} equal sections"
            )
        bounds = list(range(0, length + 1, length // sections)) if length else [0] * (sections + 1)
    else:
        bounds = [0, *(int(i) for i in indices_or_sections), length]
    lead = (slice(None),) * axis
    return [getitem(x, (*lead, slice(start, stop))) for start, stop in pairwise(bounds)]
