"""`Module`: parameters with names, found by looking at the attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tinygrad_attn.engine import Tensor, scope


class Module:
    """A function with parameters.

    A leaf Tensor held as an attribute is a parameter; a Module held as an attribute, or in a list, tuple or dict held
    as one, is a part. Names follow the attributes: `encoder.forward_cell.weight_ih`. Calling a module runs `forward`
    within a scope of the name it has in the module around it.
    """

    training: bool = True
    _label: str | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            for label, part in _modules_in(name, value):
                if part._label is None:
                    object.__setattr__(part, "_label", label.replace(".", " "))
            if isinstance(value, Tensor) and value.is_leaf and value.name is None:
                value.name = name
        object.__setattr__(self, name, value)

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        if self._label is None:
            return self.forward(*arguments, **settings)
        with scope(self._label):
            return self.forward(*arguments, **settings)

    def forward(self, *arguments: Any, **settings: Any) -> Any:
        """What the module computes; each module has its own."""
        raise TypeError(f"{type(self).__name__} has no forward method, so it cannot be called")

    def __repr__(self) -> str:
        count = sum(parameter.size for parameter in self.parameters())
        return f"{type(self).__name__}({count:,} parameters)"

    def children(self) -> Iterator[tuple[str, Module]]:
        """The parts directly held, with their names."""
        for name, value in vars(self).items():
            if not name.startswith("_"):
                yield from _modules_in(name, value)

    def modules(self) -> Iterator[Module]:
        """This module and all its parts, each once."""
        seen = set()
        stack: list[Module] = [self]
        while stack:
            module = stack.pop()
            if id(module) not in seen:
                seen.add(id(module))
                yield module
                stack.extend(reversed([part for _, part in module.children()]))

    def _all_parameters(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        for name, value in vars(self).items():
            if isinstance(value, Tensor) and value.is_leaf and not name.startswith("_"):
                yield prefix + name, value
        for name, part in self.children():
            yield from part._all_parameters(f"{prefix}{name}.")

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """(name, parameter) for each parameter; one that is held in several places comes once, by its first name."""
        seen = set()
        for name, parameter in self._all_parameters():
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield name, parameter

    def parameters(self) -> Iterator[Tensor]:
        """The parameters, each once."""
        return (parameter for _, parameter in self.named_parameters())

    def state_dict(self) -> dict[str, np.ndarray]:
        """A copy of every parameter's array, by name."""
        return {name: parameter.data.copy() for name, parameter in self._all_parameters()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Writes arrays into the parameters: all of them or, if anything does not fit, none.

        Raises:
            KeyError: if names are missing or unknown.
            ValueError: if a shape or kind of number differs.
        """
        parameters = dict(self._all_parameters())
        missing, unknown = sorted(parameters.keys() - state.keys()), sorted(state.keys() - parameters.keys())
        if missing or unknown:
            raise KeyError(f"{type(self).__name__}: the state lacks {missing} and has unknown {unknown}")
        arrays = {name: np.asarray(getattr(value, "data", value)) for name, value in state.items()}
        for name, parameter in parameters.items():
            array = arrays[name]
            if array.shape != parameter.shape:
                raise ValueError(f"{type(self).__name__}: {name} has shape {array.shape}, expected {parameter.shape}")
            if not np.can_cast(array.dtype, parameter.dtype, "same_kind"):
                raise ValueError(f"{type(self).__name__}: {name} has dtype {array.dtype}, expected {parameter.dtype}")
        for name, parameter in parameters.items():
            np.copyto(parameter.data, arrays[name], casting="same_kind")
            parameter.note_written()

    def train(self, mode: bool = True) -> Module:
        """Sets this module and its parts to training (dropout acts) or, with False, to evaluation."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Module:
        """Sets this module and its parts to evaluation."""
        return self.train(False)

    def zero_grad(self) -> None:
        """Forgets the parameters' gradients."""
        for parameter in self.parameters():
            parameter.grad = None


def _modules_in(name: str, value: Any) -> Iterator[tuple[str, Module]]:
    if isinstance(value, Module):
        yield name, value
    elif isinstance(value, (list, tuple)):
        for position, entry in enumerate(value):
            yield from _modules_in(f"{name}.{position}", entry)
    elif isinstance(value, dict):
        for key, entry in value.items():
            yield from _modules_in(f"{name}.{key}", entry)


def expose(tensor: Tensor, name: str) -> Tensor:
    """Gives a computed tensor its name in the papers, and lets it keep its gradient for whoever wants to read it."""
    tensor.name = name
    if tensor.requires_grad:
        tensor.retain_grad()
    return tensor
