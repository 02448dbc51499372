"""What holds for every operation, tried on every sample of the one table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn.check.fused_samples import fused_samples
from tinygrad_attn.check.sample import Sample
from tinygrad_attn.check.samples import all_primitives, rules_used, samples
from tinygrad_attn.engine.backward import walk

SAMPLES = samples()
WITHOUT_SLOPE = {("where", 0), ("clip", 1), ("clip", 2)}  # a condition, and bounds

every = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
analytic = pytest.mark.parametrize(
    "sample", [s for s in SAMPLES if s.analytic], ids=lambda sample: sample.name
)


def drawn(sample: Sample, dtype: Any = np.float64) -> tuple[list[np.ndarray], np.random.Generator]:
    rng = np.random.default_rng(1)
    return [x.astype(dtype) for x in sample.inputs(rng)], rng


def leaves(arrays: list[np.ndarray]) -> list[ta.Tensor]:
    return [ta.Tensor(x, requires_grad=True) for x in arrays]


def normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
    return np.asarray(rng.standard_normal(shape), dtype)


def dot(left: Any, right: Any) -> Any:
    """The sum of products over several pairs of arrays, and how large its terms are together."""
    pairs = [np.asarray(a) * np.asarray(b) for a, b in zip(left, right, strict=True)]
    return sum(p.sum() for p in pairs), 1 + sum(np.abs(p).sum() for p in pairs)


def test_names_are_unique() -> None:
    assert len({sample.name for sample in SAMPLES}) == len(SAMPLES)


def test_every_rule_of_every_operation_is_sampled() -> None:
    used = set().union(*map(rules_used, SAMPLES))
    missing = []
    for primitive in all_primitives():
        any_number = primitive._most > 100 or isinstance(primitive, ta.Fused)
        for slot in [0] if any_number else range(primitive._most):
            if (primitive, slot) not in used and (primitive.name, slot) not in WITHOUT_SLOPE:
                missing.append((primitive.name, slot))
    assert not missing


@every
def test_gradient_is_the_slope(sample: Sample) -> None:
    """Central differences along a random direction, of the value as the fast path computes it."""
    arrays, rng = drawn(sample)
    inputs = leaves(arrays)
    output = sample.fn(*inputs)
    upstream = normal(rng, output.shape)
    gradients = ta.grad(output, inputs, upstream)
    direction = [normal(rng, x.shape) for x in arrays]
    h = 1e-5
    ahead = sample.fn(*(ta.Tensor(x + h * v) for x, v in zip(arrays, direction, strict=True)))
    behind = sample.fn(*(ta.Tensor(x - h * v) for x, v in zip(arrays, direction, strict=True)))
    slope, scale = dot([upstream], [(ahead.data - behind.data) / (2 * h)])
    expected, _ = dot([g.data for g in gradients], direction)
    assert abs(float(slope - expected)) <= 1e-7 * float(scale)


@analytic
def test_complex_step_agrees_with_the_gradient_and_with_the_second_derivative(sample: Sample) -> None:
    """The value's imaginary part is the first derivative along a direction, the gradient's the second."""
    arrays, rng = drawn(sample)
    inputs = leaves(arrays)
    output = sample.fn(*inputs)
    upstream = normal(rng, output.shape)
    gradients = ta.grad(output, inputs, upstream, create_graph=True)
    direction = [normal(rng, x.shape) for x in arrays]
    h = 1e-30
    stepped = [ta.Tensor(x + 1j * h * v, requires_grad=True) for x, v in zip(arrays, direction, strict=True)]
    moved = sample.fn(*stepped)
    np.testing.assert_allclose(moved.data.real, output.data, rtol=1e-12, atol=1e-13)

    slope, scale = dot([upstream], [moved.data.imag / h])
    expected, _ = dot([g.data for g in gradients], direction)
    assert abs(slope - expected) <= 1e-12 * scale

    curvature = [g.data.imag / h for g in ta.grad(moved, stepped, upstream)]
    along = ta.Tensor(0.0)
    for g, v in zip(gradients, direction, strict=True):
        along = along + (g * v).sum()
    if along.requires_grad:
        second = [g.data for g in ta.grad(along, inputs)]
    else:
        second = [np.zeros_like(x) for x in arrays]
    for numeric, exact in zip(curvature, second, strict=True):
        np.testing.assert_allclose(numeric, exact, rtol=1e-10, atol=1e-11)


@every
def test_three_routes_to_the_gradient_agree(sample: Sample) -> None:
    """backward(), grad(), grad(create_graph=True), with kernels and without: the same numbers and shapes."""
    arrays, rng = drawn(sample)
    inputs = leaves(arrays)
    output = sample.fn(*inputs)
    assert output.requires_grad
    upstream = normal(rng, output.shape)
    gradients = [g.data for g in ta.grad(output, inputs, upstream)]
    recorded = [g.data for g in ta.grad(output, inputs, upstream, create_graph=True)]
    with ta.explicit():
        spelled_out = sample.fn(*inputs)
    np.testing.assert_allclose(spelled_out.data, output.data, rtol=1e-12, atol=1e-13)
    explicit = [g.data for g in ta.grad(spelled_out, inputs, upstream)]
    output.backward(upstream)
    for x, *found in zip(inputs, gradients, recorded, explicit, strict=True):
        for g in found:
            assert g.shape == x.shape and g.dtype == x.dtype
            np.testing.assert_allclose(g, 0 if x.grad is None else x.grad, rtol=1e-11, atol=1e-12)


@every
@pytest.mark.parametrize("create_graph", [False, True])
def test_nothing_is_overwritten_or_shared(sample: Sample, create_graph: bool) -> None:
    arrays, rng = drawn(sample)
    inputs = leaves(arrays)
    output = sample.fn(*inputs)
    value = output.data.copy()
    upstream = normal(rng, output.shape)
    kept = upstream.copy()
    gradients = [g.data for g in ta.grad(output, inputs, upstream, create_graph=create_graph)]
    gradients += [g.data for g in ta.grad(output, inputs, upstream, create_graph=create_graph)]
    np.testing.assert_array_equal(upstream, kept)
    np.testing.assert_array_equal(output.data, value)
    for x, array in zip(inputs, arrays, strict=True):
        np.testing.assert_array_equal(x.data, array)
    others = [upstream, output.data, *(x.data for x in inputs)]
    for i, g in enumerate(gradients):
        assert g.flags.writeable
        assert not any(np.shares_memory(g, other) for other in (*others, *gradients[:i]))


@every
def test_backward_leaves_gradients_of_their_own(sample: Sample) -> None:
    arrays, rng = drawn(sample)
    inputs = leaves(arrays)
    output = sample.fn(*inputs)
    upstream = normal(rng, output.shape)
    kept = upstream.copy()
    output.backward(upstream, retain_graph=True)
    first = [None if x.grad is None else x.grad.copy() for x in inputs]
    output.backward(upstream)
    np.testing.assert_array_equal(upstream, kept)
    gradients = [x.grad for x in inputs if x.grad is not None]
    for x, once in zip(inputs, first, strict=True):
        if x.grad is not None:
            np.testing.assert_array_equal(x.grad, 2 * once)
    for i, g in enumerate(gradients):
        assert not any(
            np.shares_memory(g, other) for other in (upstream, *(x.data for x in inputs), *gradients[:i])
        )


@pytest.mark.parametrize(
    "sample", [s for s in SAMPLES if s.operation != "astype"], ids=lambda sample: sample.name
)
def test_single_precision_stays_single(sample: Sample) -> None:
    """Python numbers and rules leave float32 as it is, on every edge; the numbers are those of float64."""
    arrays, rng = drawn(sample, np.float32)
    inputs, precise = leaves(arrays), leaves([x.astype(np.float64) for x in arrays])
    output, reference = sample.fn(*inputs), sample.fn(*precise)
    if output.dtype != np.float32:
        assert sample.name in WITH_WIDER_CONSTANTS
        return
    upstream = normal(rng, output.shape, np.float32)
    edges: list[Any] = []
    found = walk(output, upstream, wanted=inputs, observe=lambda node, slot, g: edges.append(g))
    for g in edges:
        parts = [g] if not isinstance(g, ta.Product) else [g.left, *([] if g.right is None else [g.right])]
        assert all(part.dtype == np.float32 for part in parts)
    np.testing.assert_allclose(output.data, reference.data, rtol=2e-5, atol=2e-5)
    for x, exact in zip(inputs, ta.grad(reference, precise, upstream), strict=True):
        scale = 1 + np.abs(exact.data).max(initial=0)
        np.testing.assert_allclose(found.get(x, 0) / scale, exact.data / scale, atol=1e-5)


# Samples that join in a float64 or integer array, which by numpy's rules makes the result float64.
WITH_WIDER_CONSTANTS = {
    "add: numbers and arrays on either side",
    "pow: third power as an integer array",
    "concatenate: with an array",
    "linear: fixed input",
    "rnn_cell: fixed input",
    "gru_cell: fixed input",
    "reset_before_gru_cell: fixed input",
}


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_kernel_is_its_definition(seed: int, dtype: Any, tolerance: float) -> None:
    """Value and all gradients of every fused operation, over random shapes."""
    for sample in fused_samples(np.random.default_rng(seed)):
        arrays, rng = drawn(sample, dtype)
        inputs = leaves(arrays)
        output = sample.fn(*inputs)
        upstream = normal(rng, output.shape, output.dtype)
        gradients = ta.grad(output, inputs, upstream)
        with ta.explicit():
            spelled_out = sample.fn(*inputs)
            expected = ta.grad(spelled_out, inputs, upstream)
        for got, right in ((output, spelled_out), *zip(gradients, expected, strict=True)):
            scale = 1 + np.abs(right.data).max(initial=0)
            np.testing.assert_allclose(
                got.data / scale, right.data / scale, rtol=0, atol=tolerance, err_msg=sample.name
            )


@pytest.mark.parametrize(
    "primitive", [p for p in all_primitives() if isinstance(p, ta.Fused)], ids=lambda p: p.name
)
def test_every_fused_operation_takes_its_kernel(primitive: ta.Fused, monkeypatch: pytest.MonkeyPatch) -> None:
    """The samples above would agree as well if the kernel never ran."""
    ran: list[str] = []
    kernel, vjp = primitive.forward, primitive.kernel_vjp
    monkeypatch.setattr(primitive, "forward", lambda *a, **k: (ran.append("kernel"), kernel(*a, **k))[1])
    monkeypatch.setattr(primitive, "kernel_vjp", lambda *a, **k: (ran.append("vjp"), vjp(*a, **k))[1])
    sample = next(s for s in SAMPLES if any(p is primitive for p, _ in rules_used(s)))
    ran.clear()
    inputs = leaves(drawn(sample)[0])
    ta.sum(sample.fn(*inputs)).backward()
    assert {"kernel", "vjp"} <= set(ran)
    ran.clear()
    with ta.explicit():
        ta.sum(sample.fn(*inputs)).backward()
    assert not ran
