"""Floor 3: the rule tables, and the kernels of fused operations with their definitions."""

import string
from typing import Any

import numpy as np

from tinygrad_attn.engine.tensor import Tensor, leaf, value_of
from tinygrad_attn.engine.tensor import rules as _rules
from tinygrad_attn.ops.elementwise import (
    abs,
    add,
    astype,
    clip,
    cos,
    div,
    exp,
    log,
    maximum,
    minimum,
    mul,
    neg,
    pow,
    relu,
    sigmoid,
    sin,
    sqrt,
    sub,
    tanh,
    where,
)
from tinygrad_attn.ops.linalg import einsum, matmul
from tinygrad_attn.ops.reductions import logsumexp, max, mean, min, norm, std, sum, var
from tinygrad_attn.ops.shapes import (
    broadcast_to,
    concatenate,
    expand_dims,
    getitem,
    reshape,
    split,
    squeeze,
    stack,
    swapaxes,
    take,
    transpose,
)
from tinygrad_attn.ops.softmax import cross_entropy, log_softmax, softmax

__all__ = [
    "abs",
    "add",
    "broadcast_to",
    "clip",
    "concatenate",
    "cos",
    "cross_entropy",
    "div",
    "einsum",
    "exp",
    "expand_dims",
    "getitem",
    "log",
    "log_softmax",
    "logsumexp",
    "matmul",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "mul",
    "neg",
    "norm",
    "pow",
    "relu",
    "reshape",
    "sigmoid",
    "sin",
    "softmax",
    "split",
    "sqrt",
    "squeeze",
    "stack",
    "std",
    "sub",
    "sum",
    "swapaxes",
    "take",
    "tanh",
    "transpose",
    "var",
    "where",
]


def _astype(x: Tensor, dtype: Any) -> Tensor:
    target = np.dtype(dtype)
    if target.kind not in "fcbiu":
        raise TypeError(f"astype: got dtype {target}, expected one of numbers")
    return astype(x, dtype=target) if target.kind in "fc" else leaf(x.data.astype(target))


def _numpy_norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Tensor:
    """numpy.linalg.norm, where it is the root of the sum of squares."""
    axes = x.ndim if axis is None else np.size(axis)
    of_vectors = axes == 1
    if ord is None or (of_vectors and ord == 2) or (axes == 2 and ord == "fro"):
        return norm(x, axis, keepdims)
    raise TypeError(f"numpy.linalg.norm of a Tensor: ord is {ord!r}, expected None, the root of Σx²")


def _numpy_clip(x: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Tensor:
    return clip(x, a_min if min is None else min, a_max if max is None else max)


def _numpy_where(condition: Any, *choices: Any) -> Any:
    return where(condition, *choices) if choices else np.nonzero(value_of(condition))


def _dot(a: Any, b: Any) -> Tensor:
    """numpy.dot: over the last axis of `a` and the last but one of `b`, for all pairs of their others."""
    left, right = np.ndim(value_of(a)), np.ndim(value_of(b))
    if not left or not right:
        return mul(a, b)
    if right <= 2:
        return matmul(a, b)
    axes, others = string.ascii_lowercase[: left - 1], string.ascii_uppercase[: right - 2]
    return einsum(f"{axes}y,{others}yz->{axes}{others}z", a, b)


for _name in __all__:
    setattr(_rules, _name, globals()[_name])
_rules.astype = _astype
_rules.dot = _dot
_rules.ufuncs.update(
    {
        np.absolute: abs,
        np.add: add,
        np.cos: cos,
        np.divide: div,
        np.exp: exp,
        np.log: log,
        np.matmul: matmul,
        np.maximum: maximum,
        np.minimum: minimum,
        np.multiply: mul,
        np.negative: neg,
        np.power: pow,
        np.sin: sin,
        np.sqrt: sqrt,
        np.subtract: sub,
        np.tanh: tanh,
    }
)
_rules.functions.update(
    {
        np.broadcast_to: broadcast_to,
        np.clip: _numpy_clip,
        np.concatenate: concatenate,
        np.dot: _dot,
        np.einsum: einsum,
        np.expand_dims: expand_dims,
        np.linalg.norm: _numpy_norm,
        np.max: max,
        np.mean: mean,
        np.min: min,
        np.reshape: reshape,
        np.split: split,
        np.squeeze: squeeze,
        np.stack: stack,
        np.std: std,
        np.sum: sum,
        np.swapaxes: swapaxes,
        np.take: take,
        np.transpose: transpose,
        np.var: var,
        np.where: _numpy_where,
    }
)
