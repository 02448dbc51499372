"""Derivatives other than the gradient: forward mode, Jacobians, Hessian-vector products.

All of them come from reverse mode with `create_graph`, so they are the derivatives that the rules define: the
same choice at a kink, constants where something is detached, kernels through their definitions. (Complex
steps give another opinion; `gradcheck` is where the two meet.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinygrad_attn.check.objective import gradients, weigh
from tinygrad_attn.check.problem import tensors_in
from tinygrad_attn.engine import Tensor
from tinygrad_attn.engine.broadcast import identity
from tinygrad_attn.engine.modes import changed_mode, thread
from tinygrad_attn.engine.tensor import leaf, value_of


def jvp(fn: Callable[..., Any], primals: Any, tangents: Any) -> tuple[Any, Any]:
    """The value of `fn` and its derivative along a direction, J·t (forward mode).

    A backward pass is linear in its upstream gradient u, and differentiating it by u along t gives J·t: two
    backward passes, whatever the number of inputs and outputs (the "double backward" construction).

    Args:
        fn: takes the primals; gives a Tensor or several (in tuples, lists, mappings).
        primals: floating tensors or arrays, a sequence of them or one.
        tangents: for each of them the direction, of its shape.

    Returns:
        The output, and the tangent: a Tensor of the output's shape, or a tuple of one for each tensor in the
        output. Both can be differentiated by primals that require a gradient.

    Raises:
        ValueError: if the numbers or shapes of primals and tangents differ.
        TypeError: for primals that are not floating, and if `fn` returns no tensor.
    """
    variables, values = _variables("jvp", primals)
    directions = _sequence(tangents)
    _check_shapes("jvp", "tangent", variables, directions)
    with changed_mode(recording=True):
        output = fn(*values)
        outputs = _floating_outputs("jvp", output)
        found = tuple(_pushed(outputs, values, directions, _further(variables)))
    return output, found[0] if isinstance(output, Tensor) else found


def jacobian(fn: Callable[..., Any], x: Any) -> Any:
    """All partial derivatives of `fn`: an array of the output's shape followed by the input's.

    One backward pass for each entry of the output, or, where there are fewer entries of the input, one
    forward derivative for each of those.

    Args:
        fn: takes `x` (or, if that is a tuple, its entries) and gives one Tensor.
        x: a floating tensor or array, or a tuple of them.

    Returns:
        A Tensor of shape `output.shape + x.shape`; a tuple of them for a tuple `x`. It is a constant, not to
        be differentiated in turn: for second derivatives of a scalar take `hvp`.
    """
    _, values = _variables("jacobian", x)
    with changed_mode(recording=True):
        output = fn(*values)
        if not isinstance(output, Tensor):
            raise TypeError(f"jacobian: fn returned a {type(output).__name__}, expected one Tensor")
        if output.size <= sum(value.size for value in values):
            parts = _by_rows(output, values)
        else:
            parts = [_by_columns(output, values, which) for which in range(len(values))]
    found = tuple(
        leaf(part.reshape(output.shape + value.shape)) for part, value in zip(parts, values, strict=True)
    )
    return found if isinstance(x, (tuple, list)) else found[0]


def hvp(fn: Callable[..., Any], primals: Any, vectors: Any) -> Any:
    """The Hessian of a scalar function times a vector, H·v, by differentiating the gradient along v.

    Args:
        fn: takes the primals, gives a Tensor of one entry.
        primals: floating tensors or arrays, a tuple of them or one.
        vectors: for each of them a vector of its shape.

    Returns:
        A Tensor of the primal's shape; a tuple of them for a tuple of primals. It can be differentiated by
        primals that require a gradient.
    """
    variables, values = _variables("hvp", primals)
    directions = _sequence(vectors)
    _check_shapes("hvp", "vector", variables, directions)
    with changed_mode(recording=True):
        output = fn(*values)
        if not isinstance(output, Tensor) or output.size != 1:
            shape = f"shape {output.shape}" if isinstance(output, Tensor) else f"a {type(output).__name__}"
            raise ValueError(f"hvp: fn returned {shape}, expected a Tensor of one entry")
        pulled = gradients(output, values, create_graph=True)
        along = weigh(*pulled, *directions)
        found = tuple(gradients(along, values, create_graph=_further(variables)))
    return found if isinstance(primals, (tuple, list)) else found[0]


def _pushed(
    outputs: Sequence[Tensor], values: Sequence[Tensor], directions: Sequence[Any], create_graph: bool
) -> Sequence[Tensor]:
    """For each output its derivative along the directions."""
    upstream = []
    for output in outputs:
        u = leaf(np.zeros_like(output.data))
        u.requires_grad = True
        upstream.append(u)
    pulled = gradients(weigh(*outputs, *upstream), values, create_graph=True)
    return gradients(weigh(*pulled, *directions), upstream, create_graph=create_graph)


def _by_rows(output: Tensor, values: Sequence[Tensor]) -> list[np.ndarray]:
    parts = [np.zeros((output.size, value.size), value.dtype) for value in values]
    for row in range(output.size):
        unit = np.zeros(output.shape, output.dtype)
        unit.flat[row] = 1
        for part, g in zip(parts, gradients(output, values, unit), strict=True):
            part[row] = g.data.reshape(-1)
    return parts


def _by_columns(output: Tensor, values: Sequence[Tensor], which: int) -> np.ndarray:
    u = leaf(np.zeros_like(output.data))
    u.requires_grad = True
    (pulled,) = gradients(weigh(output, u), [values[which]], create_graph=True)
    part = np.zeros((output.size, pulled.size), output.dtype)
    for column in range(pulled.size):
        unit = np.zeros(pulled.shape, pulled.dtype)
        unit.flat[column] = 1
        part[:, column] = gradients(pulled, [u], unit)[0].data.reshape(-1)
    return part


def _variables(caller: str, primals: Any) -> tuple[list[Any], list[Tensor]]:
    """The primals, and stand-ins for them that derivatives are taken by; of tracked ones, on their graph."""
    given = _sequence(primals)
    values = []
    for position, x in enumerate(given):
        array = np.asarray(value_of(x))
        if array.dtype.kind not in "fc":
            raise TypeError(f"{caller}: input number {position} has dtype {array.dtype}, expected floating")
        if isinstance(x, Tensor) and x.requires_grad and thread.mode.recording:
            values.append(identity(x))
        else:
            tensor = leaf(array)
            tensor.requires_grad = True
            values.append(tensor)
    return given, values


def _further(variables: Sequence[Any]) -> bool:
    """Whether somebody may differentiate the result in turn."""
    return any(isinstance(x, Tensor) and x.requires_grad for x in variables)


def _sequence(values: Any) -> list[Any]:
    return list(values) if isinstance(values, (tuple, list)) else [values]


def _check_shapes(caller: str, what: str, variables: Sequence[Any], directions: list[Any]) -> None:
    if len(directions) != len(variables):
        raise ValueError(f"{caller}: {len(variables)} inputs, but {len(directions)} {what}s")
    for position, (x, direction) in enumerate(zip(variables, directions, strict=True)):
        shape, other = np.shape(value_of(x)), np.shape(value_of(direction))
        if shape != other:
            raise ValueError(f"{caller}: {what} number {position} has shape {other}, expected {shape}")
        if not isinstance(direction, Tensor):
            directions[position] = np.asarray(direction)


def _floating_outputs(caller: str, output: Any) -> list[Tensor]:
    found = [tensor for tensor in tensors_in(output) if tensor.dtype.kind in "fc"]
    if not found:
        raise TypeError(f"{caller}: fn returned a {type(output).__name__} without a floating Tensor")
    return found
