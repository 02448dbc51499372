"""Optimisers and clipping: the published rules number by number, what is left alone, what is refused."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn.optim import SGD, Adadelta, Adam, AdamW, NonFiniteError, clip_grad_norm

RNG = np.random.default_rng
RULES: dict[str, Any] = {
    "sgd": lambda p, **kw: SGD(p, **({"lr": 0.1} | kw)),
    "momentum": lambda p, **kw: SGD(p, **({"lr": 0.1, "momentum": 0.9} | kw)),
    "adam": lambda p, **kw: Adam(p, **({"lr": 0.1} | kw)),
    "adamw": lambda p, **kw: AdamW(p, **({"lr": 0.1, "weight_decay": 0.05} | kw)),
    "adadelta": lambda p, **kw: Adadelta(p, **kw),
}
every = pytest.mark.parametrize("rule", RULES)


def tensors(*shapes: tuple[int, ...], dtype: Any = np.float64, seed: int = 0) -> list[ta.Tensor]:
    rng = RNG(seed)
    return [ta.Tensor(rng.standard_normal(shape).astype(dtype), requires_grad=True) for shape in shapes]


def set_gradients(parameters: list[ta.Tensor], seed: int) -> None:
    rng = RNG(seed)
    for parameter in parameters:
        parameter.grad = rng.standard_normal(parameter.shape).astype(parameter.dtype)


def values(parameters: list[ta.Tensor]) -> list[np.ndarray]:
    return [parameter.data.copy() for parameter in parameters]


def same(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


# The rules, one number at a time


def one_by_one(rule: str, p: float, gradients: list[float], lr: float) -> float:
    velocity = mean = square = update = 0.0
    for t, g in enumerate(gradients, start=1):
        if rule == "sgd":
            p -= lr * g
        elif rule == "momentum":
            velocity = 0.9 * velocity + g
            p -= lr * velocity
        elif rule in ("adam", "adamw"):
            p *= 1 - lr * 0.05 if rule == "adamw" else 1
            mean, square = 0.9 * mean + 0.1 * g, 0.999 * square + 0.001 * g * g
            p -= lr * (mean / (1 - 0.9**t)) / (math.sqrt(square / (1 - 0.999**t)) + 1e-8)
        else:
            square = 0.95 * square + 0.05 * g * g
            delta = math.sqrt(update + 1e-6) / math.sqrt(square + 1e-6) * g
            update = 0.95 * update + 0.05 * delta * delta
            p -= lr * delta
    return p


@every
def test_each_rule_against_its_equations(rule: str) -> None:
    parameters = tensors((2, 3), (4,), ())
    start = values(parameters)
    optimiser = RULES[rule](parameters)
    history = []
    for step in range(20):
        set_gradients(parameters, step)
        history.append([parameter.grad.copy() for parameter in parameters])
        optimiser.step()
    for i, parameter in enumerate(parameters):
        for place in np.ndindex(parameter.shape):
            expected = one_by_one(rule, start[i][place], [step[i][place] for step in history], optimiser.lr)
            assert parameter.data[place] == pytest.approx(expected, rel=1e-12)


def test_default_settings_are_pytorchs() -> None:
    p = tensors((1,))
    assert (SGD(p).lr, SGD(p).momentum) == (1e-2, 0)
    assert (Adam(p).lr, Adam(p).betas, Adam(p).eps) == (1e-3, (0.9, 0.999), 1e-8)
    assert (AdamW(p).lr, AdamW(p).betas, AdamW(p).eps, AdamW(p).weight_decay) == (
        *(1e-3, (0.9, 0.999), 1e-8),
        1e-2,
    )
    assert Adam(p, betas=np.array([0.8, 0.9])).betas == (0.8, 0.9)
    assert SGD(p).weight_decay == Adam(p).weight_decay == Adadelta(p).weight_decay == 0
    assert (Adadelta(p).lr, Adadelta(p).rho, Adadelta(p).eps) == (
        1.0,
        0.95,
        1e-6,
    )  # the paper's; PyTorch's rho is 0.9


@every
def test_the_learning_rate_may_be_set_before_any_step(rule: str) -> None:
    a, b = tensors((3,)), tensors((3,))
    varying, history = RULES[rule](a), []
    for step, lr in enumerate((0.5, 0.0, 0.25)):
        set_gradients(a, step)
        before = a[0].data.copy()
        varying.lr = lr
        varying.step()
        history.append(a[0].data - before)
    assert not history[1].any() and history[0].any()
    fixed = RULES[rule](b, lr=0.5)
    set_gradients(b, 0)
    before = b[0].data.copy()
    fixed.step()
    np.testing.assert_allclose(b[0].data - before, history[0], rtol=1e-14)


@pytest.mark.parametrize("rule", ["sgd", "momentum", "adam", "adadelta"])
def test_weight_decay_adds_to_the_gradient(rule: str) -> None:
    """λ p is added, as the gradient of ½ λ |p|² is: the loss may hold that term instead."""
    decayed, plain = tensors((2, 3), (4,), ()), tensors((2, 3), (4,), ())
    optimiser, expected = RULES[rule](decayed, weight_decay=0.3), RULES[rule](plain)
    for step in range(20):
        set_gradients(decayed, step)
        set_gradients(plain, step)
        for parameter in plain:
            parameter.grad = parameter.grad + 0.3 * parameter.data
        if step % 3 == 1:  # without a gradient, there is no decay either
            decayed[1].grad = plain[1].grad = None
        gradients = [None if p.grad is None else p.grad.copy() for p in decayed]
        optimiser.step()
        expected.step()
        for a, b, gradient in zip(decayed, plain, gradients, strict=True):
            np.testing.assert_allclose(a.data, b.data, rtol=1e-13, atol=1e-14)
            assert (a.grad is None) if gradient is None else np.array_equal(a.grad, gradient)


# What is left alone


@every
def test_parameters_without_a_gradient_are_left_alone(rule: str) -> None:
    """Whichever have gradients in a step, each parameter moves as if it were alone."""
    together = tensors((2,), (3,), (1,), (2, 2))
    alone = tensors((2,), (3,), (1,), (2, 2))
    optimiser = RULES[rule](together)
    singles = [RULES[rule]([p]) for p in alone]
    rng = RNG(3)
    for _ in range(12):
        present = rng.random(4) < 0.6
        for a, b, here in zip(together, alone, present, strict=True):
            a.grad = rng.standard_normal(a.shape) if here else None
            b.grad = None if a.grad is None else a.grad.copy()
        before = values(together)
        optimiser.step()
        for single in singles:
            single.step()
        for a, b, old, here in zip(together, alone, before, present, strict=True):
            np.testing.assert_allclose(a.data, b.data, rtol=1e-13)
            assert here != np.array_equal(a.data, old)
    optimiser.zero_grad()
    assert all(p.grad is None for p in together)
    before = values(together)
    optimiser.step()
    assert same(values(together), before)


@every
def test_frozen_parameters_are_left_alone_as_in_pytorch(rule: str) -> None:
    parameters = tensors((2,), (3,))
    optimiser = RULES[rule](parameters)
    set_gradients(parameters, 0)
    parameters[1].requires_grad = False
    before = values(parameters)
    optimiser.step()
    assert not np.array_equal(parameters[0].data, before[0])
    np.testing.assert_array_equal(parameters[1].data, before[1])
    parameters[1].requires_grad = True
    optimiser.step()
    assert not np.array_equal(parameters[1].data, before[1])
    assert optimiser.state_dict()["steps/parameter (number 1)"] == 1


@every
def test_gradients_are_not_changed(rule: str) -> None:
    parameters = tensors((2,), (3,))
    set_gradients(parameters, 0)
    before = [p.grad.copy() for p in parameters]
    RULES[rule](parameters).step()
    assert same([p.grad for p in parameters], before)


# Kinds of parameters


@every
def test_parameters_of_both_precisions(rule: str) -> None:
    single, double = tensors((2, 2), dtype=np.float32)[0], tensors((3,))[0]
    reference = [copy.deepcopy(single), copy.deepcopy(double)]
    optimiser, others = RULES[rule]([single, double]), [RULES[rule]([p]) for p in reference]
    for step in range(5):
        set_gradients([single, double], step)
        for p, q in zip(reference, (single, double), strict=True):
            p.grad = q.grad.copy()
        for each in (optimiser, *others):
            each.step()
    assert single.dtype == np.float32 and double.dtype == np.float64
    for p, q in zip(reference, (single, double), strict=True):
        np.testing.assert_array_equal(p.data, q.data)


@every
def test_complex_parameters_move_as_pairs_of_real_ones(rule: str) -> None:
    rng = RNG(0)
    z = ta.Tensor(rng.standard_normal((2, 3)) + 1j * rng.standard_normal((2, 3)), requires_grad=True)
    parts = [ta.Tensor(part.copy(), requires_grad=True) for part in (z.data.real, z.data.imag)]
    both, apart = RULES[rule]([z], weight_decay=0.1), RULES[rule](parts, weight_decay=0.1)
    for _ in range(5):
        for part in parts:
            part.grad = rng.standard_normal((2, 3))
        z.grad = parts[0].grad + 1j * parts[1].grad
        both.step()
        apart.step()
    np.testing.assert_allclose(z.data, parts[0].data + 1j * parts[1].data, rtol=1e-13)
    state = both.state_dict()
    both.load_state_dict(state)
    for name, value in both.state_dict().items():
        np.testing.assert_array_equal(value, state[name])


@every
def test_gradients_of_another_precision(rule: str) -> None:
    """As a float64 input leaves behind in a float32 model."""
    a, b = tensors((4,), dtype=np.float32), tensors((4,), dtype=np.float32)
    set_gradients(a, 0)
    b[0].grad = a[0].grad.astype(np.float64)
    RULES[rule](a).step()
    RULES[rule](b).step()
    assert b[0].dtype == np.float32
    np.testing.assert_array_equal(a[0].data, b[0].data)


@every
def test_data_that_was_replaced_is_taken_up_again(rule: str) -> None:
    a, b = tensors((2, 3), (4,)), tensors((2, 3), (4,))
    first, second = RULES[rule](a), RULES[rule](b)
    for step in range(4):
        for parameters in (a, b):
            set_gradients(parameters, step)
        a[0].data = a[0].data.copy()  # as by a careless load
        a[1].data = a[1].data.astype(np.float64)[::-1][::-1]
        first.step()
        second.step()
        assert same(values(a), values(b))
    a[0].data = np.zeros((3, 2))
    with pytest.raises(
        ValueError, match=r"parameter \(number 0\): the data has shape \(3, 2\), expected \(2, 3\)"
    ):
        first.step()


@every
def test_what_shares_memory_with_a_parameter_follows_it(rule: str) -> None:
    (p,) = tensors((2, 3))
    optimiser = RULES[rule]([p])
    detached, array, row = p.detach(), p.numpy(), p.data[0]
    for step in range(3):
        set_gradients([p], step)
        optimiser.step()
        assert np.array_equal(detached.data, p.data) and array is p.data and np.array_equal(row, p.data[0])


def test_a_load_after_steps_counts() -> None:
    model = ta.nn.Linear(3, 2, rng=RNG(0))
    optimiser = SGD(model.named_parameters(), lr=1.0)
    for _ in range(2):
        model.load_state_dict({"weight": np.ones((2, 3)), "bias": np.zeros(2)})
        optimiser.zero_grad()
        model(np.ones((1, 3), np.float32)).sum().backward()
        optimiser.step()
        np.testing.assert_array_equal(model.weight.data, np.zeros((2, 3)))


@every
def test_two_optimisers_may_share_parameters(rule: str) -> None:
    a, b = tensors((2,), (3,)), tensors((2,), (3,))
    mine, shared = RULES[rule](a), SGD(a[:1], lr=0.01)
    other, single = RULES[rule](b), SGD(b[:1], lr=0.01)
    for step in range(4):
        set_gradients(a, step)
        set_gradients(b, step)
        (mine if step % 2 else shared).step()
        (other if step % 2 else single).step()
    expected = [copy.deepcopy(p) for p in tensors((2,), (3,))]
    reference, lone = RULES[rule](expected), SGD([copy.deepcopy(expected[0])], lr=0.01)
    for step in range(4):
        set_gradients(expected, step)
        if step % 2:
            reference.step()
        else:
            expected[0].data = expected[0].data - 0.01 * expected[0].grad
    assert same(values(a), values(b))
    for p, q in zip(a, expected, strict=True):
        np.testing.assert_allclose(p.data, q.data, rtol=1e-14)
    assert lone.lr == 0.01


@every
def test_a_copied_model_and_optimiser_train_on_their_own(rule: str) -> None:
    model = ta.nn.Linear(3, 2, dtype=np.float64, rng=RNG(0))
    optimiser = RULES[rule](model.named_parameters())

    def step(model: Any, optimiser: Any) -> None:
        optimiser.zero_grad()
        (model(np.ones((1, 3))) ** 2).sum().backward()
        optimiser.step()

    step(model, optimiser)
    twin, other = copy.deepcopy((model, optimiser))
    for _ in range(3):
        step(model, optimiser)
    assert not np.array_equal(twin.weight.data, model.weight.data)
    for _ in range(3):
        step(twin, other)
    np.testing.assert_array_equal(twin.weight.data, model.weight.data)
    np.testing.assert_array_equal(twin.bias.data, model.bias.data)


def test_parameters_of_any_size() -> None:
    parameters = tensors((), (0, 3), (1,))
    optimiser = Adam(parameters)
    set_gradients(parameters, 0)
    optimiser.step()
    assert [p.shape for p in parameters] == [(), (0, 3), (1,)]


def test_a_graph_from_before_a_step_cannot_be_walked() -> None:
    (w,) = tensors((3,))
    loss = (w * w).sum()
    loss.backward(retain_graph=True)
    SGD([w]).step()
    with pytest.raises(RuntimeError, match="written"):
        loss.backward()


# State


@every
def test_the_state_goes_round_exactly(rule: str) -> None:
    for dtype in (np.float32, np.float64):
        a, b = tensors((2, 3), (4,), dtype=dtype), tensors((2, 3), (4,), dtype=dtype)
        named = list(zip(("w", "b"), a, strict=True)), list(zip(("w", "b"), b, strict=True))
        first, second = RULES[rule](named[0]), RULES[rule](named[1], lr=0.7)
        for step in range(5):
            set_gradients(a, step)
            if step == 2:
                a[1].grad = None
            first.step()
        state = first.state_dict()
        for p, q in zip(a, b, strict=True):
            q.data = p.data.copy()
        second.load_state_dict({key: np.asarray(value) for key, value in state.items()})
        assert second.lr == first.lr
        for key, value in second.state_dict().items():
            np.testing.assert_array_equal(value, state[key])
        for step in range(5, 9):
            for parameters, optimiser in ((a, first), (b, second)):
                set_gradients(parameters, step)
                optimiser.step()
        assert same(values(a), values(b))


def test_what_the_state_holds() -> None:
    parameters = tensors((2,))
    optimiser = Adam([("layer.weight", parameters[0])], lr=0.25)
    set_gradients(parameters, 0)
    optimiser.step()
    state = optimiser.state_dict()
    assert set(state) == {"lr", "steps/layer.weight", "mean/layer.weight", "mean_square/layer.weight"}
    assert state["lr"] == 0.25 and state["steps/layer.weight"] == 1
    state["mean/layer.weight"][...] = 7
    assert not (optimiser.state_dict()["mean/layer.weight"] == 7).any()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"mean/w": None}, KeyError, "Adam: the state lacks mean/w and has unknown nothing"),
        ({"velocity/w": np.zeros(2)}, KeyError, "Adam: the state lacks nothing and has unknown velocity/w"),
        ({"mean/w": np.zeros(3)}, ValueError, r"Adam: mean/w has shape \(3,\), expected \(2,\)"),
        ({"mean/w": np.zeros(2, complex)}, ValueError, "Adam: mean/w has dtype complex128, expected float64"),
        ({"steps/w": 1.5}, ValueError, "Adam: steps/w has dtype float64, expected int64"),
        ({"lr": -1.0}, ValueError, "lr is -1.0, expected a number of at least 0"),
        ({"steps/w": -1}, ValueError, "Adam: steps/w is -1, expected a number of at least 0"),
    ],
)
def test_a_state_is_loaded_as_a_whole_or_not_at_all(
    change: Any, error: type[Exception], message: str
) -> None:
    (w,) = tensors((2,))
    optimiser = Adam([("w", w)])
    set_gradients([w], 0)
    optimiser.step()
    before = optimiser.state_dict()
    other = {"lr": 0.5, "steps/w": 9, "mean/w": np.ones(2), "mean_square/w": np.ones(2)} | change
    with pytest.raises(error, match=message):
        optimiser.load_state_dict({key: value for key, value in other.items() if value is not None})
    for key, value in optimiser.state_dict().items():
        np.testing.assert_array_equal(value, before[key])


# What is not finite


@every
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_gradient_that_is_not_finite_stops_with_everything_untouched(
    rule: str, value: float, dtype: Any
) -> None:
    good, other, bad = *tensors((2,), dtype=dtype), *tensors((3,)), *tensors((2, 3), dtype=dtype)
    optimiser = RULES[rule]([("good", good), ("other", other), ("decoder.bad", bad)])
    set_gradients([good, other, bad], 0)
    optimiser.step()
    set_gradients([good, other, bad], 1)
    bad.grad[1, 2] = bad.grad[1, 1] = value
    state, before, gradients = (
        optimiser.state_dict(),
        values([good, other, bad]),
        [p.grad.copy() for p in (good, bad)],
    )
    with pytest.raises(
        NonFiniteError, match=rf"decoder.bad \(2, 3\): 2 entries, the first {value} at \(1, 1\)"
    ) as caught:
        optimiser.step()
    assert "good" not in str(caught.value)
    with pytest.raises(NonFiniteError, match=r"decoder\.bad"):
        clip_grad_norm([("good", good), ("decoder.bad", bad)], 1.0)
    assert isinstance(caught.value, FloatingPointError)
    assert same(values([good, other, bad]), before)
    np.testing.assert_array_equal(good.grad, gradients[0])
    for key, entry in optimiser.state_dict().items():
        np.testing.assert_array_equal(entry, state[key])
    set_gradients([good, other, bad], 1)
    optimiser.step()
    assert not same(values([good, other, bad]), before)


def test_several_faults_are_all_named() -> None:
    a, b = tensors((2,), (1,))
    a.name = "first"
    a.grad, b.grad = np.array([np.inf, 1]), np.array([np.nan])
    with pytest.raises(NonFiniteError) as caught:
        SGD([a, b]).step()
    assert "first (number 0) (2,): 1 entries, the first inf at (0,)" in str(caught.value)
    assert "parameter (number 1) (1,): 1 entries, the first nan at (0,)" in str(caught.value)


def test_squares_that_overflow_are_no_infinity() -> None:
    for dtype, large in ((np.float32, 1e30), (np.float64, 1e200)):
        (p,) = tensors((3,), dtype=dtype)
        p.grad = np.full(3, large, dtype)
        p.data = np.zeros(3, dtype)
        SGD([p], lr=1e-10).step()
        np.testing.assert_allclose(p.data, -1e-10 * large, rtol=1e-6)
        norm = clip_grad_norm([p], 2.0)
        assert norm == pytest.approx(math.sqrt(3) * large, rel=1e-6)
        np.testing.assert_allclose(p.grad, 2 / math.sqrt(3), rtol=1e-6)


def test_a_gradient_that_overflows_the_parameters_precision_is_an_error() -> None:
    (p,) = tensors((2,), dtype=np.float32)
    p.grad = np.array([1e300, 1.0])
    before = p.data.copy()
    with (
        np.errstate(over="ignore"),
        pytest.raises(NonFiniteError, match=r"1 entries, the first inf at \(0,\)"),
    ):
        SGD([p]).step()
    np.testing.assert_array_equal(p.data, before)


@every
def test_zeros_are_no_division_by_zero(rule: str) -> None:
    (p,) = tensors((3,), dtype=np.float32)
    before = p.data.copy()
    optimiser = RULES[rule]([p], weight_decay=0.0)
    for _ in range(3):
        p.grad = np.zeros(3, np.float32)
        assert clip_grad_norm([p], 1.0) == 0
        optimiser.step()
    np.testing.assert_array_equal(p.data, before)


# Clipping


def test_clipping_scales_all_gradients_together() -> None:
    a, b, c = tensors((2,), (1,), (1,))
    a.grad, b.grad = np.array([3.0, 0.0]), np.array([4.0])
    assert clip_grad_norm([a, b, c], 1.0) == 5
    np.testing.assert_allclose(a.grad, [0.6, 0], rtol=1e-6)
    np.testing.assert_allclose(b.grad, [0.8], rtol=1e-6)
    assert c.grad is None
    np.testing.assert_array_equal(a.grad[0], 3.0 * (1 / (5 + 1e-6)))  # to the bit as PyTorch


def test_small_gradients_are_not_scaled() -> None:
    (a,) = tensors((2,))
    for gradient, largest in (([3.0, 4.0], 5.1), ([0.0, 0.0], 1.0), ([1e-30, 0.0], 1.0)):
        a.grad = np.array(gradient)
        assert clip_grad_norm([a], largest) == pytest.approx(math.hypot(*gradient), rel=1e-12)
        assert a.grad.tolist() == gradient


def test_the_norm_of_tiny_gradients() -> None:
    (a,) = tensors((2,), dtype=np.float32)
    a.grad = np.array([3e-30, 4e-30], np.float32)
    assert clip_grad_norm([a], 1.0) == pytest.approx(5e-30, rel=1e-6)


def test_clipping_to_infinity_measures_and_to_zero_erases() -> None:
    (a,) = tensors((2,))
    a.grad = np.array([3.0, 4.0])
    assert clip_grad_norm([a], math.inf) == 5 and a.grad.tolist() == [3, 4]
    assert clip_grad_norm(iter([a]), 0) == 5 and not a.grad.any()
    assert clip_grad_norm([], 1.0) == 0


def test_a_parameter_that_comes_twice_is_clipped_once() -> None:
    (a,) = tensors((2,))
    a.grad = np.array([3.0, 4.0])
    assert clip_grad_norm([a, a], 1.0) == 5
    np.testing.assert_allclose(a.grad, [0.6, 0.8], rtol=1e-6)


def test_clipping_gradients_that_somebody_put_there() -> None:
    a, b = tensors((), (2,))
    a.grad, b.grad = np.float64(12.0), np.array([3, 4])
    assert clip_grad_norm([a, b], 1.3) == 13
    np.testing.assert_allclose(a.grad, 1.2, rtol=1e-6)
    np.testing.assert_allclose(b.grad, [0.3, 0.4], rtol=1e-6)
    assert type(a.grad) is np.ndarray


@pytest.mark.parametrize("size", [1e-7, 2e-4, 3e-4, 0.02, 1.0, 300.0, 60000.0])
@pytest.mark.parametrize("count", [1, 1000])
def test_the_norm_of_half_precision(size: float, count: int) -> None:
    p = ta.Tensor(np.zeros(count, np.float16), requires_grad=True)
    p.grad = np.full(count, size, np.float16)
    expected = float(np.float16(size)) * math.sqrt(count)
    assert clip_grad_norm([p], math.inf) == pytest.approx(expected, rel=1e-5)


def test_clipping_both_precisions() -> None:
    a, b = tensors((1,), dtype=np.float32)[0], tensors((1,))[0]
    a.grad, b.grad = np.array([3.0], np.float32), np.array([4.0])
    assert clip_grad_norm([("a", a), ("b", b)], 1.0) == 5
    assert a.grad.dtype == np.float32 and b.grad.dtype == np.float64
    np.testing.assert_allclose([a.grad[0], b.grad[0]], [0.6, 0.8], rtol=1e-6)


# Wrong uses


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda p: SGD([]), ValueError, "SGD: expected parameters, got none"),
        (lambda p: SGD([p, p]), ValueError, "SGD: a parameter is given twice"),
        (
            lambda p: SGD([("w", p), ("w", *tensors((1,)))]),
            ValueError,
            "SGD: two parameters have the same name",
        ),
        (
            lambda p: Adam(p),
            TypeError,
            r"Adam: expected tensors .* such as model.parameters\(\), got a Tensor",
        ),
        (lambda p: Adam(ta.nn.Linear(1, 1)), TypeError, "Adam: expected tensors .* got a Linear"),
        (lambda p: Adam([p.data]), TypeError, "Adam: parameter number 0 is a ndarray, expected a Tensor"),
        (
            lambda p: Adam([p * 2]),
            ValueError,
            r"Adam: parameter \(number 0\) is not a leaf tensor of floating numbers",
        ),
        (lambda p: Adam([ta.Tensor([1])]), ValueError, "is not a leaf tensor of floating numbers"),
        (
            lambda p: Adam([ta.Tensor([1.0])]),
            ValueError,
            "Adam: none of the 1 parameters requires a gradient",
        ),
        (lambda p: SGD([p], lr=-1), ValueError, "lr is -1, expected a number of at least 0"),
        (lambda p: SGD([p], lr=math.nan), ValueError, "lr is nan"),
        (lambda p: SGD([p], momentum=-0.1), ValueError, "momentum is -0.1"),
        (
            lambda p: Adam([p], betas=(0.9, 1.0)),
            ValueError,
            "betas is 1.0, expected a number of at least 0 and below 1",
        ),
        (lambda p: Adam([p], betas=0.9), TypeError, "betas is 0.9, expected two numbers"),
        (lambda p: Adam([p], betas=(0.9,)), TypeError, r"betas is \(0.9,\), expected two numbers"),
        (lambda p: Adam([p], eps=0), ValueError, "eps is 0, expected a number above 0"),
        (
            lambda p: Adam([p]).load_state_dict(None),
            TypeError,
            "Adam: the state is a NoneType, expected what state_dict returned",
        ),
        (
            lambda p: AdamW([p], weight_decay=-0.1),
            ValueError,
            "weight_decay is -0.1, expected a number of at",
        ),
        (lambda p: SGD([p], weight_decay=None), TypeError, "weight_decay is None, expected a number"),
        (lambda p: Adadelta([p], rho=2), ValueError, "rho is 2"),
        (lambda p: Adadelta([p], eps=0), ValueError, "eps is 0, expected a number above 0"),
        (lambda p: clip_grad_norm([p], -1), ValueError, "max_norm is -1, expected a number of at least 0"),
        (lambda p: clip_grad_norm([p], math.nan), ValueError, "max_norm is nan"),
        (lambda p: clip_grad_norm([p], None), TypeError, "max_norm is None, expected a number"),
        (lambda p: clip_grad_norm(p, 1), TypeError, "clip_grad_norm: expected tensors .* got a Tensor"),
    ],
)
def test_wrong_uses_are_named(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(*tensors((2,)))


@every
def test_a_gradient_of_a_wrong_shape_is_an_error(rule: str) -> None:
    (p,) = tensors((2, 3))
    optimiser, before = RULES[rule]([("w", p)]), p.data.copy()
    for wrong in (np.float64(1), np.ones(3), np.ones((3, 2))):
        p.grad = np.asarray(wrong)
        with pytest.raises(ValueError, match=r"w: the gradient has shape .*, expected \(2, 3\)"):
            optimiser.step()
    np.testing.assert_array_equal(p.data, before)


@every
def test_a_pickled_model_and_optimiser_train_on(rule: str) -> None:
    def trained(layer: Any, optimiser: Any) -> np.ndarray:
        for _ in range(3):
            optimiser.zero_grad()
            (layer(np.arange(6.0).reshape(2, 3)) ** 2.0).sum().backward()
            optimiser.step()
        return np.concatenate([parameter.data.reshape(-1) for parameter in layer.parameters()])

    layer = ta.nn.Linear(3, 2, dtype=np.float64, rng=np.random.default_rng(0))
    optimiser = RULES[rule](layer.parameters())
    trained(layer, optimiser)
    copies = pickle.loads(pickle.dumps((layer, optimiser)))
    np.testing.assert_array_equal(trained(*copies), trained(layer, optimiser))


def test_of_many_faulty_gradients_some_are_listed() -> None:
    parameters = [ta.Tensor(np.zeros(2), requires_grad=True, name=f"weight {i}") for i in range(9)]
    for parameter in parameters:
        parameter.grad = np.full(2, np.nan)
    with pytest.raises(NonFiniteError, match=r"weight 4 .*; and 4 more parameters$") as caught:
        SGD(parameters).step()
    assert "weight 5" not in str(caught.value)


@pytest.mark.parametrize("kind", [SGD, Adam, AdamW, Adadelta])
def test_the_learning_rate_is_checked_whenever_it_is_set(kind: Any) -> None:
    (p,) = tensors((2,))
    optimiser = kind([p], lr=0.5)
    for value, error in ((np.nan, ValueError), (-1, ValueError), (None, TypeError), ("0.1", TypeError)):
        with pytest.raises(error, match=r"^lr is .*expected a number"):
            optimiser.lr = value
        with pytest.raises(error, match=r"^lr is .*expected a number"):
            kind([p], lr=value)
    optimiser.lr = np.float32(0.25)
    assert optimiser.lr == 0.25 and optimiser.state_dict()["lr"] == 0.25


def test_settings_are_printed() -> None:
    parameters = tensors((2,), (3,))
    assert repr(SGD(parameters, momentum=0.9)) == "SGD(2 parameters, momentum=0.9, lr=0.01, weight_decay=0.0)"
    adam = Adam(parameters)
    adam.lr = 0.5
    assert repr(adam) == "Adam(2 parameters, betas=(0.9, 0.999), eps=1e-08, lr=0.5, weight_decay=0.0)"


def test_momentum_may_be_set_where_there_is_some() -> None:
    """Without, nothing is kept that it could act on; it would count for nothing, without a word."""
    (w,) = tensors((2,))
    optimiser = SGD([w], momentum=0.5)
    optimiser.momentum = 0.0
    optimiser.momentum = 0.9
    with pytest.raises(ValueError, match="momentum is -1, expected a number of at least 0"):
        optimiser.momentum = -1
    assert optimiser.momentum == 0.9
    with pytest.raises(ValueError, match="SGD was made without momentum"):
        SGD([w]).momentum = 0.9


@pytest.mark.parametrize(
    ("optimiser", "eps"), [(Adam, 1e-8), (Adam, 1e-7), (Adam, 3e-7), (AdamW, 1e-7), (Adadelta, 1e-8)]
)
def test_a_precision_in_which_eps_vanishes(optimiser: Any, eps: float) -> None:
    """Adam's meets the correction of the mean square, 0.03 at the first step."""
    p = ta.Tensor(np.zeros(2, np.float16), requires_grad=True)
    with pytest.raises(ValueError, match=rf": eps {eps} is too small for float16; give a larger"):
        optimiser([p], eps=eps)


@pytest.mark.parametrize(("optimiser", "eps"), [(Adam, 1e-4), (Adam, 1e-6), (AdamW, 1e-6), (Adadelta, 1e-7)])
def test_an_eps_that_half_precision_has(optimiser: Any, eps: float) -> None:
    p = ta.Tensor(np.zeros(2, np.float16), requires_grad=True)
    optimiser = optimiser([p], eps=eps)
    p.grad = np.zeros(2, np.float16)
    optimiser.step()
    assert np.isfinite(p.data).all()


def test_clipping_by_a_generator_that_is_used_up() -> None:
    parameters = (p for p in tensors((2,)))
    assert len(list(parameters)) == 1
    with pytest.raises(ValueError, match="a generator gives its parameters only once"):
        clip_grad_norm(parameters, 1.0)
