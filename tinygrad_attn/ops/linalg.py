"""Products: matmul with numpy's rules for vectors and stacks of matrices, and einsum."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinygrad_attn.engine import Primitive, Tensor, matrix_product
from tinygrad_attn.ops.shapes import expand_dims, reshape


def _matmul_left(g: Any, y: Any, a: Any, b: Any) -> Any:
    """ȳ bᵀ; a vector on either side stands for a matrix of one row or column."""
    if a.ndim == b.ndim == 2 and 1 not in a.shape:  # most often; ȳ bᵀ has the shape of a, so no vector meets
        return g @ b.T
    if b.ndim == 1:
        return expand_dims(g, -1) * b if a.ndim > 1 else g * b
    if a.ndim == 1:
        return matrix_product(b, expand_dims(g, -1))[..., 0]
    return matrix_product(g, b.swapaxes(-1, -2))


def _matmul_right(g: Any, y: Any, a: Any, b: Any) -> Any:
    """aᵀ ȳ."""
    if a.ndim == b.ndim == 2 and 1 not in b.shape:  # as above
        return a.T @ g
    if a.ndim == 1:
        return expand_dims(a, -1) * expand_dims(g, -2) if b.ndim > 1 else g * a
    if b.ndim == 1:
        return matrix_product(a.swapaxes(-1, -2), expand_dims(g, -1))[..., 0]
    if b.ndim == 2 and a.ndim > 2:  # one product over the whole stack, in place of one each and their sum
        a, g = rows(a), rows(g)
    return matrix_product(a.swapaxes(-1, -2), g)


def rows(x: Any) -> Any:
    """A stack of matrices, one below the other; a vector as the only row.

    Written out, as -1 cannot stand for a size where there are no entries.
    """
    return x if x.ndim == 2 else x.reshape((math.prod(x.shape[:-1]), x.shape[-1]))


matmul = Primitive("matmul", matrix_product, _matmul_left, _matmul_right)


def _einsum_rule(g: Any, y: Any, *operands: Any, index: int, inputs: tuple[str, ...], output: str) -> Any:
    """The gradient of one operand: einsum of `g` and the other operands, onto that operand's letters.

    A letter that stands in that operand alone was summed over: ones put it back. A letter it repeats (a
    diagonal) becomes two, joined by an identity matrix.
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


@np.errstate(invalid="ignore")  # see matrix_product, which is what three operands and more come down to
def _einsum_kernel(*operands: Any, inputs: tuple[str, ...], output: str) -> Any:
    return np.einsum(f"{','.join(inputs)}->{output}", *operands, optimize=len(operands) > 2)


_einsum = Primitive("einsum", _einsum_kernel, each=_einsum_rule)


def einsum(subscripts: str, *operands: Any) -> Tensor:
    """Sums of products in Einstein's notation, as numpy.einsum: `einsum("bt,btv->bv", weights, values)`.

    An ellipsis stands for any number of axes, which broadcast; the output must have one if an operand does.
    Axes of length one stretch to longer ones of the same letter.

    Raises:
        ValueError: if the subscripts do not fit the operands.
        TypeError: for numpy's other form of call, with lists of axes.
    """
    if not isinstance(subscripts, str):
        raise TypeError(
            f"einsum: expected subscripts such as 'ij,jk->ik' first, got a {type(subscripts).__name__}"
        )
    operands = tuple(x if isinstance(x, Tensor) else np.asarray(x) for x in operands)
    inputs, output = _parsed(subscripts, [x.shape for x in operands])
    sizes: dict[str, int] = {}
    for letters, x in zip(inputs, operands, strict=True):
        if len(letters) != x.ndim:
            raise ValueError(
                f"einsum: '{subscripts}' names {len(letters)} axes of an operand of shape {x.shape}"
            )
        for letter, size in zip(letters, x.shape, strict=True):
            if size != x.shape[letters.index(letter)]:
                raise ValueError(f"einsum: '{subscripts}' repeats an axis of an operand of shape {x.shape}")
            known = sizes.setdefault(letter, size)
            if known == 1:
                sizes[letter] = size
            elif size not in (1, known):
                raise ValueError(f"einsum: an axis of '{subscripts}' has size {sizes[letter]} and {size}")
    if not set(output) <= set(sizes) or len(set(output)) != len(output):
        raise ValueError(f"einsum: the output of '{subscripts}' repeats a letter or names one no operand has")
    squeezed = [_without_stretched(letters, x, sizes) for letters, x in zip(inputs, operands, strict=True)]
    return _einsum(*(x for _, x in squeezed), inputs=tuple(letters for letters, _ in squeezed), output=output)


def _without_stretched(letters: str, x: Any, sizes: dict[str, int]) -> tuple[str, Any]:
    """The operand without its axes of length one that meet longer ones."""
    kept = [i for i, letter in enumerate(letters) if x.shape[i] == sizes[letter]]
    if len(kept) == len(letters):
        return letters, x
    return "".join(letters[i] for i in kept), reshape(x, tuple(x.shape[i] for i in kept))


def _parsed(subscripts: str, shapes: list[tuple[int, ...]]) -> tuple[tuple[str, ...], str]:
    """The letters of each operand and of the output, with ellipses written out."""
    left, arrow, output = subscripts.replace(" ", "").partition("->")
    inputs = left.split(",")
    for part in (*inputs, output):
        if not set(part.replace("...", "", 1)) <= _LETTERS:
            raise ValueError(f"einsum: '{part}' in '{subscripts}' is more than letters and one ellipsis")
    if len(inputs) != len(shapes):
        raise ValueError(f"einsum: '{subscripts}' describes {len(inputs)} operands, got {len(shapes)}")
    # How many axes each ellipsis stands for; the letters for them are counted from the right, as broadcasting
    # does.
    counts = [
        len(shape) - len(part) + 3 if "..." in part else 0 for part, shape in zip(inputs, shapes, strict=True)
    ]
    if min(counts) < 0:
        raise ValueError(f"einsum: '{subscripts}' names more axes than operands of shapes {shapes} have")
    if arrow and max(counts) and "..." not in output:
        raise ValueError(f"einsum: the output of '{subscripts}' needs the ellipsis that an operand has")
    unnamed = "".join(sorted(_LETTERS - set(subscripts)))[: max(counts)]
    if not arrow:  # numpy's default: the letters that appear once, in alphabetical order
        letters = left.replace(",", "").replace(".", "")
        output = "..." * ("..." in left) + "".join(
            sorted(letter for letter in set(letters) if letters.count(letter) == 1)
        )
    written = [
        part.replace("...", unnamed[len(unnamed) - count :])
        for part, count in zip(inputs, counts, strict=True)
    ]
    return tuple(written), output.replace("...", unnamed)
