"""Every kind of index: numpy's value, and a gradient that lands where it came from, repeats added up."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta

X = np.arange(24.0).reshape(2, 3, 4)

INDICES: list[Any] = [
    0,
    -1,
    np.int64(1),
    np.array(1),
    True,
    False,
    None,
    ...,
    (),
    (1, 2, 3),
    (1, ..., -1),
    (..., None, 0),
    slice(None),
    slice(1, None),
    slice(None, None, -1),
    (slice(None), slice(3, 0, -2)),
    (slice(None), slice(2, 2)),
    (0, slice(None, None, 2), [0, 0, 3]),
    ((0, 0, 1),),
    (slice(None), (2, 0, 2)),
    ((1, 1), slice(None), range(0, 3, 2)[0]),
    (0, range(2)),
    array("q", [1, 1, 0]),
    (0, array("q", [2, 2])),
    [0, 0, 1, 0],
    [-1, 1],
    [],
    [True, False],
    [[0, 1], [1, 1]],
    np.array([[1, 1, 0], [0, 0, 0]]),
    np.array([0, 1], np.uint8),
    X > 7,
    X[:, :, 0] > 3,
    (slice(None), np.array([True, False, True])),
    ([0, 0, 1], [2, 2, 0]),
    (np.array([[0], [1]]), np.array([2, 2, 0])),
    ([0, 0], slice(None), [3, 3]),
    (slice(None), [0, 0], [3, 3]),
    ([0, 0], None, slice(1), [1, 1]),
    (np.array([True, True]), [0, 0], 1),
]


@pytest.mark.parametrize("index", INDICES, ids=lambda index: repr(index).replace("\n", ""))
def test_index(index: Any) -> None:
    x = ta.Tensor(X, requires_grad=True)
    y = x[index]
    np.testing.assert_array_equal(y.data, X[index])
    upstream = np.random.default_rng(0).integers(1, 9, y.shape).astype(float)
    y.backward(upstream)
    expected = np.zeros_like(X)
    np.add.at(expected, index, upstream)
    np.testing.assert_array_equal(x.grad, expected)


def test_indices_given_as_tensors_and_lists_of_tensors() -> None:
    x = ta.Tensor(X[0], requires_grad=True)
    rows = ta.Tensor([0, 0, 2])
    np.testing.assert_array_equal(x[rows].data, X[0][[0, 0, 2]])
    np.testing.assert_array_equal(x[rows, rows].data, X[0][[0, 0, 2], [0, 0, 2]])
    np.testing.assert_array_equal(x[x > 5].data, X[0][X[0] > 5])
    np.testing.assert_array_equal(x[[rows[0], rows[2]]].data, X[0][[0, 2]])
    np.testing.assert_array_equal(x[ta.Tensor(1)].data, X[0][1])
    assert [1.5, 2.5, 3.5][ta.Tensor(1)] == 2.5
    np.testing.assert_array_equal(X[0][rows], X[0][[0, 0, 2]])


def test_repeated_indices_add_up() -> None:
    x = ta.Tensor([1.0, 2.0, 3.0], requires_grad=True)
    (x[[0, 0, 2]] * ta.Tensor([1.0, 10.0, 100.0])).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [11, 0, 100]
    table = ta.Tensor(np.zeros((4, 2)), requires_grad=True)
    (table[[[1, 1, 3], [1, 0, 3]]] * np.arange(1.0, 13).reshape(2, 3, 2)).sum().backward()
    assert table.grad is not None and table.grad.tolist() == [[9, 10], [11, 14], [0, 0], [16, 18]]
    table.zero_grad()
    (ta.take(table, [[1, 1, 3], [1, 0, 3]], axis=0) * np.arange(1.0, 13).reshape(2, 3, 2)).sum().backward()
    assert table.grad is not None and table.grad.tolist() == [[9, 10], [11, 14], [0, 0], [16, 18]]


@pytest.mark.parametrize(
    ("x", "index", "weights", "expected"),
    [
        ([1.0, 2, 3, 4, 5], slice(1, 4, 2), [10, 20], [0, 10, 0, 20, 0]),
        ([1.0, 2, 3], [True, False, True], [7, 9], [7, 0, 9]),
        ([1.0, 2, 3], slice(None, None, -1), [1, 10, 100], [100, 10, 1]),
        ([[0.0, 1, 2], [3, 4, 5]], (slice(None), -1), [3, 4], [[0, 0, 3], [0, 0, 4]]),
        ([1.0, 2, 3], None, [[1, 2, 3]], [1, 2, 3]),
        ([[1.0, 2], [3, 4]], (..., 0), [5, 6], [[5, 0], [6, 0]]),
        ([1.0, 2, 3], -1, 4, [0, 0, 4]),
    ],
)
def test_gradient_lands_in_the_shape_of_the_source(x: Any, index: Any, weights: Any, expected: Any) -> None:
    source = ta.Tensor(x, requires_grad=True)
    (source[index] * np.array(weights, float)).sum().backward()
    assert source.grad is not None and source.grad.tolist() == expected


def test_second_derivative_through_repeated_indices() -> None:
    x = ta.Tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x[[0, 0, 2]]
    (g,) = ta.grad((y**3).sum(), x, create_graph=True)
    (second,) = ta.grad(g.sum(), x)
    np.testing.assert_allclose(second.data, [12, 0, 18])


def test_a_tensor_cannot_be_assigned_to() -> None:
    x = ta.Tensor([1.0, 2.0])
    with pytest.raises(TypeError, match=r"ta\.where"):
        x[0] = 3.0
    with pytest.raises(TypeError, match=r"ta\.where"):
        x[0] += 3.0
