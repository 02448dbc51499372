"""The operations of the table written for PyTorch tensors, with numpy's argument names.

With these in place of `ops`, the functions of the samples compute the same in PyTorch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn import functional

add, sub, mul, div, pow, neg = torch.add, torch.sub, torch.mul, torch.div, torch.pow, torch.neg
exp, log, sqrt, sin, cos, tanh, sigmoid, relu, abs = (
    *(torch.exp, torch.log, torch.sqrt, torch.sin, torch.cos, torch.tanh, torch.sigmoid),
    *(torch.relu, torch.abs),
)
matmul, einsum, swapaxes, reshape = torch.matmul, torch.einsum, torch.swapaxes, torch.reshape
broadcast_to, split, identity = torch.broadcast_to, torch.tensor_split, torch.clone


def maximum(a: Any, b: Any) -> Any:
    return torch.maximum(a, torch.as_tensor(b, dtype=a.dtype))


def minimum(a: Any, b: Any) -> Any:
    return torch.minimum(a, torch.as_tensor(b, dtype=a.dtype))


def clip(x: Any, low: Any = None, high: Any = None) -> Any:
    bounds = (None if bound is None else torch.as_tensor(bound, dtype=x.dtype) for bound in (low, high))
    return torch.clip(x, *bounds)


def where(condition: Any, a: Any, b: Any) -> Any:
    return torch.where(torch.as_tensor(condition), a, b)


def _reduction(reduce: Any, of_one: Any) -> Any:
    """PyTorch takes an empty tuple of axes for all; `of_one` says what each entry alone gives."""

    def function(x: Any, axis: Any = None, keepdims: bool = False, **settings: Any) -> Any:
        axes = tuple(range(x.ndim)) if axis is None else axis
        return reduce(x, dim=axes, keepdim=keepdims, **settings) if axes != () else of_one(x)

    return function


sum = _reduction(torch.sum, torch.clone)
mean = _reduction(torch.mean, torch.clone)
max = _reduction(torch.amax, torch.clone)
min = _reduction(torch.amin, torch.clone)
norm = _reduction(torch.linalg.vector_norm, torch.abs)
logsumexp = _reduction(torch.logsumexp, torch.clone)
var = _reduction(lambda x, *, ddof=0, **settings: torch.var(x, correction=ddof, **settings), lambda x: x - x)
std = _reduction(lambda x, *, ddof=0, **settings: torch.std(x, correction=ddof, **settings), lambda x: x - x)


def transpose(x: Any, axes: Any = None) -> Any:
    return torch.permute(x, tuple(range(x.ndim))[::-1] if axes is None else axes)


def squeeze(x: Any, axis: Any = None) -> Any:
    return torch.squeeze(x) if axis is None else torch.squeeze(x, axis)


def expand_dims(x: Any, axis: Any) -> Any:
    return x.reshape(np.expand_dims(np.empty(x.shape), axis).shape)


def concatenate(tensors: Any, axis: int = 0) -> Any:
    return torch.cat([torch.as_tensor(x) for x in tensors], dim=axis)


def stack(tensors: Any, axis: int = 0) -> Any:
    return torch.stack([stack(x) if isinstance(x, list) else x for x in tensors], dim=axis)


def getitem(x: Any, index: Any) -> Any:
    """numpy's index says which entry goes where; PyTorch gathers."""
    return x.reshape(-1)[torch.as_tensor(np.array(np.arange(x.numel()).reshape(x.shape)[index]))]


def scatter(g: Any, *, index: Any, shape: tuple[int, ...]) -> Any:
    places = torch.as_tensor(np.arange(np.prod(shape)).reshape(shape)[index])
    flat = torch.zeros(int(np.prod(shape)), dtype=g.dtype)
    return flat.index_put((places,), g, accumulate=True).reshape(shape)


def sum_to(x: Any, *, shape: tuple[int, ...]) -> Any:
    return x.sum_to_size(shape) if shape else x.sum()


def take(x: Any, indices: Any, axis: int | None = None) -> Any:
    indices = torch.as_tensor(np.asarray(indices, np.int64))
    if axis is None:
        return x.reshape(-1)[indices]
    return x.movedim(axis, 0)[indices].movedim(
        tuple(range(indices.ndim)), tuple(range(axis % x.ndim, axis % x.ndim + indices.ndim))
    )


def softmax(x: Any, axis: int = -1, mask: Any = None) -> Any:
    if mask is None:
        return torch.softmax(x, axis)
    mask = torch.as_tensor(mask)
    present = mask.any(dim=axis, keepdim=True)
    return torch.softmax(x.masked_fill(~mask & present, -torch.inf), axis) * mask


def log_softmax(x: Any, axis: int = -1) -> Any:
    return torch.log_softmax(x, axis)


def cross_entropy(logits: Any, targets: Any, ignore_index: int = -100) -> Any:
    targets = torch.as_tensor(np.asarray(targets)).reshape(-1)
    return functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets, ignore_index=ignore_index)


def linear(x: Any, weight: Any, bias: Any = None) -> Any:
    return functional.linear(torch.as_tensor(x), weight, bias)


def embedding(weight: Any, ids: Any, padding_index: int | None = None) -> Any:
    return functional.embedding(torch.as_tensor(ids), weight, padding_idx=padding_index)


def rnn_cell(x: Any, h: Any, *weights: Any) -> Any:
    return torch.rnn_tanh_cell(torch.as_tensor(x), h, *weights)


def gru_cell(x: Any, h: Any, *weights: Any) -> Any:
    return torch.gru_cell(torch.as_tensor(x), h, *weights)


def lstm_cell(x: Any, h: Any, c: Any, *weights: Any) -> Any:
    return torch.lstm_cell(x, (h, c), *weights)


rnn_cell.name, gru_cell.name = "rnn_cell", "gru_cell"


def additive_scores(query: Any, w: Any, keys: Any, v: Any) -> Any:
    keys = keys if query.ndim == 2 else keys[:, None]
    return torch.tanh((query @ w.T)[..., None, :] + keys) @ v


def dot_scores(query: Any, keys: Any) -> Any:
    return torch.einsum("bq,btq->bt" if query.ndim == 2 else "bnq,btq->bnt", query, keys)


def weighted_sum(weights: Any, values: Any) -> Any:
    return torch.einsum("bt,btv->bv" if weights.ndim == 2 else "bnt,btv->bnv", weights, values)
