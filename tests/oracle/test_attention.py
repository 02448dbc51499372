"""Every score against PyTorch in float64, values and gradients, masked and not, single and many queries."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tests.nn.test_attention import MASKS, RNG, inputs, make, mode

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra `oracle`)")

pytestmark = pytest.mark.oracle
SCORES = ("additive", "concat", "general", "dot", "scaled")


def leaf(array: np.ndarray) -> Any:
    return torch.tensor(array, dtype=torch.float64, requires_grad=True)


def scores_in_torch(name: str, q: Any, k: Any, p: dict[str, Any]) -> Any:
    """e for q (B, N, Q) and k (B, T, K)."""
    if name == "additive":
        return torch.tanh((q @ p["W_a"].T)[:, :, None] + (k @ p["U_a"].T)[:, None]) @ p["v_a"]
    if name == "concat":
        shape = (len(q), q.shape[1], k.shape[1], -1)
        joined = torch.cat([q[:, :, None].expand(*shape), k[:, None].expand(*shape)], dim=-1)
        return torch.tanh(joined @ p["W_a"].T) @ p["v_a"]
    if name == "general":
        return torch.einsum("bnq,qk,btk->bnt", q, p["W_a"], k)
    return q @ k.transpose(1, 2) / (math.sqrt(q.shape[-1]) if name == "scaled" else 1)


def softmax_in_torch(e: Any, mask: Any) -> Any:
    """Over what takes part; zeros where nothing does."""
    if mask is None:
        return torch.softmax(e, dim=-1)
    mask = torch.tensor(mask)[:, None].expand(e.shape)
    none = ~mask.any(dim=-1, keepdim=True)
    alpha = torch.softmax(e.masked_fill(~mask & ~none, -math.inf), dim=-1)
    return alpha.masked_fill(~mask, 0)


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("count", [None, 1, 3], ids=lambda count: f"N={count}")
@pytest.mark.parametrize("mask", ["none", "lengths", "holes", "a row of nothing"])
@pytest.mark.parametrize("explicit", [False, True], ids=["kernel", "definition"])
def test_values_and_gradients(name: str, count: int | None, mask: str, explicit: bool) -> None:
    module, (query, keys) = make(name), inputs(name, count)
    values, rng = RNG(2).standard_normal((2, 3, 2)), RNG(3)
    ours = [ta.Tensor(x, requires_grad=True) for x in (query, keys, values)]
    with mode(explicit):
        found = module(*ours, MASKS[mask])
        upstream = [rng.standard_normal(part.shape) for part in found]
        sum((part * g).sum() for part, g in zip(found, upstream, strict=True)).backward()

    theirs = [leaf(x) for x in (query, keys, values)]
    weights = {key: leaf(tensor.data) for key, tensor in module.named_parameters()}
    q = theirs[0][:, None] if count is None else theirs[0]
    e = scores_in_torch(name, q, theirs[1], weights)
    alpha = softmax_in_torch(e, MASKS[mask])
    expected = [x[:, 0] if count is None else x for x in (alpha @ theirs[2], alpha, e)]
    sum((part * torch.tensor(g)).sum() for part, g in zip(expected, upstream, strict=True)).backward()

    pairs = [(a.data, b.detach().numpy()) for a, b in zip(found, expected, strict=True)]
    pairs += [(a.grad, b.grad.numpy()) for a, b in zip(ours, theirs, strict=True)]
    pairs += [(p.grad, weights[key].grad.numpy()) for key, p in module.named_parameters()]
    for ours_, theirs_ in pairs:
        np.testing.assert_allclose(ours_, theirs_, rtol=0, atol=1e-12 * np.abs(theirs_).max())
