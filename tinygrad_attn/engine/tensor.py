"""`Tensor`: an array that knows how it was computed."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from tinygrad_attn.engine.methods import Axis, Methods
from tinygrad_attn.engine.operators import Operators, holds_tracked_tensor, rules, value_of

if TYPE_CHECKING:
    from tinygrad_attn.engine.modes import Scope
    from tinygrad_attn.engine.primitive import Primitive

__all__ = ["Axis", "Tensor", "expose", "leaf", "next_number", "rules", "value_of"]

next_number = count(1).__next__


class Tensor(Operators, Methods):
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

    def __format__(self, form: str) -> str:
        """A 0-d tensor is formatted as its number: `f"{loss:.3f}"`."""
        return format(self.data.item(), form) if form and not self.data.ndim else super().__format__(form)

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

    def __reduce__(self) -> Any:
        if self._primitive is not None:
            raise RuntimeError(
                f"{self._label()} was computed by {self._primitive.name}; only leaves can be copied or "
                "pickled"
            )
        return _restored, (self.data, self._tracked, self.name, self.grad)

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


def _restored(array: np.ndarray, tracked: bool, name: str | None, gradient: np.ndarray | None) -> Tensor:
    """A leaf that was pickled. No graph of this process has used it, whatever was written to it before."""
    tensor = leaf(array, name)
    tensor._tracked, tensor.grad = tracked, gradient
    return tensor


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


def _new_array(data: Any) -> np.ndarray:
    if isinstance(data, Tensor):
        return data.data.copy()
    if isinstance(data, (list, tuple)) and holds_tracked_tensor(data):
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
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


rules.leaf = leaf
