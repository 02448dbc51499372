"""The module system: names, sharing, state, modes and scopes."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn.nn import Dropout, Embedding, Linear, Module, module


def linear(seed: int = 0, dtype: Any = np.float64) -> Linear:
    return Linear(3, 2, dtype=dtype, rng=np.random.default_rng(seed))


def names(module: Module) -> list[str]:
    return [name for name, _ in module.named_parameters()]


class Pair(Module):
    """Two layers and a parameter of its own."""

    def __init__(self) -> None:
        self.scale = ta.Tensor([2.0], requires_grad=True)
        self.first = linear(0)
        self.second = linear(1)

    def forward(self, x: Any) -> Any:
        return self.scale * (self.first(x) + self.second(x))


class Many(Module):
    """Parts in a list, a tuple and a dict, one inside the other."""

    def __init__(self) -> None:
        self.layers = [linear(0), linear(1)]
        self.heads = {"left": linear(2), "right": (linear(3), [linear(4)])}
        self.weights = [ta.Tensor([1.0], requires_grad=True)]

    def forward(self, x: Any) -> Any:
        return self.layers[0](x)


def test_names_follow_the_attributes_own_parameters_first() -> None:
    assert names(Pair()) == ["scale", "first.weight", "first.bias", "second.weight", "second.bias"]


def test_parts_and_parameters_in_lists_and_dicts_have_names() -> None:
    found = names(Many())
    assert found[0] == "weights.0"
    assert found[1:5] == ["layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias"]
    assert found[5:] == [
        f"heads.{part}.{name}" for part in ("left", "right.0", "right.1.0") for name in ("weight", "bias")
    ]


def test_parts_that_join_a_list_later_count_and_have_a_scope() -> None:
    class Grown(Module):
        def __init__(self) -> None:
            self.layers: list[Linear] = []
            for _ in range(2):
                self.layers.append(Linear(2, 2, dtype=np.float64))

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x)
            return x

    class Outer(Module):
        def __init__(self) -> None:
            self.body = Grown()

        def forward(self, x: Any) -> Any:
            return self.body(x)

    model = Outer()
    assert names(model)[:2] == ["body.layers.0.weight", "body.layers.0.bias"]
    output = model(np.ones((1, 2)))
    assert output._scope.path() == "body/layers 1"
    assert output._inputs[0]._scope.path() == "body/layers 0"


def test_private_attributes_count_as_in_pytorch() -> None:
    module = Module()
    module._inner = linear()
    assert names(module) == ["_inner.weight", "_inner.bias"]


def test_a_shared_parameter_is_one_parameter_and_has_both_names_in_the_state() -> None:
    model = Pair()
    model.second.weight = model.first.weight
    assert names(model) == ["scale", "first.weight", "first.bias", "second.bias"]
    assert len(list(model.parameters())) == 4
    assert set(model.state_dict()) == {"scale", "first.weight", "first.bias", "second.weight", "second.bias"}
    model.load_state_dict(model.state_dict())
    assert model.second.weight is model.first.weight


def test_a_shared_module_comes_once() -> None:
    model = Pair()
    model.second = model.first
    assert names(model) == ["scale", "first.weight", "first.bias"]
    assert len(list(model.modules())) == 2
    copied = copy.deepcopy(model)
    assert copied.first is copied.second


def test_a_part_may_refer_to_the_module_around_it() -> None:
    model = Pair()
    model.first.owner = model
    assert names(model) == ["scale", "first.weight", "first.bias", "second.weight", "second.bias"]
    assert len(list(model.modules())) == 3
    assert "first: Linear" in repr(model)
    assert model.train(False) is model


def test_computed_values_that_are_kept_are_no_parameters() -> None:
    """A cached output is a leaf when nothing was recorded; the state must not depend on that."""
    model = Pair()
    expected = list(model.state_dict())
    with ta.no_grad():
        model.last = model(np.ones((1, 3)))
        model.outputs = [model.last]
    assert list(model.state_dict()) == expected
    model.last = model(np.ones((1, 3)))
    assert list(model.state_dict()) == expected


def test_many_plain_values_are_not_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that holds its vocabulary, or the history of its loss, is as quick as one that does not."""
    model = Pair()
    model.words, model.history = {str(n): n for n in range(1000)}, [0.5] * 1000
    model.nested = [[1] * 1000, (2.0, ta.Tensor([1.0], requires_grad=True))]
    looked, held = [], module._held

    def counted(name: str, value: Any) -> Any:
        looked.append(name)
        return held(name, value)

    monkeypatch.setattr(module, "_held", counted)
    model(np.ones((1, 3)))
    assert "nested.1.1" in dict(model.named_parameters())
    assert len(looked) < 50


