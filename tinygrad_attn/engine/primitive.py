"""Operations: a `Primitive` is a forward function with one vector-Jacobian product (VJP) for each input.

A fused operation is defined by a composition of primitives and computed by a kernel that does the same in few
passes.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tinygrad_attn.engine.modes import scope, thread
from tinygrad_attn.engine.operators import holds_tracked_tensor
from tinygrad_attn.engine.tensor import Tensor, next_number, value_of

_new = Tensor.__new__
_ndarray = np.ndarray
_NESTED = (list, tuple)


class Primitive:
    """One row of a rule table.

    Args:
        name: shown in graphs and error messages.
        forward: `forward(*inputs, **static) -> array`, on arrays. Settings (`axis`, `shape`) are
            keyword-only.
        *vjps: for each input the rule `vjp(g, y, *inputs, **static)`: the gradient for that input, given the
            gradient `g` for the value `y`. None where no gradient is defined (a mask, indices).
        each: instead of `vjps`, for operations on any number of inputs: `each(g, y, *inputs, index=i,
            **static)`.
        doc: the docstring; that of `forward` if left out.

    A rule is written with operators and other primitives alone, and so serves float arrays, complex arrays
    and tensors (`create_graph`). It may return a gradient of the broadcast shape; the engine sums it back.
    Called with no Tensor among its inputs, a primitive returns a plain array.
    """

    def __init__(
        self,
        name: str,
        forward: Callable[..., Any],
        *vjps: Callable[..., Any] | None,
        each: Callable[..., Any] | None = None,
        doc: str | None = None,
    ) -> None:
        self.name = name
        self.forward = forward
        self.vjps: Sequence[Callable[..., Any]] = (
            _AnyNumber(each)
            if each is not None
            else [vjp or _no_rule(name, slot) for slot, vjp in enumerate(vjps)]
        )
        self._most = len(self.vjps)
        self.__doc__ = doc or forward.__doc__

    def __repr__(self) -> str:
        return f"<{type(self).__name__.lower()} {self.name}>"

    def __call__(self, *inputs: Any, **static: Any) -> Tensor:
        """The operation's value: a Tensor if one is among the inputs, else a plain array."""
        arrays = []
        plain = True
        tracked = False
        for x in inputs:
            if isinstance(x, Tensor):
                plain = False
                if x._tracked:
                    tracked = True
                arrays.append(x.data)
            elif isinstance(x, _NESTED):
                return self(*map(_joined, inputs), **static)
            else:
                arrays.append(x)
        if len(inputs) > self._most:
            raise TypeError(_too_many(self, len(inputs)))
        try:
            # Without a dict where there are no settings: that is quicker.
            value = self.forward(*arrays, **static) if static else self.forward(*arrays)
        except (ValueError, TypeError, IndexError) as error:
            named = _named(error, self.name, arrays, static)
            if named is error:
                raise
            raise named from error
        if plain:
            return value  # type: ignore[no-any-return] # an array, for those who gave arrays alone
        return _record(self, inputs, arrays, static, value, None, tracked)


