"""Large, tied, empty, infinite and zero: right values, no NaN, and (by the suite's settings) no warning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn.ops.attention import additive_scores
from tinygrad_attn.ops.linear import embedding, linear

INF, NAN = np.inf, np.nan


def gradient(fn: Any, *arrays: Any, upstream: Any = None) -> Any:
    """The value of `fn` and the gradients of its (weighted) sum, as nested lists."""
    inputs = [ta.Tensor(x, requires_grad=True) for x in arrays]
    y = fn(*inputs)
    y.backward(np.ones_like(y.data) if upstream is None else np.array(upstream, float))
    gradients = [None if x.grad is None else x.grad.tolist() for x in inputs]
    return (y.tolist(), *gradients)


def test_tanh_and_sigmoid_saturate() -> None:
    assert gradient(ta.tanh, [-1000.0, -50, 0, 50, 1000]) == ([-1, -1, 0, 1, 1], [0, 0, 1, 0, 0])
    assert gradient(ta.sigmoid, [-1000.0, 0, 1000]) == ([0, 0.5, 1], [0, 0.25, 0])
    for dtype in (np.float32, np.float64):
        x = ta.Tensor(np.linspace(-200, 200, 401, dtype=dtype), requires_grad=True)
        ta.sigmoid(x).sum().backward()
        assert np.isfinite(x.grad).all()


def test_sigmoid_keeps_its_small_values() -> None:
    np.testing.assert_allclose(
        ta.sigmoid(ta.Tensor([-30.0, -700.0])).data, np.exp([-30.0, -700.0]), rtol=1e-12
    )


def test_softmax_of_large_scores() -> None:
    assert gradient(ta.softmax, [1000.0, 0, -1000], upstream=[1, 2, 3]) == ([1, 0, 0], [0, 0, 0])
    for kernel in (True, False):
        with ta.scope("") if kernel else ta.explicit():
            p = ta.softmax(ta.Tensor([[1e300, -1e300], [-1e300, -1e300]]))
            assert p.tolist() == [[1, 0], [0.5, 0.5]]


def test_cross_entropy_of_large_logits() -> None:
    assert gradient(lambda x: ta.cross_entropy(x, [1]), [[0.0, -800.0]]) == (800, [[1, -1]])
    loss, g = gradient(lambda x: ta.cross_entropy(x, [2]), [[5.0, 5, 5, 5]])
    assert loss == pytest.approx(np.log(4), rel=1e-15) and g == [[0.25, 0.25, -0.75, 0.25]]
    assert gradient(lambda x: ta.cross_entropy(x, [0]), [[0.0, -INF]]) == (0, [[0, 0]])


@pytest.mark.parametrize(("dtype", "most"), [(np.float16, 6e4), (np.float32, 3e38), (np.float64, 1e308)])
@pytest.mark.parametrize("kernel", [True, False])
def test_scores_at_the_bounds_of_a_precision(dtype: Any, most: float, kernel: bool) -> None:
    """Their difference is beyond it, and so is the loss of the unlikely class, which is infinite then."""
    found = {
        "softmax": (ta.softmax, [[1, 0, 0]]),
        "masked": (lambda x: ta.softmax(x, mask=np.array([True, True, False])), [[1, 0, 0]]),
        "log_softmax": (ta.log_softmax, [[0, -INF, -most]]),
        "logsumexp": (lambda x: ta.logsumexp(x, axis=-1), [most]),
        "likely": (lambda x: ta.cross_entropy(x, [0]), 0),
        "unlikely": (lambda x: ta.cross_entropy(x, [1]), INF),
    }
    for name, (fn, right) in found.items():
        x = ta.Tensor(np.array([[most, -most, 0]], dtype), requires_grad=True)
        with ta.scope("") if kernel else ta.explicit():
            y = fn(x)
        assert y.dtype == dtype and np.array_equal(y.data, np.array(right, dtype)), name
        y.backward(np.ones_like(y.data))
        assert np.isfinite(x.grad).all(), name


def test_log_softmax_where_softmax_underflows() -> None:
    assert ta.log_softmax(ta.Tensor([0.0, -800.0])).tolist() == [0, -800]


@pytest.mark.parametrize("kernel", [True, False])
def test_what_does_not_count_is_not_looked_at(kernel: bool) -> None:
    """Infinite or missing logits at ignored targets reach neither the loss nor the gradient."""
    for junk in (NAN, INF, -INF):
        logits = [[1.0, 2.0], [junk, junk], [junk, 0.0]]
        with ta.scope("") if kernel else ta.explicit():
            loss, g = gradient(lambda x: ta.cross_entropy(x, [0, -1, -1], ignore_index=-1), logits)
        alone, g_alone = gradient(lambda x: ta.cross_entropy(x, [0]), [[1.0, 2.0]])
        assert loss == pytest.approx(alone, rel=1e-15)
        assert g[0] == pytest.approx(g_alone[0], rel=1e-15) and g[1:] == [[0, 0], [0, 0]]


def test_mean_is_over_the_targets_that_count() -> None:
    logits = np.random.default_rng(0).standard_normal((2, 3, 4))
    targets = np.array([[1, 2, 0], [3, 0, 0]])
    total = ta.cross_entropy(ta.Tensor(logits), targets, ignore_index=0)
    picked = -ta.log_softmax(ta.Tensor(logits)).data[[0, 0, 1], [0, 1, 0], [1, 2, 3]]
    assert total.item() == pytest.approx(picked.mean(), rel=1e-14)


@pytest.mark.parametrize("kernel", [True, False])
class TestMask:
    """True takes part; the rest weighs exactly nothing, whatever its score."""

    @pytest.mark.parametrize(
        ("scores", "mask", "right"),
        [
            ([2.0, 1, 5], [1, 1, 0], [0.731059, 0.268941, 0]),
            ([1.0, 0, 15], [1, 1, 0], [0.731059, 0.268941, 0]),
            ([1e10, 1e10, 2e10], [1, 1, 0], [0.5, 0.5, 0]),
            ([-1e300, 1e300, INF], [True, False, False], [1, 0, 0]),
            ([2.0, 1, NAN], [1, 1, 0], [0.731059, 0.268941, 0]),
            ([-INF, 0, 0], [1, 1, 0], [0, 1, 0]),
            ([1.0, 2, 3], [0, 0, 0], [0, 0, 0]),
            ([-INF, -INF, 3], [1, 1, 0], [0, 0, 0]),
        ],
    )
    def test_values(self, kernel: bool, scores: Any, mask: Any, right: Any) -> None:
        with ta.scope("") if kernel else ta.explicit():
            weights, g = gradient(lambda x: ta.softmax(x, mask=mask), scores, upstream=[1, 2, 1e6])
        assert weights == pytest.approx(right, abs=5e-7)
        for weight, slope, takes_part in zip(weights, g, mask, strict=True):
            assert np.isfinite(slope)
            if not takes_part:
                assert weight == 0 and slope == 0

    def test_axis_is_the_key_axis(self, kernel: bool) -> None:
        with ta.scope("") if kernel else ta.explicit():
            p = ta.softmax(ta.Tensor([[[1.0, 2, 3]]]))
            np.testing.assert_allclose(p.data, [[[0.090031, 0.244728, 0.665241]]], atol=5e-7)
            scores = np.random.default_rng(0).standard_normal((2, 4))
            changed = scores.copy()
            changed[1] += [1, 2, 3, 4]
            mask = np.array([[True, True, False, True], [True, False, False, False]])
            first, second = (ta.softmax(ta.Tensor(s), mask=mask).data for s in (scores, changed))
        np.testing.assert_array_equal(first[0], second[0])
        np.testing.assert_allclose(first.sum(axis=-1), 1, rtol=1e-14)


def test_rows_without_any_score() -> None:
    assert ta.softmax(ta.Tensor(np.zeros((2, 0)))).shape == (2, 0)
    assert ta.softmax(ta.Tensor(np.zeros((2, 0))), mask=np.zeros((2, 0), bool)).shape == (2, 0)
    assert ta.logsumexp(ta.Tensor(np.zeros((2, 0))), axis=1).tolist() == [-INF, -INF]


def test_logsumexp_at_infinity() -> None:
    assert gradient(lambda x: ta.logsumexp(x, axis=1), [[-INF, -INF], [-INF, 1.0]]) == (
        [-INF, 1],
        [[0, 0], [0, 1]],
    )
    assert ta.logsumexp(ta.Tensor([INF, 1000.0])).item() == INF
    assert ta.logsumexp(ta.Tensor([-1000.0, -1000.0])).item() == -1000 + np.log(2)
    assert ta.logsumexp(ta.Tensor([1000.0, 1000.0])).item() == 1000 + np.log(2)


def test_where_the_norm_is_zero() -> None:
    assert gradient(ta.norm, [0.0, 0.0]) == (0, [0, 0])
    assert gradient(lambda x: ta.norm(x, axis=1), [[0.0, 0], [3, 4]]) == ([0, 5], [[0, 0], [0.6, 0.8]])
    assert gradient(ta.std, [2.0, 2, 2]) == (0, [0, 0, 0])
    assert gradient(ta.abs, [0.0, -2, 3]) == ([0, 2, 3], [0, -1, 1])
    x = ta.Tensor([0.0, 0.0], requires_grad=True)
    (g,) = ta.grad(ta.norm(x), x, create_graph=True)
    assert np.isfinite(ta.grad((g * g).sum(), x)[0].data).all()


def test_kinks() -> None:
    assert gradient(ta.relu, [-1.0, 0, 2]) == ([0, 0, 2], [0, 0, 1])
    assert gradient(ta.relu, [NAN, INF, -INF])[1] == [1, 1, 0]
    assert np.isnan(ta.relu(ta.Tensor(NAN)).item())


def test_ties_share_the_gradient() -> None:
    assert gradient(ta.max, [1.0, 3, 3]) == (3, [0, 0.5, 0.5])
    assert gradient(ta.min, [1.0, 1, 3]) == (1, [0.5, 0.5, 0])
    assert gradient(lambda x: ta.max(x, axis=0), [[1.0, 2], [1, 0]]) == ([1, 2], [[0.5, 1], [0.5, 0]])
    assert gradient(ta.maximum, [1.0, 2, 3], [1.0, 5, 0]) == ([1, 5, 3], [0.5, 0, 1], [0.5, 1, 0])
    assert gradient(ta.minimum, [1.0, 2, 3], [1.0, 5, 0]) == ([1, 2, 0], [0.5, 1, 0], [0.5, 0, 1])
    assert gradient(ta.maximum, [INF, -INF], [INF, 0.0]) == ([INF, 0], [0.5, 0], [0.5, 1])


def test_missing_numbers_pass_through_extremes() -> None:
    for fn in (ta.max, ta.min):
        value, g = gradient(fn, [1.0, NAN, 3])
        assert np.isnan(value) and g == [0, 1, 0]
    assert np.isnan(ta.maximum(ta.Tensor([NAN, 1.0]), ta.Tensor([1.0, NAN])).data).all()


def test_a_missing_number_stays_in_its_place() -> None:
    value, g = gradient(lambda x: x * x, [1.0, NAN, 3])
    assert np.isnan(value[1]) and np.isnan(g[1]) and [g[0], g[2]] == [2, 6]


def test_powers_at_zero() -> None:
    assert gradient(lambda x: x**2, [0.0, -3]) == ([0, 9], [0, -6])
    assert gradient(lambda x: x**3, [0.0, -3]) == ([0, -27], [0, 27])
    assert gradient(lambda x: x**1, [0.0]) == ([0], [1])
    assert gradient(lambda x: x**0, [0.0, 5]) == ([1, 1], [0, 0])
    assert gradient(lambda x: x ** np.array([0.0, 2]), [0.0, 0]) == ([1, 0], [0, 0])
    assert gradient(lambda x: x ** np.array([2.0, 0, 0, 0]), [0.0, 0, -2, 2]) == ([0, 1, 1, 1], [0, 0, 0, 0])
    assert gradient(lambda p: 0.0**p, [2.0, 0]) == ([0, 1], [0, 0])
    assert gradient(lambda p: 1**p, [2.0, 0]) == ([1, 1], [0, 0])
    assert gradient(lambda x, p: x**p, [0.0, 0], [2.0, 0])[2] == [0, 0]


def test_mixed_second_derivative_of_a_power_at_exponent_zero() -> None:
    """∂²(x^p)/∂x∂p = x^(p-1) (1 + p log x), which is 1/x at p = 0, in either order."""
    x, p = ta.Tensor(4.0, requires_grad=True), ta.Tensor(0.0, requires_grad=True)
    for first, then in ((x, p), (p, x)):
        (g,) = ta.grad(x**p, first, create_graph=True)
        assert ta.grad(g, then)[0].item() == pytest.approx(0.25, rel=1e-15)


def test_nothing_at_all() -> None:
    nothing = np.zeros((0, 3))
    assert gradient(lambda x: ta.sum(x, axis=0), nothing) == ([0, 0, 0], [])
    assert gradient(lambda x: ta.tanh(x) @ np.ones((3, 2)), nothing) == ([], [])
    assert gradient(lambda x, w: (x @ w).sum(), nothing, np.ones((3, 2))) == (0, [], [[0, 0]] * 3)
    assert gradient(lambda x, b: (x + b).sum(), nothing, [1.0, 2, 3]) == (0, [], [0, 0, 0])
    assert gradient(lambda x: ta.concatenate([x, x]), nothing) == ([], [])
    assert gradient(lambda x: ta.mean(x, axis=1), nothing) == ([], [])
    with pytest.warns(RuntimeWarning, match="invalid value"):
        assert np.isnan(ta.mean(ta.Tensor(nothing)).item())


def test_no_feature() -> None:
    """Where vectors have no entries, kernels too give what the definition does: sums of nothing."""
    for operation, *shapes in (
        (linear, (2, 3, 0), (4, 0), (4,)),
        (linear, (2, 3), (0, 3), (0,)),
        (lambda w: embedding(w, np.array([[1, 0, 1]])), (2, 0)),
        (additive_scores, (2, 3, 0), (4, 0), (2, 5, 4), (4,)),
        (additive_scores, (2, 0), (4, 0), (2, 5, 4), (4,)),
        (additive_scores, (2, 3, 4), (0, 4), (2, 5, 0), (0,)),
    ):
        arrays = [np.ones(shape) for shape in shapes]
        found = gradient(operation, *arrays)
        with ta.explicit():
            for ours, expected in zip(found, gradient(operation, *arrays), strict=True):
                np.testing.assert_allclose(ours, expected, rtol=1e-13)


def test_numbers_without_axes() -> None:
    assert gradient(ta.sum, 3.0) == (3, 1)
    assert gradient(ta.mean, 3.0) == (3, 1)
    assert gradient(ta.max, 3.0) == (3, 1)
    assert gradient(ta.softmax, [3.0]) == ([1], [0])
    assert gradient(lambda x: x.T + x.reshape(1)[0] + x.squeeze(), 3.0) == (9, 3)
    assert gradient(lambda x: ta.expand_dims(x, 0), 3.0) == ([3], 1)
    assert gradient(lambda x: ta.broadcast_to(x, (2, 2)), 3.0) == ([[3, 3], [3, 3]], 4)


def test_square_root_at_zero_says_so() -> None:
    """Its slope there is infinite; the remedy, a small constant under the root, is finite."""
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        assert gradient(ta.sqrt, [0.0])[1] == [INF]
    assert np.isfinite(gradient(lambda x: ta.sqrt((x**2).sum() + 1e-12), [0.0, 0])[1]).all()


def test_bounds_of_clip() -> None:
    x = ta.Tensor([-1.0, 0.0, 0.5, 1.0, 2.0, NAN, INF], requires_grad=True)
    y = ta.clip(x, 0, 1)
    y.backward(np.ones(7))
    assert y.tolist()[:5] == [0, 0, 0.5, 1, 1] and np.isnan(y.data[5]) and y.data[6] == 1
    assert gradient_of(x) == [0, 1, 1, 1, 0, 1, 0]
    assert ta.clip(ta.Tensor([1, 5]), max=3).tolist() == [1, 3]
    assert ta.clip(ta.Tensor([1, 5]), max=3).dtype == np.array([1]).dtype
    with pytest.raises(
        ValueError, match=r"clip: min of shape \(3,\) does not broadcast to x of shape \(7,\)"
    ):
        ta.clip(x, np.zeros(3))
    bound = ta.Tensor(1.0, requires_grad=True)
    with pytest.raises(RuntimeError, match="clip has no gradient rule for its input number 2"):
        ta.clip(ta.Tensor([0.5]), None, bound).sum().backward()


@pytest.mark.parametrize(("low", "high"), [(2, 1), (1.0, -1.0), (NAN, 1), (0, NAN), (NAN, None)])
def test_bounds_of_clip_that_leave_nothing_between(low: float | None, high: float | None) -> None:
    """As in numpy and PyTorch the upper one counts last; beside NaN nothing is larger or smaller."""
    x = np.array([-3.0, 0.0, 1.0, 1.5, 2.0, 4.0, NAN])
    value, found = gradient(lambda x: ta.clip(x, low, high), x)
    np.testing.assert_array_equal(value, np.clip(x, low, high))
    assert not np.any(found[:-1])


def gradient_of(x: ta.Tensor) -> list[float]:
    assert x.grad is not None
    found: list[float] = x.grad.tolist()
    return found
