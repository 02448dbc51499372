"""Operations of one's own: what `Primitive` and `fused` promise."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn.ops import linear, recurrent, sequence


def leaf(data: Any) -> ta.Tensor:
    return ta.Tensor(data, requires_grad=True)


sine = ta.Primitive("sine", np.sin, lambda g, y, x: g * cosine(x))
cosine = ta.Primitive("cosine", np.cos, lambda g, y, x: -g * sine(x))


def test_without_tensors_a_primitive_is_its_function() -> None:
    assert sine(0.5) == np.sin(0.5) and isinstance(sine(np.ones(2)), np.ndarray)
    assert isinstance(ta.softmax(np.ones(2)), np.ndarray) and isinstance(ta.sum([1.0, 2.0]), np.floating)


def test_rules_written_with_primitives_give_all_derivatives() -> None:
    x = leaf(0.3)
    y, right = sine(x), [np.cos(0.3), -np.sin(0.3), -np.cos(0.3), np.sin(0.3)]
    for expected in right:
        (y,) = ta.grad(y, x, create_graph=True)
        assert y.item() == pytest.approx(expected, rel=1e-15)


def test_settings_are_keywords() -> None:
    scale = ta.Primitive("scale", lambda x, *, by: x * by, lambda g, y, x, *, by: g * by)
    x = leaf([1.0, 2.0])
    scale(x, by=3).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [3, 3]


def test_inputs_go_by_position() -> None:
    scale = ta.Primitive("scale", lambda x, by: x * by, lambda g, y, x, by: g * by, None)
    scaled = ta.fused(lambda x, by: x * by, lambda x, by: x * by, lambda g, y, x, by: (g, g), name="scaled")
    x = leaf([1.0, 2.0])
    for call, name in (
        (lambda: ta.where(x > 1, x, b=x), "where: b"),
        (lambda: ta.maximum(x, b=x), "maximum: b"),
        (lambda: ta.relu(x=x), "relu: x"),
        (lambda: scale(x, by=x), "scale: by"),
        (lambda: scaled(x, by=x), "scaled: by"),
    ):
        with pytest.raises(TypeError, match=f"^{name} is a tensor given by name, expected by position$"):
            call()


def test_input_without_a_rule() -> None:
    pick = ta.Primitive("pick", lambda x, mask: x * mask, lambda g, y, x, mask: g * mask, None)
    x = leaf([1.0, 2.0])
    pick(x, np.array([1, 0])).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [1, 0]
    with pytest.raises(RuntimeError, match="pick has no gradient rule for its input number 1"):
        pick(x, leaf([1.0, 0.0])).sum().backward()


def test_forward_that_returns_several_arrays_is_refused() -> None:
    pair = ta.Primitive("pair", lambda x: (x, x), lambda g, y, x: g)
    with pytest.raises(TypeError, match="pair: the forward function returned a tuple, expected one array"):
        pair(leaf(1.0))


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (Fraction(1, 2), "Fraction"),
        (np.array([1, Fraction(1, 2)]), "an array of dtype object"),
        ([Fraction(1, 2), 1], "an array of dtype object"),
    ],
)
@pytest.mark.parametrize("requires_grad", [True, False])
def test_only_numbers_make_tensors(other: Any, what: str, requires_grad: bool) -> None:
    """numpy computes with anything that Python can; no gradient goes through that."""
    x = ta.Tensor([1.0, 2.0], requires_grad=requires_grad)
    for call in (lambda: ta.maximum(x, other), lambda: ta.where(np.array([True, False]), x, other)):
        with pytest.raises(TypeError, match=rf": got {what} among its inputs, expected numbers$"):
            call()


def test_a_forward_function_that_does_not_return_numbers() -> None:
    words = ta.Primitive("words", lambda x: x.astype(str), lambda g, y, x: g)
    with pytest.raises(
        TypeError, match=r"^words: the forward function returned an array of dtype <U\d+, exp"
    ):
        words(leaf(1.0))


def test_errors_name_the_operation_and_keep_their_cause() -> None:
    def fail(x: Any) -> Any:
        raise ValueError("no such luck")

    class OwnError(ValueError):
        pass

    def fail_otherwise(x: Any) -> Any:
        raise OwnError("left alone")

    with pytest.raises(ValueError, match=r"^unlucky: no such luck") as caught:
        ta.Primitive("unlucky", fail, None)(leaf(1.0))
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(OwnError, match=r"^left alone") as other:
        ta.Primitive("other", fail_otherwise, None)(leaf(1.0))
    assert other.value.__cause__ is None


def test_representation() -> None:
    assert repr(sine) == "<primitive sine>"
    assert repr(square) == "<fused square>"


def square_definition(x: Any) -> Any:
    """x², entry by entry."""
    return x * x


square = ta.fused(square_definition, lambda x: x**2, lambda g, y, x: (2 * g * x,), name="square")


def test_kernel_for_floats_definition_for_the_rest() -> None:
    ran: list[str] = []

    def definition(x: Any, w: Any = 1.0) -> Any:
        ran.append("definition")
        return x * x * w

    def kernel(x: Any, w: Any = 1.0) -> Any:
        ran.append("kernel")
        return x * x * w

    op = ta.fused(definition, kernel, lambda g, y, x, w=1.0: (2 * g * x * w, g * x * x))
    assert op.name == "definition"
    x = np.array([1.0, 2.0])
    cases: list[tuple[Any, ...]] = [
        (x, "kernel"),
        (x.astype(np.float32), "kernel"),
        (x + 0j, "definition"),
        (np.array([1, 2]), "definition"),
    ]
    for data, expected in cases:
        ran.clear()
        op(ta.Tensor(data))
        assert ran == [expected]
    ran.clear()
    op(ta.Tensor(x.astype(np.float32)), x)
    op(ta.Tensor(x), 1j)
    assert ran == ["definition", "definition"]
    with ta.explicit():
        assert op(leaf(x))._primitive is not op
    y = op(leaf(x))
    assert y._primitive is op


def test_second_derivative_comes_from_the_definition() -> None:
    x = leaf([1.0, 2.0])
    (g,) = ta.grad(square(x).sum(), x, create_graph=True)
    assert g.tolist() == [2, 4] and ta.grad(g.sum(), x)[0].tolist() == [2, 2]


def test_complex_gradient_of_a_float_kernel_comes_from_the_definition() -> None:
    x = leaf([1.0, 2.0])
    assert ta.grad(square(x), x, np.array([1j, 1]))[0].tolist() == [2j, 4]


def test_saved_and_needs() -> None:
    asked: list[Any] = []

    def kernel(a: Any, b: Any) -> tuple[Any, Any]:
        return a * b, ("saved", a + b)

    def vjp(g: Any, y: Any, a: Any, b: Any, *, saved: Any, needs: Any) -> tuple[Any, Any]:
        asked.append((saved[0], list(needs)))
        return g * b, g * a

    product = ta.fused(lambda a, b: a * b, kernel, vjp, name="product")
    a, b = leaf(2.0), ta.Tensor(3.0)
    y = product(a, b)
    y.backward(retain_graph=True)
    y.backward()
    assert a.grad == 6 and asked == [("saved", [True, False])] * 2
    assert y._saved is None


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_kernel_that_saves_nothing_where_something_is_asked_for(length: int) -> None:
    """An array of two rows is no pair of a value and what was saved."""
    operation = ta.fused(
        lambda x: x * x, lambda x: x * x, lambda g, y, x, *, saved: (g * saved,), name="forgetful"
    )
    with pytest.raises(
        TypeError, match=r"^forgetful: the kernel returned a ndarray, expected \(array, saved\)"
    ):
        operation(leaf(np.ones((length, 2))))


def test_what_a_kernel_returns_is_a_pair() -> None:
    """As a tuple or a list, like the gradients."""

    def made(kernel: Any) -> Any:
        return ta.fused(lambda x: x * x, kernel, lambda g, y, x, *, saved: [g * saved], name="square")

    x = leaf(3.0)
    made(lambda x: [x * x, 2 * x])(x).backward()
    assert x.grad == 6
    with pytest.raises(TypeError, match=r"^square: the kernel returned 3 values, expected \(array, saved\)"):
        made(lambda x: (x * x, x, x))(x)


def test_gradient_may_be_missing() -> None:
    """A rule may answer None: no gradient flows to that input."""
    stop = ta.Primitive("stop", lambda x: x + 0, lambda g, y, x: None)
    x = leaf(2.0)
    (stop(x) * x).backward()
    assert x.grad == 2
    assert ta.grad(stop(x), x)[0].item() == 0


def test_documentation_is_that_of_the_definition() -> None:
    assert square.__doc__ == "x², entry by entry."


@pytest.mark.parametrize(
    ("returned", "what"),
    [
        ((np.ones(2),), "1 gradient, expected a tuple of 2"),
        (np.ones((2, 2)), "a ndarray, expected a tuple of 2"),
        (None, "a NoneType, expected a tuple of 2"),
    ],
)
def test_a_kernel_that_returns_too_few_gradients(returned: Any, what: str) -> None:
    own = ta.fused(lambda x, w: x * w, lambda x, w: x * w, lambda g, y, x, w: returned, name="own")
    x = ta.Tensor(np.ones(2), requires_grad=True)
    with pytest.raises(ValueError, match=f"own: kernel_vjp returned {what}, one for each input"):
        own(x, np.ones(2)).sum().backward()


@pytest.mark.parametrize("shapes", [((2, 3), (2, 3)), ((3,), (2,)), ((4, 2, 3), (4, 2, 3))])
def test_a_product_of_arrays_that_do_not_fit_names_their_shapes(shapes: Any) -> None:
    a, b = (ta.Tensor(np.ones(shape)) for shape in shapes)
    named = re.escape(f"matmul: arrays of shapes {shapes[0]} and {shapes[1]} have no product")
    with pytest.raises(ValueError, match=named):
        a @ b


class Plain(np.ndarray):
    """A subclass, whose operators might do anything."""


@pytest.mark.parametrize("kind", ["byte order", "subclass"])
@pytest.mark.parametrize("operation", ["gru_cell", "softmax", "linear", "bidirectional"])
def test_arrays_that_no_kernel_is_for_are_left_to_the_definition(operation: str, kind: str) -> None:
    rng = np.random.default_rng(0)
    shapes = {
        "gru_cell": [(2, 3), (2, 4), (12, 3), (12, 4), (12,), (12,)],
        "softmax": [(2, 3)],
        "linear": [(2, 3), (4, 3), (4,)],
        "bidirectional": [(2, 5, 3), *[(12, 3), (12, 4), (12,), (12,)] * 2],
    }[operation]
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    other = [array.astype(">f4") if kind == "byte order" else array.view(Plain) for array in arrays]

    def run(arrays: Any) -> Any:
        if operation == "bidirectional":
            return sequence.bidirectional(arrays[0], np.ones((2, 5), bool), *arrays[1:], cell="gru")
        function = getattr(recurrent if operation == "gru_cell" else ta, operation, None) or linear.linear
        return function(*arrays)

    np.testing.assert_allclose(np.asarray(run(other)), run(arrays), rtol=1e-5, atol=1e-6)