def test_a_frozen_parameter_stays_one() -> None:
    model = Many()
    expected = names(model)
    for parameter in model.parameters():
        parameter.requires_grad = False
    assert names(model) == expected
    output = model(np.ones((1, 3)))
    assert not output.requires_grad
    assert names(copy.deepcopy(model)) == expected


def test_state_dict_copies() -> None:
    model = Pair()
    state = model.state_dict()
    assert all(type(array) is np.ndarray for array in state.values())
    state["scale"][...] = 7
    assert model.scale.data[0] == 2


def test_two_parameters_of_one_name_are_an_error() -> None:
    """One of them would not be kept."""
    model = Module()
    model.parts = {1: linear(), "1": linear()}
    for call in (model.state_dict, lambda: model.load_state_dict({})):
        with pytest.raises(ValueError, match=r"Module: two parameters have the name parts\.1\.weight"):
            call()
    model.parts["1"] = model.parts[1]
    assert set(model.state_dict()) == {"parts.1.weight", "parts.1.bias"}


def test_load_state_dict_writes_in_place_in_the_parameters_dtype() -> None:
    model = linear(dtype=np.float32)
    array = model.weight.data
    model.load_state_dict({"weight": np.arange(6.0).reshape(2, 3), "bias": ta.Tensor([1, 2])})
    assert model.weight.data is array and array.dtype == np.float32
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]] and model.bias.data.tolist() == [1, 2]


GOOD = {"weight": np.ones((2, 3)), "bias": np.ones(2)}


@pytest.mark.parametrize(
    ("state", "error", "message"),
    [
        ({"weight": GOOD["weight"]}, KeyError, "Linear: the state lacks bias"),
        (GOOD | {"wieght": 1, 3: 4}, KeyError, "Linear: the state has unknown wieght, 3"),
        ({"weight": GOOD["weight"], "b": 1}, KeyError, "lacks bias and has unknown b"),
        (GOOD | {"bias": np.ones(3)}, ValueError, r"Linear: bias has shape \(3,\), expected \(2,\)"),
        (
            GOOD | {"bias": np.ones(2, complex)},
            ValueError,
            "Linear: bias has dtype complex128, expected float64",
        ),
        (GOOD | {"bias": np.array(["a", "b"])}, ValueError, "Linear: bias has dtype <U1"),
        ([GOOD["weight"], GOOD["bias"]], TypeError, "Linear: the state is a list, expected a mapping"),
    ],
)
def test_load_state_dict_is_all_or_nothing(state: Any, error: type[Exception], message: str) -> None:
    model = linear()
    before = model.state_dict()
    with pytest.raises(error, match=message):
        model.load_state_dict(state)
    for name, array in model.state_dict().items():
        np.testing.assert_array_equal(array, before[name])


def test_the_arrays_of_a_shared_parameter_have_to_be_the_same() -> None:
    """As those of a model without sharing are not: one of them would be lost."""
    model = Module()
    model.a, model.b = linear(), linear()
    apart = model.state_dict()
    apart["b.weight"] = apart["a.weight"] + 1
    model.b = model.a
    before = model.state_dict()
    message = "Module: a.weight and b.weight are one parameter, but their arrays differ"
    with pytest.raises(ValueError, match=message):
        model.load_state_dict(apart)
    np.testing.assert_array_equal(model.a.weight.data, before["a.weight"])
    before["a.weight"][0, 0] = before["b.weight"][0, 0] = np.nan
    model.load_state_dict(before)
    assert np.isnan(model.b.weight.data[0, 0])


