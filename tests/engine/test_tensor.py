"""`Tensor` as a container: construction, questions, operators and numpy on either side."""

from __future__ import annotations

import copy
import operator
import pickle
from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn import ops


def leaf(data: Any) -> ta.Tensor:
    return ta.Tensor(data, requires_grad=True)


# Construction


def test_dtype_is_what_numpy_gives() -> None:
    assert ta.Tensor([1.0, 2.0]).dtype == np.float64
    assert ta.Tensor(np.ones(2, np.float32)).dtype == np.float32
    assert ta.Tensor([1, 2]).dtype == np.array([1, 2]).dtype
    assert ta.Tensor([True]).dtype == np.bool_
    assert ta.Tensor(1.0).shape == () and ta.Tensor([]).shape == (0,)


def test_data_is_copied() -> None:
    source = np.ones(3)
    x = ta.Tensor(source)
    y = ta.Tensor(x)
    source[0] = x.data[1] = 7
    assert x.tolist() == [1, 7, 1] and y.tolist() == [1, 1, 1]


def test_tensor_of_untracked_tensors() -> None:
    assert ta.Tensor([ta.Tensor(1.0), ta.Tensor(2.0)]).tolist() == [1, 2]
    assert ta.Tensor([ta.Tensor([1.0]), [2.0]]).tolist() == [[1], [2]]


@pytest.mark.parametrize("data", [[1, 2, 3], [True], np.arange(3), np.uint8(1)])
def test_integers_cannot_require_a_gradient(data: Any) -> None:
    with pytest.raises(
        TypeError, match=r"cannot require a gradient, expected a floating dtype, e\.g\. Tensor\(\[1\.0"
    ):
        ta.Tensor(data, requires_grad=True)
    x = ta.Tensor(data)
    with pytest.raises(TypeError, match="cannot require a gradient"):
        x.requires_grad = True
    assert not (x * 0.5).requires_grad


@pytest.mark.parametrize(
    "data", [None, "text", ["a"], object(), {"a": 1}, [1.0, None], 10**30, np.datetime64("2020")]
)
def test_what_is_no_number_is_refused(data: Any) -> None:
    with pytest.raises(TypeError, match="expected numbers"):
        ta.Tensor(data)


def test_ragged_lists_are_refused() -> None:
    with pytest.raises(ValueError, match="rectangular"):
        ta.Tensor([[1.0], [1.0, 2.0]])


def test_requires_grad_can_be_set_on_leaves_alone() -> None:
    x = ta.Tensor([1.0])
    x.requires_grad = True
    y = x * 2
    y.requires_grad = True
    with pytest.raises(RuntimeError, match="computed by mul; use detach"):
        y.requires_grad = False
    x.requires_grad = False
    assert not (x * 2).requires_grad


# Questions


def test_truth_length_iteration_membership() -> None:
    assert ta.Tensor(1.0) and not ta.Tensor([0.0])
    with pytest.raises(ValueError, match="ambiguous"):
        bool(ta.Tensor([1.0, 2.0]))
    with pytest.raises(ValueError, match="ambiguous"):
        bool(ta.Tensor([]))
    assert len(ta.Tensor([[1.0, 2.0]])) == 1
    for ask in (len, iter):
        with pytest.raises(TypeError, match="0-d"):
            ask(ta.Tensor(1.0))
    x = leaf([1.0, 2.0])
    first, second = x
    (first * second).backward()
    assert x.grad is not None and x.grad.tolist() == [2, 1]
    assert 2.0 in x and 3.0 not in x and ta.Tensor(2.0) in x


def test_numbers() -> None:
    assert float(leaf([2.5])) == 2.5 and int(ta.Tensor(3.7)) == 3 and complex(leaf(2.0)) == 2
    assert operator.index(ta.Tensor(3)) == 3 and list(range(ta.Tensor(2))) == [0, 1]
    assert leaf([[2.5]]).item() == 2.5 and isinstance(leaf(2.5).item(), float)
    with pytest.raises(TypeError, match="only an integer tensor"):
        operator.index(ta.Tensor(3.0))
    for convert in (float, int, ta.Tensor.item):
        with pytest.raises(ValueError, match="one entry"):
            convert(ta.Tensor([1.0, 2.0]))


