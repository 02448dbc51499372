"""Copies of a model for other processes: described in JSON, built again, and lent other parameters."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tinygrad_attn.engine import Tensor
from tinygrad_attn.engine.tensor import leaf
from tinygrad_attn.nn.layers import Dropout
from tinygrad_attn.nn.module import Module


class _UnknownError(Exception):
    """Something in a model that a description cannot say."""


def describe(model: Module) -> str | None:
    """All of a model but the numbers in its parameters, from which `build` makes another.

    None if it has parts of other classes than this package's, or attributes besides parameters, parts and
    plain values: what a helper computed might be something else then.
    """
    places = {id(parameter): place for place, parameter in enumerate(model.parameters())}
    try:
        return json.dumps(_described(model, places))
    except _UnknownError:
        return None


def _described(module: Module, places: dict[int, int]) -> dict[str, Any]:
    kind = type(module)
    if _kind(kind.__name__) is not kind:
        raise _UnknownError
    attributes: dict[str, Any] = {}
    for name, value in vars(module).items():
        if isinstance(value, Tensor):
            if id(value) not in places:
                raise _UnknownError
            attributes[name] = ["parameter", places[id(value)], value.requires_grad]
        elif isinstance(value, Module):
            attributes[name] = ["part", _described(value, places)]
        elif isinstance(value, np.random.Generator):
            attributes[name] = ["generator"]
        elif value is None or type(value) in (bool, int, float, str):
            attributes[name] = ["plain", value]
        elif name != "_known":
            raise _UnknownError
    return {"class": kind.__name__, "attributes": attributes}


def _kind(name: str) -> Any:
    """The class of this package's modules that is called so."""
    return getattr(sys.modules[__package__], name, None)


def build(description: dict[str, Any], parameters: dict[int, Tensor]) -> Any:
    """The module; what parameters it has is noted in `parameters`, by place."""
    module = _kind(description["class"])
    module = module.__new__(module)
    for name, (what, *value) in description["attributes"].items():
        if what == "parameter":
            place, trained = value
            tensor = parameters.setdefault(place, leaf(np.zeros(0, np.float32)))
            tensor.requires_grad = True
            setattr(module, name, tensor)
            tensor.requires_grad = trained
        elif what == "part":
            setattr(module, name, build(value[0], parameters))
        else:
            setattr(module, name, np.random.default_rng(0) if what == "generator" else value[0])
    return module


@contextlib.contextmanager
def standing_in(model: Module, tensors: Sequence[Tensor]) -> Iterator[None]:
    """The tensors in place of the model's parameters."""
    others = {id(old): new for old, new in zip(model.parameters(), tensors, strict=True)}
    found = [
        (module, name, value)
        for module in model.modules()
        for name, value in vars(module).items()
        if id(value) in others
    ]
    try:
        for module, name, value in found:
            object.__setattr__(module, name, others[id(value)])
        yield
    finally:
        for module, name, value in found:
            object.__setattr__(module, name, value)


@contextlib.contextmanager
def drawing(model: Module, seed: int | None) -> Iterator[None]:
    """Dropout draws from a generator of this seed."""
    if seed is None:
        yield
        return
    generator = np.random.default_rng(seed)
    found = [(part, part.rng) for part in model.modules() if isinstance(part, Dropout)]
    try:
        for part, _ in found:
            part.rng = generator
        yield
    finally:
        for part, rng in found:
            part.rng = rng
