"""`gradcheck`: what it accepts, what it finds, and that it leaves no trace."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import tinygrad_attn as ta

NORMAL = np.random.default_rng(0).standard_normal


def checked(fn: Any, *inputs: Any, **settings: Any) -> ta.GradcheckReport:
    return ta.gradcheck(fn, inputs, raise_exception=False, **settings)


def wrong(factor: float = 0.9) -> ta.Primitive:
    """A square whose rule gives `factor` times the right gradient."""
    return ta.Primitive("square", lambda x: x * x, lambda g, y, x: factor * 2 * g * x)


METHODS = pytest.mark.parametrize("method", ["complex", "central"])


# What is right passes


@METHODS
@pytest.mark.parametrize("order", [1, 2])
def test_a_right_function_passes(method: Any, order: int) -> None:
    report = checked(
        lambda s, W: ta.softmax(ta.tanh(s @ W)), NORMAL((2, 3)), NORMAL((3, 4)), method=method, order=order
    )
    assert report and report.passed and report.method == method
    names = [(row.name, row.order) for row in report.rows]
    assert names == [("s", 1), ("W", 1), ("s", 2), ("W", 2), ("upstream", 2)][: 2 if order == 1 else 5]
    assert report.relative_error <= (1e-14 if method == "complex" else 1e-9)
    assert all(row.checked == row.size and row.verdict == "ok" for row in report.rows)


@METHODS
def test_a_product_of_a_hundred_factors(method: Any) -> None:
    def fn(x: ta.Tensor) -> ta.Tensor:
        for _ in range(100):
            x = ta.tanh(x * 1.1)
        return x

    assert checked(fn, NORMAL(3), method=method)


def test_results_in_collections() -> None:
    class Pair(NamedTuple):
        first: Any
        second: Any

    @dataclass
    class Held:
        value: Any
        mask: np.ndarray

    def fn(x: ta.Tensor) -> Any:
        held = Held(ta.exp(x), np.ones(3, bool))
        return Pair(x * 2, [x.sum(), None]), {"held": held, "ids": x > 0}

    report = checked(fn, NORMAL(3), order=2)
    assert report
    assert [row.name for row in report.rows][1:] == ["x", *(f"upstream {i}" for i in range(3))]


def test_everything_that_floats_is_checked_and_the_rest_handed_on() -> None:
    seen = {}

    def fn(x: Any, ids: Any, mask: Any, power: Any, scale: Any, text: Any) -> Any:
        seen.update(ids=ids, mask=mask, power=power, text=text)
        return ta.where(mask, x[ids] ** power, 0.0) * scale

    ids, mask = ta.Tensor([0, 0, 1]), np.array([True, False, True])
    report = checked(fn, NORMAL(2), ids, mask, 2, 3.0, "text")
    assert report and [row.name for row in report.rows] == ["x", "scale"]
    assert seen["ids"] is ids and seen["mask"] is mask and seen["power"] == 2 and seen["text"] == "text"


def test_names_come_from_tensors_then_from_the_function() -> None:
    x, y = ta.Tensor(NORMAL(2), name="s"), ta.Tensor(NORMAL(2))
    assert [row.name for row in checked(lambda a, b: a * b, x, y).rows] == ["s", "b"]
    assert [row.name for row in checked(ta.mul, NORMAL(2), NORMAL(2)).rows] == ["input 0", "input 1"]
    assert [row.name for row in checked(lambda s, b: s * b, y, x).rows] == ["s", "s (2)"]


def test_one_input_needs_no_tuple() -> None:
    assert ta.gradcheck(ta.exp, ta.Tensor([1.0, 2.0]))
    assert ta.gradcheck(ta.exp, np.array([1.0, 2.0]))


class Affine(ta.nn.Module):
    def __init__(self, dtype: Any = np.float64) -> None:
        rng = np.random.default_rng(3)
        self.inner = ta.nn.Linear(3, 2, dtype=dtype, rng=rng)
        self.scale = ta.Tensor(rng.standard_normal(2).astype(dtype), requires_grad=True)

    def forward(self, x: Any) -> ta.Tensor:
        return self.inner(x) * self.scale

    def loss(self, x: Any) -> ta.Tensor:
        return self(x).sum()


@pytest.mark.parametrize(
    ("make_fn", "with_module"),
    [
        (lambda module: lambda m, x: m(x), True),
        (lambda module: module, False),
        (lambda module: module.loss, False),
    ],
    ids=["as input", "as function", "its method"],
)
def test_parameters_of_modules_are_checked_by_name(make_fn: Any, with_module: bool) -> None:
    module = Affine()
    inputs = [module, NORMAL((4, 3))] if with_module else [NORMAL((4, 3))]
    report = checked(make_fn(module), *inputs, order=2)
    assert report
    names = {row.name for row in report.rows if row.order == 1}
    assert names == {"inner.weight", "inner.bias", "scale", "x"}


def test_two_modules_are_told_apart() -> None:
    one, two = ta.nn.Linear(3, 2), ta.nn.Linear(3, 2)
    names = [row.name for row in checked(lambda a, b, x: a(x) * b(x), one, two, NORMAL((1, 3))).rows]
    assert names == ["a.weight", "a.bias", "b.weight", "b.bias", "x"]


def test_a_shared_parameter_is_one() -> None:
    module = Affine()
    report = checked(lambda a, b, x: a(x) * b(x), module, module, NORMAL((1, 3)))
    assert report and len(report.rows) == 4


def test_no_output_depends_on_an_input() -> None:
    report = checked(lambda x: ta.Tensor([1.0, 2.0]), NORMAL(2), order=2)
    assert report and "no output depends" in str(report)


# Shapes and memory at the edges


def test_a_view_of_the_input() -> None:
    x = NORMAL((3, 4))
    assert checked(lambda x: x.T[1:], x, order=2)
    assert checked(lambda x: x, x, order=2)


def test_a_scalar_function_of_a_0d_tensor() -> None:
    for fn in (ta.exp, lambda x: x, lambda x: x * x.sum(), lambda x: ta.Tensor(2.0) * x):
        assert checked(fn, ta.Tensor(0.3), order=2)


def test_an_empty_tensor() -> None:
    report = checked(lambda x, b: x * 2 + b, np.zeros((0, 3)), NORMAL(3), order=2)
    assert report and [row.checked for row in report.rows if row.order == 1] == [0, 3]


def test_an_input_repeated_twice_is_two_inputs() -> None:
    x = ta.Tensor(NORMAL(3), requires_grad=True)
    report = checked(lambda a, b: a * a * b, x, x)
    assert report and len(report.rows) == 2
    assert "shared memory" in str(report)


def test_a_zero_stride_input() -> None:
    x = np.broadcast_to(NORMAL((1, 3)), (4, 3))
    report = checked(lambda x: x * x, x, order=2)
    assert report and "overlap" in str(report)
    assert report.rows[0].checked == 12


def test_views_of_one_array() -> None:
    memory = NORMAL(6)
    report = checked(lambda a, b: a * b, memory[:4], memory[2:])
    assert report and "shared memory: b and a" in str(report)


# Nothing is changed


def state(thing: Any) -> tuple[Any, ...]:
    return (
        id(thing.data),
        thing.data.tobytes(),
        thing.data.dtype,
        None if thing.grad is None else thing.grad.tobytes(),
        thing.requires_grad,
        thing.name,
        thing._number,
    )


@METHODS
@pytest.mark.parametrize("raises_at", [None, 1, 2, 9])
def test_nothing_of_the_caller_is_changed(method: Any, raises_at: int | None) -> None:
    module = Affine(np.float32)
    module.scale.requires_grad = False
    module.inner.weight.grad = np.ones((2, 3), np.float32)
    x = ta.Tensor(NORMAL((4, 3)).astype(np.float32), requires_grad=True)
    x.grad = np.full((4, 3), 2.0, np.float32)
    plain = NORMAL(2)
    things = [x, *module.parameters()]
    before, memory = [state(thing) for thing in things], plain.tobytes()
    calls = 0

    def fn(m: Any, x: Any, plain: Any) -> Any:
        nonlocal calls
        calls += 1
        m.eval()
        result = m(x) * plain
        result.sum().backward(retain_graph=True)  # leaves .grad behind
        if calls == raises_at:
            raise KeyError("half-way")
        return result

    with ta.no_grad():
        try:
            report = checked(fn, module, x, plain, method=method)
        except KeyError:
            assert raises_at in (1, 2) or method == "central"
        else:
            # Raised at a step, it may pass for a function that complex numbers do not suit.
            assert raises_at == 9 or report
        assert not (x * 2).requires_grad  # still within no_grad
    assert [state(thing) for thing in things] == before
    assert plain.tobytes() == memory
    assert module.training and module.inner.training
    assert (x * 2).requires_grad


def test_it_works_within_no_grad_and_explicit() -> None:
    with ta.no_grad():
        assert checked(lambda x: ta.softmax(x), NORMAL(3), order=2).rows[0].relative_error < 1e-14
    with ta.explicit():
        assert checked(lambda x: ta.softmax(x), NORMAL(3), order=2)


def test_a_function_that_takes_gradients_itself() -> None:
    def fn(x: ta.Tensor) -> ta.Tensor:
        return ta.grad(ta.tanh(x).sum(), x, create_graph=True)[0]

    assert checked(fn, NORMAL(3), order=2)


def test_the_same_seed_gives_the_same_report() -> None:
    x = NORMAL((3, 3))
    assert str(checked(wrong(), x, rng=5)) == str(checked(wrong(), x, rng=5))
    assert checked(wrong(), x, rng=5).worst != checked(wrong(), x, rng=6).worst


# What is wrong fails, and says how


@METHODS
def test_a_wrong_rule(method: Any) -> None:
    square = wrong()
    with pytest.raises(ta.GradcheckError) as caught:
        ta.gradcheck(lambda x: square(ta.tanh(x)), [NORMAL((2, 3))], method=method)
    report = caught.value.report
    assert isinstance(caught.value, AssertionError) and not report
    assert str(report) == str(caught.value)
    worst = report.worst[0]
    assert worst.relative_error == pytest.approx(0.1) and worst.verdict == "mismatch"
    assert worst.analytic == pytest.approx(0.9 * worst.numeric)
    assert report.rows[0].cause == "0.9 times the right value everywhere"
    assert report.problems == ("the rule of square for its input number 0 is wrong",)
    assert list(worst.index) == list(np.unravel_index(_largest(report), (2, 3)))


def _largest(report: ta.GradcheckReport) -> int:
    values = np.zeros((2, 3))
    for entry in report.worst:
        values[entry.index] = abs(entry.numeric)
    return int(values.argmax())


def test_one_wrong_entry_of_many() -> None:
    def rule(g: Any, y: Any, x: Any) -> Any:
        bump = np.zeros((4, 5))
        bump[2, 3] = 1e-9
        return g * (y + bump)

    report = checked(ta.Primitive("exp", np.exp, rule), NORMAL((4, 5)))
    assert [entry.index for entry in report.worst if not entry.passed] == [(2, 3)]
    assert "1 of the 20 entries looked at differ" in report.rows[0].cause


CAUSES = {
    "sign": (lambda g, y, a, b: -g * b, "sign"),
    "factor": (lambda g, y, a, b: 2.5 * g * b, "2.5 times"),
    "sum for a mean": (lambda g, y, a, b: 3 * g * b, "3 is the length of axis 0"),
    "zero": (lambda g, y, a, b: 0 * g * b, "zero"),
    "transposed": (lambda g, y, a, b: ta.swapaxes(g * b, 0, 1), "transposed"),
    "reversed": (lambda g, y, a, b: (g * b)[:, ::-1], "reversed along axis 1"),
    "exchanged": (lambda g, y, a, b: g * a, "exchanged with the gradient of input 1"),
    "ones": (lambda g, y, a, b: b + 0 * a, "does not depend on the upstream gradient"),
    "one row": (lambda g, y, a, b: g * b * np.array([[1], [1], [2]]), "those at index 2 of axis 0"),
    "some columns": (
        lambda g, y, a, b: g * b * np.array([1, 1.1, 1.2]),
        "6 of the 9 entries looked at differ, those at the indices 1 to 2 of axis 1; the others agree",
    ),
    "the sign of a branch": (
        lambda g, y, a, b: g * ta.abs(b),
        "differ, and have the wrong sign; the others agree",
    ),
    "a branch left out": (lambda g, y, a, b: g * ta.maximum(b, 0), "differ, and are zero; the others agree"),
    "the factor of a branch": (
        lambda g, y, a, b: g * np.where(b > 0, b, 3 * b),
        "differ, and are 3 times the right values; the others agree",
    ),
    "nearly one in a branch": (
        lambda g, y, a, b: g * b * np.where(b > 0, 1, 1 + 5e-11),
        "differ, and are (1 + 5e-11) times the right values; the others agree",
    ),
    "float32": (
        lambda g, y, a, b: np.asarray(g * b, dtype=np.float32),
        "right to 7 digits: rounding within a rule, or a part of it in float32?",
    ),
}


@pytest.mark.parametrize(("rule", "cause"), CAUSES.values(), ids=CAUSES)
def test_causes(rule: Any, cause: str) -> None:
    other = (lambda g, y, a, b: g * b) if "exchanged" in cause else (lambda g, y, a, b: g * a)
    product = ta.Primitive("product", np.multiply, rule, other)
    report = checked(product, NORMAL((3, 3)), NORMAL((3, 3)))
    assert not report
    assert cause in report.rows[0].cause and cause in str(report)


def test_a_mean_over_the_axis_of_another_input() -> None:
    add = ta.fused(lambda a, b: a + b, lambda a, b: a + b, lambda g, y, a, b: (g, g.mean(axis=0)), name="add")
    report = checked(add, NORMAL((5, 2)), NORMAL(2))
    assert report.rows[1].cause.endswith("(5 is the length of axis 0 of input 0: a mean for a sum?)")


@METHODS
@pytest.mark.parametrize("step", [np.round, np.floor, np.sign])
def test_a_straight_through_gradient_is_called_that(method: Any, step: Any) -> None:
    report = checked(ta.Primitive("step", lambda x: step(x), lambda g, y, x: g), 3 * NORMAL(6), method=method)
    assert report.rows[0].verdict == "mismatch" and "straight-through" in report.rows[0].cause
    assert report.problems == ("the rule of step for its input number 0 is wrong",)


@METHODS
def test_jumps_beside_the_entries_hide_no_straight_through_gradient(method: Any) -> None:
    floor = ta.Primitive("floor", lambda x: np.floor(x), lambda g, y, x: g)
    for distance in (1e-1, 1e-2, 4e-3, 1e-3, 1e-5):
        report = checked(floor, np.array([1 + distance, -2 - distance, 0.4]), method=method)
        assert report.rows[0].verdict == "mismatch" and "straight-through" in report.rows[0].cause
        assert "entries are equal" not in str(report)


def test_a_gradient_that_is_not_finite_is_not_compared_with_the_sides_of_a_kink() -> None:
    length = ta.Primitive("hypot", np.hypot, lambda g, y, a, b: g * a / y, lambda g, y, a, b: g * b / y)
    with np.errstate(invalid="ignore"):
        report = checked(length, np.zeros(2), np.zeros(2))
    assert {entry.verdict for entry in report.worst} == {"non-finite"}
    assert "one-sided" not in str(report) and "2 of 2 entries of the gradient are not finite" in str(report)


@pytest.mark.parametrize("factor", [1, 2])
def test_large_inputs_that_complex_numbers_do_not_suit_take_few_calls(factor: float) -> None:
    calls = []

    def forward(x: Any) -> Any:
        calls.append(x)
        return np.where(abs(x) <= 1, x * x / 2, abs(x) - 0.5)

    huber = ta.Primitive("huber", forward, lambda g, y, x: factor * g * ta.minimum(ta.maximum(x, -1), 1))
    report = checked(huber, 2 * NORMAL(1000))
    assert report.method == "central" and bool(report) == (factor == 1)
    assert len(calls) < 30_000


def test_the_operation_at_fault_is_named_with_its_scope() -> None:
    square = wrong()

    def fn(x: ta.Tensor) -> ta.Tensor:
        with ta.scope("decoder"), ta.scope("step 2"):
            return ta.tanh(square(ta.exp(x)))

    assert "the rule of square in decoder/step 2 for its input number 0 is wrong" in str(
        checked(fn, NORMAL(3))
    )


def test_a_kernel_that_differs_from_its_definition() -> None:
    def kernel_vjp(g: Any, y: Any, x: Any) -> Any:
        return (g * (1 - y * y),)

    good = ta.fused(lambda x: ta.tanh(x), lambda x: np.tanh(x), kernel_vjp, name="good")
    bad = ta.fused(lambda x: ta.tanh(x), lambda x: np.tanh(1.01 * x), kernel_vjp, name="bad")
    silent = ta.fused(lambda x: ta.tanh(x), lambda x: np.tanh(x), lambda g, y, x: (None,), name="silent")
    assert checked(good, NORMAL(3), order=2)
    assert "zero" in checked(silent, NORMAL(3)).rows[0].cause
    report = checked(bad, NORMAL(3))
    assert not report and "a kernel and its definition disagree: output 0 differs by up to" in str(report)
    twice = ta.fused(
        lambda x: ta.tanh(x) * 2.0, lambda x: np.tanh(x), lambda g, y, x: (g * (1 - y * y),), name="twice"
    )
    assert not checked(lambda x: twice(x) + x, NORMAL(3))  # though its first derivative is right
    for kernel in (lambda x: x[:2] * 2.0, lambda x: x[None] * 2.0):
        other = ta.fused(lambda x: x * 2.0, kernel, lambda g, y, x: (g * 2,), name="other shape")
        assert "outputs have shapes" in str(checked(other, NORMAL(3)))
    endless = ta.fused(
        lambda x: x * 2.0 - ta.log(x - x), lambda x: x * 2.0, lambda g, y, x: (g * 2,), name="endless"
    )
    with np.errstate(all="ignore"):
        assert "differs by up to inf" in str(checked(endless, NORMAL(3)))


def test_what_is_left_of_a_value_that_was_stored() -> None:
    cell = ta.nn.GRUCell(3, 4, dtype=np.float64, rng=np.random.default_rng(0))
    x, h = NORMAL((2, 3)), NORMAL((2, 4))
    stored = cell(x, h).data
    assert checked(lambda x, h: cell(x, h) - stored, x, h)


def test_a_missing_rule() -> None:
    half = ta.Primitive("product", np.multiply, lambda g, y, a, b: g * b, None)
    report = checked(half, NORMAL(3), NORMAL(3))
    assert not report
    assert "product has no gradient rule for its input number 1" in str(report)
    assert {row.verdict for row in report.rows} == {"not checked"}
    assert [row.order for row in checked(half, NORMAL(3), NORMAL(3), order=2).rows] == [1, 1, 2, 2]


def test_a_gradient_of_the_wrong_shape() -> None:
    flat = ta.Primitive("square", lambda x: x * x, lambda g, y, x: (2 * g * x)[:1])
    report = checked(flat, NORMAL((2, 3)))
    assert not report
    assert "gradient of shape (1, 3), expected the input's shape (2, 3)" in str(report)


def test_something_detached() -> None:
    report = checked(lambda x: x.detach() * 2 + x * 0, NORMAL(3))
    assert "detached" in report.rows[0].cause
    assert not checked(lambda x: ta.Tensor(x.data) * 2, NORMAL(3))


def test_a_cut_second_derivative() -> None:
    cut = ta.Primitive("square", lambda x: x * x, lambda g, y, x: g * np.asarray(2 * ta.Tensor(x).detach()))
    assert checked(cut, NORMAL(3))
    report = checked(cut, NORMAL(3), order=2)
    assert not report and "second derivative" in report.rows[1].cause
    assert report.rows[0].passed


def test_a_function_that_is_not_deterministic() -> None:
    rng = np.random.default_rng(0)
    report = checked(lambda x: x * rng.random(), NORMAL(3))
    assert not report and "not deterministic" in str(report)
    assert not checked(ta.nn.Dropout(0.5, rng=rng), NORMAL(30))


def test_a_function_that_uses_its_inputs_themselves() -> None:
    """As PyTorch's check allows, which moves them in place: here nothing would be looked at."""
    w = ta.Tensor(NORMAL(3), requires_grad=True, name="w")
    report = ta.gradcheck(lambda p: (w * w).sum(), (w,), raise_exception=False)
    assert not report and "uses w itself, and not the copy" in str(report)
    layer = ta.nn.Linear(3, 2)
    x = NORMAL((4, 3))
    report = ta.gradcheck(lambda *p: layer(x), tuple(layer.parameters()), raise_exception=False)
    assert not report and str(report).count("itself, and not the copy") == 2
    assert ta.gradcheck(lambda p: (p * w).sum(), (w,))  # beside the copy it is a constant
    assert ta.gradcheck(lambda p: (w * w).sum(), (NORMAL(3),))  # and here, too


