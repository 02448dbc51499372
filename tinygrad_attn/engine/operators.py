"""What Python's and numpy's operators do with tensors. Each names its rule in the tables of
`tinygrad_attn.ops`.

This floor of the house imports nothing from above: the rules are handed over through `rules` when the package
is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tinygrad_attn.engine.modes import thread

if TYPE_CHECKING:
    from tinygrad_attn.engine.tensor import Tensor


# The operations, by name, and those that stand for a ufunc or another function of numpy; filled by
# tinygrad_attn.ops, and `leaf` by the tensor module.
class _Rules:
    def __init__(self) -> None:
        self.ufuncs: dict[Any, Callable[..., Tensor]] = {}
        self.functions: dict[Any, Callable[..., Any]] = {}

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., Tensor]: ...

        def __setattr__(self, name: str, value: Any) -> None: ...


rules = _Rules()

# Functions that are constant but for steps: no gradient passes, and the result is a plain leaf.
_STEPS = {
    *(np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal),
    *(np.isnan, np.isinf, np.isfinite, np.sign, np.signbit, np.floor, np.ceil, np.rint),
    *(np.logical_and, np.logical_or, np.logical_xor, np.logical_not),
    *(np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.invert),
}
# Questions about numbers: a plain answer, in which nobody expects a gradient.
_QUESTIONS = {
    *(np.shape, np.ndim, np.size, np.iscomplexobj, np.isrealobj, np.result_type, np.can_cast),
    *(np.all, np.any, np.argmax, np.argmin, np.argsort, np.count_nonzero, np.nonzero, np.flatnonzero),
    *(np.allclose, np.isclose, np.array_equal, np.shares_memory, np.may_share_memory),
    *(np.zeros_like, np.ones_like, np.empty_like, np.full_like),
}


class Operators:
    """The operators of a `Tensor`, and its part in numpy's functions. Comparisons give boolean tensors."""

    __slots__ = ()

    data: np.ndarray
    _tracked: bool

    __hash__ = object.__hash__

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **settings: Any) -> Any:
        if method == "__call__" and not settings:
            if ufunc in _STEPS:
                return rules.leaf(ufunc(*map(value_of, inputs)))
            rule = rules.ufuncs.get(ufunc)
            if rule is not None:
                return rule(*inputs)
        how = "".join([f".{method}" * (method != "__call__"), *(f" with {name}=" for name in settings)])
        raise TypeError(
            f"numpy.{ufunc.__name__}{how} cannot be applied to a Tensor; use an operation of ta, or the "
            "plain array .data"
        )

    def __array_function__(self, function: Any, types: Any, args: Any, settings: Any) -> Any:
        rule = rules.functions.get(function)
        if rule is not None:
            return rule(*args, **settings)
        if function not in _QUESTIONS and holds_tracked_tensor((args, settings)):
            raise TypeError(
                f"numpy.{function.__name__} would lose the gradient of a Tensor; use an operation of ta, or "
                "the plain array .data"
            )
        return function(*_plain(args), **_plain(settings))

    def __neg__(self) -> Tensor:
        return rules.neg(self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Tensor:
        return rules.abs(self)

    def __add__(self, other: Any) -> Tensor:
        return rules.add(self, other)

    def __iadd__(self, other: Any) -> Any:
        return _in_place(self, rules.add, other)

    def __isub__(self, other: Any) -> Any:
        return _in_place(self, rules.sub, other)

    def __imul__(self, other: Any) -> Any:
        return _in_place(self, rules.mul, other)

    def __itruediv__(self, other: Any) -> Any:
        return _in_place(self, rules.div, other)

    def __ipow__(self, other: Any) -> Any:
        return _in_place(self, rules.pow, other)

    def __imatmul__(self, other: Any) -> Any:
        return _in_place(self, rules.matmul, other)

    def __radd__(self, other: Any) -> Tensor:
        return rules.add(other, self)

    def __sub__(self, other: Any) -> Tensor:
        return rules.sub(self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return rules.sub(other, self)

    def __mul__(self, other: Any) -> Tensor:
        return rules.mul(self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return rules.mul(other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return rules.div(self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return rules.div(other, self)

    def __pow__(self, other: Any) -> Tensor:
        return rules.pow(self, other)

    def __rpow__(self, other: Any) -> Tensor:
        return rules.pow(other, self)

    def __matmul__(self, other: Any) -> Tensor:
        return rules.matmul(self, other)

    def __rmatmul__(self, other: Any) -> Tensor:
        return rules.matmul(other, self)

    def __eq__(self, other: Any) -> Any:
        return _compare(np.equal, self, other)

    def __ne__(self, other: Any) -> Any:
        return _compare(np.not_equal, self, other)

    def __lt__(self, other: Any) -> Any:
        return _compare(np.less, self, other)

    def __le__(self, other: Any) -> Any:
        return _compare(np.less_equal, self, other)

    def __gt__(self, other: Any) -> Any:
        return _compare(np.greater, self, other)

    def __ge__(self, other: Any) -> Any:
        return _compare(np.greater_equal, self, other)

    def __invert__(self) -> Tensor:
        return rules.leaf(~self.data)

    def __and__(self, other: Any) -> Any:
        return _compare(np.bitwise_and, self, other)

    def __or__(self, other: Any) -> Any:
        return _compare(np.bitwise_or, self, other)

    def __xor__(self, other: Any) -> Any:
        return _compare(np.bitwise_xor, self, other)

    __rand__ = __and__
    __ror__ = __or__
    __rxor__ = __xor__

    def __getitem__(self, index: Any) -> Tensor:
        return rules.getitem(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError(
            "a Tensor cannot be assigned to in place; use ta.where, or write to .data outside any graph"
        )

    def __iter__(self) -> Iterator[Tensor]:
        if not self.data.ndim:
            raise TypeError("a 0-d tensor cannot be iterated over")
        return (self[i] for i in range(len(self.data)))


def value_of(x: Any) -> Any:
    """The array of a tensor; anything else as it is."""
    return x.data if isinstance(x, Operators) else x


def _in_place(tensor: Any, rule: Callable[..., Any], other: Any) -> Any:
    """What `tensor += other` and the like leave under the tensor's name.

    A leaf that requires a gradient is written to, within `no_grad` alone, as in PyTorch; other tensors stay
    as they are, and the name stands for a new one.
    """
    if not tensor._tracked or not tensor.is_leaf:
        return rule(tensor, other)
    if thread.mode.recording:
        raise RuntimeError(
            f"{tensor._label()} is a leaf that requires a gradient: written to within ta.no_grad() alone"
        )
    value = rule(tensor.data, value_of(other))
    if value.shape != tensor.data.shape:
        raise ValueError(
            f"{tensor._label()} has shape {tensor.data.shape}, and cannot become {value.shape} in place"
        )
    np.copyto(tensor.data, value, casting="same_kind")
    tensor.note_written()
    return tensor


def _compare(ufunc: np.ufunc, a: Any, b: Any) -> Any:
    try:
        return rules.leaf(ufunc(value_of(a), value_of(b)))
    except TypeError:  # such as a comparison with None or a string
        return NotImplemented


def holds_tracked_tensor(data: Any) -> bool:
    """Whether `data` is, or holds in its lists, tuples and dicts, a tensor that requires a gradient."""
    if isinstance(data, Operators):
        return data._tracked
    if isinstance(data, dict):
        data = tuple(data.values())
    return isinstance(data, (list, tuple)) and any(holds_tracked_tensor(entry) for entry in data)


def _plain(data: Any) -> Any:
    """`data` with arrays in place of the tensors, also inside lists, tuples and dicts."""
    if isinstance(data, dict):
        return {key: _plain(entry) for key, entry in data.items()}
    return type(data)(map(_plain, data)) if type(data) in (list, tuple) else value_of(data)
