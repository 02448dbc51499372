"""Operations answer as numpy's functions of the same name do, variant by variant, errors included."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3, 4))
AXES: list[dict[str, Any]] = [
    {},
    {"axis": None},
    {"axis": 0},
    {"axis": -1},
    {"axis": (0, 2)},
    {"axis": (-1, 0)},
    {"axis": ()},
    {"axis": [0, 1]},
    {"axis": np.int64(1)},
    {"keepdims": True},
    {"axis": (1, -1), "keepdims": True},
]


def same(ours: Any, theirs: Any) -> None:
    assert isinstance(ours, ta.Tensor)
    theirs = np.asarray(theirs)
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours.data, theirs, rtol=1e-6 if theirs.dtype == np.float32 else 1e-13)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
@pytest.mark.parametrize("settings", AXES, ids=str)
@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "var", "std"])
def test_reductions(name: str, settings: dict[str, Any], dtype: Any) -> None:
    x = (X * 3).astype(dtype)
    theirs = (
        {**settings, "axis": tuple(settings["axis"])} if isinstance(settings.get("axis"), list) else settings
    )
    same(getattr(ta, name)(ta.Tensor(x), **settings), getattr(np, name)(x, **theirs))
    same(getattr(ta.Tensor(x), name)(**settings), getattr(np, name)(x, **theirs))


@pytest.mark.parametrize("ddof", [0, 1, 2])
@pytest.mark.parametrize("name", ["var", "std"])
def test_degrees_of_freedom(name: str, ddof: int) -> None:
    same(getattr(ta, name)(ta.Tensor(X), axis=1, ddof=ddof), getattr(np, name)(X, axis=1, ddof=ddof))


def test_more_degrees_of_freedom_than_entries_is_no_negative_variance() -> None:
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        assert ta.var(ta.Tensor([1.0, 2.0]), ddof=3).item() == np.inf
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        assert ta.std(ta.Tensor([1.0, 2.0]), ddof=3).item() == np.inf


@pytest.mark.parametrize("settings", AXES, ids=str)
def test_norm_and_logsumexp(settings: dict[str, Any]) -> None:
    axis = settings.get("axis")
    axis = tuple(axis) if isinstance(axis, list) else axis
    keepdims = settings.get("keepdims", False)
    same(ta.norm(ta.Tensor(X), **settings), np.sqrt(np.sum(X * X, axis=axis, keepdims=keepdims)))
    same(ta.logsumexp(ta.Tensor(X), **settings), np.log(np.sum(np.exp(X), axis=axis, keepdims=keepdims)))
    same(ta.logsumexp(ta.Tensor([1, 2])), np.log(np.exp(1.0) + np.exp(2.0)))


SHAPES: dict[str, Callable[[Any, Any], Any]] = {
    "reshape to -1": lambda m, x: m.reshape(x, -1),
    "reshape to (4, -1)": lambda m, x: m.reshape(x, (4, -1)),
    "reshape with a numpy integer": lambda m, x: m.reshape(x, np.int64(24)),
    "transpose": lambda m, x: m.transpose(x),
    "transpose with None": lambda m, x: m.transpose(x, None),
    "transpose with axes": lambda m, x: m.transpose(x, (2, 0, 1)),
    "transpose with negative axes": lambda m, x: m.transpose(x, [-1, 0, -2]),
    "swapaxes": lambda m, x: m.swapaxes(x, 0, -1),
    "expand_dims": lambda m, x: m.expand_dims(x, -1),
    "expand_dims with several": lambda m, x: m.expand_dims(x, (0, -1, 2)),
    "squeeze": lambda m, x: m.squeeze(m.expand_dims(x, (0, -1))),
    "squeeze with an axis": lambda m, x: m.squeeze(m.expand_dims(x, (0, -1)), axis=-1),
    "squeeze with axes": lambda m, x: m.squeeze(m.expand_dims(x, (0, -1)), axis=(0, -1)),
    "broadcast_to": lambda m, x: m.broadcast_to(x, (5, 2, 3, 4)),
    "broadcast_to with an integer": lambda m, x: m.broadcast_to(m.sum(x), 5),
    "broadcast_to with a numpy integer": lambda m, x: m.broadcast_to(m.sum(x), np.int64(5)),
    "concatenate": lambda m, x: m.concatenate([x, x], axis=-1),
    "concatenate in a row": lambda m, x: m.concatenate([x, x], axis=None),
    "concatenate one tensor": lambda m, x: m.concatenate(x),
    "concatenate different lengths": lambda m, x: m.concatenate((x, x[:, :1]), axis=1),
    "stack": lambda m, x: m.stack([x, x]),
    "stack on the last axis": lambda m, x: m.stack((x, x), axis=-1),
    "take": lambda m, x: m.take(x, [0, 23, -1]),
    "take with an axis": lambda m, x: m.take(x, np.array([[0, 1], [1, -1]]), axis=1),
    "take one": lambda m, x: m.take(x, 1, axis=-1),
    "split in two": lambda m, x: m.split(x, 2, axis=2)[1],
    "split at places": lambda m, x: m.split(x, [1, 3], axis=-1)[1],
    "split before an end": lambda m, x: m.split(x, [-1], axis=1)[0],
    "split beyond the end": lambda m, x: m.split(x, [2, 7], axis=1)[1],
    "where": lambda m, x: m.where(x > 0, x, 0.0),
    "where of numbers": lambda m, x: m.where(x > 0, x, np.float64(1)),
    "maximum": lambda m, x: m.maximum(x, 0.0),
    "minimum": lambda m, x: m.minimum(0.5, x),
    "clip": lambda m, x: m.clip(x, -0.5, 0.5),
    "clip on one side": lambda m, x: m.clip(x, None, 0.5),
    "sin": lambda m, x: m.sin(x),
    "cos": lambda m, x: m.cos(x),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("case", SHAPES)
def test_shapes_and_choices(case: str, dtype: Any) -> None:
    x = X.astype(dtype)
    same(SHAPES[case](ta, ta.Tensor(x, requires_grad=True)), SHAPES[case](np, x))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("case", SHAPES)
def test_numpys_own_functions_take_tensors(case: str, dtype: Any) -> None:
    tensor = ta.Tensor(X.astype(dtype), requires_grad=True)
    ours = SHAPES[case](np, tensor)
    same(ours, SHAPES[case](np, X.astype(dtype)))
    assert ours.requires_grad


def test_numpys_where_with_a_condition_alone() -> None:
    x = ta.Tensor(X, requires_grad=True)
    for found, expected in zip(np.where(x > 0), np.where(X > 0), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_split_gives_every_part() -> None:
    for sections in (1, 2, 3, 6, [2], [1, 1, 5], np.array([2, 4])):
        ours, theirs = ta.split(ta.Tensor(np.arange(6.0)), sections), np.split(np.arange(6.0), sections)
        assert [part.tolist() for part in ours] == [part.tolist() for part in theirs]
    assert [part.shape for part in ta.split(ta.Tensor(np.zeros((0, 2))), 3)] == [(0, 2)] * 3


EINSUMS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ij,jk->ik", [(2, 3), (3, 4)]),
    ("ij,jk", [(2, 3), (3, 4)]),
    ("ba", [(2, 3)]),
    ("ii", [(3, 3)]),
    ("ii->i", [(3, 3)]),
    ("i->", [(3,)]),
    ("ij->", [(2, 3)]),
    ("i,j", [(2,), (3,)]),
    ("...ij->...ji", [(5, 2, 3)]),
    ("...ii->...i", [(5, 3, 3)]),
    ("ij...,jk...->ik...", [(2, 3, 5), (3, 4, 5)]),
    ("...ij,...jk->...ik", [(5, 2, 3), (3, 4)]),
    ("...ij,...jk->...ik", [(5, 1, 2, 3), (6, 3, 4)]),
    ("...,...", [(2, 1), (3,)]),
    ("ij,ij->ij", [(1, 3), (2, 3)]),
    ("ij,ij->i", [(2, 1), (2, 3)]),
    ("i,ij,j->", [(2,), (2, 3), (3,)]),
    ("i , i -> ", [(2,), (2,)]),
    ("Ab,bA->A", [(2, 3), (3, 2)]),
    (",->", [(), ()]),
    ("ij->ji", [(0, 3)]),
    ("ij,jk->ik", [(2, 0), (0, 3)]),
    ("...i->i...", [(2, 3)]),
]


@pytest.mark.parametrize(("subscripts", "shapes"), EINSUMS, ids=str)
def test_einsum(subscripts: str, shapes: list[tuple[int, ...]]) -> None:
    arrays = [RNG.standard_normal(shape) for shape in shapes]
    tensors = [ta.Tensor(x, requires_grad=True) for x in arrays]
    output = ta.einsum(subscripts, *tensors)
    same(output, np.einsum(subscripts, *arrays))
    same(np.einsum(subscripts, *tensors), np.einsum(subscripts, *arrays))
    upstream = RNG.standard_normal(output.shape)
    direction = [RNG.standard_normal(shape) for shape in shapes]
    slope = sum(
        (upstream * np.einsum(subscripts, *arrays[:i], v, *arrays[i + 1 :])).sum()
        for i, v in enumerate(direction)
    )
    found = sum(
        (g.data * v).sum() for g, v in zip(ta.grad(output, tensors, upstream), direction, strict=True)
    )
    assert found == pytest.approx(slope, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(
    ("shapes"),
    [
        [(2, 3), (3, 4)],
        [(3,), (3,)],
        [(3,), (3, 4)],
        [(2, 3), (3,)],
        [(5, 2, 3), (3,)],
        [(3,), (5, 3, 4)],
        [(5, 1, 2, 3), (4, 3, 2)],
        [(0, 3), (3, 2)],
        [(2, 0), (0, 3)],
        [(0, 2, 0), (0,)],
    ],
    ids=str,
)
def test_matmul(shapes: list[tuple[int, ...]]) -> None:
    a, b = (RNG.standard_normal(shape) for shape in shapes)
    same(ta.matmul(ta.Tensor(a), ta.Tensor(b)), a @ b)
    same(ta.Tensor(a) @ b, a @ b)
    same(a @ ta.Tensor(b), a @ b)
    x, y = ta.Tensor(a, requires_grad=True), ta.Tensor(b, requires_grad=True)
    for g, operand in zip(ta.grad((x @ y).sum(), (x, y)), (a, b), strict=True):
        assert g.shape == operand.shape


EXPONENTS: list[Any] = [
    2,
    3,
    -1,
    0.5,
    0,
    1,
    2.5,
    np.float32(2),
    np.array([1.0, 2.0, 0.0]),
    np.array([2, 0, 1]),
]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
@pytest.mark.parametrize("exponent", EXPONENTS, ids=repr)
def test_powers(exponent: Any, dtype: Any) -> None:
    x = np.array([1, 2, 3], dtype)
    if dtype == np.int64 and exponent is EXPONENTS[2]:
        with pytest.raises(ValueError, match="Integers to negative integer powers"):
            ta.Tensor(x) ** exponent
        return
    same(ta.Tensor(x) ** exponent, x**exponent)
    same(ta.pow(ta.Tensor(x), exponent), np.power(x, exponent))
    if not isinstance(exponent, int) or exponent >= 0:
        same(2 ** ta.Tensor(x), 2**x)


@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes_of_single_complex_numbers_stay_single(name: str) -> None:
    x = np.array([3 + 1j, 5 - 2j], np.complex64)
    same(getattr(ta, name)(ta.Tensor(x)), getattr(np, name)(x))


def test_integers_and_booleans() -> None:
    same(ta.Tensor([1, 2]) / 2, np.array([1, 2]) / 2)
    same(ta.sum(ta.Tensor([True, True])), np.sum([True, True]))
    same(ta.mean(ta.Tensor([True, False])), np.mean([True, False]))
    same(ta.max(ta.Tensor([True, False])), np.max([True, False]))
    same(ta.tanh(ta.Tensor([1, 2])), np.tanh([1, 2]))
    same(ta.softmax(ta.Tensor([0, 0])), np.array([0.5, 0.5]))


@pytest.mark.parametrize("number", [2, 2.0, True])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "pow", "maximum", "minimum"])
def test_python_numbers_keep_single_precision(name: str, number: Any) -> None:
    fn = getattr(ta, name)
    for shape in ((), (3,)):
        x = ta.Tensor(np.full(shape, 1.5, np.float32), requires_grad=True)
        for y in (fn(x, number), fn(number, x), ta.where(x > 0, x, number), ta.where(x > 0, number, x)):
            assert y.dtype == np.float32
            (g,) = ta.grad(y.sum(), x, create_graph=True)
            assert g.dtype == np.float32


def test_numpy_scalars_promote_as_in_numpy() -> None:
    x = ta.Tensor(np.ones(2, np.float32))
    same(x * np.float64(2), np.ones(2, np.float32) * np.float64(2))
    same(np.float64(2) * x, np.float64(2) * np.ones(2, np.float32))


# What cannot be done is an error that names the operation

FAULTS: list[tuple[str, type[Exception], str, Callable[[], Any]]] = [
    ("add", ValueError, r"add: .*\(2,3,4\) \(5,\)", lambda: ta.Tensor(X) + np.ones(5)),
    ("mul", ValueError, "mul: ", lambda: np.ones(5) * ta.Tensor(X)),
    ("matmul", ValueError, "matmul: ", lambda: ta.Tensor(X) @ np.ones(5)),
    ("matmul of a number", ValueError, "matmul: ", lambda: ta.Tensor(X) @ 2.0),
    ("sum", np.exceptions.AxisError, "sum: axis 3 is out of bounds", lambda: ta.sum(ta.Tensor(X), axis=3)),
    ("sum", TypeError, "sum: axis is True, expected integers", lambda: ta.sum(ta.Tensor(X), axis=True)),
    ("sum twice", ValueError, "repeated axis in `sum`", lambda: ta.sum(ta.Tensor(X), axis=(0, 0))),
    ("mean", np.exceptions.AxisError, "axis -4 is out of bounds", lambda: ta.Tensor(X).mean(axis=-4)),
    ("var", np.exceptions.AxisError, "var: axis 3 is out of bounds", lambda: ta.Tensor(X).var(axis=3)),
    ("std twice", ValueError, "repeated axis in `std`", lambda: ta.Tensor(X).std(axis=(0, 0))),
    ("axis of another type", TypeError, "float", lambda: ta.sum(ta.Tensor(X), axis=1.0)),
    (
        "max of nothing",
        ValueError,
        "max: zero-size array",
        lambda: ta.max(ta.Tensor(np.zeros((0, 2))), axis=0),
    ),
    (
        "reshape",
        ValueError,
        r"reshape: cannot reshape array of size 24 into shape \(5,\)",
        lambda: ta.reshape(ta.Tensor(X), 5),
    ),
    ("reshape with a float", TypeError, "float", lambda: ta.reshape(ta.Tensor(X), (4.0, 6))),
    (
        "reshape to a float",
        TypeError,
        "shape is 24.0, expected an integer or several",
        lambda: ta.Tensor(X).reshape(24.0),
    ),
    ("astype", TypeError, "astype: got dtype <U0, expected one of numbers", lambda: ta.Tensor(X).astype(str)),
    ("reshape to nothing", TypeError, "shape is None, expected", lambda: ta.Tensor(X).reshape()),
    (
        "transpose",
        ValueError,
        "transpose: 2 axes given for a tensor of 3",
        lambda: ta.transpose(ta.Tensor(X), (0, 1)),
    ),
    (
        "transpose twice",
        ValueError,
        "repeated axis in `transpose`",
        lambda: ta.transpose(ta.Tensor(X), (0, 1, 1)),
    ),
    ("swapaxes", np.exceptions.AxisError, "swapaxes: ", lambda: ta.swapaxes(ta.Tensor(X), 0, 3)),
    (
        "squeeze",
        ValueError,
        r"squeeze: axis 0 of a tensor of shape \(2, 3, 4\)",
        lambda: ta.squeeze(ta.Tensor(X), 0),
    ),
    ("expand_dims", np.exceptions.AxisError, "expand_dims: ", lambda: ta.expand_dims(ta.Tensor(X), 5)),
    ("broadcast_to", ValueError, "broadcast_to: ", lambda: ta.broadcast_to(ta.Tensor(X), (3, 4))),
    ("concatenate nothing", ValueError, "concatenate: expected at least one", lambda: ta.concatenate([])),
    ("concatenate", ValueError, "concatenate: ", lambda: ta.concatenate([ta.Tensor(X), np.ones((2, 2))])),
    ("stack", ValueError, "stack: ", lambda: ta.stack([ta.Tensor(X), np.ones((2, 2))])),
    (
        "split",
        ValueError,
        "split: an axis of length 3 cannot be cut into 2",
        lambda: ta.split(ta.Tensor(X), 2, axis=1),
    ),
    ("getitem", IndexError, "getitem: index 5 is out of bounds", lambda: ta.Tensor(X)[5]),
    ("getitem with a float", IndexError, "getitem: only integers", lambda: ta.Tensor(X)[1.0]),
    ("getitem with too many", IndexError, "getitem: too many indices", lambda: ta.Tensor(X)[0, 0, 0, 0]),
    (
        "getitem with a wrong mask",
        IndexError,
        "getitem: boolean index",
        lambda: ta.Tensor(X)[np.ones(5, bool)],
    ),
    ("take", IndexError, "getitem: index 3 is out of bounds", lambda: ta.take(ta.Tensor(X), [3], axis=0)),
    (
        "take with floats",
        TypeError,
        "take: indices have dtype float64",
        lambda: ta.take(ta.Tensor(X), [0.5], axis=0),
    ),
    ("where", ValueError, "where: ", lambda: ta.where(np.ones(5, bool), ta.Tensor(X), 0)),
    ("einsum operands", ValueError, "einsum: 'ij,jk' describes 2", lambda: ta.einsum("ij,jk", ta.Tensor(X))),
    ("einsum axes", ValueError, "einsum: 'ij' names 2 axes", lambda: ta.einsum("ij", ta.Tensor(X))),
    (
        "einsum sizes",
        ValueError,
        "einsum: an axis of 'ijk,k->i' has size 4 and 5",
        lambda: ta.einsum("ijk,k->i", ta.Tensor(X), np.ones(5)),
    ),
    ("einsum output", ValueError, "einsum: the output", lambda: ta.einsum("ijk->l", ta.Tensor(X))),
    ("einsum output twice", ValueError, "einsum: the output", lambda: ta.einsum("ijk->ii", ta.Tensor(X))),
    (
        "einsum without the ellipsis",
        ValueError,
        "needs the ellipsis",
        lambda: ta.einsum("...k->k", ta.Tensor(X)),
    ),
    (
        "einsum ellipsis of a vector",
        ValueError,
        "names more axes",
        lambda: ta.einsum("...ij->...", ta.Tensor([1.0])),
    ),
    ("einsum digits", ValueError, "more than letters", lambda: ta.einsum("1j->j", ta.Tensor(X))),
    ("einsum dots", ValueError, "more than letters", lambda: ta.einsum("..ij->ij", ta.Tensor(X))),
    ("einsum lists", TypeError, "einsum: expected subscripts", lambda: ta.einsum(ta.Tensor(X), [0, 1, 2])),
    (
        "too many inputs",
        TypeError,
        "add takes 2 inputs",
        lambda: ta.add(ta.Tensor(X), ta.Tensor(X), ta.Tensor(X)),
    ),
    (
        "softmax mask",
        ValueError,
        "softmax: a mask of shape",
        lambda: ta.softmax(ta.Tensor(X), mask=np.ones((5, 2, 3, 4), bool)),
    ),
    ("softmax mask values", TypeError, "mask: expected booleans", lambda: ta.softmax(ta.Tensor(X), mask=X)),
    (
        "softmax axis",
        np.exceptions.AxisError,
        "axis 3 is out of bounds",
        lambda: ta.softmax(ta.Tensor(X), axis=3),
    ),
    (
        "log_softmax axis",
        np.exceptions.AxisError,
        "axis 3 is out of bounds",
        lambda: ta.log_softmax(ta.Tensor(X), axis=3),
    ),
    (
        "cross_entropy shapes",
        ValueError,
        "cross_entropy: logits of shape",
        lambda: ta.cross_entropy(ta.Tensor(X), [0]),
    ),
    (
        "cross_entropy class",
        IndexError,
        "cross_entropy: target 4 is not one of the 4",
        lambda: ta.cross_entropy(ta.Tensor(X[0]), [0, 4, 1]),
    ),
    (
        "cross_entropy negative",
        IndexError,
        "cross_entropy: target -1",
        lambda: ta.cross_entropy(ta.Tensor(X[0]), [0, -1, 1]),
    ),
    (
        "softmax of a number",
        np.exceptions.AxisError,
        "softmax: axis -1 is out of bounds for array of dimension 0",
        lambda: ta.softmax(ta.Tensor(2.0)),
    ),
    (
        "log_softmax of a number",
        np.exceptions.AxisError,
        "log_softmax: axis 1 is out of bounds for array of dimension 0",
        lambda: ta.log_softmax(2.0, axis=1),
    ),
    (
        "einsum over unequal axes of one operand",
        ValueError,
        "einsum: 'ii->i' repeats an axis of an operand of shape .1, 3.",
        lambda: ta.einsum("ii->i", ta.Tensor(np.ones((1, 3)))),
    ),
    (
        "numpy's other norms",
        TypeError,
        "norm of a Tensor: ord is 1, expected None",
        lambda: np.linalg.norm(ta.Tensor(X[0]), 1),
    ),
    (
        "cross_entropy floats",
        TypeError,
        "cross_entropy: targets have dtype",
        lambda: ta.cross_entropy(ta.Tensor(X[0]), [0.0, 1, 1]),
    ),
    ("sigmoid of None", TypeError, "sigmoid: ", lambda: ta.sigmoid(None)),
    ("sigmoid of a text", TypeError, "signature matching types", lambda: ta.sigmoid("3")),
    ("sigmoid of fractions", TypeError, "sigmoid: ", lambda: ta.sigmoid([Fraction(1, 2)])),
    (
        "cross_entropy of nothing",
        ValueError,
        "no target counts",
        lambda: ta.cross_entropy(ta.Tensor(X[0]), [0, 0, 0], ignore_index=0),
    ),
]


@pytest.mark.parametrize(("kind", "message", "attempt"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS])
def test_faults_name_the_operation(kind: type[Exception], message: str, attempt: Callable[[], Any]) -> None:
    with pytest.raises(kind, match=message):
        attempt()


def test_a_third_input_is_not_taken_for_numpys_out() -> None:
    x = ta.Tensor([1.0, 2.0])
    with pytest.raises(TypeError, match="exp takes 1 input"):
        ta.exp(x, x)
    assert x.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (None, 0),
        (2, 1),
        (2, np.int64(1)),
        (2, (1,)),
        (None, -1, True),
        (None, (0, 1)),
        ("fro",),
        ("fro", (1, 0)),
    ],
    ids=str,
)
def test_numpys_norm_where_it_is_euclidean(arguments: tuple[Any, ...]) -> None:
    norm: Any = np.linalg.norm
    found = norm(ta.Tensor(X[0]), *arguments)
    np.testing.assert_allclose(found.data, np.linalg.norm(X[0], *arguments), rtol=1e-15)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16, np.int32, bool])
def test_the_norm_of_integers_does_not_wrap_around(dtype: Any) -> None:
    most = 1 if dtype is bool else np.iinfo(dtype).max
    np.testing.assert_allclose(ta.norm(np.array([most, most], dtype)), np.sqrt(2) * float(most), rtol=1e-15)


def test_means_of_halves_do_not_overflow() -> None:
    x = np.full((3000, 30), 100, np.float16)
    assert ta.mean(x).dtype == np.float16
    assert float(ta.mean(x)) == 100
    np.testing.assert_array_equal(ta.mean(x, axis=0, keepdims=True), np.full((1, 30), 100))
    with np.errstate(all="raise"):
        loss = ta.cross_entropy(ta.Tensor(np.zeros((30_000, 20), np.float16)), np.zeros(30_000, int))
    np.testing.assert_allclose(float(loss), np.log(20), rtol=1e-3)


@pytest.mark.parametrize("mean", [ta.mean, lambda x: ta.cross_entropy(x, np.zeros(len(x.data), int))])
def test_gradients_of_means_of_more_than_halves_can_count(mean: Any) -> None:
    x = ta.Tensor(np.zeros((70_000, 2), np.float16), requires_grad=True)
    with np.errstate(all="raise"):
        mean(x).backward()
    assert x.grad is not None and x.grad.dtype == np.float16
    np.testing.assert_allclose(np.abs(x.grad), np.float16(1 / 140_000), rtol=2e-2)


def test_numbers_of_the_other_byte_order() -> None:
    values = np.array([[1.0, 3, 3], [0, 2, -1]])
    other = values.astype(values.dtype.newbyteorder())
    x = ta.Tensor(other, requires_grad=True)
    assert x.dtype.isnative
    (x.max(axis=1) + ta.max(ta.mul(x, other)) + x.min()).sum().backward()
    y = ta.Tensor(values, requires_grad=True)
    (y.max(axis=1) + ta.max(ta.mul(y, values)) + y.min()).sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    np.testing.assert_array_equal(x.grad, y.grad)
    np.testing.assert_array_equal(ta.max(other, axis=1), [3, 2])


@pytest.mark.parametrize("join", [ta.stack, ta.concatenate])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_thousands_are_joined_in_groups(join: Any, axis: int) -> None:
    parts = [ta.Tensor(np.full((2, 1), float(i)), requires_grad=i % 2 == 0) for i in range(1000)]
    joined = join(parts, axis=axis)
    np.testing.assert_array_equal(
        joined.data, getattr(np, join.__name__)([part.data for part in parts], axis=axis)
    )
    weights = np.arange(joined.size).reshape(joined.shape)
    (joined * weights).sum().backward()
    expected = np.moveaxis(weights, axis, 0) if join is ta.stack else np.split(weights, 1000, axis=axis)
    for part, piece in zip(parts, expected, strict=True):
        assert (part.grad is None) is not part.requires_grad
        if part.grad is not None:
            np.testing.assert_array_equal(part.grad, piece)
    operations, seen = [joined], 0
    while operations:
        inputs = getattr(operations.pop(), "_inputs", ())
        operations += [x for x in inputs if isinstance(x, ta.Tensor) and not x.is_leaf]
        seen += len(inputs)
        assert len(inputs) <= 256
    assert seen >= 1000


@pytest.mark.parametrize("axis", [(0, 1), (-1, 0), None])
def test_softmax_over_several_axes(axis: Any) -> None:
    x = ta.Tensor(X, requires_grad=True)
    np.testing.assert_allclose(ta.softmax(x, axis=axis).sum(axis).data, 1.0)
    np.testing.assert_allclose(ta.log_softmax(x, axis=axis).data, np.log(ta.softmax(x, axis=axis).data))
    assert ta.gradcheck(lambda x: ta.softmax(x, axis=axis), X)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((3,), (3, 4)),
        ((2, 3), (3, 4)),
        ((5, 2, 3), (3, 4)),
        ((2, 3, 4), (5, 4, 6)),
        ((4,), (5, 4, 6)),
        ((2, 3, 4), (3, 2, 4, 6)),
        ((), (2, 3)),
        ((2, 3), ()),
    ],
)
def test_dot(a: Any, b: Any) -> None:
    """Not the products of two stacks one by one, as `@`, but of every pair."""
    x, y = (np.random.default_rng(0).standard_normal(shape) for shape in (a, b))
    left, right = ta.Tensor(x, requires_grad=True), ta.Tensor(y, requires_grad=True)
    for found in (left.dot(right), np.dot(left, right), left.dot(y)):
        np.testing.assert_allclose(found.data, np.dot(x, y), rtol=1e-13, atol=1e-14)
    assert ta.gradcheck(np.dot, (left, right))
    with pytest.raises(ValueError, match=r"matmul|einsum"):
        ta.Tensor(np.ones((2, 3))).dot(np.ones((2, 4, 5)))