def test_values_that_are_not_finite() -> None:
    report = checked(ta.log, np.array([1.0, -1.0, 0.0]))
    assert not report and "2 of the 3 entries of output 0 are not finite" in str(report)
    report = checked(ta.log, np.array([-1.0]), order=2)
    assert [(row.order, row.verdict) for row in report.rows] == [(1, "not checked"), (2, "not checked")]
    for rule in (ta.log, ta.sqrt):
        assert checked(rule, np.array([1e-8, 1e-12, 1.0]), method="central")
    report = checked(ta.sqrt, np.array([0.0, 1.0]))
    assert not report and [entry.index for entry in report.worst if entry.verdict == "non-finite"] == [(0,)]


def test_a_function_that_writes_to_its_input() -> None:
    def fn(x: ta.Tensor) -> ta.Tensor:
        y = x * 2
        x.data[0] = 7.0
        return y

    x = NORMAL(3)
    report = checked(fn, x)
    assert not report and "writes to its input x in place" in str(report)
    assert x[0] != 7.0


# float32 (B19)


def test_a_cast_to_float32_on_the_way_is_told() -> None:
    report = checked(lambda x: ta.tanh(x.astype(np.float32)), NORMAL(3))
    assert "float32: astype gives it from the float64 of the check" in str(report)
    square = wrong(1.01)
    assert not checked(lambda x: square(x.astype(np.float32)), NORMAL(3))