class Fused(Primitive):
    """An operation with a kernel; made by `fused`."""

    def __init__(
        self,
        name: str,
        definition: Callable[..., Any],
        kernel: Callable[..., Any],
        kernel_vjp: Callable[..., Any],
    ) -> None:
        super().__init__(name, kernel, doc=definition.__doc__)
        self.definition = definition
        self.kernel_vjp = kernel_vjp
        parameters = inspect.signature(kernel_vjp).parameters
        self._takes_saved = "saved" in parameters
        self._takes_needs = "needs" in parameters

    def __call__(self, *inputs: Any, **static: Any) -> Tensor:
        """As for any primitive; by the kernel, unless the definition is asked for or needed."""
        arrays = []
        plain = True
        tracked = False
        for x in inputs:
            if isinstance(x, Tensor):
                plain = False
                if x._tracked:
                    tracked = True
                arrays.append(x.data)
            elif isinstance(x, _NESTED):
                return self(*map(_joined, inputs), **static)
            else:
                arrays.append(x)
        if thread.mode.explicit or not suits_kernel(arrays):
            with scope(self.name):
                return self.definition(*inputs, **static)  # type: ignore[no-any-return] # as `value`
        try:
            value, saved = self.run(arrays, static)
        except (ValueError, TypeError, IndexError) as error:
            named = _named(error, self.name, arrays, static)
            if named is error:
                raise
            raise named from error
        if plain:
            return value  # type: ignore[no-any-return] # an array, for those who gave arrays alone
        return _record(self, inputs, arrays, static, value, saved, tracked)

    def run(self, arrays: Sequence[Any], static: dict[str, Any]) -> tuple[Any, Any]:
        """The kernel's value and what it saves for the backward pass."""
        result = self.forward(*arrays, **static)
        if not self._takes_saved:
            return result, None
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            raise TypeError(
                f"{self.name}: the kernel returned {_came(result, 'value')}, expected (array, saved)"
            )
        value, saved = result
        return value, saved

    def pull(self, node: Tensor, g: Any, wanted: Sequence[int]) -> Sequence[Any]:
        """The gradients by slot, from the kernel's backward pass; those of the slots `wanted` count."""
        settings = node._static
        if self._takes_saved:
            saved = self.run(node._arrays, settings)[1] if node._saved is None else node._saved
            settings = {**settings, "saved": saved}
        if self._takes_needs:
            settings = {**settings, "needs": [slot in wanted for slot in range(len(node._inputs))]}
        gradients = self.kernel_vjp(g, node.data, *node._arrays, **settings)
        if not isinstance(gradients, (tuple, list)) or len(gradients) < len(node._inputs):
            raise ValueError(f"{self.name}: {_too_few(gradients, len(node._inputs))}")
        return gradients


def fused(
    definition: Callable[..., Any],
    kernel: Callable[..., Any],
    kernel_vjp: Callable[..., Any],
    *,
    name: str | None = None,
) -> Fused:
    """An operation that a `definition` states in primitives and a `kernel` computes faster.

    Args:
        definition: `definition(*inputs, **static)`, composed of primitives. It is run for complex or
            mixed-precision inputs, for second derivatives and under `ta.explicit()`, and is what the kernel
            is tested against.
        kernel: `kernel(*arrays, **static) -> array`, on float arrays of one precision; with (array, saved) in
            place of the array if `kernel_vjp` has a parameter `saved`.
        kernel_vjp: `kernel_vjp(g, y, *arrays, **static)`: the gradients for all inputs, in order (None for
            inputs without one). Parameters named `saved` and `needs` are given what the kernel saved and, for
            each input, whether its gradient is asked for. It must not write to what it is given, and may
            return a `Product`.
        name: shown in graphs and error messages; the definition's name if left out.
    """
    return Fused(name or definition.__name__, definition, kernel, kernel_vjp)


def _joined(x: Any) -> Any:
    """An array in place of a list of numbers (of tensors that require a gradient: TypeError)."""
    return np.asarray(x) if isinstance(x, _NESTED) else x


class _AnyNumber(Sequence[Callable[..., Any]]):
    """The rules of an operation on any number of inputs: one function, told the number of the input."""

    def __init__(self, each: Callable[..., Any]) -> None:
        self._each = each

    def __getitem__(self, slot: Any) -> Any:
        return partial(self._each, index=slot)

    def __len__(self) -> int:
        return sys.maxsize


def _no_rule(name: str, slot: int) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError(f"{name} has no gradient rule for its input number {slot}")

    return refuse


