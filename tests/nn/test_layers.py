"""Linear, Embedding, Dropout, and the initial values of all modules."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn.nn import Dropout, Embedding, Linear

RNG = np.random.default_rng


# Linear


@pytest.mark.parametrize("lead", [(), (4,), (2, 4), (0,), (2, 0)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear_against_a_loop(lead: tuple[int, ...], bias: bool) -> None:
    layer = Linear(3, 2, bias, dtype=np.float64, rng=RNG(0))
    x = RNG(1).standard_normal((*lead, 3))
    y = layer(x)
    assert y.shape == (*lead, 2)
    for place in np.ndindex(lead):
        for row in range(2):
            expected = layer.bias.data[row] if bias else 0.0
            for column in range(3):
                expected += layer.weight.data[row, column] * x[(*place, column)]
            assert y.data[(*place, row)] == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("x", [[[1, 2, 3]], [[1.0, 2.0, 3.0]], np.array([[1, 2, 3]]), ta.Tensor([[1, 2, 3]])])
def test_linear_takes_lists_and_integers(x: Any) -> None:
    layer = Linear(3, 2, dtype=np.float64, rng=RNG(0))
    y = layer(x)
    np.testing.assert_allclose(y.data, layer.weight.data @ [1, 2, 3] + layer.bias.data[None], rtol=1e-14)
    y.sum().backward()
    np.testing.assert_array_equal(layer.weight.grad, [[1, 2, 3], [1, 2, 3]])


def test_integers_do_not_change_the_precision() -> None:
    assert Linear(3, 2)(np.array([[1, 2, 3]])).dtype == np.float32


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.ones((2, 4)), "Linear: input has 4 features, expected 3"),
        (np.float64(1), "Linear: input has no axes, expected 3"),
        (ta.Tensor(np.ones(2)), "Linear: input has 2 features, expected 3"),
    ],
)
def test_linear_names_a_wrong_width(x: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Linear(3, 2)(x)


def test_a_part_is_named_in_errors() -> None:
    class Outer(ta.nn.Module):
        def __init__(self) -> None:
            self.head = Linear(3, 2)

    with pytest.raises(ValueError, match="Linear 'head': input has 4 features, expected 3"):
        Outer().head(np.ones((1, 4)))


def test_data_that_is_no_numbers_is_an_error() -> None:
    with pytest.raises(TypeError, match="expected numbers, got data of dtype <U1"):
        Linear(1, 2)(["a"])


# Embedding


def test_embedding_looks_up_rows_and_sums_their_gradients() -> None:
    """An id that occurs twice gets both gradients."""
    table = Embedding(4, 2, dtype=np.float64, rng=RNG(0))
    ids = np.array([[1, 1, 3], [1, 0, 3]])
    rows = table(ids)
    np.testing.assert_array_equal(rows.data, table.weight.data[ids])
    (rows * np.arange(1.0, 13).reshape(2, 3, 2)).sum().backward()
    np.testing.assert_array_equal(table.weight.grad, [[9, 10], [11, 14], [0, 0], [16, 18]])


@pytest.mark.parametrize("ids", [2, [2], [[2, 1], [1, 2]], ta.Tensor([2, 1]), np.array([2], np.uint8)])
def test_embedding_takes_ids_of_any_shape(ids: Any) -> None:
    table = Embedding(3, 2, rng=RNG(0))
    array = np.asarray(ids.data if isinstance(ids, ta.Tensor) else ids)
    np.testing.assert_array_equal(table(ids).data, table.weight.data[array])


@pytest.mark.parametrize(("ids", "wrong"), [([[0, 3]], 3), ([-1], -1), (-2, -2), ([5, -1], 5)])
def test_ids_outside_the_table_are_errors(ids: Any, wrong: int) -> None:
    with pytest.raises(IndexError, match=f"Embedding: id {wrong} is outside the table of 3 rows"):
        Embedding(3, 2)(ids)


@pytest.mark.parametrize("ids", [[0.0, 1.0], [True, False], ["a"]])
def test_ids_that_are_no_integers_are_errors(ids: Any) -> None:
    with pytest.raises(TypeError, match=r"Embedding: ids have dtype .*, expected integers"):
        Embedding(3, 2)(ids)


@pytest.mark.parametrize("explicit", [False, True])
def test_the_padding_row_never_trains(explicit: bool) -> None:
    table = Embedding(4, 2, padding_index=1, dtype=np.float64, rng=RNG(0))
    assert not table.weight.data[1].any() and table.weight.data[[0, 2, 3]].all()
    with ta.explicit() if explicit else ta.scope("plain"):
        (table([[1, 2, 1, 2]]) * np.arange(1.0, 9).reshape(1, 4, 2)).sum().backward()
    np.testing.assert_array_equal(table.weight.grad, [[0, 0], [0, 0], [10, 12], [0, 0]])


@pytest.mark.parametrize("optimiser", [ta.optim.SGD, ta.optim.Adam, ta.optim.AdamW, ta.optim.Adadelta])
def test_the_padding_row_never_trains_with_any_optimiser(optimiser: Any) -> None:
    table = Embedding(4, 2, padding_index=0, rng=RNG(0))
    rule = optimiser(table.parameters(), **({"momentum": 0.9} if optimiser is ta.optim.SGD else {}))
    for _ in range(5):
        rule.zero_grad()
        (table([0, 0, 3]) ** 2 + table([0, 0, 3])).sum().backward()
        rule.step()
    assert not table.weight.data[0].any()
    assert not np.array_equal(
        table.weight.data[3], Embedding(4, 2, padding_index=0, rng=RNG(0)).weight.data[3]
    )


@pytest.mark.parametrize("padding", [-1, 4])
def test_a_padding_index_outside_the_table_is_an_error(padding: int) -> None:
    with pytest.raises(ValueError, match=f"padding_index {padding} is outside a table of 4 rows"):
        Embedding(4, 2, padding)


@pytest.mark.parametrize("padding", [1.0, True, "1"])
def test_a_padding_index_that_is_no_integer_is_an_error(padding: Any) -> None:
    with pytest.raises(TypeError, match=f"padding_index is {padding!r}, expected an integer or None"):
        Embedding(4, 2, padding_index=padding)


# Dropout


@pytest.mark.parametrize("p", ["0.5", None])
def test_a_probability_that_is_no_number_is_an_error(p: Any) -> None:
    with pytest.raises(TypeError, match=f"Dropout: probability is {p!r}, expected a number"):
        Dropout(p)


def test_dropout_does_nothing_in_evaluation_or_without_probability() -> None:
    x = ta.Tensor(np.ones((3, 4)))
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x


def test_dropout_zeroes_and_scales() -> None:
    dropout = Dropout(0.25, rng=RNG(0))
    x = ta.Tensor(np.ones((200, 100), np.float32), requires_grad=True)
    y = dropout(x)
    assert y.dtype == np.float32
    kept = y.data != 0
    assert abs(kept.mean() - 0.75) < 0.01
    np.testing.assert_allclose(y.data[kept], 1 / 0.75, rtol=1e-6)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad, y.data)


def test_dropout_follows_its_generator() -> None:
    x = np.ones((5, 5))
    np.testing.assert_array_equal(Dropout(0.5, rng=RNG(3))(x), Dropout(0.5, rng=RNG(3))(x))
    assert not np.array_equal(Dropout(0.5, rng=RNG(3))(x), Dropout(0.5, rng=RNG(4))(x))


def test_dropout_of_integers_scales_as_that_of_floats() -> None:
    y = np.asarray(Dropout(0.3, rng=RNG(0))([[1, 1, 1, 1]]))
    assert set(np.round(y.ravel(), 6)) == {0.0, round(1 / 0.7, 6)}


def test_dropout_passes_complex_numbers() -> None:
    y = Dropout(0.5, rng=RNG(0))(ta.Tensor(np.full(20, 1 + 1e-30j)))
    np.testing.assert_array_equal(y.data.imag * 1e30, y.data.real)


@pytest.mark.parametrize("p", [-0.1, 1.0, 2, math.nan])
def test_a_probability_outside_its_range_is_an_error(p: float) -> None:
    with pytest.raises(ValueError, match="outside 0 <= p < 1"):
        Dropout(p)


# What modules are made with


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Linear(0, 2), ValueError, "Linear: in_features is 0, expected at least 1"),
        (lambda: Linear(2, 2.5), TypeError, "Linear: out_features is 2.5, expected an integer"),
        (lambda: Embedding(True, 2), TypeError, "Embedding: count is True, expected an integer"),
        (lambda: ta.nn.GRUCell(3, -1), ValueError, "GRUCell: hidden_size is -1, expected at least 1"),
        (
            lambda: ta.nn.BidirectionalEncoder(3, 4, cell="gruu"),
            ValueError,
            "'gruu' is not one of gru, lstm, rnn",
        ),
        (lambda: ta.nn.AdditiveAttention(3, 4, 0), ValueError, "AdditiveAttention: attention_size is 0"),
        (
            lambda: ta.nn.GeneralAttention(3, "4"),
            TypeError,
            "GeneralAttention: key_size is '4', expected an integer",
        ),
        (lambda: ta.nn.ConcatAttention(0, 4, 5), ValueError, "ConcatAttention: query_size is 0"),
        (lambda: Linear(3, 2, rng=0), TypeError, "rng: expected a numpy.random.Generator"),
        (lambda: Linear(3, 2, rng=np.random), TypeError, "rng: expected a numpy.random.Generator"),
        (lambda: Linear(3, 2, dtype=int), TypeError, "dtype: int64 is not a floating dtype"),
    ],
)
def test_what_modules_are_made_with_is_checked(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


MAKERS: dict[str, Any] = {
    "linear": lambda **kw: Linear(40, 30, **kw),
    "rnn": lambda **kw: ta.nn.RNNCell(30, 40, **kw),
    "gru": lambda **kw: ta.nn.GRUCell(30, 40, **kw),
    "lstm": lambda **kw: ta.nn.LSTMCell(30, 40, **kw),
}


@pytest.mark.parametrize("name", MAKERS)
def test_initial_values_are_pytorchs_uniform(name: str) -> None:
    """U(±1/√fan_in), with the hidden size as the fan-in of every parameter of a cell."""
    bound = 1 / math.sqrt(40)
    values = np.concatenate([p.data.ravel() for p in MAKERS[name](dtype=np.float64, rng=RNG(0)).parameters()])
    assert np.abs(values).max() <= bound
    assert np.abs(values).max() > 0.98 * bound
    ranks = np.sort(values)
    uniform = np.linspace(-bound, bound, len(values))
    assert np.abs(ranks - uniform).max() < 0.06 * bound  # Kolmogorov-Smirnov, generous
    for parameter in MAKERS[name](dtype=np.float64, rng=RNG(0)).parameters():
        assert np.abs(parameter.data).max() > 0.85 * bound and parameter.data.std() > 0.4 * bound


def test_initial_embeddings_are_normal() -> None:
    values = Embedding(200, 50, dtype=np.float64, rng=RNG(0)).weight.data
    assert abs(values.mean()) < 0.03 and abs(values.std() - 1) < 0.03 and np.abs(values).max() > 3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_follow_the_generator_and_the_dtype_rounds_them(dtype: Any) -> None:
    def make(seed: int, dtype: Any) -> ta.nn.Seq2Seq:
        return ta.nn.Seq2Seq(7, 8, 4, 4, dtype=dtype, rng=RNG(seed))

    one, two, other = make(0, dtype), make(0, dtype), make(1, dtype)
    exact = make(0, np.float64)
    for a, b, c, d in zip(*(model.parameters() for model in (one, two, other, exact)), strict=True):
        assert a.dtype == dtype
        np.testing.assert_array_equal(a.data, b.data)
        np.testing.assert_array_equal(a.data, d.data.astype(dtype))
        assert not np.array_equal(a.data, c.data)


def test_without_dtype_parameters_are_float32() -> None:
    assert {p.dtype for p in ta.nn.Seq2Seq(7, 8, 4, 4).parameters()} == {np.dtype(np.float32)}


# The paper's initial values


def test_initial_values_of_the_paper() -> None:
    model = ta.nn.Seq2Seq(
        60, 60, 40, 50, cell="gru", output="maxout", reset_after=False, dtype=np.float64, rng=RNG(0)
    )
    ta.nn.initialise_as_paper(model, RNG(1))
    for name, parameter in model.named_parameters():
        last, values = name.rpartition(".")[2], parameter.data
        if last == "weight_hh":
            for gate in np.split(values, 3):
                np.testing.assert_allclose(gate @ gate.T, np.eye(50), atol=1e-12)
            assert not np.allclose(values[:50], values[50:100])
        elif last in ("bias", "bias_ih", "bias_hh", "v_a"):
            assert not values.any()
        else:
            expected = 0.001 if last in ("W_a", "U_a") else 0.01
            assert values.std() == pytest.approx(expected, rel=0.06), name
            assert abs(values.mean()) < expected / 10
    for table in (model.source_embedding, model.target_embedding):
        assert not table.weight.data[ta.PAD].any() and table.weight.data[1:].all()


def test_orthogonal_matrices_are_uniform_over_all() -> None:
    """The diagonal of Q alone, without the signs of R, would always be of one sign."""
    from tinygrad_attn.nn.paper import orthogonal

    rng = RNG(0)
    entries = np.array([orthogonal(2, rng)[0, 0] for _ in range(500)])
    assert abs(entries.mean()) < 0.1 and (entries < 0).mean() == pytest.approx(0.5, abs=0.1)


def test_the_papers_values_need_a_generator() -> None:
    with pytest.raises(TypeError, match="rng"):
        ta.nn.initialise_as_paper(Linear(2, 2), 0)