def test_float32_is_converted_and_the_report_says_so() -> None:
    x = np.array([1.1, 2.3], np.float32)
    report = ta.gradcheck(lambda x: 100 * (x**2).sum(), (ta.Tensor(x),))
    assert "float32: x converted to float64" in str(report)
    assert report.relative_error < 1e-14
    module = Affine(np.float32)
    report = ta.gradcheck(module, NORMAL((2, 3)))
    assert "float32: inner.weight, inner.bias, scale converted" in " ".join(report.notes) or "float32" in str(
        report
    )
    assert module.scale.dtype == np.float32


# Kinks (B22)


@METHODS
@pytest.mark.parametrize(
    ("fn", "x", "at", "sides"),
    [
        (ta.relu, [0.0, 1.0, -1.0], [0], (0.0, 1.0)),
        (ta.abs, [0.0, 1.0, -1.0], [0], (-1.0, 1.0)),
        (lambda x: x.max(), [1.0, 1.0, -1.0], [0, 1], (0.0, 1.0)),
        (lambda x: ta.maximum(x, 0.5), [0.5, 1.0], [0], (0.0, 1.0)),
        (lambda x: ta.norm(x), [0.0, 0.0], [0, 1], (-1.0, 1.0)),
    ],
    ids=["relu", "abs", "max with a tie", "maximum", "norm of nothing"],
)
def test_a_kink_is_told_from_a_mismatch(method: Any, fn: Any, x: Any, at: Any, sides: Any) -> None:
    report = checked(fn, np.array(x), method=method)
    assert report
    kinks = [entry for entry in report.worst if entry.verdict == "kink"]
    assert sorted(entry.index[0] for entry in kinks) == at
    for entry in kinks:
        weight = max(abs(entry.left), abs(entry.right)) / max(map(abs, sides))
        left, right = entry.left / weight, entry.right / weight
        assert sorted([left, right]) == pytest.approx(list(sides)) or sorted(
            [-left, -right]
        ) == pytest.approx(list(sides))
    assert "kink" in str(report) and "from the left" in str(report)
    assert checked(fn, np.array(x) + 0.01 * np.arange(1, len(x) + 1), method=method).rows[0].verdict == "ok"


