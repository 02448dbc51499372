"""`Module`: parameters with names, found by looking at the attributes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np

from tinygrad_attn.engine import Tensor, scope
from tinygrad_attn.engine.modes import thread

_Self = TypeVar("_Self", bound="Module")
_Method = TypeVar("_Method", bound=Callable[..., Any])


def scoped(method: _Method) -> _Method:
    """A method of a module that runs within the module's scope, as a call does; so do those it calls."""

    @wraps(method)
    def run(self: Module, *arguments: Any, **settings: Any) -> Any:
        around = thread.mode.scope
        if self._label is None or (around is not None and around.name == self._label):
            return method(self, *arguments, **settings)
        with scope(self._label):
            return method(self, *arguments, **settings)

    return cast(_Method, run)


class Module:
    """A function with parameters.

    A leaf Tensor that requires a gradient is a parameter if an attribute holds it, and stays one when it is
    frozen (`requires_grad = False`). A Module that an attribute holds is a part. Both may stand in lists,
    tuples and dicts. Names follow the attributes: `encoder.forward_cell.weight_ih`, `layers.0.bias`. Calling
    a module runs `forward` within a scope of the name it has in the module around it.

    Other tensors, such as a computed value that is kept to be looked at, are no parameters.
    """

    training: bool = True
    _label: str | None = None  # the name in the module around
    _grows: bool = False  # whether an attribute is a list or dict, which parts may join later
    _altered: bool = False  # whether a method was replaced, on this module alone

    def __setattr__(self, name: str, value: Any) -> None:
        if callable(value) and callable(getattr(type(self), name, None)):
            object.__setattr__(self, "_altered", True)
        object.__setattr__(self, name, value)
        if isinstance(value, (list, dict)):
            object.__setattr__(self, "_grows", True)
        for label, held in _held(name, value):
            if isinstance(held, Module):
                held._take_label(label)
            elif self._is_parameter(label, held) and held.name is None:
                held.name = label

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        """`forward`, within the scope of this module's name."""
        if self._grows:
            for label, part in self.named_children():
                part._take_label(label)
        if self._label is None:
            return self.forward(*arguments, **settings)
        with scope(self._label):
            return self.forward(*arguments, **settings)

    def forward(self, *arguments: Any, **settings: Any) -> Any:
        """What the module computes; each module has its own."""
        raise TypeError(f"{type(self).__name__} has no forward method, so it cannot be called")

    def __repr__(self) -> str:
        """The tree of parts, one a line, with the shapes of their parameters."""
        return "\n".join(self._tree(()))

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(name, part) for the parts directly held."""
        for label, held in self._holdings():
            if isinstance(held, Module):
                yield label, held

    def modules(self) -> Iterator[Module]:
        """This module and all its parts, each once."""
        seen = set()
        stack: list[Module] = [self]
        while stack:
            module = stack.pop()
            if id(module) not in seen:
                seen.add(id(module))
                yield module
                stack.extend(reversed([part for _, part in module.named_children()]))

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """(name, parameter) for each; a parameter held in several places comes once, by its first name."""
        seen = set()
        for name, parameter in self._all_parameters():
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield name, parameter

    def parameters(self) -> Iterator[Tensor]:
        """The parameters, each once."""
        return (parameter for _, parameter in self.named_parameters())

    def state_dict(self) -> dict[str, np.ndarray]:
        """A copy of every parameter's array, by name; one held in several places comes by each name.

        Raises ValueError if two have one name, as the entries 1 and "1" of a dict do.
        """
        return {name: parameter.data.copy() for name, parameter in self._by_name().items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Writes arrays into the parameters, in their dtype: all of them or, if anything does not fit, none.

        Raises:
            TypeError: if `state` is not a mapping.
            KeyError: if names are missing or unknown.
            ValueError: if a shape or kind of number differs, or the arrays of a parameter that is held in
                several places differ.
        """
        title = type(self).__name__
        if not isinstance(state, Mapping):
            raise TypeError(
                f"{title}: the state is a {type(state).__name__}, expected a mapping of names to arrays"
            )
        parameters = self._by_name()
        _check_names(title, parameters, state)
        arrays: dict[str, np.ndarray] = {}
        first: dict[int, str] = {}
        for name, parameter in parameters.items():
            array = np.asarray(state[name].data if isinstance(state[name], Tensor) else state[name])
            if array.shape != parameter.shape:
                raise ValueError(f"{title}: {name} has shape {array.shape}, expected {parameter.shape}")
            if not np.can_cast(array.dtype, parameter.dtype, "same_kind"):
                raise ValueError(f"{title}: {name} has dtype {array.dtype}, expected {parameter.dtype}")
            arrays[name] = array.astype(parameter.dtype)
            other = first.setdefault(id(parameter), name)
            if other != name and not np.array_equal(arrays[name], arrays[other], equal_nan=True):
                raise ValueError(f"{title}: {other} and {name} are one parameter, but their arrays differ")
        for name, parameter in parameters.items():
            np.copyto(parameter.data, arrays[name])
            parameter.note_written()

    def train(self: _Self, mode: bool = True) -> _Self:
        """Sets this module and its parts to training (dropout acts) or, with False, to evaluation."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self: _Self) -> _Self:
        """Sets this module and its parts to evaluation."""
        return self.train(False)

    def zero_grad(self) -> None:
        """Forgets the parameters' gradients."""
        for parameter in self.parameters():
            parameter.grad = None

    def _take_label(self, label: str) -> None:
        if self._label is None:
            object.__setattr__(self, "_label", label.replace(".", " "))

    def _is_plain(self, *kinds: type[Module]) -> bool:
        """Whether this is a module of one of the kinds itself, as it was written, and computes what they
        do."""
        return type(self) in kinds and not self._altered

    def _has_own(self, kind: type[Module], method: str) -> bool:
        """Whether a method is another than that of `kind`, which this module is one of."""
        return method in vars(self) or getattr(type(self), method) is not getattr(kind, method)

    def _title(self) -> str:
        """How error messages call this module: its class, and its name if it is part of another."""
        return type(self).__name__ if self._label is None else f"{type(self).__name__} '{self._label}'"

    def _is_parameter(self, label: str, tensor: Tensor) -> bool:
        """Whether this is a leaf that requires a gradient, or did when it was last looked at."""
        if not tensor.is_leaf:
            return False
        known = vars(self).setdefault("_known", set())
        if tensor.requires_grad:
            known.add(label)
        return label in known

    def _own_parameters(self) -> Iterator[tuple[str, Tensor]]:
        for label, held in self._holdings():
            if isinstance(held, Tensor) and self._is_parameter(label, held):
                yield label, held

    def _holdings(self) -> Iterator[tuple[str, Module | Tensor]]:
        """What the attributes hold, in order."""
        for name, value in list(vars(self).items()):
            if isinstance(value, (Module, Tensor)):
                yield name, value
            elif isinstance(value, (list, tuple, dict)):
                yield from _held(name, value)

    def _parts(self, around: tuple[Module, ...]) -> Iterator[tuple[str, Module]]:
        """The parts, without those around this module: a part may refer to the module that holds it."""
        for name, part in self.named_children():
            if part is not self and part not in around:
                yield name, part

    def _tree(self, around: tuple[Module, ...]) -> Iterator[str]:
        shapes = ", ".join(f"{name} {tensor.shape}" for name, tensor in self._own_parameters())
        yield f"{type(self).__name__}({shapes})"
        for name, part in self._parts(around):
            first, *others = part._tree((*around, self))
            yield f"  {name}: {first}"
            yield from (f"  {line}" for line in others)

    def _by_name(self) -> dict[str, Tensor]:
        parameters: dict[str, Tensor] = {}
        for name, parameter in self._all_parameters():
            if parameters.setdefault(name, parameter) is not parameter:
                raise ValueError(f"{type(self).__name__}: two parameters have the name {name}")
        return parameters

    def _all_parameters(
        self, prefix: str = "", around: tuple[Module, ...] = ()
    ) -> Iterator[tuple[str, Tensor]]:
        for name, parameter in self._own_parameters():
            yield prefix + name, parameter
        for name, part in self._parts(around):
            yield from part._all_parameters(f"{prefix}{name}.", (*around, self))


