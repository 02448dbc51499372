"""Random shapes, broadcasts, axes and upstream gradients: each drawn anew by Hypothesis."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import (
    array_shapes,
    basic_indices,
    broadcastable_shapes,
    mutually_broadcastable_shapes,
)

import tinygrad_attn as ta
from tinygrad_attn.check.fused_samples import fused_samples

SHAPES = array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
SEEDS = st.integers(0, 2**32 - 1)


def assert_gradients(
    fn: Any, *shapes: tuple[int, ...], seed: int, positive: bool = False, order: int = 2
) -> None:
    rng = np.random.default_rng(seed)
    draw = (lambda shape: rng.uniform(0.5, 2.0, shape)) if positive else rng.standard_normal
    report = ta.gradcheck(fn, [np.asarray(draw(shape)) for shape in shapes], order=order, rng=rng)
    assert report.method == "complex"


@given(
    shapes=mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=3, min_side=0),
    name=st.sampled_from(["add", "sub", "mul", "div", "pow"]),
    seed=SEEDS,
)
def test_broadcasts(shapes: Any, name: str, seed: int) -> None:
    assert_gradients(getattr(ta, name), *shapes.input_shapes, seed=seed, positive=name in ("div", "pow"))


@given(
    data=st.data(),
    shape=array_shapes(max_dims=4, max_side=3),
    name=st.sampled_from(["sum", "mean", "var", "logsumexp", "norm", "max", "min"]),
    keepdims=st.booleans(),
    seed=SEEDS,
)
def test_reductions(data: Any, shape: tuple[int, ...], name: str, keepdims: bool, seed: int) -> None:
    axes = data.draw(st.sets(st.integers(0, len(shape) - 1)))
    signed = tuple(data.draw(st.permutations([a - len(shape) * data.draw(st.booleans()) for a in axes])))
    axis = data.draw(st.sampled_from([None, signed, *signed[:1]]))
    assert_gradients(
        lambda x: getattr(ta, name)(x, axis=axis, keepdims=keepdims),
        shape,
        seed=seed,
        positive=name == "norm",
    )


@given(data=st.data(), shape=array_shapes(max_dims=3, max_side=4), seed=SEEDS)
def test_indexing(data: Any, shape: tuple[int, ...], seed: int) -> None:
    basic = basic_indices(shape, allow_newaxis=True, allow_ellipsis=True)
    rows = st.lists(st.integers(-shape[0], shape[0] - 1), max_size=5).map(lambda ids: np.array(ids, int))
    index = data.draw(st.one_of(basic, rows))
    assert_gradients(lambda x: x[index] * 2.0, shape, seed=seed)


@given(data=st.data(), shape=SHAPES, seed=SEEDS)
def test_broadcast_to_and_permutations(data: Any, shape: tuple[int, ...], seed: int) -> None:
    wider = data.draw(broadcastable_shapes(shape, min_dims=len(shape), max_dims=4, min_side=0, max_side=3))
    wider = np.broadcast_shapes(shape, wider)
    assert_gradients(lambda x: ta.broadcast_to(x, wider), shape, seed=seed)
    order = data.draw(st.permutations(range(len(shape))))
    assert_gradients(lambda x: ta.exp(ta.transpose(x, order)), shape, seed=seed)


@given(
    batches=mutually_broadcastable_shapes(num_shapes=2, max_dims=2, max_side=3),
    sizes=st.tuples(*[st.integers(1, 3)] * 3),
    vectors=st.tuples(st.booleans(), st.booleans()),
    seed=SEEDS,
)
def test_products(batches: Any, sizes: tuple[int, ...], vectors: tuple[bool, bool], seed: int) -> None:
    n, k, m = sizes
    left = (k,) if vectors[0] else (*batches.input_shapes[0], n, k)
    right = (k,) if vectors[1] else (*batches.input_shapes[1], k, m)
    assert_gradients(ta.matmul, left, right, seed=seed)


@given(data=st.data(), shape=array_shapes(min_dims=1, max_dims=3, max_side=4), seed=SEEDS)
def test_masked_softmax(data: Any, shape: tuple[int, ...], seed: int) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    mask = np.random.default_rng(seed).random(shape) < 0.7
    assert_gradients(lambda x: ta.softmax(x, axis=axis, mask=mask), shape, seed=seed)


@given(seed=SEEDS, pick=st.integers(0, 10**6))
def test_kernels_at_random_shapes(seed: int, pick: int) -> None:
    """Order 1: the kernel's backward pass against complex steps through the definition."""
    table = list(fused_samples(np.random.default_rng(seed)))
    sample = table[pick % len(table)]
    rng = np.random.default_rng(seed)
    assert ta.gradcheck(sample.fn, sample.inputs(rng), entries=3, rng=rng)


@given(shape=array_shapes(min_dims=1, max_dims=2, max_side=4), seed=SEEDS)
def test_upstream_gradients_are_never_changed(shape: tuple[int, ...], seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = ta.Tensor(rng.standard_normal(shape), requires_grad=True)
    y = ta.Tensor(rng.standard_normal(shape), requires_grad=True)
    upstream = rng.standard_normal(shape)
    held = [array.copy() for array in (x.data, y.data, upstream)]
    (ta.tanh(x) + x + y.T.T[...]).backward(upstream)
    assert x.grad is not None and y.grad is not None
    for array, before in zip((x.data, y.data, upstream), held, strict=True):
        assert (array == before).all()
    arrays = [x.data, y.data, upstream, x.grad, y.grad]
    for i, a in enumerate(arrays):
        assert not any(np.shares_memory(a, b) for b in arrays[i + 1 :])