@METHODS
def test_a_wrong_slope_beside_a_kink_fails(method: Any) -> None:
    relu = ta.Primitive(
        "relu", lambda x: np.where(np.real(x) > 0, x, 0), lambda g, y, x: 0.9 * ta.where(np.real(x) > 0, g, 0)
    )
    report = checked(relu, np.array([0.0, 1.0, -1.0]), method=method)
    assert not report
    assert [entry.index for entry in report.worst if not entry.passed] == [(1,)]
    assert "the rule of relu for its input number 0 is wrong" in str(report)


@METHODS
def test_a_value_outside_the_sides_of_a_kink_fails(method: Any) -> None:
    relu = ta.Primitive(
        "relu",
        lambda x: np.where(np.real(x) > 0, x, 0),
        lambda g, y, x: ta.where(np.real(x) > 0, g, -0.3 * g),
    )
    report = checked(relu, np.array([0.0]), method=method)
    assert not report and "outside the one-sided derivatives" in str(report)


def test_a_kink_nearby_is_none() -> None:
    assert checked(ta.relu, np.array([1e-4, -1e-4]), method="central").rows[0].verdict == "ok"


def real(x: Any) -> Any:
    return np.real(x.data if isinstance(x, ta.Tensor) else x)


def length(factor: float) -> ta.Primitive:
    """A norm whose rule gives `factor` times the right gradient."""
    return ta.Primitive("length", lambda x: np.sqrt(np.sum(x * x)), lambda g, y, x: factor * g * x / y)


@METHODS
@pytest.mark.parametrize("scale", [1.0, 1e-5, 1e-9])
def test_a_wrong_slope_near_a_kink_fails_however_near(method: Any, scale: float) -> None:
    relu = ta.Primitive(
        "relu", lambda x: np.where(np.real(x) > 0, x, 0), lambda g, y, x: ta.where(real(x) > 0, 0.9 * g, 0)
    )
    x = scale * np.array([1.0, 2.0, -1.0])
    report = checked(relu, x, method=method)
    assert not report and report.rows[0].verdict == "mismatch"
    assert checked(ta.relu, x, method=method).rows[0].verdict == "ok"
    for factor in (0.0, 0.5):
        assert not checked(length(factor), x, method=method)
    assert checked(ta.norm, x, method=method).rows[0].verdict == "ok"


UNDIVIDED = ta.Primitive(
    "largest", lambda x: x[np.argmax(np.real(x))], lambda g, y, x: ta.where(real(x) == real(y), g, 0.0)
)


@METHODS
def test_what_a_tie_gives_to_each_is_free_but_not_the_sum(method: Any) -> None:
    """Along (1, 1, 0) the largest of (1, 1, 0) has a slope of one, and no kink."""
    report = checked(UNDIVIDED, np.array([1.0, 1.0, 0.0]), method=method)
    assert not report and "the rule of largest is wrong where entries are equal" in report.problems[0]
    neither = ta.Primitive(
        "larger",
        lambda x, y: np.where(np.real(x) >= np.real(y), x, y),
        lambda g, z, x, y: ta.where(real(x) > real(y), g, 0.0),
        lambda g, z, x, y: ta.where(real(x) < real(y), g, 0.0),
    )
    assert "larger is wrong where entries are equal" in str(checked(neither, np.ones(2), np.ones(2)))
    assert checked(neither, np.ones(2), np.array([1.5, 0.5]))
    for fn in (ta.max, ta.min, lambda x: ta.maximum(x, x * 1.0), lambda x: ta.max(x) - ta.min(x)):
        assert checked(fn, np.array([1.0, 1.0, 1.0]), method=method)


