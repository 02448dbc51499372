"""Reverse mode: from an output back to what asked for a gradient, each operation once.

The walk is a loop over the operations in the reverse of the order in which they ran. Gradients are collected
in a table; an operation is reached when all its uses have been, so its entry is complete. The rules work on
arrays, or, to record the walk itself (`create_graph`), on tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from operator import attrgetter
from sys import getrefcount
from typing import Any

import numpy as np

from tinygrad_attn.engine.broadcast import identity, reaches, sum_to, to_shape
from tinygrad_attn.engine.modes import changed_mode, thread
from tinygrad_attn.engine.primitive import Fused
from tinygrad_attn.engine.product import Joined, Product, Sum
from tinygrad_attn.engine.tensor import Tensor, leaf, rules, value_of

EdgeObserver = Callable[[Tensor, int, Any], None]

_number = attrgetter("_number")
_ndarray = np.ndarray


def _references_to_a_local() -> int:
    array = np.empty(0)
    return getrefcount(array)


def _is_own(array: np.ndarray) -> bool:
    """Whether this is neither a view nor one that may not be written to."""
    return array.base is None and array.flags.writeable


_ALONE = _references_to_a_local()
"""How many references an array has that nothing but a variable refers to: whoever gets it needs no copy."""


def backward(output: Tensor, gradient: Any = None, retain_graph: bool = False) -> None:
    """See `Tensor.backward`."""
    seed = _seed(output, gradient)
    if isinstance(seed, Tensor):
        seed = seed.data
    if output._primitive is not None:
        output._keeps = True  # its own gradient is what the graph was walked with, for whoever draws it later
    for tensor, found in walk(output, seed, release=not retain_graph).items():
        tensor.grad = _in_dtype(found if tensor.grad is None else np.asarray(tensor.grad + found), tensor)


def grad(
    output: Tensor, inputs: Tensor | Sequence[Tensor], grad_output: Any = None, create_graph: bool = False
) -> tuple[Tensor, ...]:
    """The gradients of `output` with respect to each of `inputs`; touches no `.grad`.

    Args:
        output: a tensor that requires a gradient.
        inputs: a tensor or several, leaves or computed on the way to `output`.
        grad_output: the weight of each entry of `output`, of its shape; may be left out for a single entry.
        create_graph: record the computation of the gradients, so that they can be differentiated in turn.

    Returns:
        One tensor for each input, of its shape; zeros where `output` does not depend on it. The graph is
        kept.

    Raises:
        RuntimeError: if `output` or one of `inputs` requires no gradient, or the graph was freed.
        ValueError: if `grad_output` has another shape than `output`.
    """
    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    for position, x in enumerate(inputs):
        if not isinstance(x, Tensor):
            raise TypeError(f"grad: input number {position} is a {type(x).__name__}, expected a Tensor")
        if not x._tracked:
            raise RuntimeError(f"grad: input number {position}, a {x._label()}, requires no gradient")
    seed = _seed(output, grad_output)
    if create_graph:
        with changed_mode(recording=True):
            found = walk(
                output, seed if isinstance(seed, Tensor) else leaf(seed), wanted=inputs, create_graph=True
            )
            return tuple(_own(found[x], x) if x in found else leaf(np.zeros_like(x.data)) for x in inputs)
    found = walk(output, value_of(seed), wanted=inputs)
    return tuple(leaf(_in_dtype(found[x], x).copy() if x in found else np.zeros_like(x.data)) for x in inputs)


def _own(gradient: Tensor, x: Tensor) -> Tensor:
    """A gradient with memory of its own, where rules may have handed on a view or what came in."""
    if gradient.dtype.kind != "c" and gradient.dtype != x.dtype:
        return rules.astype(gradient, x.dtype)
    return identity(gradient)


def walk(
    output: Tensor,
    seed: Any,
    *,
    wanted: Iterable[Tensor] | None = None,
    within: bool = False,
    create_graph: bool = False,
    release: bool = False,
    revisit: bool = False,
    observe: EdgeObserver | None = None,
) -> dict[Tensor, Any]:
    """The gradients of `output`, weighted by `seed`, for the tensors `wanted`.

    Args:
        output: where to start.
        seed: the gradient of `output`: an array, or a Tensor with `create_graph`.
        wanted: the tensors to return gradients for; None for all leaves that require one and tensors that
            keep theirs.
        within: `wanted` bounds the walk: nothing they were computed from is looked at.
        create_graph: run the rules on tensors.
        release: afterwards the graph is spent, and what kernels saved is dropped.
        revisit: go through a spent graph as well, running kernels again for what they had saved.
        observe: called with (operation's output, input slot, gradient) for every edge the gradient flows
            along.

    Returns:
        A gradient for each tensor that one flowed to: arrays of their own, or Tensors with `create_graph`.
    """
    targets = None if wanted is None else set(wanted)
    order = _newest_first(output, targets if targets is not None and within else frozenset())
    on_path = None if targets is None else _leading_to(order, targets)
    watcher = thread.mode.watcher
    join = Joined()
    table: dict[Tensor, Any] = {output: seed}
    results: dict[Tensor, Any] = {}
    # A small operation's rule takes half a microsecond: what the loop asks for each is kept to what it must.
    for node in order:
        g = table.pop(node, None)
        if g is None:
            continue
        if node._spent and not revisit:
            raise RuntimeError(_freed(node))
        if type(g) is not _ndarray:
            g = _value(g, join)
        if node._keeps if targets is None else node in targets:
            results[node] = g if create_graph else np.array(g)
            if within:
                continue
        primitive: Any = node._primitive
        vjps, static, number = primitive.vjps, node._static, node._number
        y, given = (node, node._inputs) if create_graph else (node.data, node._arrays)
        pulled = _from_fused(node, g, on_path, create_graph) if isinstance(primitive, Fused) else None
        slot = -1
        for x in node._inputs:
            slot += 1  # an enumeration takes longer
            if not isinstance(x, Tensor):
                continue
            if x._number > number:  # the rules for the other inputs may look at it, too
                raise RuntimeError(_stale(node, x))
            if not (x._tracked if on_path is None else x in on_path):
                continue
            if pulled is not None:
                g_x = pulled[slot]
            elif static:
                g_x = vjps[slot](g, y, *given, **static)
            else:  # without a dict: that is quicker
                g_x = vjps[slot](g, y, *given)
            if type(g_x) is not _ndarray or create_graph:
                if g_x is None:
                    continue
                g_x = _as_gradient(g_x, node, slot, create_graph)
            if g_x.shape != x.data.shape:
                g_x = _fitted(node, slot, g_x, x.data.shape)
            if observe is not None:
                observe(node, slot, g_x)
            if watcher is not None:
                watcher.backward(node, slot, g, g_x)
            table[x] = _added(table[x], g_x) if x in table else g_x
        if release:
            node._saved = None
    pulled = g_x = None  # which may refer to what is looked at now
    for x in list(table):  # what is left are leaves
        g = table.pop(x)
        if targets is None or x in targets:
            if type(g) is not _ndarray:
                g = _value(g, join)
            if not (create_graph or (type(g) is _ndarray and getrefcount(g) == _ALONE and _is_own(g))):
                g = np.array(g)
            results[x] = g
    if release:
        for node in order:
            node._spent = True
    return results


def _as_gradient(came: Any, node: Tensor, slot: int, create_graph: bool) -> Any:
    """What a rule returned, be it a plain number or a Tensor: an array, a `Product`, or, with `create_graph`,
    a Tensor."""
    if create_graph:
        x = node._inputs[slot]
        if x.data is not node._arrays[slot]:
            raise RuntimeError(_stale(node, x))
        return came if isinstance(came, Tensor) else leaf(came)
    return came if type(came) is Product else np.asarray(value_of(came))


def _added(before: Any, gradient: Any) -> Any:
    """What came for a tensor before and what comes now, together: on arrays a `Sum`, to be taken later."""
    if isinstance(before, Tensor):
        return before + gradient
    if type(before) is Sum:
        before.add(gradient)
        return before
    return Sum(before, gradient)


def _from_fused(
    node: Tensor, g: Any, on_path: set[Tensor] | None, create_graph: bool
) -> Mapping[int, Any] | Sequence[Any]:
    """The gradients of a fused operation, by slot: from the kernel, or, where it is due, its definition."""
    primitive = node._primitive
    assert isinstance(primitive, Fused)
    slots = [
        slot
        for slot, x in enumerate(node._inputs)
        if isinstance(x, Tensor) and (x._tracked if on_path is None else x in on_path)
    ]
    if not slots:  # the node is what was asked for, and nothing behind it is
        return ()
    if create_graph or g.dtype != node.data.dtype:
        return _through_definition(primitive, node, g, slots, create_graph)
    return primitive.pull(node, g, slots)


def _through_definition(
    primitive: Fused, node: Tensor, g: Any, slots: Sequence[int], create_graph: bool
) -> dict[int, Any]:
    """The gradients of a fused operation by way of its definition, run on stand-ins for its inputs."""
    stand_ins = list(node._inputs if create_graph else node._arrays)
    for slot in slots:
        if create_graph:
            stand_ins[slot] = identity(stand_ins[slot])
        else:
            stand_ins[slot] = leaf(stand_ins[slot])
            stand_ins[slot]._tracked = True
    with changed_mode(recording=True, explicit=True):
        output = primitive.definition(*stand_ins, **node._static)
        found = walk(
            output, g, wanted=[stand_ins[slot] for slot in slots], within=True, create_graph=create_graph
        )
    return {slot: found.get(stand_ins[slot]) for slot in slots}


def _newest_first(output: Tensor, bounds: AbstractSet[Tensor]) -> list[Tensor]:
    """The computed tensors that `output` comes from, itself included, by falling creation number."""
    if output._primitive is None:
        return []
    seen = {output}
    stack = [output]
    while stack:
        for x in stack.pop()._inputs:
            if isinstance(x, Tensor) and x._tracked and x._primitive is not None and x not in seen:
                seen.add(x)
                if x not in bounds:
                    stack.append(x)
    return sorted(seen, key=_number, reverse=True)


def _leading_to(order: Sequence[Tensor], wanted: Iterable[Tensor]) -> set[Tensor]:
    """The tensors of `order` from which a path leads to one of `wanted`, and those themselves."""
    leading = set(wanted)
    for node in reversed(order):
        if any(isinstance(x, Tensor) and x in leading for x in node._inputs):
            leading.add(node)
    return leading


def _value(gradient: Any, join: Joined) -> Any:
    if type(gradient) is Product:
        return gradient.value()
    return gradient.value(join) if type(gradient) is Sum else gradient


def _fitted(node: Tensor, slot: int, gradient: Any, shape: tuple[int, ...]) -> Any:
    """The gradient with broadcasting undone: summed over the axes along which the input was repeated."""
    if type(gradient) is Product:
        gradient = gradient.value()
    if reaches(shape, gradient.shape):
        return to_shape(sum_to, gradient, shape)
    raise ValueError(
        f"{_made_by(node)}: the rule for input number {slot} returned a gradient of shape {gradient.shape}, "
        f"expected the input's shape {shape} or one it broadcasts to"
    )


def _in_dtype(gradient: np.ndarray, x: Tensor) -> np.ndarray:
    """The gradient in the tensor's dtype, unless it is complex."""
    return gradient if gradient.dtype.kind == "c" else gradient.astype(x.data.dtype, copy=False)


def _seed(output: Tensor, gradient: Any) -> Any:
    """The gradient to start from: the one given, checked, or one for an output of a single entry."""
    if not isinstance(output, Tensor):
        raise TypeError(f"the output is a {type(output).__name__}, expected a Tensor")
    if not output._tracked:
        raise RuntimeError(
            f"{output._label()} requires no gradient: none of the tensors it was computed from does, or it "
            "was computed under no_grad or detached"
        )
    if gradient is None:
        if output.data.size != 1:
            raise RuntimeError(
                f"{output._label()} has {output.data.size} entries; a gradient of its shape is needed, or a "
                "sum to a scalar first"
            )
        return np.ones_like(output.data)
    seed = gradient if isinstance(gradient, Tensor) else np.asarray(gradient)
    if seed.dtype.kind not in "fciub":
        raise TypeError(f"the gradient has dtype {seed.dtype}, expected numbers")
    if seed.dtype.kind != "c" and seed.dtype != output.data.dtype:
        seed = seed.astype(output.data.dtype)
    if seed.shape != output.data.shape:
        raise ValueError(
            f"the gradient has shape {seed.shape}, expected that of the output, {output.data.shape}"
        )
    return seed


def _made_by(node: Tensor) -> str:
    assert node._primitive is not None
    return node._primitive.name


def _stale(node: Tensor, x: Tensor) -> str:
    return (
        f"{x._label()} was written to after {_made_by(node)} had used it, so the graph no longer describes "
        "what was computed; run the forward pass again"
    )


def _freed(node: Tensor) -> str:
    return (
        f"the graph was freed by an earlier backward pass (at {_made_by(node)}); pass retain_graph=True to "
        "the earlier one to go through it again"
    )
