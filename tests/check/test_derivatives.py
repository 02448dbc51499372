"""jvp, jacobian and hvp, against each other, against complex steps and against what is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn.check.sample import Sample
from tinygrad_attn.check.samples import samples

NORMAL = np.random.default_rng(0).standard_normal
SAMPLES = [
    s for s in samples() if s.analytic and sum(x.size for x in s.inputs(np.random.default_rng(0))) < 60
]


def close(a: Any, b: Any, tolerance: float = 1e-12) -> bool:
    a, b = np.asarray(getattr(a, "data", a)), np.asarray(getattr(b, "data", b))
    return a.shape == b.shape and bool(
        np.abs(a - b).max(initial=0.0) <= tolerance * max(1.0, np.abs(b).max(initial=0.0))
    )


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_jvp_jacobian_and_complex_step_agree(sample: Sample) -> None:
    rng = np.random.default_rng(1)
    inputs = sample.inputs(rng)
    tangents = [rng.standard_normal(x.shape) for x in inputs]
    output, tangent = ta.jvp(sample.fn, tuple(inputs), tuple(tangents))
    assert close(output, sample.fn(*map(ta.Tensor, inputs)))
    step = sample.fn(*(ta.Tensor(np.asarray(x + 1e-30j * t)) for x, t in zip(inputs, tangents, strict=True)))
    assert close(tangent, np.asarray(step.data.imag / 1e-30, tangent.dtype))
    parts = ta.jacobian(sample.fn, tuple(inputs))
    total = sum(np.tensordot(part.data, t, t.ndim) for part, t in zip(parts, tangents, strict=True))
    assert close(tangent, np.asarray(total))


def f(x: Any) -> Any:
    return ta.softmax(ta.tanh(x) * x)


def loss(x: Any) -> Any:
    return (f(x) * np.arange(1.0, 4.0)).sum()


def test_both_ways_to_a_jacobian() -> None:
    wide, tall = NORMAL((3, 5)), NORMAL((5, 3))
    x, y = NORMAL(5), NORMAL(3)
    assert close(ta.jacobian(lambda x: wide @ x, x), wide)  # three backward passes
    assert close(ta.jacobian(lambda y: tall @ y, y), tall)  # three forward ones
    both = ta.jacobian(lambda x, y: ta.concatenate([wide @ x, tall @ y]), (x, y))
    assert [part.shape for part in both] == [(8, 5), (8, 3)]
    assert close(both[0], np.vstack([wide, np.zeros((5, 5))]))


def test_jacobian_of_a_0d_function_and_of_nothing() -> None:
    assert ta.jacobian(ta.exp, 0.0).shape == () and ta.jacobian(ta.exp, ta.Tensor(0.0)).item() == 1.0
    assert ta.jacobian(lambda x: x * 2, np.zeros((0, 3))).shape == (0, 3, 0, 3)
    assert close(ta.jacobian(lambda x: ta.Tensor([1.0, 2.0]), NORMAL(3)), np.zeros((2, 3)))


def test_routes_to_one_hessian() -> None:
    x, v = NORMAL(3), NORMAL(3)
    hessian = ta.jacobian(lambda x: ta.grad(loss(x), x, create_graph=True)[0], x)
    assert close(hessian, hessian.T)
    assert close(ta.hvp(loss, x, v), hessian.data @ v)
    forward_over_reverse = ta.jvp(lambda x: ta.grad(loss(x), x, create_graph=True)[0], x, v)[1]
    assert close(forward_over_reverse, hessian.data @ v)
    leaf = ta.Tensor(x, requires_grad=True)
    reverse_over_forward = ta.grad(ta.jvp(loss, leaf, v)[1], leaf)[0]
    assert close(reverse_over_forward, hessian.data @ v)
    step = ta.Tensor(x + 1e-30j * v, requires_grad=True)
    assert close(ta.grad(loss(step), step)[0].data.imag / 1e-30, hessian.data @ v)


def test_hvp_of_several() -> None:
    a, b, u, v = NORMAL(2), NORMAL(2), NORMAL(2), NORMAL(2)
    first, second = ta.hvp(lambda a, b: (a * a * b).sum(), (a, b), (u, v))
    assert close(first, 2 * b * u + 2 * a * v) and close(second, 2 * a * u)
    assert close(ta.hvp(lambda x: x.sum(), a, u), np.zeros(2))


def test_several_outputs() -> None:
    a, b, u, v = NORMAL(2), NORMAL(2), NORMAL(2), NORMAL(2)
    outputs, tangents = ta.jvp(lambda a, b: (a * b, a + b, a), (a, b), (u, v))
    assert len(outputs) == 3
    for got, right in zip(tangents, (a * v + b * u, u + v, u), strict=True):
        assert close(got, right)


def test_third_derivative() -> None:
    x = ta.Tensor([0.7], requires_grad=True)
    second = ta.jvp(lambda x: ta.jvp(lambda x: x**4, x, [np.ones(1)])[1], x, [np.ones(1)])[1]
    assert close(second, [12 * 0.7**2])
    assert close(ta.grad(second, x)[0], [24 * 0.7])


def test_kernels_keep_their_precision_and_constants_stay_constant() -> None:
    x = NORMAL(3).astype(np.float32)
    assert ta.jvp(ta.softmax, x, x)[1].dtype == np.float32
    assert close(ta.jvp(lambda x: x * x.detach(), NORMAL(3) * 0 + 3.0, np.ones(3))[1], np.full(3, 3.0))
    assert close(ta.jvp(ta.relu, np.array([0.0, 1.0]), np.ones(2))[1], [0.0, 1.0])


def test_nothing_of_the_caller_is_changed() -> None:
    x = ta.Tensor(NORMAL(3), requires_grad=True)
    x.grad = np.ones(3)
    before = x.data.copy()
    ta.jvp(f, x, np.ones(3)), ta.jacobian(f, x), ta.hvp(loss, x, np.ones(3))
    assert (x.grad == 1).all() and (x.data == before).all()
    with ta.no_grad():
        assert close(ta.jvp(f, x, np.ones(3))[1], ta.jacobian(f, x).data.sum(axis=1))


def test_wrong_use() -> None:
    with pytest.raises(ValueError, match="2 inputs, but 1 tangents"):
        ta.jvp(ta.mul, (NORMAL(2), NORMAL(2)), (NORMAL(2),))
    with pytest.raises(ValueError, match=r"tangent number 0 has shape \(3,\), expected \(2,\)"):
        ta.jvp(ta.exp, NORMAL(2), NORMAL(3))
    with pytest.raises(TypeError, match="input number 0 has dtype int64, expected floating"):
        ta.jvp(ta.exp, np.arange(2), np.ones(2))
    with pytest.raises(TypeError, match="jvp: fn returned a int without a floating Tensor"):
        ta.jvp(lambda x: 3, NORMAL(2), NORMAL(2))
    with pytest.raises(TypeError, match="jacobian: fn returned a tuple, expected one Tensor"):
        ta.jacobian(lambda x: (x, x), NORMAL(2))
    with pytest.raises(ValueError, match=r"hvp: fn returned shape \(2,\), expected a Tensor of one entry"):
        ta.hvp(ta.exp, NORMAL(2), NORMAL(2))