@METHODS
def test_a_kink_does_not_hide_what_other_operations_do(method: Any) -> None:
    bad = ta.Primitive("sine", np.sin, lambda g, y, x: 1.1 * g * ta.cos(x))
    report = checked(lambda x: bad(ta.max(x, axis=1)), np.ones((3, 4)), method=method)
    assert not report and report.problems == ("the rule of sine for its input number 0 is wrong",)


@METHODS
@pytest.mark.parametrize(
    ("fn", "x"),
    [
        (ta.relu, [0.0, 1.0, -1.0]),
        (ta.abs, [0.0, 1.0, -1.0]),
        (lambda x: ta.max(x) ** 2, [1.0, 1.0, 0.0]),
        (lambda x: ta.maximum(x, 0.5) * x, [0.5, 1.0, 0.0]),
    ],
)
def test_a_kink_is_one_in_second_order_too(method: Any, fn: Any, x: Any) -> None:
    report = checked(fn, np.array(x), method=method, order=2)
    assert report and {row.verdict for row in report.rows} <= {"ok", "kink"}


def test_a_sample_at_ties() -> None:
    report = checked(ta.maximum, np.ones(5), np.ones(5), entries=2)
    assert report and report.rows[0].verdict == "kink"


SIDES: dict[str, tuple[Any, Any]] = {
    "clip": (lambda x: ta.clip(x, -1, 1), [1.0, 0.3, -1.0]),
    "clip to six": (lambda x: ta.clip(x, 0, 6), [0.0, 6.0, 1.0]),
    "narrow clip": (lambda x: ta.clip(x, -1e-3, 1e-3), [1e-3, 0.0]),
    "first of the largest": (
        ta.Primitive(
            "first",
            lambda x: x[np.argmax(np.real(x))],
            lambda g, y, x: g * np.eye(len(x))[np.argmax(real(x))],
        ),
        [1.0, 1.0, 0.0],
    ),
    "inside": (
        ta.Primitive("inside", lambda x: np.clip(x, -1, 1), lambda g, y, x: g * (np.abs(real(x)) <= 1)),
        [1.0, -0.4],
    ),
    "square beside a line": (lambda x: ta.maximum(x, x * x), [1.0, 0.3]),
}


@METHODS
@pytest.mark.parametrize(("fn", "x"), SIDES.values(), ids=SIDES)
def test_a_side_of_a_kink_serves(method: Any, fn: Any, x: Any) -> None:
    for seed in range(12):
        report = checked(fn, np.array(x), method=method, rng=seed)
        assert report and report.method == method, str(report)
        assert any(entry.verdict == "kink" for entry in report.worst)


@METHODS
def test_a_kink_hides_nothing_beyond_the_sample(method: Any) -> None:
    bad = ta.Primitive(
        "bad", lambda x: x * x, lambda g, y, x: g * 2 * x * np.where(np.arange(x.shape[0]) >= 16, -1, 1)
    )

    def fn(x: Any) -> Any:
        return ta.concatenate([ta.relu(x[:1]), bad(x[1:])])

    for seed in range(12):
        assert not checked(fn, np.array([0.0] + [1.0] * 20), entries=3, method=method, rng=seed)


@pytest.mark.parametrize("order", [1, 2])
def test_what_is_not_analytic_beyond_the_sample(order: int) -> None:
    x = np.ones((2, 6))
    x[:, 3] = 0
    huber = ta.Primitive(
        "huber",
        lambda x: np.where(np.abs(x) < 1, x * x / 2, np.abs(x) - 0.5),
        lambda g, y, x: g * ta.clip(x, -1, 1),
    )
    for seed in range(6):
        assert checked(lambda x: ta.norm(x, axis=0), x, order=order, entries=2, rng=seed)
        values = 1.5 * np.random.default_rng(seed).standard_normal(6)
        assert checked(huber, values, order=order, entries=2, rng=seed)


def test_zero_but_for_what_a_complex_step_leaves() -> None:
    for fn in (lambda x: x**3, lambda x: x * x * x, lambda x: ta.sin(x) ** 3, lambda x: x * x * ta.tanh(x)):
        assert checked(fn, np.array([0.0])).rows[0].verdict == "ok"


def test_a_rule_that_errs_where_not_all_gradients_are_needed() -> None:
    def rule(g: Any, y: Any, a: Any, b: Any, *, needs: Any) -> Any:
        return g * b, g * a * (1 if all(needs) else 2)

    product = ta.fused(lambda a, b: a * b, lambda a, b: a * b, rule, name="product")
    report = checked(product, NORMAL(2), NORMAL(2))
    assert not report and "errs where not all gradients are needed" in str(report)


@pytest.mark.parametrize(
    "change",
    [lambda g: ta.clip(g, -5, 5), lambda g: ta.relu(g), lambda g: ta.abs(g), lambda g: g + 1e-6, ta.tanh],
    ids=["clipped", "positive parts", "size alone", "something added", "squashed"],
)
def test_a_rule_that_is_not_linear_in_its_upstream_gradient(change: Any) -> None:
    own = ta.Primitive("own", lambda x: np.sum(x * x), lambda g, y, x: change(g) * 2 * x)
    for seed in range(6):
        report = checked(lambda x: 0.01 * own(x), NORMAL(3), rng=seed)
        assert not report and "is not linear in its upstream gradient" in str(report)
        assert any("the rule of own for its input number 0" in problem for problem in report.problems)
        assert "leave the graph" not in str(report)


def test_upstream_gradients_that_overflow_in_half_precision_tell_nothing() -> None:
    x = np.array([0.5, 1.0, 2.0])
    assert checked(lambda x: (x.astype(np.float16) * 100).astype(np.float64), x, rtol=1e-2)


@METHODS
def test_a_kink_does_not_excuse_second_derivatives_of_any_size(method: Any) -> None:
    cos = ta.Primitive("cosine", np.cos, lambda g, y, x: -1000.0 * g * ta.sin(x))
    sin = ta.Primitive("sine", np.sin, lambda g, y, x: g * cos(x))
    assert not checked(lambda x: ta.relu(x - 1) + sin(x), np.array([1.0]), order=2, method=method)
    assert checked(lambda x: ta.relu(x - 1) + ta.sin(x), np.array([1.0]), order=2, method=method)


def test_a_jump_is_told() -> None:
    step = ta.Primitive("step", lambda x: np.where(np.real(x) > 1, 2.0, 1.0) * x, lambda g, y, x: g)
    assert "the value jumps here" in str(checked(step, np.array([1.0]), method="central"))


