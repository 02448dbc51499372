"""What a gradient check works on: a function, what it is differentiated by, and a way to run it elsewhere."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tinygrad_attn.check.state import ModuleState
from tinygrad_attn.engine import Primitive, Tensor
from tinygrad_attn.engine.modes import changed_mode
from tinygrad_attn.engine.tensor import leaf, value_of


@dataclasses.dataclass(frozen=True, eq=False)
class Variable:
    """Something to differentiate by.

    Attributes:
        name: of the tensor, of the function's argument, or of the module's parameter.
        array: its value in float64, a copy.
        position: which argument of the function it is; None for a parameter.
        parameter: the module's tensor, which holds other values while the function runs; None for an
        argument.
    """

    name: str
    array: np.ndarray
    position: int | None = None
    parameter: Tensor | None = None


class Problem:
    """A function with the variables found among its inputs, each a copy in float64.

    Args:
        fn: takes `inputs`, gives a Tensor or a collection of them. Parameters of `fn` itself, if it is a
            module or a method of one, are variables too.
        inputs: floating tensors and arrays are variables; so are the parameters of modules. The rest
            (integers, masks, strings) is handed on as it is.

    Raises:
        TypeError: for complex inputs, and if `fn` cannot be called.
        ValueError: if there is nothing to differentiate by.
    """

    def __init__(self, fn: Callable[..., Any], inputs: Any) -> None:
        if not callable(fn):
            raise TypeError(f"gradcheck: fn is a {type(fn).__name__}, expected a function or a module")
        self._fn = fn
        self._arguments = list(inputs) if isinstance(inputs, (tuple, list)) else [inputs]
        self._modules: list[Any] = []
        self.name = fn.name if isinstance(fn, Primitive) else str(getattr(fn, "__name__", type(fn).__name__))
        self.variables: list[Variable] = []
        self.notes: list[str] = []
        self._find_variables()
        if not self.variables:
            raise ValueError(
                "gradcheck: nothing to check: no input is a floating tensor or array, or has parameters"
            )
        self._state = ModuleState(self._modules)
        self._note_precision()
        self._note_shared_memory()

    @property
    def arrays(self) -> list[np.ndarray]:
        """The variables' values, in float64."""
        return [variable.array for variable in self.variables]

    def run(self, arrays: Sequence[np.ndarray]) -> tuple[list[Tensor], list[Tensor]]:
        """The function at other values: the variables as tensors that require a gradient, and the outputs.

        Modules start from the state they were given in. Only inside `borrowed`.
        """
        arguments = list(self._arguments)
        variables = []
        self._state.put_back()
        for variable, array in zip(self.variables, arrays, strict=True):
            if variable.parameter is None:
                tensor = leaf(array.copy())
                assert variable.position is not None
                arguments[variable.position] = tensor
            else:
                tensor = variable.parameter
                tensor.data = array.copy()
            tensor._tracked = True
            variables.append(tensor)
        result = self._fn(*arguments)
        outputs = [output for output in tensors_in(result) if output.dtype.kind in "fc"]
        if not outputs:
            raise TypeError(
                f"gradcheck: {self.name} returned {_described(result)}, expected a floating Tensor or several"
            )
        return variables, outputs

    def passed_over(self, variables: Sequence[Tensor], outputs: Sequence[Tensor]) -> list[str]:
        """The names of arguments that outputs were computed from, and not from the copies in their place."""
        used = set(behind(outputs))
        return [
            variable.name
            for variable, tensor in zip(self.variables, variables, strict=True)
            if variable.position is not None
            and tensor not in used
            and isinstance(original := self._arguments[variable.position], Tensor)
            and original in used
        ]

    @contextmanager
    def borrowed(self) -> Iterator[None]:
        """Afterwards the modules hold what they held before, to the bit."""
        fields = ("data", "grad", "name", "_tracked", "_number")
        parameters = [variable.parameter for variable in self.variables if variable.parameter is not None]
        held = [(parameter, [getattr(parameter, field) for field in fields]) for parameter in parameters]
        try:
            with changed_mode(recording=True), np.errstate(all="ignore"):
                yield
        finally:
            for parameter, values in held:
                for field, value in zip(fields, values, strict=True):
                    setattr(parameter, field, value)
            self._state.put_back()
            self._state.rewind()

    def _find_variables(self) -> None:
        owner = self._fn if is_module(self._fn) else getattr(self._fn, "__self__", None)
        if is_module(owner):
            self._add_module(owner, "")
        several = sum(map(is_module, self._arguments)) + is_module(owner) > 1
        for position, (argument, label) in enumerate(zip(self._arguments, self._labels(), strict=True)):
            if is_module(argument):
                self._add_module(argument, f"{label}." if several else "")
                continue
            if not isinstance(argument, (Tensor, np.ndarray, float, np.floating)):
                continue
            array = np.asarray(value_of(argument))
            if array.dtype.kind == "c":
                raise TypeError(f"gradcheck: {label} has dtype {array.dtype}, expected real numbers")
            if array.dtype.kind == "f":
                name = argument.name if isinstance(argument, Tensor) and argument.name else label
                self.variables.append(Variable(self._unused(name), _in_float64(array), position=position))

    def _add_module(self, module: Any, prefix: str) -> None:
        self._modules.append(module)
        known = [variable.parameter for variable in self.variables]
        for name, parameter in module.named_parameters():
            if not any(parameter is other for other in known):
                known.append(parameter)
                array = _in_float64(parameter.data)
                self.variables.append(Variable(self._unused(prefix + name), array, parameter=parameter))

    def _labels(self) -> list[str]:
        """The names of the function's arguments where it has any, else `input 0` and so on."""
        labels = [f"input {position}" for position in range(len(self._arguments))]
        if not isinstance(self._fn, Primitive):
            call = getattr(self._fn, "forward", self._fn) if is_module(self._fn) else self._fn
            try:
                parameters = list(inspect.signature(call).parameters.values())
            except (TypeError, ValueError):  # such as a function written in C
                return labels
            for position, parameter in enumerate(parameters[: len(labels)]):
                if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                    break
                labels[position] = parameter.name
        return labels

    def _unused(self, name: str) -> str:
        names = {variable.name for variable in self.variables}
        if name not in names:
            return name
        return next(other for i in range(2, len(names) + 3) if (other := f"{name} ({i})") not in names)

    def _given(self) -> list[np.ndarray]:
        """The callers' arrays behind the variables."""
        return [
            variable.parameter.data
            if variable.parameter is not None
            else np.asarray(value_of(self._arguments[variable.position or 0]))
            for variable in self.variables
        ]

    def _note_precision(self) -> None:
        other: dict[str, list[str]] = {}
        for variable, array in zip(self.variables, self._given(), strict=True):
            if array.dtype != np.float64:
                other.setdefault(str(array.dtype), []).append(variable.name)
        for dtype, names in other.items():
            self.notes.append(f"{dtype}: {some(names)} converted to float64 for the check")

    def _note_shared_memory(self) -> None:
        given = self._given()
        for position, (variable, array) in enumerate(zip(self.variables, given, strict=True)):
            low, high = np.lib.array_utils.byte_bounds(array)
            if high - low < array.nbytes:
                self.notes.append(
                    f"shared memory: entries of {variable.name} overlap (strides {array.strides}); "
                    "each was checked as an entry of its own"
                )
            shared = [
                other.name
                for other, array2 in zip(self.variables[:position], given[:position], strict=True)
                if np.may_share_memory(array, array2)
            ]
            if shared:
                self.notes.append(
                    f"shared memory: {variable.name} and {some(shared)}; each was checked by itself"
                )


