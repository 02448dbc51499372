"""The scores of many queries at once: exponentials in place of tangents, wherever these are exact enough."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tinygrad_attn.ops.attention import additive_scores


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
    found = additive_scores(query, w, keys, v)
    # An exponential doubles its argument, so errors of rounding grow with it, as they do in the sum itself.
    np.testing.assert_allclose(found, exact.astype(float), atol=min(size + 4, 64) * 4 * np.finfo(dtype).eps)


def test_nan_is_passed_on() -> None:
    query, keys = np.zeros((1, 2, 3)), np.zeros((1, 2, 3))
    keys[0, 1, 2] = np.nan
    found = np.asarray(additive_scores(query, np.eye(3), keys, np.ones(3)))
    assert np.isnan(found[0, :, 1]).all() and not found[0, :, 0].any()