def test_a_function_that_refuses_numbers_beside_the_bound() -> None:
    def root(x: Any) -> Any:
        if not ((np.real(x) >= 0) & (np.real(x) <= 1)).all():
            raise ValueError("expected numbers from 0 to 1")
        return np.sqrt(x)

    assert checked(ta.Primitive("root", root, lambda g, y, x: g / (2 * y)), np.array([0.999]))
    assert not checked(ta.Primitive("root", root, lambda g, y, x: g / y), np.array([0.999]))


def test_a_complex_output() -> None:
    report = checked(lambda x: x * 1j, NORMAL(2))
    assert not report and "output 0 is complex, expected real numbers" in str(report)


# Saturation: what is left of 1 - y² where y is almost one


@pytest.mark.parametrize(
    ("fn", "x"),
    [
        (ta.tanh, [6.0]),
        (ta.tanh, [20.0]),
        (ta.sigmoid, [40.0, 0.3]),
        (ta.softmax, [12.0, 0.3, -0.2]),
        (ta.softmax, [50.0, 0.0, 1.0]),
        (lambda x: ta.cross_entropy(x, 0), [12.0, 0.3, -0.2, 1.0]),
        (lambda x: ta.tanh(x * 30.0 * ta.tanh(x)), [0.7, 2.0]),
    ],
)
def test_what_saturates_is_a_matter_of_rounding(fn: Any, x: Any) -> None:
    for order in (1, 2):
        report = checked(fn, np.array(x), order=order)
        assert report and {row.verdict for row in report.rows} <= {"ok", "rounding"}


@pytest.mark.parametrize("scale", [1.0, 3.0, 10.0])
def test_models_with_large_weights(scale: float) -> None:
    rng = np.random.default_rng(0)
    model = ta.nn.Seq2Seq(6, 6, 3, 4, rng=rng, dtype=np.float64)
    for parameter in model.parameters():
        parameter.data[...] = scale * rng.standard_normal(parameter.shape)
    source, target = np.array([[4, 5, 4], [5, 4, 0]]), np.array([[1, 4, 5], [1, 5, 4]])
    report = checked(lambda m: m(source, [3, 2], target).logits, model)
    assert report, str(report)


def test_saturation_hides_no_wrong_entry_beside_it() -> None:
    x = np.array([20.0, 0.3, -0.4])
    bad = ta.Primitive("squash", np.tanh, lambda g, y, x: g * (1 - y * y) * np.array([1.0, 1.0, 1 + 1e-9]))
    report = checked(bad, x)
    assert [entry.index for entry in report.worst if not entry.passed] == [(2,)]


# Where large steps deceive


@pytest.mark.parametrize(
    ("fn", "x", "order"),
    [
        (lambda x: 1 / (x * x), [1e-5, 1.7e-5, 0.6e-5], 2),
        (lambda x: 1 / x, [1e-5, 1.7e-5, 0.6e-5], 2),
        (lambda x: 1 / x, [1e-30], 1),
        (ta.sqrt, [1e-31], 1),
        (ta.log, [1e-8], 2),
        (lambda x: ta.sin(1e6 * x), [100.0, 170.0, 60.0], 1),
        (lambda x: (x - x.mean()) / ta.sqrt(((x - x.mean()) ** 2).mean() + 1e-12), [1e-5, 2e-5, 4e-5], 2),
    ],
)
def test_exact_complex_steps_are_not_given_up_for_coarse_differences(fn: Any, x: Any, order: int) -> None:
    report = checked(fn, np.array(x), order=order)
    assert report and report.method == "complex" and report.relative_error < 1e-12


@pytest.mark.parametrize(
    "forward", [np.sign, lambda x: x / np.abs(x), lambda x: np.where(np.real(x) > 1, x / x, 0.5 * x / x)]
)
def test_a_function_that_is_constant_but_for_steps(forward: Any) -> None:
    x = np.array([0.3, 1.2, -2.6])
    assert checked(ta.Primitive("step", forward, lambda g, y, x: 0.0 * g), x)
    for wrong_rule in (lambda g, y, x: g / np.abs(x), lambda g, y, x: g):
        report = checked(ta.Primitive("step", forward, wrong_rule), x)
        assert not report and report.rows[0].verdict == "mismatch"


# Functions that complex numbers do not suit


def not_analytic() -> dict[str, Any]:
    def refuse(x: Any) -> Any:
        if np.iscomplexobj(x):
            raise TypeError("real numbers only")
        return x * x

    def cast(x: Any) -> Any:
        return (np.asarray(x).astype(np.float64) if np.iscomplexobj(x) else x) ** 2

    return {
        "modulus": ta.Primitive("modulus", np.abs, lambda g, y, x: g * np.sign(real(x))),
        "real part": ta.Primitive("part", lambda x: np.real(x) ** 2, lambda g, y, x: g * 2 * x),
        "conjugate": ta.Primitive("conj", lambda x: np.conj(x) ** 2, lambda g, y, x: g * 2 * x),
        "raises": ta.Primitive("refuse", refuse, lambda g, y, x: g * 2 * x),
        "casts": ta.Primitive("cast", cast, lambda g, y, x: g * 2 * x),
        "compares": ta.Primitive(
            "compare", lambda x: np.where(np.imag(x) != 0, 0, x * x), lambda g, y, x: g * 2 * x
        ),
    }


@pytest.mark.parametrize("fn", not_analytic().values(), ids=not_analytic())
def test_it_falls_back_to_central_differences_and_says_so(fn: Any) -> None:
    report = checked(fn, NORMAL((2, 3)))
    assert report and report.method == "central"
    assert "not complex-analytic" in str(report)
    assert report.relative_error < 1e-9


@pytest.mark.parametrize("name", not_analytic())
def test_a_wrong_rule_does_not_hide_behind_the_fallback(name: str) -> None:
    fn = not_analytic()[name]
    rule = fn.vjps[0]
    bad = ta.Primitive(name, fn.forward, lambda g, y, x: 1.001 * rule(g, y, x))
    report = checked(bad, NORMAL((2, 3)))
    assert not report
    assert report.worst[0].relative_error == pytest.approx(1e-3, rel=1e-3)


def test_a_dependence_that_both_gradient_and_complex_step_miss() -> None:
    """x · Re(x): the rules see a constant factor, and a complex step sees the same."""
    report = checked(lambda x: x * np.real(x.data), NORMAL(3))
    assert not report and report.method == "central"
    assert report.rows[0].cause == "0.5 times the right value everywhere"


def test_a_wrong_rule_of_an_analytic_function_stays_with_complex_steps() -> None:
    report = checked(wrong(1 + 1e-10), NORMAL(3))
    assert not report and report.method == "complex" and not report.notes


# Rounding


@METHODS
def test_a_gradient_that_is_zero_but_for_rounding(method: Any) -> None:
    report = checked(lambda x: ta.softmax(x).sum(), NORMAL((2, 5)), method=method)
    assert report and report.rows[0].verdict in ("ok", "rounding")


def test_a_zero_gradient_that_should_be_zero() -> None:
    assert checked(lambda x: (x - x.mean()).sum(), NORMAL(5))