def test_representation() -> None:
    assert repr(ta.Tensor([1.0, 2.0])) == "Tensor([1., 2.], dtype=float64)"
    x = ta.Tensor([1.0], requires_grad=True, name="x")
    assert repr(x) == "Tensor([1.], dtype=float64, name='x', requires_grad=True)"
    assert repr(x * 2) == "Tensor([2.], dtype=float64, made_by=mul)"
    assert repr(ta.Tensor(np.zeros((0, 3)))) == "Tensor([], shape=(0, 3), dtype=float64)"
    large = repr(ta.Tensor(np.zeros((1000, 1000))))
    assert len(large) < 1000 and "shape=(1000, 1000)" in large
    assert "nan" in repr(ta.Tensor([np.nan, np.inf])) and "inf" in repr(ta.Tensor([np.nan, np.inf]))


def test_identity_is_what_hashes() -> None:
    x, y = ta.Tensor([1.0]), ta.Tensor([1.0])
    assert len({x, y}) == 2 and {x: "x"}[x] == "x"


def test_deepcopy() -> None:
    x = ta.Tensor([1.0, 2.0], requires_grad=True, name="x")
    (x * x).sum().backward()
    twin, again = copy.deepcopy([x, x])
    assert twin is again and twin.name == "x" and twin.requires_grad
    assert twin.grad is not None and twin.grad.tolist() == [2, 4]
    twin.data[0] = twin.grad[0] = 9
    assert x.data[0] == 1 and x.grad is not None and x.grad[0] == 2
    (twin * 3).sum().backward()
    assert x.grad.tolist() == [2, 4]
    with pytest.raises(RuntimeError, match="computed by mul; only leaves"):
        copy.deepcopy(x * 2)


def test_detach_and_numpy_share_the_array() -> None:
    x = leaf([1.0, 2.0])
    assert x.numpy() is x.data and x.detach().data is x.data and not x.detach().requires_grad
    (x * x.detach()).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [1, 2]


# Operators and numpy

LEFT = [
    2.0,
    3,
    np.float64(2),
    np.float32(2),
    np.array(2.0),
    np.array([3.0, 4.0]),
    [3.0, 4.0],
    np.ones((2, 2)),
    ta.Tensor([3.0, 4.0]),
]
OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow]


@pytest.mark.parametrize("other", LEFT, ids=repr)
@pytest.mark.parametrize("fn", OPERATORS)
def test_operators_from_either_side(fn: Any, other: Any) -> None:
    x = np.array([1.5, 2.0])
    plain = np.asarray(other.data if isinstance(other, ta.Tensor) else other)
    for swap in (False, True):
        t = leaf(x)
        y = fn(other, t) if swap else fn(t, other)
        expected = fn(plain, x) if swap else fn(x, plain)
        assert type(y) is ta.Tensor and y.requires_grad
        np.testing.assert_allclose(y.data, expected, rtol=1e-14)
        y.sum().backward()
        assert t.grad is not None and t.grad.shape == (2,)


def test_lists_stand_for_arrays() -> None:
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    (g,) = ta.grad((x @ [[1.0], [2.0]] + [1, 2]).sum(), x, create_graph=True)
    assert g.tolist() == [[2, 4], [2, 4]]
    assert ta.maximum([0.0, 3.0], x).tolist() == [[1, 3], [3, 4]]
    with pytest.raises(TypeError, match="requires a gradient"):
        operator.add(x, [x[0, 0], x[0, 1]])


