"""What modules hold besides parameters, so that a check can put it back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np

from tinygrad_attn.engine import Tensor


class _Held(NamedTuple):
    """The attributes of an object, with copies of those that can be written to in place."""

    owner: Any
    attributes: dict[str, Any]
    contents: list[tuple[Any, Any]]


class ModuleState:
    """The attributes of modules and their parts: flags, counters, running means, generators.

    Args:
        modules: objects with named parameters.
    """

    def __init__(self, modules: Iterable[Any]) -> None:
        self._held = [_held(part) for module in modules for part in _parts(module)]
        self._generators = [
            (generator, deepcopy(generator.bit_generator.state))
            for held in self._held
            for generator in held.attributes.values()
            if isinstance(generator, np.random.Generator)
        ]

    def put_back(self) -> None:
        """Every attribute as it was, but for what generators have drawn."""
        for owner, attributes, contents in self._held:
            for value, content in contents:
                _refill(value, content)
            found = vars(owner)
            if found.keys() != attributes.keys() or any(found[k] is not v for k, v in attributes.items()):
                found.clear()
                found.update(attributes)

    def rewind(self) -> None:
        """Generators, too."""
        for generator, state in self._generators:
            generator.bit_generator.state = state


def _held(owner: Any) -> _Held:
    contents: list[tuple[Any, Any]] = []
    seen: set[int] = set()
    attributes = dict(vars(owner))
    for value in attributes.values():
        _collect(value, contents, seen)
    return _Held(owner, attributes, contents)


def _collect(value: Any, contents: list[tuple[Any, Any]], seen: set[int]) -> None:
    """Adds copies of what can be written to in place, in containers too; modules are owners themselves."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Tensor):
        contents.append((value, value.data))
        value = value.data
    if isinstance(value, np.ndarray):
        if value.flags.writeable:
            contents.append((value, value.copy()))
    elif isinstance(value, (list, dict, set, deque, bytearray)):
        contents.append((value, value.copy()))
    if isinstance(value, (list, tuple, deque, dict)):
        for entry in value.values() if isinstance(value, dict) else value:
            _collect(entry, contents, seen)


def _refill(value: Any, content: Any) -> None:
    if isinstance(value, Tensor):
        value.data = content
    elif isinstance(value, np.ndarray):
        np.copyto(value, content)
    elif isinstance(value, (list, bytearray)):
        value[:] = content
    elif isinstance(value, deque):
        value.clear()
        value.extend(content)
    else:
        value.clear()
        value.update(content)


def _parts(module: Any) -> Iterator[Any]:
    parts = module.modules() if callable(getattr(module, "modules", None)) else (module,)
    return (part for part in parts if hasattr(part, "__dict__"))