def test_central_differences_at_many_scales() -> None:
    for scale in (1e-6, 1e-3, 1.0, 1e3, 1e6):
        report = checked(ta.log, scale * np.array([1.0, 1.7, 2.9]), method="central")
        assert report and report.relative_error < 1e-8, scale


# A sample of the entries


def test_a_sample_of_entries() -> None:
    x = NORMAL((20, 20))
    report = checked(lambda x: ta.tanh(x) ** 2, x, entries=5, order=2)
    assert report and {row.checked for row in report.rows} == {5} and report.rows[0].size == 400
    assert "5 of 400" in str(report)


@METHODS
def test_what_a_sample_misses_shows_along_a_direction(method: Any) -> None:
    def rule(g: Any, y: Any, x: Any) -> Any:
        bump = np.ones((20, 20))
        bump[7, 11] = 1.001
        return g * y * bump

    exp = ta.Primitive("exp", np.exp, rule)
    report = checked(exp, NORMAL((20, 20)), entries=5, method=method)
    assert not report
    assert "direction" in str(report) or not report.rows[0].passed


# Tolerances and wrong use


def test_tolerances() -> None:
    slightly = wrong(1 + 1e-6)
    assert not checked(slightly, NORMAL(3))
    assert checked(slightly, NORMAL(3), rtol=1e-5)
    assert checked(slightly, NORMAL(3), atol=1e-4)
    assert not checked(slightly, NORMAL(3), atol=1e-9)
    assert not checked(slightly, NORMAL(3), rtol=0.0, method="central")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "forward"}, "method is 'forward'"),
        ({"order": 3}, "order is 3"),
        ({"entries": 0}, "entries is 0"),
    ],
)
def test_wrong_settings(settings: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ta.gradcheck(ta.exp, [NORMAL(2)], **settings)


def test_wrong_inputs_and_outputs() -> None:
    with pytest.raises(ValueError, match="nothing to check"):
        ta.gradcheck(lambda i: i, [np.arange(3)])
    with pytest.raises(TypeError, match="complex128, expected real"):
        ta.gradcheck(ta.exp, [np.ones(2, complex)])
    with pytest.raises(TypeError, match="expected a function"):
        ta.gradcheck(3, [NORMAL(2)])
    with pytest.raises(TypeError, match="returned a ndarray, expected a floating Tensor"):
        ta.gradcheck(lambda x: x.data, [NORMAL(2)])
    with pytest.raises(TypeError, match="returned None"):
        ta.gradcheck(lambda x: None, [NORMAL(2)])
    with pytest.raises(ZeroDivisionError):
        ta.gradcheck(lambda x: 1 / 0, [NORMAL(2)])


# The report


def test_the_printed_table_is_aligned() -> None:
    report = checked(lambda s, W_a: ta.tanh(s @ W_a), NORMAL((1, 2)), NORMAL((2, 3)))
    lines = str(report).splitlines()
    assert lines[0] == "gradcheck of <lambda>: passed, by complex steps"
    head = lines[2]
    assert head.split() == [
        "input",
        "shape",
        "entries",
        "abs.",
        "error",
        "rel.",
        "error",
        "tolerance",
        "verdict",
    ]
    assert {line.index("ok") for line in lines[4:]} == {head.index("verdict")}
    assert "worst" not in str(report)  # nothing to look at


def test_html_is_escaped_and_coloured() -> None:
    x = ta.Tensor(NORMAL(2), name="<b>")
    good, bad = checked(ta.exp, x), checked(wrong(), x)
    assert "&lt;b&gt;" in good._repr_html_() and "<b>" not in good._repr_html_().replace("<b>gradcheck", "")
    assert "passed" in good._repr_html_() and "failed" in bad._repr_html_()
    assert "0.9 times the right value" in bad._repr_html_()


def test_worst_entries_are_sorted_and_few() -> None:
    report = checked(wrong(), NORMAL((5, 5)))
    errors = [entry.relative_error for entry in report.worst]
    assert len(errors) == 10 and errors == sorted(errors, reverse=True)
    assert checked(ta.exp, NORMAL((5, 5))).worst  # of a passing report too


# Writing to what others read


def _scaled_in_place(g: Any, y: Any, x: Any) -> Any:
    g *= np.cos(x)
    return g


def _value_in_place(g: Any, y: Any, x: Any) -> Any:
    gradient = g * (1 - y * y)
    y *= 0
    return gradient


def _input_in_place(g: Any, y: Any, x: Any) -> Any:
    x *= 1
    x += 1
    return (g * (1 - y * y),)


def _forward_in_place(x: Any) -> Any:
    y = np.tanh(x)
    x += 1
    return y


@pytest.mark.parametrize(
    ("operation", "what"),
    [
        (ta.Primitive("own", np.sin, _scaled_in_place), "its upstream gradient"),
        (ta.Primitive("own", np.tanh, _value_in_place), "its value"),
        (ta.fused(ta.tanh, np.tanh, _input_in_place, name="own"), "its input number 0"),
        (ta.Primitive("own", _forward_in_place, lambda g, y, x: g * (1 - y * y)), "its input number 0"),
    ],
    ids=["upstream", "value", "input", "forward"],
)
def test_an_operation_that_writes_to_what_it_is_given_fails(operation: ta.Primitive, what: str) -> None:
    """Within a function, where the inputs that it writes to are nobody's."""
    report = checked(lambda x: operation(x * 1.0) + 1.0, np.array([0.3, 1.0, 2.0]))
    assert not report.passed
    assert f"own writes to {what}, which others may read" in report.problems


# What a rule or a module remembers


def _used_up(g: Any, y: Any, x: Any, *, saved: Any) -> Any:
    np.multiply(saved, saved, out=saved)
    return (np.multiply(g, np.subtract(1, saved, out=saved)),)


@pytest.mark.parametrize("order", [1, 2])
def test_a_rule_that_uses_up_what_was_saved_fails(order: int) -> None:
    own = ta.fused(ta.tanh, lambda x: (np.tanh(x), np.tanh(x)), _used_up, name="own")
    report = checked(own, NORMAL(3), order=order)
    assert not report and "two backward passes through one graph gave different gradients" in str(report)


def test_a_rule_with_a_state_fails() -> None:
    calls: list[int] = []

    def rule(g: Any, y: Any, x: Any) -> Any:
        calls.append(1)
        return g * ta.cos(x) * (1.0 if len(calls) == 1 else 1.5)

    report = checked(ta.Primitive("sine", np.sin, rule), NORMAL(3))
    assert not report and "two backward passes through one graph" in str(report)


class Running(ta.nn.Module):
    """Its output depends on a mean that every call moves."""

    def __init__(self) -> None:
        self.scale = ta.Tensor(np.ones(3), requires_grad=True)
        self.mean, self.total, self.calls, self.seen = np.zeros(3), np.zeros(3), 0, [0]
        self.best: dict[str, Any] = {"parts": ([np.zeros(1)], bytearray(2))}
        self.kept, self.queue = ta.Tensor(np.zeros(3)), deque([1, 2], maxlen=2)
        self.part = ta.nn.Dropout(0.0)

    def forward(self, x: Any) -> Any:
        y = (x - self.mean - self.kept) * self.scale + self.total
        self.mean = 0.9 * self.mean + 0.1 * x.data.mean(axis=0)
        self.total += 1
        self.calls += 1
        self.seen.append(self.calls)
        self.best["x"] = x.data
        self.best["parts"][0][0] += 1
        self.best["parts"][1][0] = 7
        self.kept.data[:] = 0.5 * self.kept.data + np.real(x.data[0])
        self.queue.append(3)
        self.new = self.part.training = False
        return y


@pytest.mark.parametrize("order", [1, 2])
def test_a_module_with_a_state_is_left_as_it_was(order: int) -> None:
    module = Running()
    mean = module.mean
    assert checked(module, NORMAL((4, 3)), order=order)
    assert module.mean is mean and mean.dtype == np.float64 and not mean.any() and not module.total.any()
    assert (module.calls, module.seen, module.part.training) == (0, [0], True)
    assert module.best == {"parts": ([0], bytearray(2))} and list(module.queue) == [1, 2]
    assert not module.kept.data.any()
    assert not hasattr(module, "new")
    with pytest.raises(ZeroDivisionError):
        ta.gradcheck(lambda m, x: m(x) / (1 // 0), [module, NORMAL((4, 3))])
    assert module.calls == 0 and not module.total.any()


def test_random_numbers_of_a_module_are_given_back() -> None:
    one, two = (ta.nn.Dropout(0.5, rng=np.random.default_rng(7)) for _ in range(2))
    assert "not deterministic" in str(checked(one, NORMAL(30)))
    np.testing.assert_array_equal(one(np.ones(30)).data, two(np.ones(30)).data)


@METHODS
def test_second_derivatives_at_a_norm_of_nothing(method: Any) -> None:
    for fn in (ta.norm, ta.std, lambda x: ta.norm(x, axis=0)):
        for x in (np.zeros((3, 4)), np.zeros((1, 2)), np.eye(3)[:, :2]):
            assert checked(fn, x, order=2, method=method)


@pytest.mark.parametrize("order", [1, 2])
def test_a_rule_that_reads_what_the_latest_call_left(order: int) -> None:
    class Square:
        def forward(self, x: Any) -> Any:
            self.x = x
            return x * x

    kept = Square()
    square = ta.Primitive("square", kept.forward, lambda g, y, x: 2 * g * kept.x)
    report = checked(square, NORMAL(3), order=order)
    assert not report and "before and after another call" in report.problems[0]
    assert "the latest call left" in str(report)


@pytest.mark.parametrize("lost", [ta.Tensor.detach, lambda x: ta.Tensor(np.tanh(x.data)), lambda x: x.data])
def test_a_value_that_leaves_the_graph_is_asked_for_where_all_rules_are_right(lost: Any) -> None:
    left = "does a value leave the graph, by .data, .detach() or numpy?"
    report = checked(lambda x: x * lost(x), NORMAL(3), method="central")
    assert not report and not report.problems and left in report.notes[-1]
    assert left not in str(checked(lambda x: wrong()(x) * x, NORMAL(3)))
    assert left not in str(checked(lambda x: x * x, NORMAL(3)))


@pytest.mark.parametrize("scale", [1.0, 1e4, 1e8])
def test_a_rule_that_subtracts_numbers_as_large_as_the_inputs_is_excused_for_rounding(scale: float) -> None:
    def weight(x: Any) -> Any:  # one, as the marginals of a forward-backward recursion are computed
        return np.exp(((7.3 * x + x) - 7.3 * x) - x)

    x = scale * NORMAL(20)
    for factor in (1.0, 1 + 1e-5):
        total = ta.fused(
            lambda x: ta.sum(x),
            lambda x: np.asarray(x.sum()),
            lambda g, y, x, factor=factor: (factor * g * weight(x),),
            name="total",
        )
        assert bool(checked(total, x)) == (factor == 1)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("distance", [1e-7, 1e-8, 1e-9, 1e-10])
def test_beside_a_kink_no_more_digits_are_asked_for_than_differences_have(
    order: int, distance: float
) -> None:
    def forward(x: Any) -> Any:
        return np.where(real(x) > 0, x, 2 * np.expm1(np.minimum(x, 0)))

    def rule(g: Any, y: Any, x: Any) -> Any:
        return g * ta.where(real(x) > 0, 1, 2 * ta.exp(ta.where(real(x) > 0, 0, x)))

    x = np.array([-distance, distance, -2.0, 3.0])
    assert checked(ta.Primitive("elu", forward, rule), x, method="central", order=order)
    off = ta.Primitive("elu", forward, lambda g, y, x: rule(g, y, x) * ta.where(real(x) > 0, 1, 0.5))
    assert not checked(off, x[:2], method="central", order=order)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(("distance", "off"), [(1e-4, 1e-6), (1e-6, 1e-6), (1e-7, 1e-5), (1e-8, 1e-4)])
def test_beside_a_kink_no_more_is_excused_than_rounding(order: int, distance: float, off: float) -> None:
    """A wrong claim has all steps looked at; what values differ by over the smallest is no grain of them."""
    once = ta.Primitive("once", lambda x: x * 1.0, lambda g, y, x: g * np.array([1 + off, 1, 1]))
    x = np.array([distance, -0.7, 1.3])
    for fn in (lambda x: ta.abs(x) + ta.sin(x), lambda x: ta.tanh(3 * ta.relu(x) + x)):
        assert checked(fn, x, method="central", order=order)
        report = checked(lambda x, fn=fn: fn(once(x)), x, method="central", order=order)
        assert report.rows[0].verdict == "mismatch"


def test_kinks_of_many_sizes_are_no_fault_at_a_tie() -> None:
    modulus = ta.Primitive("abs", np.abs, lambda g, y, x: g * np.sign(real(x)))
    for seed in range(8):
        assert checked(modulus, np.array([-2, 0, 1e-5, 3, 1e8, -1e-8]), rng=seed)
    assert checked(modulus, np.array([-2, 0, 1e-5, 3, 1e8, -1e-8]), order=2)


def test_entries_that_should_be_zero_are_called_that() -> None:
    lower = ta.Primitive("lower", lambda x: np.tril(x) ** 2, lambda g, y, x: 2 * g * x + np.triu(g, 1))
    report = checked(lower, NORMAL((4, 4)))
    assert report.rows[0].cause.endswith(
        "6 of the 16 entries looked at differ, and should be zero; the others agree"
    )


def test_nothing_is_guessed_where_a_rule_is_wrong_for_one_row_of_many() -> None:
    row = np.where(np.arange(512) == 77, 1.001, 1)[:, None]
    square = ta.Primitive("square", lambda x: x * x, lambda g, y, x: 2 * g * x * row)
    report = checked(square, NORMAL((512, 16)))
    assert report.rows[0].cause.startswith(
        "16 of the 8192 entries looked at differ, those at index 77 of axis 0"
    )
    assert not report.notes
