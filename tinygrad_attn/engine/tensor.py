"""`Tensor`: an array that knows how it was computed.

The methods and operators are one line each; what they do is written in the rule tables of
`tinygrad_attn.ops`, which hands them over through `rules` when the package is imported (this floor of the
house imports nothing from above).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tinygrad_attn.engine.modes import Scope
    from tinygrad_attn.engine.primitive import Primitive

Axis = int | tuple[int, ...] | None


# The operations, by name, and those that stand for a ufunc or another function of numpy; filled by
# tinygrad_attn.ops.
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

next_number = count(1).__next__


class Tensor:
    """A numpy array with, where asked for, the gradient of some output with respect to it.

    Args:
        data: anything `numpy.array` takes, with the dtype that numpy gives it; copied.
        requires_grad: whether gradients are collected in `.grad`; needs a floating (or complex) dtype.
        name: shown in pictures, tables and error messages.

    A tensor that an operation computed also holds the operation, its inputs and a creation number; the graph
    that gradients travel is nothing else. Comparisons give boolean tensors.

    Raises:
        TypeError: for data that is not numbers, and for an integer or boolean tensor that should require a
            gradient.
    """

    __slots__ = (
        "__weakref__",
        "_arrays",  # what the forward function was given: the inputs' arrays at that time, and constants
        "_inputs",  # the operation's inputs as they were passed: tensors and constants
        "_keeps",  # whether a computed tensor keeps its gradient in .grad
        "_number",  # computed: creation number, a topological order; leaf: when it was last written in place
        "_primitive",  # the operation, None for a leaf
        "_saved",  # what a fused kernel kept for its backward pass
        "_scope",
        "_spent",  # a backward pass has gone through and released what was saved
        "_static",  # the operation's settings
        "_tracked",
        "data",
        "grad",
        "name",
    )

    data: np.ndarray
    grad: np.ndarray | None
    name: str | None
    _arrays: list[Any]
    _inputs: tuple[Any, ...]
    _keeps: bool
    _number: int
    _primitive: Primitive | None
    _saved: Any
    _scope: Scope | None
    _spent: bool
    _static: dict[str, Any]
    _tracked: bool

    def __init__(self, data: Any, requires_grad: bool = False, name: str | None = None) -> None:
        self.data = _new_array(data)
        self.grad = None
        self.name = name
        self._primitive = None
        self._number = 0
        self._keeps = False
        self._tracked = False
        if requires_grad:
            self.requires_grad = True

    # What it is

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow to this tensor. Can be set on leaves (tensors that no operation made)."""
        return self._tracked

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if self._primitive is not None and not value:
            raise RuntimeError(
                f"{self._label()} was computed by {self._primitive.name}; use detach() to cut it off"
            )
        if value and self.data.dtype.kind not in "fc":
            raise TypeError(
                f"{self._label()} of dtype {self.data.dtype} cannot require a gradient, expected a floating "
                "dtype, e.g. Tensor([1.0, 2.0])"
            )
        self._tracked = bool(value)

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes along each axis."""
        return self.data.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.data.ndim

    @property
    def size(self) -> int:
        """The number of entries."""
        return self.data.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the entries."""
        return self.data.dtype

    @property
    def is_leaf(self) -> bool:
        """Whether no recorded operation made this tensor."""
        return self._primitive is None

    def __repr__(self) -> str:
        body = np.array2string(self.data, separator=", ", prefix="Tensor(", threshold=100)
        made_by = f", made_by={self._primitive.name}" if self._primitive is not None else ""
        flag = ", requires_grad=True" if self._tracked and self._primitive is None else ""
        named = f", name={self.name!r}" if self.name is not None else ""
        shape = f", shape={self.shape}" if self.size > 100 or self.size == 0 else ""
        return f"Tensor({body}{shape}, dtype={self.dtype}{named}{made_by}{flag})"

    def _label(self) -> str:
        kind = "tensor" if self.name is None else f"tensor {self.name!r}"
        return f"{kind} of shape {self.shape}"

    # Its numbers

    def numpy(self) -> np.ndarray:
        """The array itself, not a copy."""
        return self.data

    def item(self) -> Any:
        """The only entry, as a Python number. Raises ValueError for any other size than 1."""
        if self.data.size != 1:
            raise ValueError(f"item() needs a tensor of one entry, got {self._label()}")
        return self.data.item()

    def tolist(self) -> Any:
        """The entries as nested lists of Python numbers."""
        return self.data.tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if self._tracked:
            raise TypeError(
                f"{self._label()} requires a gradient, which numpy would lose; use ta.stack or "
                "ta.concatenate to join tensors, and .data or .detach() for the plain array"
            )
        return np.array(self.data, dtype=dtype, copy=copy)

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if self.data.dtype.kind not in "iu":
            raise TypeError(f"only an integer tensor can serve as an index, got dtype {self.data.dtype}")
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __bool__(self) -> bool:
        if self.data.size != 1:
            raise ValueError(f"the truth value of a {self._label()} is ambiguous; use .all() or .any()")
        return bool(self.data.item())

    def __len__(self) -> int:
        if not self.data.ndim:
            raise TypeError("a 0-d tensor has no length")
        return len(self.data)

    def __contains__(self, value: Any) -> bool:
        return value in self.data

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if self._primitive is not None:
            raise RuntimeError(
                f"{self._label()} was computed by {self._primitive.name}; only leaves can be deep-copied"
            )
        copy = Tensor(self.data, self._tracked, self.name)
        copy.grad = None if self.grad is None else self.grad.copy()
        memo[id(self)] = copy
        return copy

    # Gradients

    def backward(self, gradient: Any = None, retain_graph: bool = False) -> None:
        """Adds the gradient of this tensor, weighted by `gradient`, to `.grad` of leaves that require one.

        Args:
            gradient: the weight of each entry of this tensor, of its shape; may be left out for a single
                entry.
            retain_graph: keep what is needed to go through the same graph again.

        Raises:
            RuntimeError: if this tensor needs no gradient, has several entries and no `gradient` is given,
                the graph was freed by an earlier backward pass, or a leaf was written in place since it was
                used.
            ValueError: if `gradient` has another shape.
        """
        from tinygrad_attn.engine.backward import backward

        backward(self, gradient, retain_graph)

    def retain_grad(self) -> None:
        """Asks a computed tensor to keep its gradient in `.grad`, as leaves do."""
        if not self._tracked:
            raise RuntimeError(f"{self._label()} requires no gradient, so it cannot retain one")
        self._keeps = True

    def zero_grad(self) -> None:
        """Forgets the gradient: `.grad` is None again."""
        self.grad = None

    def detach(self) -> Tensor:
        """A tensor of the same array that gradients do not pass."""
        return leaf(self.data, self.name)

    def note_written(self) -> None:
        """Notes that `.data` was written in place: to walk back a graph that used it before is now an error.

        Only for leaves; what was computed belongs to its graph (RuntimeError).
        """
        if self._primitive is not None:
            raise RuntimeError(
                f"{self._label()} was computed by {self._primitive.name}; only leaves may be written to"
            )
        self._number = next_number()

    # Operators. Each names its rule; see tinygrad_attn.ops.

    __hash__ = object.__hash__

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **settings: Any) -> Any:
        if method == "__call__" and not settings:
            if ufunc in _STEPS:
                return leaf(ufunc(*map(value_of, inputs)))
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
        if function not in _QUESTIONS and _holds_tracked_tensor((args, settings)):
            raise TypeError(
                f"numpy.{function.__name__} would lose the gradient of a Tensor; use an operation of ta, or "
                "the plain array .data"
            )
        return function(*_plain(args), **_plain(settings))

    def __neg__(self) -> Tensor:
        return rules.neg(self)

    def __pos__(self) -> Tensor:
        return self

    def __abs__(self) -> Tensor:
        return rules.abs(self)

    def __add__(self, other: Any) -> Tensor:
        return rules.add(self, other)

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
        return leaf(~self.data)

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

    # Methods, where numpy has them, with numpy's arguments

    @property
    def T(self) -> Tensor:
        """The tensor with its axes reversed."""
        return rules.transpose(self)

    def tanh(self) -> Tensor:
        """The hyperbolic tangent of each entry."""
        return rules.tanh(self)

    def sigmoid(self) -> Tensor:
        """1 / (1 + exp(-x)) of each entry."""
        return rules.sigmoid(self)

    def relu(self) -> Tensor:
        """max(x, 0) of each entry."""
        return rules.relu(self)

    def exp(self) -> Tensor:
        """The exponential of each entry."""
        return rules.exp(self)

    def log(self) -> Tensor:
        """The natural logarithm of each entry."""
        return rules.log(self)

    def sqrt(self) -> Tensor:
        """The square root of each entry."""
        return rules.sqrt(self)

    def abs(self) -> Tensor:
        """The absolute value of each entry."""
        return rules.abs(self)

    def sum(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """The sum over `axis`, one, several or (None) all."""
        return rules.sum(self, axis, keepdims)

    def mean(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """The mean over `axis`."""
        return rules.mean(self, axis, keepdims)

    def max(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """The maximum over `axis`; entries that tie share the gradient."""
        return rules.max(self, axis, keepdims)

    def min(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """The minimum over `axis`; entries that tie share the gradient."""
        return rules.min(self, axis, keepdims)

    def var(self, axis: Axis = None, ddof: int = 0, keepdims: bool = False) -> Tensor:
        """The variance over `axis`, divided by the count minus `ddof`."""
        return rules.var(self, axis, ddof, keepdims)

    def std(self, axis: Axis = None, ddof: int = 0, keepdims: bool = False) -> Tensor:
        """The standard deviation over `axis`."""
        return rules.std(self, axis, ddof, keepdims)

    def norm(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """The Euclidean norm over `axis`."""
        return rules.norm(self, axis, keepdims)

    def logsumexp(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """log of the sum of exponentials over `axis`, without overflow."""
        return rules.logsumexp(self, axis, keepdims)

    def softmax(self, axis: int = -1, mask: Any = None) -> Tensor:
        """See `ta.softmax`."""
        return rules.softmax(self, axis, mask)

    def log_softmax(self, axis: int = -1) -> Tensor:
        """See `ta.log_softmax`."""
        return rules.log_softmax(self, axis)

    def matmul(self, other: Any) -> Tensor:
        """The matrix product, as numpy's `@`."""
        return rules.matmul(self, other)

    def dot(self, other: Any) -> Tensor:
        """The matrix product, as numpy's `@`."""
        return rules.matmul(self, other)

    def transpose(self, *axes: Any) -> Tensor:
        """The tensor with its axes in the order `axes` (reversed when left out)."""
        return rules.transpose(self, _one_or_several(axes))

    def swapaxes(self, axis1: int, axis2: int) -> Tensor:
        """The tensor with two axes exchanged."""
        return rules.swapaxes(self, axis1, axis2)

    def reshape(self, *shape: Any) -> Tensor:
        """The tensor with another shape of the same size; one entry may be -1."""
        return rules.reshape(self, _one_or_several(shape))

    def ravel(self) -> Tensor:
        """The entries in a row."""
        return rules.reshape(self, (-1,))

    def flatten(self) -> Tensor:
        """The entries in a row."""
        return rules.reshape(self, (-1,))

    def squeeze(self, axis: Axis = None) -> Tensor:
        """The tensor without its axes of length one, all of them or those given."""
        return rules.squeeze(self, axis)

    def take(self, indices: Any, axis: int | None = None) -> Tensor:
        """The entries at `indices` along `axis`."""
        return rules.take(self, indices, axis)

    def astype(self, dtype: Any) -> Tensor:
        """The tensor in another dtype; the gradient comes back in this one."""
        return rules.astype(self, dtype)

    def all(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """Whether all entries along `axis` are true."""
        return leaf(np.all(self.data, axis=axis, keepdims=keepdims))

    def any(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """Whether any entry along `axis` is true."""
        return leaf(np.any(self.data, axis=axis, keepdims=keepdims))

    def argmax(self, axis: int | None = None, keepdims: bool = False) -> Tensor:
        """Where the maximum along `axis` stands; no gradient passes a choice."""
        return leaf(np.argmax(self.data, axis=axis, keepdims=keepdims))

    def argmin(self, axis: int | None = None, keepdims: bool = False) -> Tensor:
        """Where the minimum along `axis` stands; no gradient passes a choice."""
        return leaf(np.argmin(self.data, axis=axis, keepdims=keepdims))


def leaf(array: Any, name: str | None = None) -> Tensor:
    """A tensor of `array` itself, not a copy, that needs no gradient."""
    tensor = Tensor.__new__(Tensor)
    tensor.data = np.asarray(array)
    tensor.grad = None
    tensor.name = name
    tensor._primitive = None
    tensor._number = 0
    tensor._keeps = False
    tensor._tracked = False
    return tensor


def expose(x: Any, name: str) -> Any:
    """Gives a computed tensor its name in the papers, and lets it keep its gradient to be read."""
    if isinstance(x, Tensor):
        x.name = name
        x._keeps = x._tracked
    return x


def value_of(x: Any) -> Any:
    """The array of a tensor; anything else as it is."""
    return x.data if isinstance(x, Tensor) else x


def _compare(ufunc: np.ufunc, a: Any, b: Any) -> Any:
    try:
        return leaf(ufunc(value_of(a), value_of(b)))
    except TypeError:  # such as a comparison with None or a string
        return NotImplemented


def _one_or_several(arguments: Sequence[Any]) -> Any:
    if not arguments:
        return None
    return (
        arguments[0]
        if len(arguments) == 1 and not isinstance(arguments[0], (int, np.integer))
        else tuple(arguments)
    )


def _new_array(data: Any) -> np.ndarray:
    if isinstance(data, Tensor):
        return data.data.copy()
    if isinstance(data, (list, tuple)) and _holds_tracked_tensor(data):
        raise TypeError(
            "Tensor() of a list of tensors would lose their gradients; join them with ta.stack or "
            "ta.concatenate"
        )
    try:
        array = np.array(data)
    except ValueError as error:
        raise ValueError(f"Tensor: the data is not a rectangular array of numbers: {error}") from None
    if array.dtype.kind not in "fciub":
        raise TypeError(f"Tensor: expected numbers, got data of dtype {array.dtype}")
    return array


def _holds_tracked_tensor(data: Any) -> bool:
    if isinstance(data, Tensor):
        return data._tracked
    if isinstance(data, dict):
        data = tuple(data.values())
    return isinstance(data, (list, tuple)) and any(_holds_tracked_tensor(entry) for entry in data)


def _plain(data: Any) -> Any:
    """`data` with arrays in place of the tensors, also inside lists, tuples and dicts."""
    if isinstance(data, dict):
        return {key: _plain(entry) for key, entry in data.items()}
    return type(data)(map(_plain, data)) if type(data) in (list, tuple) else value_of(data)
