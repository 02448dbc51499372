"""The decoder's kernel takes short cuts where numbers are of ordinary size; elsewhere it is as exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn.engine import Tensor
from tinygrad_attn.ops.unrolled import bahdanau_decoder

BATCH, STEPS, LENGTH, SIZE, WIDTH = 2, 3, 4, 3, 4


def inputs(
    dtype: Any, keys: float = 1.0, query: float = 1.0, v: float = 1.0, initial: float = 1.0
) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = [(BATCH, STEPS, 2), (BATCH, SIZE), (BATCH, LENGTH, WIDTH), (BATCH, LENGTH, 5), (5, SIZE), (5,)]
    shapes += [(3 * SIZE, 2 + WIDTH), (3 * SIZE, SIZE), (3 * SIZE,), (3 * SIZE,)]
    arrays = [rng.uniform(-1, 1, shape) for shape in shapes]
    for place, factor in ((1, initial), (3, keys), (4, query), (5, v)):
        arrays[place] = arrays[place] * factor
    return [array.astype(dtype) for array in arrays]


def run(arrays: list[np.ndarray], explicit: bool) -> list[np.ndarray]:
    words, initial, annotations, keys, *weights = (Tensor(array, requires_grad=True) for array in arrays)
    with ta.explicit() if explicit else ta.scope("kernel"):
        y = bahdanau_decoder(words, initial, annotations, keys, None, *weights, cell="gru")
    ta.sum(y * y).backward()
    leaves = (words, initial, annotations, keys, *weights)
    return [y.data, *(np.asarray(leaf.grad) for leaf in leaves)]


@pytest.mark.parametrize(
    "sizes",
    [
        {"keys": 60.0},
        {"keys": 400.0},
        {"query": 100.0},
        {"query": 1000.0},
        {"initial": 300.0},
        {"v": 100.0},
        {"v": 1e3},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(np.float64, 1e-9), (np.float32, 2e-4), (np.longdouble, 1e-9)], ids=str
)
def test_large_numbers(dtype: Any, tolerance: float, sizes: dict[str, float]) -> None:
    arrays = inputs(dtype, **sizes)
    expected = run([array.astype(np.float64) for array in arrays], explicit=True)
    for found, exact in zip(run(arrays, explicit=False), expected, strict=True):
        assert found.dtype == dtype
        np.testing.assert_allclose(
            found.astype(float), exact, rtol=tolerance, atol=tolerance * (1 + np.abs(exact).max())
        )


@pytest.mark.parametrize(
    "sizes",
    [("query",), ("keys",), ("v",), ("query", "v"), ("keys", "query")],
    ids="+".join,
)
@pytest.mark.parametrize(
    ("dtype", "huge", "tolerance"),
    [(np.float64, 1e200, 1e-12), (np.float32, 1e25, 1e-4), (np.float16, 3e3, 0.05)],
    ids=str,
)
def test_tangents_of_one_pass_nothing(
    dtype: Any, huge: float, tolerance: float, sizes: tuple[str, ...]
) -> None:
    """Where W_a s + U_a h is huge its tanh is flat: no rounding error is left to be multiplied by W_a."""
    arrays = inputs(dtype, **dict.fromkeys(sizes, huge))
    for found, exact in zip(run(arrays, explicit=False), run(arrays, explicit=True), strict=True):
        scale = max(1.0, float(np.abs(exact).max()))
        np.testing.assert_allclose(found / scale, exact / scale, atol=tolerance)


@pytest.mark.parametrize("v", [0.1, 1.0, 5.0])
def test_half_precision(v: float) -> None:
    arrays = inputs(np.float16, v=v)
    expected = run([array.astype(np.float64) for array in arrays], explicit=True)
    for found, exact in zip(run(arrays, explicit=False), expected, strict=True):
        assert found.dtype == np.float16
        np.testing.assert_allclose(found.astype(float), exact, atol=0.05 * (1 + np.abs(exact).max()))


@pytest.mark.parametrize("fill", [1e3, -1e6])
def test_what_stands_in_a_pad_changes_nothing(fill: float) -> None:
    arrays, mask = inputs(np.float64), np.array([[True] * 4, [True, True, False, False]])
    results = []
    for value in (0.0, fill):
        words, initial, annotations, keys, *weights = arrays
        keys = keys.copy()
        keys[1, 2:] = value
        leaves = [Tensor(a, requires_grad=True) for a in (words, initial, annotations, keys, *weights)]
        y = bahdanau_decoder(*leaves[:4], mask, *leaves[4:], cell="gru")
        ta.sum(y * y).backward()
        results.append([y.data, *(leaf.grad for leaf in leaves)])
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)


def test_nan_is_passed_on() -> None:
    arrays = inputs(np.float64)
    arrays[3][0, 1, 2] = np.nan
    found = run(arrays, explicit=False)[0]
    assert np.isnan(found[0]).any() and not np.isnan(found[1]).any()