def test_numpy_on_the_left_has_the_right_numbers() -> None:
    t = leaf([1.0, 2.0])
    r = np.array([3.0, 4.0]) * t
    r.sum().backward()
    assert r.tolist() == [3, 8] and t.grad is not None and t.grad.tolist() == [3, 4]
    t = leaf([1.0, 2.0])
    r = np.float64(2.0) * t
    r.sum().backward()
    assert r.tolist() == [2, 4] and t.grad is not None and t.grad.tolist() == [2, 2]
    t = leaf([1.0, 2.0])
    r = np.ones((2, 2)) @ t
    r.sum().backward()
    assert r.tolist() == [3, 3] and t.grad is not None and t.grad.tolist() == [2, 2]
    assert (np.array(1.0) - t).tolist() == [0, -1] and (np.array([8.0, 8.0]) / t).tolist() == [8, 4]
    assert (-t).tolist() == [-1, -2] and abs(-t).tolist() == [1, 2] and (+t) is t


COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


@pytest.mark.parametrize("other", [2.0, np.float64(2), np.array([1.0, 2.0]), ta.Tensor([2.0, 2.0])], ids=repr)
@pytest.mark.parametrize("fn", COMPARISONS)
def test_comparisons_from_either_side(fn: Any, other: Any) -> None:
    x = np.array([1.0, 2.0])
    plain = other.data if isinstance(other, ta.Tensor) else other
    for ours, theirs in ((fn(leaf(x), other), fn(x, plain)), (fn(other, leaf(x)), fn(plain, x))):
        assert type(ours) is ta.Tensor and ours.dtype == np.bool_ and not ours.requires_grad
        assert ours.tolist() == theirs.tolist()


def test_comparison_with_something_else() -> None:
    x = ta.Tensor([1.0])
    assert (x == "text") is False and (x != "text") is True
    with pytest.raises(TypeError):
        operator.lt(x, "text")


def test_boolean_operators() -> None:
    a, b = ta.Tensor([True, False, True]), np.array([True, True, False])
    assert (a & b).tolist() == (b & a).tolist() == [True, False, False]
    assert (a | b).tolist() == (b | a).tolist() == [True, True, True]
    assert (a ^ b).tolist() == (b ^ a).tolist() == [False, True, True]
    assert (~a).tolist() == [False, True, False] and (a & True).tolist() == (True & a).tolist()
    assert a.any() and not a.all() and a.argmax().item() == 0 and a.argmin().item() == 1


UFUNCS = [
    *(np.absolute, np.exp, np.negative, np.tanh, np.sqrt, np.log),
    *(np.add, np.subtract, np.multiply, np.divide, np.power, np.maximum, np.minimum),
]


@pytest.mark.parametrize("ufunc", UFUNCS, ids=lambda u: u.__name__)
def test_ufuncs_take_tensors(ufunc: np.ufunc) -> None:
    arrays = [np.array([1.5, 2.5]), np.array([2.0, 0.5])][: ufunc.nin]
    y = ufunc(*map(leaf, arrays))
    assert type(y) is ta.Tensor and y.requires_grad
    np.testing.assert_allclose(y.data, ufunc(*arrays), rtol=1e-15)


def test_functions_without_slope_give_plain_tensors() -> None:
    x = leaf([1.5, np.nan])
    for ufunc in (np.isnan, np.isfinite, np.sign, np.floor):
        y = ufunc(x)
        assert type(y) is ta.Tensor and not y.requires_grad
        np.testing.assert_array_equal(y.data, ufunc(x.data))


def test_numpy_never_drops_a_gradient_in_silence() -> None:
    x = leaf([1.0, 2.0])
    attempts = [
        lambda: np.array(x),
        lambda: np.asarray([x, x]),
        lambda: np.arctan(x),
        lambda: np.add.reduce(x),
        lambda: np.add(x, 1, out=np.zeros(2)),
        lambda: np.cumsum(x),
        lambda: np.outer(x, x),
        lambda: np.vstack([x, x]),
        lambda: np.sum(x, dtype=np.float32),
    ]
    for attempt in attempts:
        with pytest.raises(TypeError):
            attempt()
    total = np.zeros(2)
    with pytest.raises(TypeError, match=r"numpy\.add with out="):
        total += x
    assert total.tolist() == [0, 0]


