"""The walk: what gradients come out, where they are kept, and what is an error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn.engine import Product
from tinygrad_attn.engine.backward import walk
from tinygrad_attn.ops.attention import weighted_sum


def leaf(data: Any, name: str | None = None) -> ta.Tensor:
    return ta.Tensor(data, requires_grad=True, name=name)


# Every path counts once


def test_diamond() -> None:
    a = leaf(3.0)
    b = a * a
    d = b + b * b
    d.backward()
    assert d.item() == 90 and a.grad == 114


def test_a_tensor_used_several_times_in_one_operation() -> None:
    a = leaf([2.0, 3.0])
    (a * a + ta.concatenate([a, a])[1:3]).sum().backward()
    assert a.grad is not None and a.grad.tolist() == [5, 7]
    x = leaf([[3.0]])
    out = ta.concatenate([x, x], axis=1) @ ta.Tensor([[1.0], [2.0]])
    out.sum().backward()
    assert out.tolist() == [[9]] and x.grad is not None and x.grad.tolist() == [[3]]
    y = leaf([1.0, 2.0])
    (ta.stack([y, 2 * y, y]) * ta.Tensor([[1.0], [10.0], [100.0]])).sum().backward()
    assert y.grad is not None and y.grad.tolist() == [121, 121]


def test_lists_of_tensors_keep_their_gradients_or_are_refused() -> None:
    x = leaf([5.0, 6.0])
    (g,) = ta.grad(ta.concatenate([[[x[0]]]]).sum(), x)
    assert g.tolist() == [1, 0]
    (g,) = ta.grad(ta.stack([[x[0], x[1]], [x[1], 1.0]]).sum(), x)
    assert g.tolist() == [1, 2]
    for attempt in (lambda: ta.Tensor([[x[0]]]), lambda: np.array([x[0], x[1]]), lambda: np.hstack([x, x])):
        with pytest.raises(TypeError, match="gradient"):
            attempt()


def test_sixty_doublings() -> None:
    """A walk over paths in place of nodes would take 2⁶⁰ steps."""
    x = y = leaf(1.0)
    for _ in range(60):
        y = y + y
    y.backward()
    assert x.grad == 2.0**60
    (g,) = ta.grad(y.detach() * x, x, create_graph=True)
    assert g.item() == 2.0**60


def test_random_graphs_against_forward_mode() -> None:
    """Graphs of additions and products over shared nodes; forward mode carries each derivative along."""
    rng = np.random.default_rng(0)
    for _ in range(30):
        leaves = [leaf(v) for v in rng.uniform(0.5, 1.5, 3)]
        nodes = [(x, np.eye(3)[i]) for i, x in enumerate(leaves)]
        for _ in range(15):
            (a, da), (b, db) = (nodes[i] for i in rng.integers(0, len(nodes), 2))
            if rng.random() < 0.5:
                nodes.append((a + b, da + db))
            else:
                nodes.append(
                    (
                        ta.tanh(a * b),
                        (1 - np.tanh(a.item() * b.item()) ** 2) * (a.item() * db + b.item() * da),
                    )
                )
        output, slopes = nodes[-1]
        np.testing.assert_allclose([g.item() for g in ta.grad(output, leaves)], slopes, rtol=1e-12)


def test_broadcasting_is_undone_by_sums() -> None:
    w = leaf([1.0, 2, 3])
    (ta.Tensor(np.zeros((2, 4, 3))) + w).sum().backward()
    assert w.grad is not None and w.grad.tolist() == [8, 8, 8]
    q, k = leaf(np.ones((2, 3, 1, 5))), leaf(np.ones((2, 1, 4, 5)))
    (q + k).sum().backward()
    assert q.grad is not None and q.grad.shape == q.shape and (q.grad == 4).all()
    assert k.grad is not None and k.grad.shape == k.shape and (k.grad == 3).all()
    s = leaf(2.0)
    (s * np.arange(6.0).reshape(2, 3)).sum().backward()
    assert s.grad is not None and s.grad == 15 and s.grad.shape == ()
    x = leaf([1.0, 2, 3, 4])
    (x - x.mean()).backward(np.ones(4))
    assert x.grad is not None and x.grad.tolist() == [0, 0, 0, 0]
    y = leaf([2.0, 3.0])
    (y.max() + y).backward(np.ones(2))
    assert y.grad is not None and y.grad.tolist() == [1, 3]


def test_means_over_several_axes() -> None:
    for axis in ((0, 2), (-1, -3)):
        x = leaf(np.ones((2, 3, 4)))
        (x.mean(axis=axis) * ta.Tensor([1.0, 2, 3])).sum().backward()
        assert (
            x.grad is not None
            and x.grad.shape == x.shape
            and x.grad[0, :, 0].tolist() == [0.125, 0.25, 0.375]
        )


# Where gradients are kept


def test_leaves_accumulate_and_inner_nodes_start_anew() -> None:
    a, b = leaf(2.0), leaf(-4.0)
    c = a * b
    e = c * c
    e.backward(retain_graph=True)
    first = a.grad
    assert a.grad == 64 and c.grad is None
    e.backward()
    assert a.grad == 128 and first == 64  # an array once handed out stays as it was
    a.zero_grad()
    assert a.grad is None
    (a * b * (a * b)).backward()
    assert a.grad == 64


def test_retain_grad_keeps_the_gradient_of_a_computed_tensor() -> None:
    a, b = leaf(2.0), leaf(-4.0)
    c = a * b
    c.retain_grad()
    e = c * c
    e.backward()
    assert c.grad == -16 and e.grad == 1
    with pytest.raises(RuntimeError, match="requires no gradient"):
        ta.Tensor(1.0).retain_grad()


def test_retained_gradient_of_a_sum_of_many_uses_is_not_changed_later() -> None:
    a = leaf([1.0, 2.0])
    c = a * 1.0
    c.retain_grad()
    (c * 2 + c * 3 + c * 4).sum().backward()
    assert c.grad is not None and c.grad.tolist() == [9, 9]
    assert a.grad is not None and not np.shares_memory(a.grad, c.grad)


def test_backward_of_a_leaf() -> None:
    x = leaf(2.0)
    x.backward()
    x.backward(3.0)
    assert x.grad == 4


def test_gradient_may_be_given_as_anything_of_the_shape() -> None:
    for weight in ([1, 2], np.array([1, 2]), ta.Tensor([1.0, 2.0]), np.array([1, 2], np.float32)):
        x = leaf([3.0, 4.0])
        (x * x).backward(weight)
        assert x.grad is not None and x.grad.tolist() == [6, 16] and x.grad.dtype == np.float64
    x = leaf(np.array([3, 4], np.float32))
    (x * x).backward(np.array([1.0, 2.0]))
    assert x.grad is not None and x.grad.dtype == np.float32


def test_gradients_come_in_the_dtype_of_the_tensor() -> None:
    x = leaf(np.ones(2, np.float32))
    y = (x * np.array([1.0, 2.0])).sum()
    assert y.dtype == np.float64
    assert ta.grad(y, x)[0].dtype == np.float32
    assert ta.grad(y, x, create_graph=True)[0].dtype == np.float32
    y.backward()
    assert x.grad is not None and x.grad.dtype == np.float32

    whole = ta.Primitive("whole", lambda x: x * 2, lambda g, y, x: np.array([2, 2]))
    (g,) = ta.grad(whole(x).sum(), x)
    assert g.dtype == np.float32 and g.tolist() == [2, 2]


def test_complex_gradients_are_not_made_real() -> None:
    x = leaf([1.0, 2.0])
    (g,) = ta.grad(x * x, x, np.array([1j, 1.0]))
    assert g.tolist() == [2j, 4]
    (x * x).backward(np.array([1j, 1.0]))
    assert x.grad is not None and x.grad.tolist() == [2j, 4]


# grad()


def test_grad_touches_no_grad_and_keeps_the_graph() -> None:
    x = leaf([1.0, 2.0])
    h = x * 3
    y = (h * h).sum()
    to_x, to_h = ta.grad(y, [x, h])
    assert to_x.tolist() == [18, 36] and to_h.tolist() == [6, 12]
    assert x.grad is None and h.grad is None and y.grad is None
    assert not to_x.requires_grad
    assert ta.grad(y, x)[0].tolist() == [18, 36]
    assert ta.grad(y, (x, x, y))[2].item() == 1


def test_grad_with_respect_to_what_was_not_used_is_zero() -> None:
    x, other = leaf([1.0, 2.0]), leaf(np.ones((3, 2), np.float32))
    for create_graph in (False, True):
        _, zero = ta.grad(x.sum(), (x, other), create_graph=create_graph)
        assert zero.tolist() == [[0, 0]] * 3 and zero.dtype == np.float32


def test_grad_with_respect_to_what_an_operation_computed_in_another_precision() -> None:
    """A float64 gradient at a float32 fused operation that is itself what was asked for."""
    query = ta.Tensor(np.ones((1, 2), np.float32), requires_grad=True)
    found = ta.attention(query, np.eye(2, dtype=np.float32)[None], np.ones((1, 2, 1), np.float32))
    (gradient,) = ta.grad((found.weights * np.array([[1.0, 0.0]])).sum(), found.scores)
    np.testing.assert_allclose(gradient.data, [[0.25, -0.25]], rtol=1e-6)


def test_two_gradients_never_share_memory() -> None:
    a, b = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    weight = ta.Tensor([1.0, 1.0])
    for create_graph in (False, True):
        found = ta.grad(a + b, (a, b, a), weight, create_graph=create_graph)
        arrays = [g.data for g in found] + [weight.data]
        for i, g in enumerate(arrays):
            assert g.flags.writeable and not any(np.shares_memory(g, other) for other in arrays[:i])


def test_a_gradient_that_nobody_else_has_is_not_copied() -> None:
    made: list[int] = []

    def rule(g: Any, y: Any, x: Any) -> Any:
        gradient = g * 2.0
        made.append(id(gradient))
        return gradient

    x = leaf(np.ones(3))
    ta.Primitive("twice", lambda x: x * 2.0, rule)(x).backward(np.ones(3))
    assert id(x.grad) == made[0]


def test_a_gradient_may_be_written_to_though_a_rule_gave_one_that_may_not() -> None:
    def rule(g: Any, y: Any, x: Any) -> Any:
        gradient = g * 2.0
        gradient.flags.writeable = False
        return gradient

    x = leaf(np.ones(3))
    ta.Primitive("twice", lambda x: x * 2.0, rule)(x).backward(np.ones(3))
    assert np.asarray(x.grad).flags.writeable


def test_a_gradient_that_a_rule_keeps_or_returns_twice_or_cut_is_copied() -> None:
    kept: list[np.ndarray] = []

    def keeps(g: Any, y: Any, *inputs: Any) -> Any:
        kept.append(g * 2.0)
        return kept[-1]

    def cuts(g: Any, y: Any, *inputs: Any) -> Any:
        return np.concatenate([g, g])[:3]

    def forward(a: Any, b: Any, c: Any) -> Any:
        return a * 2.0

    def both(g: Any, y: Any, *inputs: Any) -> Any:
        gradient = g * 2.0
        return gradient, gradient, gradient

    for operation in (
        ta.Primitive("keeps", forward, keeps, keeps, cuts),
        ta.fused(lambda a, b, c: a * 2.0, forward, both),
    ):
        leaves = [leaf(np.ones(3)) for _ in range(3)]
        operation(*leaves).backward(np.ones(3))
        arrays = [np.asarray(x.grad) for x in leaves] + kept
        for i, g in enumerate(arrays):
            assert not any(np.shares_memory(g, other) for other in arrays[:i])
            assert i > 2 or (g.flags.owndata and g.flags.writeable)


def test_second_and_third_derivatives() -> None:
    x = leaf(2.0)
    (first,) = ta.grad(x**4, x, create_graph=True)
    (second,) = ta.grad(first, x, create_graph=True)
    (third,) = ta.grad(second, x, create_graph=True)
    (fourth,) = ta.grad(third, x)
    assert [first.item(), second.item(), third.item(), fourth.item()] == [32, 48, 48, 24]
    t = leaf(0.3)
    (first,) = ta.grad(ta.tanh(t), t, create_graph=True)
    (second,) = ta.grad(first, t, create_graph=True)
    third_value = ta.grad(second, t)[0].item()
    y = np.tanh(0.3)
    assert second.item() == pytest.approx(-2 * y * (1 - y * y), rel=1e-14)
    assert third_value == pytest.approx((1 - y * y) * (6 * y * y - 2), rel=1e-13)


def test_hessian_of_a_quadratic_is_its_matrix() -> None:
    matrix = np.array([[2.0, 1, 0], [1, 3, -1], [0, -1, 1]])
    x = leaf([1.0, 2, 3])
    (g,) = ta.grad(0.5 * (x @ matrix @ x), x, create_graph=True)
    rows = [ta.grad(g[i], x)[0].tolist() for i in range(3)]
    assert rows == matrix.tolist()


def test_second_derivative_through_a_kernel_equals_that_of_its_definition() -> None:
    x = leaf(np.random.default_rng(0).standard_normal((3, 4)))
    weights = np.random.default_rng(1).standard_normal((3, 4))

    def second() -> np.ndarray:
        (g,) = ta.grad((ta.softmax(x) * weights).sum(), x, create_graph=True)
        return ta.grad((g * g).sum(), x)[0].data

    by_kernel = second()
    with ta.explicit():
        np.testing.assert_allclose(by_kernel, second(), rtol=1e-12)


def test_gradient_penalty_reaches_the_leaves() -> None:
    """The gradient of a loss that holds a gradient: d/dx (3x²)² = 36x³."""
    x = leaf(2.0)
    (g,) = ta.grad(x**3, x, create_graph=True)
    (g * g).backward()
    assert x.grad == 36 * 8


def test_create_graph_also_under_no_grad_and_with_a_weight_that_has_a_gradient() -> None:
    x, w = leaf(2.0), leaf(5.0)
    y = x * x
    with ta.no_grad():
        (g,) = ta.grad(y, x, w, create_graph=True)
    assert g.item() == 20
    assert [part.item() for part in ta.grad(g, (x, w))] == [10, 4]


# Errors


def test_freed_graph() -> None:
    x = leaf(2.0)
    y = x * x
    y.backward()
    with pytest.raises(
        RuntimeError, match=r"freed by an earlier backward pass \(at mul\); pass retain_graph=True"
    ):
        y.backward()
    with pytest.raises(RuntimeError, match="freed"):
        ta.grad(y, x)
    assert x.grad == 4


def test_graph_that_shares_a_freed_part() -> None:
    x = leaf(2.0)
    shared = x * x
    (shared + 1).backward()
    before = x.grad
    with pytest.raises(RuntimeError, match="freed"):
        (shared * 3).backward()
    assert x.grad is before


def test_gradient_of_another_shape() -> None:
    x = leaf([1.0, 2.0])
    for attempt in (lambda: (x * x).backward(np.ones(3)), lambda: ta.grad(x * x, x, 1.0)):
        with pytest.raises(ValueError, match=r"gradient has shape .*, expected that of the output, \(2,\)"):
            attempt()


@pytest.mark.parametrize("gradient", [[None, 1.0], ["1", "2"], np.array([1, 2], object)])
def test_a_gradient_that_holds_no_numbers(gradient: Any) -> None:
    x = ta.Tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(TypeError, match=r"the gradient has dtype .*, expected numbers"):
        (x * 2).backward(gradient)
    assert x.grad is None


def test_several_entries_without_a_gradient() -> None:
    x = leaf([1.0, 2.0], name="x")
    y = x * x
    y.name = "squares"
    with pytest.raises(RuntimeError, match=r"tensor 'squares' of shape \(2,\) has 2 entries"):
        y.backward()
    with pytest.raises(RuntimeError, match="has 0 entries"):
        x[:0].backward()
    (x * 3)[:1].backward()
    assert x.grad is not None and x.grad.tolist() == [3, 0]


def test_output_that_needs_no_gradient() -> None:
    for output in (ta.Tensor(1.0), leaf(1.0).detach(), ta.Tensor(1.0) * 2, leaf(1.0) > 0):
        with pytest.raises(RuntimeError, match="requires no gradient"):
            output.backward()
    with pytest.raises(RuntimeError, match=r"input number 1, a tensor 'c' of shape .* requires no gradient"):
        ta.grad(leaf(1.0) * 2, (leaf(1.0), ta.Tensor(1.0, name="c")))


@pytest.mark.parametrize("bad", [lambda x: ta.grad(x * 2, 1.0), lambda x: ta.grad(x * 2, [x.data])])
def test_inputs_that_are_no_tensors(bad: Any) -> None:
    with pytest.raises(TypeError):
        bad(leaf(1.0))


@pytest.mark.parametrize("create_graph", [False, True])
def test_rule_that_returns_another_shape(create_graph: bool) -> None:
    twice = ta.Primitive("twice", lambda x: 2 * x, lambda g, y, x: np.ones(5))
    x = leaf([1.0, 2.0])
    with pytest.raises(
        ValueError, match=r"twice: the rule for input number 0 returned a gradient of shape \(5,\)"
    ):
        ta.grad(twice(x).sum(), x, create_graph=create_graph)


@pytest.mark.parametrize("create_graph", [False, True])
def test_rule_that_returns_a_number_or_an_array(create_graph: bool) -> None:
    for rule, right in (
        (lambda g, y, x: 1.0, 1),
        (lambda g, y, x: np.array(3), 3),
        (lambda g, y, x: np.ones((2, 3)), 6),
    ):
        x = leaf(2.0)
        flat = ta.Primitive("flat", lambda x: x + 0, rule)
        (g,) = ta.grad(flat(x) + flat(x), x, create_graph=create_graph)
        assert g.item() == 2 * right and g.dtype == np.float64


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("tracked", [False, True])
def test_rule_that_returns_a_tensor(tracked: bool, create_graph: bool) -> None:
    factor = ta.Tensor([3.0, 4.0], requires_grad=tracked)
    scaled = ta.Primitive("scaled", lambda x: x * factor.data, lambda g, y, x: g * factor)
    x = leaf([1.0, 2.0])
    (g,) = ta.grad(ta.tanh(scaled(x) + scaled(x)).sum(), x, create_graph=create_graph)
    np.testing.assert_allclose(g.data, 2 * factor.data * (1 - np.tanh(2 * factor.data * x.data) ** 2))


def test_failing_pass_leaves_gradients_as_they_were() -> None:
    def fail(g: Any, y: Any, x: Any) -> Any:
        raise ArithmeticError("no")

    broken = ta.Primitive("broken", lambda x: x + 0, fail)
    x, w = leaf(2.0), leaf(3.0)
    y = broken(x) * w
    with pytest.raises(ArithmeticError):
        y.backward()
    assert x.grad is None and w.grad is None
    assert ta.grad(y, w)[0].item() == 2


# Leaves that are written to


def test_stale_leaf() -> None:
    w, x = leaf(2.0, name="w"), leaf(3.0)
    y = w * x
    w.data *= 2
    w.note_written()
    with pytest.raises(RuntimeError, match=r"tensor 'w' of shape .* was written to after mul had used it"):
        y.backward()
    (w * x).backward()
    assert w.grad == 3 and x.grad == 4
    with pytest.raises(RuntimeError, match="only leaves may be written to"):
        (w * x).note_written()


def test_leaf_whose_array_was_replaced() -> None:
    """The values that were used are kept for the rules; a recorded walk, which needs the tensor, says so."""
    w, x = leaf(2.0), leaf(3.0)
    y = w * x
    w.data = np.array(7.0)
    assert ta.grad(y, x)[0].item() == 2
    with pytest.raises(RuntimeError, match="was written to"):
        ta.grad(y, w, create_graph=True)


# Products that are put off


def linear_rule(g: Any, y: Any, x: Any, w: Any, b: Any) -> tuple[Any, Any, Any]:
    return g @ w, Product(g, x), Product(g, None)


row_map = ta.fused(
    lambda x, w, b: x @ ta.transpose(w) + b, lambda x, w, b: x @ w.T + b, linear_rule, name="row_map"
)


def test_products_of_many_uses_are_one_sum() -> None:
    rng = np.random.default_rng(0)
    w, b = leaf(rng.standard_normal((3, 3))), leaf(rng.standard_normal(3))

    def loss() -> ta.Tensor:
        x = ta.Tensor(np.linspace(-1, 1, 6).reshape(2, 3))
        total = (w * w).sum() + b.sum()
        for i in range(4):
            x = ta.tanh(row_map(x[: 1 + i % 2], w, b))
            total = total + x.sum()
        return total

    loss().backward()
    with ta.explicit():
        expected = ta.grad(loss(), (w, b))
    np.testing.assert_allclose(w.grad, expected[0].data, rtol=1e-12)
    np.testing.assert_allclose(b.grad, expected[1].data, rtol=1e-12)
    assert w.grad is not None and w.grad.flags.writeable


def test_product_for_a_computed_tensor_and_a_single_use() -> None:
    w, b = leaf(np.eye(3)), leaf(np.zeros(3))
    x = np.arange(6.0).reshape(2, 3)
    scaled = w * 2
    scaled.retain_grad()
    row_map(x, scaled, b).sum().backward()
    np.testing.assert_array_equal(scaled.grad, np.ones((2, 3)).T @ x)
    np.testing.assert_array_equal(w.grad, 2 * np.ones((2, 3)).T @ x)
    assert b.grad is not None and b.grad.tolist() == [2, 2, 2]


def test_products_of_what_was_broadcast() -> None:
    rng = np.random.default_rng(0)
    for weights, values in (((1, 3), (2, 3, 4)), ((2, 3), (1, 3, 4))):
        arrays = rng.standard_normal(weights), rng.standard_normal(values)
        found, expected = [], []
        for gradients, mode in ((found, ta.scope("kernel")), (expected, ta.explicit())):
            inputs = [leaf(array) for array in arrays]
            with mode:
                c = weighted_sum(*inputs)
            gradients += ta.grad((c * c).sum(), inputs)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a.data, b.data, rtol=1e-13)


def test_edges_are_observed_with_their_own_share() -> None:
    a = leaf(3.0)
    b = a * a
    d = b + b * b
    edges: list[tuple[str, int, float]] = []
    walk(d, np.ones(()), observe=lambda node, slot, g: edges.append((node._primitive.name, slot, float(g))))
    assert sorted(edges) == [
        ("add", 0, 1),
        ("add", 1, 1),
        ("mul", 0, 9),
        ("mul", 0, 57),
        ("mul", 1, 9),
        ("mul", 1, 57),
    ]


@pytest.mark.parametrize("frozen", [True, False])
def test_what_was_written_in_place_is_an_error_though_nobody_asks_for_its_gradient(frozen: bool) -> None:
    w = ta.Tensor([3.0], requires_grad=not frozen)
    x = ta.Tensor([2.0], requires_grad=True)
    loss = (x * w).sum()
    w.data[...] = 5
    w.note_written()
    with pytest.raises(RuntimeError, match=r"tensor of shape \(1,\) was written to after mul had used it"):
        ta.grad(loss, [x])
    if frozen:
        with pytest.raises(RuntimeError, match="was written to"):
            loss.backward()
