"""Products: matmul with numpy's rules for vectors and stacks of matrices, and einsum."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad_attn.engine import Primitive, Tensor
from tinygrad_attn.engine.tensor import value_of
from tinygrad_attn.ops.shapes import expand_dims, reshape, swapaxes


def _matmul_left(g: Any, y: Any, a: Any, b: Any) -> Any:
    """ȳ bᵀ; a vector on either side stands for a matrix of one row or column."""
    if b.ndim == 1:
        return expand_dims(g, -1) * b if a.ndim > 1 else g * b
    if a.ndim == 1:
        return _over_stack((b @ expand_dims(g, -1))[..., 0], 1)
    return g @ swapaxes(b, -1, -2)


def _matmul_right(g: Any, y: Any, a: Any, b: Any) -> Any:
    """aᵀ ȳ."""
    if a.ndim == 1:
        return expand_dims(a, -1) * expand_dims(g, -2) if b.ndim > 1 else g * a
    if b.ndim == 1:
        return _over_stack((swapaxes(a, -1, -2) @ expand_dims(g, -1))[..., 0], 1)
    return swapaxes(a, -1, -2) @ g


def _over_stack(g: Any, ndim: int) -> Any:
    """The gradient of a vector that met a stack of matrices: the sum over the stack."""
    return reshape(g, (-1, g.shape[-1])).sum(axis=0) if g.ndim > ndim else g


matmul = Primitive("matmul", lambda a, b: np.matmul(a, b), _matmul_left, _matmul_right)


def _einsum_rule(g: Any, y: Any, *operands: Any, index: int, inputs: tuple[str, ...], output: str) -> Any:
    """The gradient of one operand: einsum of `g` and the other operands, onto that operand's letters.

    A letter that stands in that operand alone was summed over: ones put it back. A letter it repeats (a diagonal)
    becomes two, joined by an identity matrix.
    """
    operand = operands[index]
    others = [(letters, x) for i, (letters, x) in enumerate(zip(inputs, operands, strict=True)) if i != index]
    terms = [(output, g), *others]
    known = set(output).union(*(letters for letters, _ in others))
    spare = iter(sorted(_LETTERS - known - set(inputs[index])))
    target = ""
    for letter, size in zip(inputs[index], operand.shape, strict=True):
        if letter in target:
            twin = next(spare)
            terms.append((letter + twin, np.eye(size, dtype=operand.dtype)))
            letter = twin
        elif letter not in known:
            terms.append((letter, np.ones(size, dtype=operand.dtype)))
        target += letter
    return _einsum(*(x for _, x in terms), inputs=tuple(letters for letters, _ in terms), output=target)


_LETTERS = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_einsum = Primitive(
    "einsum",
    lambda *xs, inputs, output: np.einsum(f"{','.join(inputs)}->{output}", *xs, optimize=len(xs) > 2),
    each=_einsum_rule,
)


def einsum(subscripts: str, *operands: Any) -> Tensor:
    """Sums of products in Einstein's notation, as numpy.einsum: `einsum("bt,btv->bv", weights, values)`.

    An ellipsis stands for the leading axes; operands that have it must have the same number of them there. Axes of
    length one are not stretched against longer ones of the same letter.

    Raises:
        ValueError: if the subscripts do not fit the operands.
    """
    shapes = [np.shape(value_of(x)) for x in operands]
    inputs, output = _parsed(subscripts.replace(" ", ""), shapes)
    sizes: dict[str, int] = {}
    for letters, shape in zip(inputs, shapes, strict=True):
        if len(letters) != len(shape):
            raise ValueError(f"einsum: '{subscripts}' names {len(letters)} axes of an operand of shape {shape}")
        for letter, size in zip(letters, shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                raise ValueError(f"einsum: axis '{letter}' of '{subscripts}' has size {sizes[letter]} and {size}")
    unknown = set(output) - set(sizes)
    if unknown or len(set(output)) != len(output):
        raise ValueError(f"einsum: the output '{output}' of '{subscripts}' repeats a letter or names one no operand has")
    return _einsum(*operands, inputs=inputs, output=output)


def _parsed(subscripts: str, shapes: list[tuple[int, ...]]) -> tuple[tuple[str, ...], str]:
    """The letters of each operand and of the output, with ellipses written out."""
    left, arrow, output = subscripts.partition("->")
    inputs = left.split(",")
    if len(inputs) != len(shapes):
        raise ValueError(f"einsum: '{subscripts}' describes {len(inputs)} operands, got {len(shapes)}")
    spare = "".join(sorted(_LETTERS - set(subscripts)))
    extra = max((len(shape) - len(part) + 3 for part, shape in zip(inputs, shapes, strict=True) if "..." in part), default=0)
    leading = spare[:extra]
    if not arrow:  # numpy's default: the letters that appear once, in alphabetical order
        letters = left.replace(",", "").replace(".", "")
        output = "..." * ("..." in left) + "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
    written = [
        part.replace("...", leading[extra - (len(shape) - len(part) + 3) :] if "..." in part else "")
        for part, shape in zip(inputs, shapes, strict=True)
    ]
    return tuple(written), output.replace("...", leading)