def test_numpy_takes_tensors_that_need_no_gradient() -> None:
    x = ta.Tensor([1.0, 2.0])
    assert np.array(x).tolist() == [1, 2] and np.asarray(x, dtype=np.float32).dtype == np.float32
    assert np.cumsum(x).tolist() == [1, 3] and np.dot(x, x) == 5
    np.testing.assert_allclose(x, [1, 2])
    copied = np.array(x)
    copied[0] = 9
    assert x.data[0] == 1


def test_questions_of_numpys_are_answered_for_every_tensor() -> None:
    x = leaf([[1.0, 3.0]])
    assert np.shape(x) == (1, 2) and np.ndim(x) == 2 and np.size(x) == 2
    assert np.argmax(x) == 1 and np.allclose(x, x) and np.array_equal(x, [[1, 3]]) and np.any(x)
    assert isinstance(np.zeros_like(x), np.ndarray)
    assert np.linalg.norm(x).item() == pytest.approx(10**0.5) and np.linalg.norm(x).requires_grad


# Methods


METHODS: list[tuple[str, tuple[Any, ...]]] = [
    ("tanh", ()),
    ("sigmoid", ()),
    ("relu", ()),
    ("exp", ()),
    ("log", ()),
    ("sqrt", ()),
    ("sin", ()),
    ("cos", ()),
    ("abs", ()),
    ("clip", (0.75, 1.5)),
    ("sum", (0,)),
    ("mean", (1,)),
    ("max", (0,)),
    ("min", (0,)),
    ("var", (0, 1)),
    ("std", (0, 1)),
    ("norm", (0,)),
    ("logsumexp", (1,)),
    ("softmax", (0,)),
    ("log_softmax", (0,)),
    ("matmul", (np.ones((3, 2)),)),
    ("transpose", ((1, 0),)),
    ("swapaxes", (0, 1)),
    ("reshape", ((3, 2),)),
    ("squeeze", ()),
    ("take", ([0, 0], 1)),
]


@pytest.mark.parametrize(("name", "arguments"), METHODS, ids=lambda v: v if isinstance(v, str) else "")
def test_methods_are_the_functions(name: str, arguments: tuple[Any, ...]) -> None:
    x = leaf(np.linspace(0.5, 2, 6).reshape(2, 3))
    np.testing.assert_array_equal(getattr(x, name)(*arguments).data, getattr(ta, name)(x, *arguments).data)


def test_operations_that_are_methods_of_arrays_are_methods_of_tensors() -> None:
    methods = {name for name in dir(np.ndarray) if name in ops.__all__}
    assert methods and methods <= set(dir(ta.Tensor))
    assert leaf([1.0, 5.0]).clip(max=3).tolist() == [1, 3]


def test_methods_with_several_ways_to_call() -> None:
    x = leaf(np.arange(6.0).reshape(2, 3))
    assert x.reshape(3, 2).shape == x.reshape((3, 2)).shape == x.reshape([3, -1]).shape == (3, 2)
    assert x.reshape(-1).shape == x.ravel().shape == x.flatten().shape == (6,)
    assert x.transpose().shape == x.transpose(1, 0).shape == x.transpose((1, 0)).shape == x.T.shape == (3, 2)
    assert x.dot(np.ones(3)).shape == (2,)
    assert x.argmax(axis=1, keepdims=True).shape == (2, 1)


def test_astype() -> None:
    x = leaf([1.5, 2.5])
    y = x.astype(np.float32)
    (y * y).sum().backward()
    assert (
        y.dtype == np.float32
        and x.grad is not None
        and x.grad.dtype == np.float64
        and x.grad.tolist() == [3, 5]
    )
    whole = x.astype(int)
    assert whole.tolist() == [1, 2] and not whole.requires_grad
    wave = ta.Tensor([1 + 1j]).astype(np.float32)
    assert wave.dtype == np.complex64, "a complex step must not be lost on the way"


def test_zero_grad_and_leaf_questions() -> None:
    x = leaf([1.0])
    y = x * 2
    assert x.is_leaf and not y.is_leaf and x.size == 1 and x.ndim == 1
    y.sum().backward()
    x.zero_grad()
    assert x.grad is None