def behind(outputs: Sequence[Tensor]) -> Iterator[Tensor]:
    """The outputs and the tensors that they were computed from, each once."""
    stack = list(outputs)
    seen = set(stack)
    while stack:
        node = stack.pop()
        yield node
        if node._primitive is None:
            continue
        for x in node._inputs:
            if isinstance(x, Tensor) and x not in seen:
                seen.add(x)
                stack.append(x)


def tensors_in(result: Any) -> Iterator[Tensor]:
    """The tensors in what a function returned: itself, or in tuples, lists, mappings and dataclasses."""
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, (tuple, list)):
        for entry in result:
            yield from tensors_in(entry)
    elif isinstance(result, Mapping):
        for entry in result.values():
            yield from tensors_in(entry)
    elif dataclasses.is_dataclass(result) and not isinstance(result, type):
        for field in dataclasses.fields(result):
            yield from tensors_in(getattr(result, field.name))


def _described(result: Any) -> str:
    if isinstance(result, Tensor):
        return f"a tensor of dtype {result.dtype}"
    return "None" if result is None else f"a {type(result).__name__}"


def _in_float64(array: np.ndarray) -> np.ndarray:
    return np.array(array, dtype=np.float64, order="C")


def is_module(candidate: Any) -> bool:
    """Whether something has named parameters."""
    return callable(getattr(candidate, "named_parameters", None)) and not isinstance(candidate, type)


def some(names: Sequence[str]) -> str:
    """Names in a sentence, the first of them if there are many."""
    return ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3} more"
