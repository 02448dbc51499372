"""A copy of a model computes what the model does, or there is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tests.nn.support import MODELS, make_batch
from tinygrad_attn.engine import Tensor
from tinygrad_attn.engine.tensor import leaf
from tinygrad_attn.nn import Dropout, Embedding, Linear, Module, SelfAttention, Seq2Seq
from tinygrad_attn.nn.copies import build, describe

BATCH = make_batch([3, 2], [2, 1])


def make(**options: Any) -> Seq2Seq:
    return Seq2Seq(9, 8, 3, 4, rng=np.random.default_rng(0), **options)


def described(model: Module) -> dict[str, Any] | None:
    return describe(model, list(model.parameters()))


def copied(model: Module, seed: int | None = None) -> Any:
    """By way of JSON, with parameters of its own."""
    description = json.loads(json.dumps(described(model)))
    parameters = [Tensor(parameter.data, requires_grad=True) for parameter in model.parameters()]
    return build(description, parameters, seed)


@pytest.mark.parametrize("variant", MODELS)
def test_a_copy_computes_the_same(variant: str) -> None:
    model = make(**MODELS[variant])
    copy = copied(model)
    losses = [each.loss(BATCH) for each in (model, copy)]
    assert losses[0].item() == losses[1].item()
    for loss in losses:
        loss.backward()
    expected = {name: parameter.grad for name, parameter in model.named_parameters()}
    found = {name: parameter.grad for name, parameter in copy.named_parameters()}
    assert found.keys() == expected.keys() and repr(copy) == repr(model)
    assert all(np.array_equal(found[name], gradient) for name, gradient in expected.items())


@pytest.mark.parametrize(
    "module",
    [
        Linear(2, 3),
        Linear(2, 3, bias=False),
        Embedding(4, 2),
        Embedding(4, 2, 0),
        SelfAttention(4, 2),
        Module(),
    ],
    ids=repr,
)
def test_other_modules(module: Module) -> None:
    copy = copied(module)
    assert repr(copy) == repr(module) and copy.training == module.training


def test_the_tensors_given_are_the_parameters() -> None:
    model = make()
    description = described(model)
    assert description is not None
    tensors = [leaf(parameter.data) for parameter in model.parameters()]
    copy = build(description, tensors)
    assert copy.source_embedding.weight is tensors[0]
    assert all(tensor.name is None and not tensor.requires_grad for tensor in tensors)
    assert copy.loss(BATCH).requires_grad is False


def test_frozen_parameters_are_parameters_of_the_copy() -> None:
    """By which searches know a decoder that they can take quick steps with."""
    model = make()
    tensors = [leaf(parameter.data) for parameter in model.parameters()]
    copy = build(described(model) or {}, tensors)
    assert [name for name, _ in copy.named_parameters()] == [name for name, _ in model.named_parameters()]


def test_a_weight_in_two_places_is_one_in_the_copy() -> None:
    model = Seq2Seq(9, 9, 3, 4)
    model.target_embedding.weight = model.source_embedding.weight
    copy = copied(model)
    assert copy.target_embedding.weight is copy.source_embedding.weight
    assert len(list(copy.parameters())) == len(list(model.parameters()))


def test_plain_attributes_are_taken_along() -> None:
    model = make(dropout=0.25)
    model.eval()
    model.source_embedding.padding_index = None
    model.decoder.embedding_size = np.int64(3)
    copy = copied(model)
    assert not any(part.training for part in copy.modules())
    assert copy.source_embedding.padding_index is None and copy.target_embedding.padding_index == 0
    assert copy.decoder.embedding_size == 3 and copy.dropout.p == 0.25


def test_a_frozen_parameter_is_one() -> None:
    model = make()
    model.encoder.forward_cell.weight_ih.requires_grad = False
    assert copied(model).loss(BATCH).item() == model.loss(BATCH).item()


def test_dropout_draws_from_the_seed() -> None:
    model = make(dropout=0.5)
    losses = [copied(model, seed).loss(BATCH).item() for seed in (1, 1, 2)]
    assert losses[0] == losses[1] != losses[2]
    state = model.dropout.rng.bit_generator.state
    copied(model, 1).loss(BATCH)
    assert model.dropout.rng.bit_generator.state == state


class Subclass(Seq2Seq):
    pass


class Louder(Linear):
    def forward(self, x: Any) -> Tensor:
        return 2 * super().forward(x)


class Named(Module):
    pass


Named.__name__ = "Linear"  # as one of this package's, and not it


def with_attribute(value: Any) -> Callable[[], Module]:
    def changed() -> Module:
        model = make()
        model.decoder.extra = value
        return model

    return changed


def with_a_ring() -> Module:
    model = make()
    model.decoder.cell.owner = model
    return model


UNKNOWN: dict[str, Callable[[], Module]] = {
    "a subclass": lambda: Subclass(9, 8, 3, 4),
    "a part of a subclass": with_attribute(Louder(2, 3)),
    "a class of the same name": with_attribute(Named()),
    "a function": with_attribute(lambda x: x),
    "a list of parts": with_attribute([Dropout(0.1)]),
    "a dict": with_attribute({}),
    "an array": with_attribute(np.zeros(3)),
    "a number of numpy's": with_attribute(np.float32(0.1)),
    "a tensor that is no parameter": with_attribute(Tensor([1.0])),
    "a computed tensor": with_attribute(2 * Tensor([1.0], requires_grad=True)),
    "a part that refers to the whole": with_a_ring,
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_cannot_be_described(name: str) -> None:
    assert described(UNKNOWN[name]()) is None


def test_an_extra_part_of_this_package() -> None:
    model = with_attribute(ta.nn.Linear(2, 3))()
    assert [name for name, _ in copied(model).named_parameters()] == [
        name for name, _ in model.named_parameters()
    ]