def test_a_single_number_is_formatted_as_one() -> None:
    loss = ta.Tensor(1.25)
    assert f"{loss:.1f} {loss:>6}" == "1.2   1.25"
    assert f"{loss}" == str(loss)
    with pytest.raises(TypeError, match="format"):
        f"{ta.Tensor([1.25]):.1f}"


def test_a_pickled_leaf_is_one_that_no_graph_has_used() -> None:
    x = ta.Tensor([1.0, 2.0], requires_grad=True, name="x")
    (x * x).sum().backward()
    x.note_written()
    x._number += 10**9  # as after a long training, in another process
    found = pickle.loads(pickle.dumps(x))
    assert (found.name, found.requires_grad, found.tolist()) == ("x", True, [1.0, 2.0])
    np.testing.assert_array_equal(found.grad, [2, 4])
    (found * found).sum().backward()
    np.testing.assert_array_equal(found.grad, [4, 8])


def test_computed_tensors_are_not_pickled() -> None:
    y = ta.Tensor([1.0], requires_grad=True) * 2.0
    with pytest.raises(RuntimeError, match="was computed by mul; only leaves can be copied or pickled"):
        pickle.dumps(y)
    assert pickle.loads(pickle.dumps(y.detach())).tolist() == [2.0]


# In place

IN_PLACE = {
    "+=": operator.iadd,
    "-=": operator.isub,
    "*=": operator.imul,
    "/=": operator.itruediv,
    "**=": operator.ipow,
}


@pytest.mark.parametrize("sign", IN_PLACE)
@pytest.mark.parametrize("other", [2, np.array([1.0, 2.0]), ta.Tensor([0.5, 2.0])], ids=str)
def test_a_leaf_with_a_gradient_is_written_to_within_no_grad(sign: str, other: Any) -> None:
    x = leaf([1.0, 4.0])
    array, expected = x.data, IN_PLACE[sign](x.data.copy(), getattr(other, "data", other))
    with ta.no_grad():
        y = IN_PLACE[sign](x, other)
    assert y is x and x.data is array and x.requires_grad
    np.testing.assert_array_equal(x.data, expected)


@pytest.mark.parametrize("sign", IN_PLACE)
def test_a_leaf_with_a_gradient_is_not_written_to_while_a_graph_is_recorded(sign: str) -> None:
    x = leaf([1.0, 4.0])
    with pytest.raises(RuntimeError, match=r"leaf that requires a gradient: written to within ta.no_grad"):
        IN_PLACE[sign](x, 2.0)
    assert x.tolist() == [1.0, 4.0]


@pytest.mark.parametrize("sign", IN_PLACE)
def test_other_tensors_stay_and_the_name_stands_for_a_new_one(sign: str) -> None:
    for x in (ta.Tensor([1.0, 4.0]), leaf([1.0, 4.0]) * 1):
        y = IN_PLACE[sign](x, leaf([2.0, 2.0]))
        assert y is not x and y.requires_grad and x.tolist() == [1.0, 4.0]


def test_a_product_in_place() -> None:
    x = leaf(np.eye(2))
    with ta.no_grad():
        x @= np.array([[1.0, 2.0], [3.0, 4.0]])
    assert x.tolist() == [[1, 2], [3, 4]]


def test_what_cannot_be_done_in_place_changes_nothing() -> None:
    x = leaf(np.ones(2, np.float32))
    with ta.no_grad():
        with pytest.raises(ValueError, match=r"has shape \(2,\), and cannot become \(3, 2\) in place"):
            x += np.ones((3, 2))
        with pytest.raises(TypeError, match="Cannot cast"):
            x *= 1j
    assert x.tolist() == [1, 1]


def test_a_graph_that_used_what_was_written_to_in_place_is_stale() -> None:
    x = leaf([1.0, 4.0])
    y = (x * x).sum()
    with ta.no_grad():
        x -= 1
    with pytest.raises(RuntimeError, match="was written to after mul had used it"):
        y.backward()
