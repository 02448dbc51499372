"""What the recurrent operations ask of their arrays, so that none is broadcast or cast by mistake."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from tinygrad_attn.ops.steps import Step

Axes = tuple[str, ...]
Check = Callable[..., None]
"""`check(step, inputs, weights, ...)`: raises unless the arrays fit a cell's step."""

MOST_PASSED = 1024
"""How many kinds of arrays a check remembers."""

CELL: tuple[tuple[str, Axes], ...] = (
    ("w_hh", ("G·H", "H")),
    ("w_ih", ("G·H", "I")),
    ("b_ih", ("G·H",)),
    ("b_hh", ("G·H",)),
)


class Sizes:
    """The sizes of axes by their letters: each is set by the first array that has it."""

    def __init__(self, operation: str, **known: int) -> None:
        self._operation, self._known = operation, known

    def __getitem__(self, letter: str) -> int:
        return self._known[letter]

    def __setitem__(self, letter: str, size: int) -> None:
        self._known[letter] = size

    def check(self, name: str, array: Any, axes: Axes) -> None:
        """Raises ValueError, with the array's name, unless its shape has these axes; TypeError unless it
        holds floating (or complex) numbers, or booleans if it is the mask."""
        shape, known = array.shape, self._known
        if shape != tuple(map(known.get, axes)):
            fits = len(shape) == len(axes)
            if fits:
                for letter, size in zip(axes, shape, strict=True):
                    fits = fits and known.setdefault(letter, size) == size
            if not fits:
                expected = ", ".join(str(known.get(letter, letter)) for letter in axes)
                expected += "," * (len(axes) == 1)
                raise ValueError(
                    f"{self._operation}: {name} has shape {shape}, expected ({expected}), that is "
                    f"({', '.join(axes)})"
                )
        if array.dtype.kind not in ("b" if name == "mask" else "fc"):
            wanted = "booleans" if name == "mask" else "floating numbers"
            raise TypeError(f"{self._operation}: {name} has dtype {array.dtype}, expected {wanted}")

    def check_cell(self, step: type[Step], weights: Sequence[Any]) -> None:
        """The same for a cell's weights; H, or the last axis of W_hh, says how many rows they have."""
        size = self._known.get("H", weights[1].shape[-1] if weights[1].ndim else 0)
        self._known["G·H"] = step.gates * size
        by_name = dict(zip(("w_ih", "w_hh", "b_ih", "b_hh"), weights, strict=True))
        for name, axes in CELL:
            self.check(name, by_name[name], axes)

    def check_steps(self, name: str, letter: str) -> None:
        """Raises ValueError if there are no steps."""
        if not self._known[letter]:
            raise ValueError(f"{self._operation}: {name} has no steps, expected at least one")


def once(check: Check) -> Check:
    """The check, made once for all arrays of the same shapes and dtypes: kernels on small arrays are called
    often, and always with the same."""
    passed: set[Any] = set()

    @wraps(check)
    def checked(step: type[Step], inputs: Sequence[Any], weights: Sequence[Any], *more: Any) -> None:
        kinds = [None if array is None else (array.shape, array.dtype) for array in (*inputs, *weights)]
        signature = (step, *kinds, *more)
        if signature not in passed:
            check(step, inputs, weights, *more)
            if len(passed) >= MOST_PASSED:
                passed.clear()
            passed.add(signature)

    return checked