_lock = threading.Lock()
_evaluated: dict[int, tuple[int, list[tuple[Module, bool]]]] = {}
"""By the model's id: how many blocks it is evaluated in, and the modes that the first found."""


@contextmanager
def evaluating(model: Module) -> Iterator[None]:
    """A model in evaluation mode within a `with` block, then as it was.

    Blocks may overlap, in one thread or several: the last to end restores what the first found.
    """
    with _lock:
        blocks, found = _evaluated.get(id(model)) or (0, [(part, part.training) for part in model.modules()])
        _evaluated[id(model)] = blocks + 1, found
        for part, _ in found:
            part.training = False
    try:
        yield
    finally:
        with _lock:
            blocks, found = _evaluated.pop(id(model))
            if blocks > 1:
                _evaluated[id(model)] = blocks - 1, found
            else:
                for part, training in found:
                    part.training = training


def _held(name: str, value: Any) -> Iterator[tuple[str, Module | Tensor]]:
    """The modules and tensors that an attribute holds: itself, or the entries of lists, tuples and dicts."""
    if isinstance(value, (Module, Tensor)):
        yield name, value
    elif isinstance(value, (list, tuple)) and _may_hold(value):
        for position, entry in enumerate(value):
            yield from _held(f"{name}.{position}", entry)
    elif isinstance(value, dict) and _may_hold(value.values()):
        for key, entry in value.items():
            yield from _held(f"{name}.{key}", entry)


def _may_hold(entries: Iterable[Any]) -> bool:
    """Whether a module or tensor may be among the entries, or within one; quick for many plain values."""
    return any(issubclass(kind, (Module, Tensor, list, tuple, dict)) for kind in set(map(type, entries)))


def _check_names(title: str, expected: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Raises KeyError, with all of them, if `state` lacks names that are expected or has others."""
    faults = []
    if missing := [name for name in expected if name not in state]:
        faults.append(f"lacks {', '.join(missing)}")
    if unknown := [str(name) for name in state if name not in expected]:
        faults.append(f"has unknown {', '.join(unknown)}")
    if faults:
        raise KeyError(f"{title}: the state {' and '.join(faults)}")
