"""Shapes, axes and indices as hypothesis finds them; linear operations against their adjoints."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tinygrad_attn as ta

SHAPE = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


def numbers(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.asarray(np.random.default_rng(seed).uniform(0.5, 2.0, shape))


def adjoint(fn: Any, x: np.ndarray) -> None:
    """⟨u, A v⟩ = ⟨Aᵀ u, v⟩ for a linear A."""
    t = ta.Tensor(x, requires_grad=True)
    y = fn(t)
    u = numbers(y.shape, 1)
    (back,) = ta.grad(y, t, u)
    assert back.shape == x.shape
    np.testing.assert_allclose((u * y.data).sum(), (back.data * x).sum(), rtol=1e-12)


@given(hnp.mutually_broadcastable_shapes(num_shapes=2, min_side=0, max_side=4, max_dims=4))
def test_broadcasting(shapes: Any) -> None:
    a, b = (ta.Tensor(numbers(shape, i), requires_grad=True) for i, shape in enumerate(shapes.input_shapes))
    for fn, ufunc in ((ta.add, np.add), (ta.sub, np.subtract), (ta.mul, np.multiply), (ta.div, np.divide)):
        y = fn(a, b)
        np.testing.assert_array_equal(y.data, ufunc(a.data, b.data))
        to_a, to_b = ta.grad(y, (a, b), np.ones(y.shape))
        assert to_a.shape == a.shape and to_b.shape == b.shape
    # Each entry of `a` meets as many of `b` as there are results for it.
    to_a, _ = ta.grad(a + b, (a, b), np.ones(shapes.result_shape))
    count = int(np.prod(shapes.result_shape)) // max(1, a.size)
    assert (to_a.data == count).all()


@given(st.data())
def test_reductions(data: st.DataObject) -> None:
    shape = data.draw(SHAPE)
    axes = data.draw(hnp.valid_tuple_axes(len(shape)))
    keepdims = data.draw(st.booleans())
    adjoint(lambda x: ta.sum(x, axes, keepdims), numbers(shape))
    assert (
        ta.sum(ta.Tensor(np.ones(shape)), axes, keepdims).shape
        == np.sum(np.ones(shape), axes, keepdims=keepdims).shape
    )
    if 0 not in shape:
        adjoint(lambda x: ta.mean(x, axes, keepdims), numbers(shape))
        for name in ("max", "min", "var", "std"):
            x = numbers(shape)
            found = getattr(ta, name)(ta.Tensor(x), axis=axes, keepdims=keepdims)
            np.testing.assert_allclose(
                found.data, getattr(np, name)(x, axis=axes, keepdims=keepdims), atol=1e-13
            )


@given(st.data())
def test_basic_indices(data: st.DataObject) -> None:
    shape = data.draw(SHAPE)
    index = data.draw(hnp.basic_indices(shape, allow_newaxis=True))
    adjoint(lambda x: x[index], numbers(shape))


@given(st.data())
def test_integer_indices(data: st.DataObject) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=4, max_side=4))
    index = data.draw(hnp.integer_array_indices(shape, result_shape=hnp.array_shapes(max_dims=3, max_side=4)))
    adjoint(lambda x: x[index], numbers(shape))


@given(st.data())
def test_masks(data: st.DataObject) -> None:
    shape = data.draw(SHAPE)
    covered = data.draw(st.integers(0, len(shape)))
    mask = data.draw(hnp.arrays(bool, shape[:covered]))
    adjoint(lambda x: x[mask], numbers(shape))


@given(st.data())
def test_moves(data: st.DataObject) -> None:
    shape = data.draw(SHAPE)
    order = data.draw(st.permutations(range(len(shape))))
    adjoint(lambda x: ta.transpose(x, order), numbers(shape))
    axis = data.draw(st.integers(-len(shape) - 1, len(shape)))
    adjoint(lambda x: ta.expand_dims(x, axis), numbers(shape))
    adjoint(lambda x: ta.stack([x, 2 * x], axis), numbers(shape))
    if shape:
        axis = data.draw(st.integers(-len(shape), len(shape) - 1))
        adjoint(lambda x: ta.concatenate([x, 2 * x], axis), numbers(shape))
        place = data.draw(st.integers(0, shape[axis]))
        adjoint(lambda x: ta.concatenate(ta.split(x, [place], axis)[::-1], axis), numbers(shape))


@given(hnp.mutually_broadcastable_shapes(signature=np.matmul.signature, max_side=3, max_dims=2))
def test_matmul(shapes: Any) -> None:
    a, b = (numbers(shape, i) for i, shape in enumerate(shapes.input_shapes))
    np.testing.assert_allclose((ta.Tensor(a) @ b).data, a @ b, rtol=1e-13)
    adjoint(lambda x: x @ b, a)
    adjoint(lambda x: a @ x, b)


@given(st.data())
def test_softmax_rows_sum_to_one_or_nothing(data: st.DataObject) -> None:
    shape = data.draw(hnp.array_shapes(max_dims=3, max_side=4))
    scores = data.draw(hnp.arrays(np.float64, shape, elements=st.floats(-1e300, 1e300)))
    mask = data.draw(hnp.arrays(bool, shape))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    for mode in (ta.explicit(), ta.scope("kernel")):
        with mode:
            weights = ta.softmax(ta.Tensor(scores), axis=axis, mask=mask).data
        assert (weights[~mask] == 0).all() and (weights >= 0).all()
        np.testing.assert_allclose(weights.sum(axis=axis), mask.any(axis=axis), rtol=1e-12)
