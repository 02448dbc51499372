"""The scores of many queries at once: exponentials in place of tangents, wherever these are exact enough."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn import Tensor
from tinygrad_attn.ops.attention import additive_scores, key_exponentials


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1e-3, 1.0, 6.0, 19.0, 60.0, 1e4])
@pytest.mark.parametrize(("queries", "steps"), [(1, 4), (4, 1), (3, 4)])
def test_scores_of_small_and_large_sums(dtype: Any, size: float, queries: int, steps: int) -> None:
    rng = np.random.default_rng(0)
    w = np.eye(5, dtype=dtype)
    query, keys = ((rng.uniform(-size, size, (2, count, 5))).astype(dtype) for count in (queries, steps))
    keys[0, 0] = -query[0, 0]  # what cancels
    v = rng.standard_normal(5).astype(dtype)
    exact = np.tanh(query.astype(np.longdouble)[:, :, None] + keys.astype(np.longdouble)[:, None]) @ v
    for exponentials in (None, key_exponentials(keys)):
        found = additive_scores(query, w, keys, v, exponentials)
        # An exponential doubles its argument, so errors of rounding grow with it, as they do in the sum
        # itself.
        np.testing.assert_allclose(
            found, exact.astype(float), atol=min(size + 4, 64) * 4 * np.finfo(dtype).eps
        )


@pytest.mark.parametrize("lead", [(40,), (40, 3)], ids=["one query", "several queries"])
def test_given_exponentials_the_kernel_keeps_nothing_and_gives_the_same(lead: tuple[int, ...]) -> None:
    """More sentences than are computed at a time."""
    rng = np.random.default_rng(0)
    query, w, keys, v = (
        Tensor(rng.standard_normal(shape), requires_grad=True)
        for shape in ((*lead, 4), (64, 4), (40, 30, 64), (64,))
    )
    plain, given = (
        additive_scores(query, w, keys, v, *extra) for extra in ((), (key_exponentials(keys.data),))
    )
    np.testing.assert_allclose(given.data, plain.data, rtol=1e-12, atol=1e-12)
    assert given._saved is None
    gradients = []
    for scores in (plain, given):
        scores.sum().backward()
        gradients.append([x.grad for x in (query, w, keys, v)])
        for x in (query, w, keys, v):
            x.grad = None
    for ours, theirs in zip(*gradients, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("lead", [(2,), (2, 3)], ids=["one query", "several queries"])
def test_gradients_given_exponentials(lead: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(shape) for shape in ((*lead, 2), (4, 2), (2, 3, 4), (4,))]

    def scores(query: Any, w: Any, keys: Any, v: Any) -> Any:
        return additive_scores(query, w, keys, v, key_exponentials(keys.data))

    ta.gradcheck(scores, [Tensor(x, requires_grad=True) for x in inputs], order=2)


def test_the_largest_of_numbers() -> None:
    v = np.array([1.6e38, -1.7e38, 1.0], np.float32)
    query, keys = np.float32([[[0.5, 0.25, 0.0]]]), np.float32([[[0.25, 0.25, 1.0]]])
    found = additive_scores(query, np.eye(3, dtype=np.float32), keys, v, key_exponentials(keys))
    np.testing.assert_allclose(found, np.tanh(query + keys) @ v.astype(float)[:, None], rtol=1e-5)


def test_a_sentence_does_not_depend_on_others_whose_keys_are_too_large() -> None:
    rng = np.random.default_rng(0)
    query, keys, v = rng.standard_normal((2, 5)), rng.standard_normal((2, 3, 5)), rng.standard_normal(5)
    alone = additive_scores(query[:1], np.eye(5), keys[:1], v, key_exponentials(keys[:1]))
    keys[1] *= 1e6
    beside = additive_scores(query, np.eye(5), keys, v, key_exponentials(keys))
    assert np.array_equal(alone[0], beside[0])


def test_nan_is_passed_on() -> None:
    query, keys = np.zeros((1, 2, 3)), np.zeros((1, 2, 3))
    keys[0, 1, 2] = np.nan
    found = np.asarray(additive_scores(query, np.eye(3), keys, np.ones(3)))
    assert np.isnan(found[0, :, 1]).all() and not found[0, :, 0].any()
