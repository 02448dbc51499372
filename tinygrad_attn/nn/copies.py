"""Copies of a model, for other processes or other parameters: described in plain values, and built again."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinygrad_attn.engine import Tensor
from tinygrad_attn.nn.module import Module


class _UnknownError(Exception):
    """Something in a model that a description cannot say."""


def describe(model: Module, parameters: Sequence[Tensor]) -> dict[str, Any] | None:
    """All of a model but its `parameters()`, in values that JSON has, from which `build` makes another.

    None if it has parts of other classes than this package's, or attributes besides parameters, parts and
    plain values: the copy might compute something else then.
    """
    places = {id(parameter): place for place, parameter in enumerate(parameters)}
    try:
        return _described(model, places, ())
    except _UnknownError:
        return None


def _described(module: Module, places: dict[int, int], around: tuple[Module, ...]) -> dict[str, Any]:
    kind = type(module)
    if _kind(kind.__name__) is not kind or module in around:
        raise _UnknownError
    attributes: dict[str, Any] = {}
    for name, value in vars(module).items():
        if isinstance(value, Tensor):
            if id(value) not in places:
                raise _UnknownError
            attributes[name] = ["parameter", places[id(value)]]
        elif isinstance(value, Module):
            attributes[name] = ["part", _described(value, places, (*around, module))]
        elif isinstance(value, np.random.Generator):
            attributes[name] = ["generator", None]
        elif value is None or type(value) in (bool, int, float, str):
            attributes[name] = ["plain", value]
        elif isinstance(value, (np.bool_, np.integer)):
            attributes[name] = ["plain", value.item()]
        elif name != "_known":
            raise _UnknownError
    return {"class": kind.__name__, "attributes": attributes}


def _kind(name: str) -> Any:
    """The class of this package's modules that is called so."""
    return getattr(sys.modules[__package__], name, None)


def build(description: dict[str, Any], parameters: Sequence[Tensor], seed: int | None = None) -> Any:
    """The module, with these tensors in the places of its parameters.

    Dropout draws from a generator of this seed; None will do where it does not act.
    """
    rng = None if seed is None else np.random.default_rng(seed)

    def built(description: dict[str, Any]) -> Any:
        kind = _kind(description["class"])
        module = kind.__new__(kind)
        module._known = known = set()  # frozen ones are parameters, too
        for name, (what, value) in description["attributes"].items():
            if what == "parameter":
                value = parameters[value]
                known.add(name)
            elif what == "part":
                value = built(value)
            elif what == "generator":
                value = rng
            object.__setattr__(module, name, value)  # without the names that a Module gives to what it holds
        return module

    return built(description)