def test_load_state_dict_is_all_or_nothing_when_a_value_overflows() -> None:
    model = linear(dtype=np.float32)
    before = model.state_dict()
    with pytest.raises(RuntimeWarning):  # an error in these tests
        model.load_state_dict({"weight": np.ones((2, 3)), "bias": np.full(2, 1e300)})
    np.testing.assert_array_equal(model.weight.data, before["weight"])


def test_a_graph_from_before_a_load_cannot_be_walked() -> None:
    model = linear()
    loss = model(np.ones((1, 3))).sum()
    model.load_state_dict(model.state_dict())
    with pytest.raises(RuntimeError, match="written"):
        loss.backward()


def test_train_and_eval_reach_every_part() -> None:
    class Outer(Module):
        def __init__(self) -> None:
            self.parts = [Dropout(0.5), Dropout(0.5)]

    model = Outer()
    assert model.eval() is model
    assert not any(module.training for module in model.modules())
    assert model.train() is model
    assert all(module.training for module in model.modules())
    assert Module.training


def test_zero_grad_forgets() -> None:
    model = Pair()
    model(np.ones((1, 3))).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    model.zero_grad()
    assert all(parameter.grad is None for parameter in model.parameters())


def test_scopes_of_nested_modules() -> None:
    class Outer(Module):
        def __init__(self) -> None:
            self.pair = Pair()

        def forward(self, x: Any) -> Any:
            with ta.scope("step 1"):
                return self.pair(x)

    output = Outer()(np.ones((1, 3)))
    assert output._scope.path() == "step 1/pair"
    assert output._inputs[1]._inputs[0]._scope.path() == "step 1/pair/first"
    assert Pair()(np.ones((1, 3)))._scope is None


def test_a_module_without_forward_says_so() -> None:
    with pytest.raises(TypeError, match="Module has no forward method"):
        Module()()


def test_repr_shows_the_tree() -> None:
    assert repr(Pair()).splitlines() == [
        "Pair(scale (1,))",
        "  first: Linear(weight (2, 3), bias (2,))",
        "  second: Linear(weight (2, 3), bias (2,))",
    ]


def test_deepcopy_shares_nothing_and_computes_the_same() -> None:
    model = ta.nn.Seq2Seq(7, 7, 4, 4, dropout=0.5, rng=np.random.default_rng(0))
    source, target = np.array([[4, 5, 6]]), np.array([[1, 4]])
    model(source, None, target).logits.sum().backward()
    twin = copy.deepcopy(model)
    for (name, a), (other, b) in zip(model.named_parameters(), twin.named_parameters(), strict=True):
        assert name == other and a is not b and not np.shares_memory(a.data, b.data)
        np.testing.assert_array_equal(a.grad, b.grad)
        assert not np.shares_memory(a.grad, b.grad)
    # The generators of dropout are copied too, still shared among the parts, so both draw the same.
    assert twin.dropout.rng is twin.decoder.dropout.rng is not model.dropout.rng
    np.testing.assert_array_equal(
        model(source, None, target).logits.data, twin(source, None, target).logits.data
    )
    next(twin.parameters()).data[...] = 0
    assert np.any(next(model.parameters()).data)


def test_embedding_names() -> None:
    class Tied(Module):
        def __init__(self) -> None:
            self.embedding = Embedding(5, 3)
            self.output = Linear(3, 5)
            self.output.weight = self.embedding.weight

    assert names(Tied()) == ["embedding.weight", "output.bias"]


def test_frozen_parameters_that_were_moved_or_tied_stay_in_the_state() -> None:
    layer, other = Linear(2, 2), Linear(2, 2)
    weight = layer.weight
    weight.requires_grad = False
    layer.weight = ta.Tensor(np.zeros((2, 2)))
    layer.weight = other.weight = weight
    assert set(layer.state_dict()) == set(other.state_dict()) == {"weight", "bias"}


def test_blocks_of_evaluation_may_overlap() -> None:
    """As when threads search with one model: whichever ends first, the others go on without dropout."""
    pair = Pair()
    pair.second.eval()
    first, second = module.evaluating(pair), module.evaluating(pair)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not any(part.training for part in pair.modules())
    second.__exit__(None, None, None)
    assert [part.training for part in pair.modules()] == [True, True, False]