def suits_kernel(arrays: Sequence[Any]) -> bool:
    """Whether the floating arrays among the inputs are plain ones of one precision, and none is complex."""
    precision = None
    for array in arrays:
        if type(array) is _ndarray:
            dtype = array.dtype
            if dtype.kind == "f":
                if precision is None:
                    if not dtype.isnative:
                        return False
                    precision = dtype
                elif dtype is not precision and dtype != precision:
                    return False
            elif dtype.kind == "c":
                return False
        elif isinstance(array, (complex, np.complexfloating, _ndarray)):  # matrices, memory maps and the like
            return False
    return precision is not None


def _record(
    primitive: Primitive,
    inputs: tuple[Any, ...],
    arrays: list[Any],
    static: dict[str, Any],
    value: Any,
    saved: Any,
    tracked: bool,
) -> Tensor:
    """The Tensor of a computed value, which remembers how it came about where a gradient may be asked for."""
    output = _new(Tensor)
    if type(value) is not _ndarray:
        value = _as_array(primitive, value, static)
    if value.dtype.kind not in "fcbiu":
        raise TypeError(_not_numbers(primitive, inputs, value.dtype))
    output.data = value
    output.grad = None
    output.name = None
    output._keeps = False
    mode = thread.mode
    if mode.watcher is not None:
        mode.watcher.forward(output, primitive, arrays, static)
    if tracked and mode.recording:
        output._tracked = True
        output._primitive = primitive
        output._inputs = inputs
        output._arrays = arrays
        output._static = static
        output._saved = saved
        output._number = next_number()
        output._scope = mode.scope
        output._spent = False
    else:
        output._tracked = False
        output._primitive = None
        output._number = 0
    return output


def _named(error: Exception, name: str, arrays: Sequence[Any], static: dict[str, Any]) -> Exception:
    """A plain error of numpy's with the operation's name in front, and the shapes where they do not fit a
    product; other errors as they are. Of a tensor among the settings it says that it is none."""
    message = str(error)
    by_name = [setting for setting, value in static.items() if holds_tracked_tensor(value)]
    if by_name:
        return TypeError(f"{name}: {by_name[0]} is a tensor given by name, expected by position")
    if type(error) not in (ValueError, TypeError, IndexError):
        return error
    if "core dimension" in message:  # of which numpy does not say what they belong to
        shapes = " and ".join(str(np.shape(array)) for array in arrays)
        return ValueError(f"{name}: arrays of shapes {shapes} have no product: {message}")
    return error if message.startswith(name) else type(error)(f"{name}: {message}")


def _not_numbers(primitive: Primitive, inputs: Sequence[Any], dtype: Any) -> str:
    """What came in place of numbers: fractions and texts, say, with which numpy computes in its own way."""
    for x in map(value_of, inputs):
        if np.asarray(x).dtype.kind not in "fcbiu":
            came = f"an array of dtype {x.dtype}" if isinstance(x, np.ndarray) else type(x).__name__
            return f"{primitive.name}: got {came} among its inputs, expected numbers"
    return f"{primitive.name}: the forward function returned an array of dtype {dtype}, expected numbers"


def _too_many(primitive: Primitive, count: int) -> str:
    return (
        f"{primitive.name} takes {primitive._most} input{'s' * (primitive._most != 1)}, one for each of its "
        f"gradient rules (None where there is no gradient); got {count}"
    )


def _too_few(gradients: Any, expected: int) -> str:
    came = _came(gradients, "gradient")
    return f"kernel_vjp returned {came}, expected a tuple of {expected}, one for each input"


def _came(returned: Any, what: str) -> str:
    if isinstance(returned, (tuple, list)):
        return f"{len(returned)} {what}{'s' * (len(returned) != 1)}"
    return f"a {type(returned).__name__}"


def _as_array(primitive: Primitive, value: Any, static: dict[str, Any]) -> np.ndarray:
    if isinstance(value, (tuple, list)):
        raise TypeError(
            f"{primitive.name}: the forward function returned a {type(value).__name__}, expected one array"
        )
    try:
        return np.asarray(value)
    except TypeError as error:  # a tensor that requires a gradient
        raise _named(error, primitive.name, (), static) from error
