"""Optimisers: rules that move parameters against their gradients.

The parameters of one precision are laid end to end in one flat array, of which each `.data` becomes a view.
An update is then a handful of numpy calls, however many parameters there are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from tinygrad_attn.engine import Tensor

Parameters = Iterable[Tensor] | Iterable[tuple[str, Tensor]]


class NonFiniteError(FloatingPointError):
    """A gradient holds NaN or infinity; nothing was updated."""


class _Group:
    """The parameters of one dtype, as views of one flat array."""

    def __init__(self, named: list[tuple[str, Tensor]], dtype: Any, slots: int) -> None:
        self.names = [name for name, _ in named]
        self.parameters = [parameter for _, parameter in named]
        self.shapes = [parameter.shape for parameter in self.parameters]
        ends = np.cumsum([parameter.size for parameter in self.parameters]).tolist()
        self.slices = [slice(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]
        self.flat = np.empty(ends[-1], dtype)
        self.gradient = np.zeros_like(self.flat)
        self.scratch = np.empty_like(self.flat)
        self.slots = [np.zeros_like(self.flat) for _ in range(slots)]
        self.steps = np.zeros(len(named), np.int64)
        self.active = [False] * len(named)  # whether the next update is to move a parameter
        self._views: list[np.ndarray | None] = [None] * len(named)

    def adopt(self) -> None:
        """Makes every `.data` a view of the flat array, with its values (again, if someone replaced it)."""
        for i, parameter in enumerate(self.parameters):
            if parameter.data is not self._views[i]:
                view = self.flat[self.slices[i]].reshape(self.shapes[i])
                _check_shape(self.names[i], "the data", parameter.data, view.shape)
                np.copyto(view, parameter.data, casting="same_kind")
                parameter.data = self._views[i] = view

    def gather(self) -> None:
        """Copies the gradients into the flat one.

        Raises NonFiniteError or ValueError, with no parameter and no state changed, if one is not finite or
        does not fit.
        """
        for i, parameter in enumerate(self.parameters):
            self.active[i] = parameter.grad is not None and parameter.requires_grad
            view = self.gradient[self.slices[i]].reshape(self.shapes[i])
            if self.active[i]:
                _check_shape(self.names[i], "the gradient", parameter.grad, view.shape)
                np.copyto(view, _gradient(parameter), casting="same_kind")
            else:
                view[...] = 0
        with np.errstate(over="ignore", invalid="ignore"):
            square = np.dot(self.gradient, self.gradient)
        if not np.isfinite(square):  # or the squares overflow, which is no fault
            views = (
                self.gradient[part].reshape(shape)
                for part, shape in zip(self.slices, self.shapes, strict=True)
            )
            _check_finite(zip(self.names, views, strict=True))

    def runs(self) -> Iterator[tuple[slice, int]]:
        """(part of the flat arrays, number of its update) for each stretch of parameters that move."""
        start = None
        for i, parameter in enumerate(self.parameters):
            if not self.active[i]:
                continue
            self.steps[i] += 1
            parameter.note_written()
            if start is None:
                start = self.slices[i].start
            following = i + 1 < len(self.parameters) and self.active[i + 1]
            if not (following and self.steps[i + 1] + 1 == self.steps[i]):
                yield slice(start, self.slices[i].stop), int(self.steps[i])
                start = None


class Optimizer:
    """What the optimisers share.

    Args:
        parameters: tensors, or (name, tensor) pairs, whose names then stand in error messages.
        lr: the learning rate, also an attribute that may be set before any step.

    Parameters whose `.grad` is None, and frozen ones (`requires_grad = False`), are left alone. A step writes
    in place, so a graph recorded before it cannot be walked any more.

    Raises:
        TypeError: for anything but tensors.
        ValueError: if there are none, one comes twice, two have one name, one is no leaf, or none requires a
            gradient.
    """

    _slots: tuple[str, ...] = ()

    def __init__(self, parameters: Parameters, lr: float) -> None:
        self.lr = _checked("lr", lr, 0)
        title = type(self).__name__
        named = _all_named(title, parameters)
        if not named:
            raise ValueError(f"{title}: expected parameters, got none")
        for what, count in (
            ("a parameter is given twice", len({id(parameter) for _, parameter in named})),
            ("two parameters have the same name", len({name for name, _ in named})),
        ):
            if count < len(named):
                raise ValueError(f"{title}: {what}")
        by_dtype: dict[Any, list[tuple[str, Tensor]]] = {}
        for name, parameter in named:
            if not parameter.is_leaf or parameter.dtype.kind not in "fc":
                raise ValueError(f"{title}: {name} is not a leaf tensor of floating numbers")
            by_dtype.setdefault(parameter.dtype, []).append((name, parameter))
        if not any(parameter.requires_grad for _, parameter in named):
            raise ValueError(f"{title}: none of the {len(named)} parameters requires a gradient")
        self._groups = [_Group(members, dtype, len(self._slots)) for dtype, members in by_dtype.items()]

    def step(self) -> None:
        """Updates every parameter that has a gradient.

        Raises:
            NonFiniteError: if a gradient holds NaN or infinity; no parameter and no state is changed then.
            ValueError: if a gradient, or data that was replaced, has another shape than the parameter had.
        """
        for group in self._groups:
            group.adopt()
            group.gather()
        for group in self._groups:
            for part, number in group.runs():
                slots = [slot[part] for slot in group.slots]
                self._update(group.flat[part], group.gradient[part], group.scratch[part], slots, number)

    def _update(
        self, p: np.ndarray, g: np.ndarray, scratch: np.ndarray, slots: list[np.ndarray], number: int
    ) -> None:
        """Update number `number` of the stretch `p`; may write to all arrays."""
        raise NotImplementedError

    def zero_grad(self) -> None:
        """Forgets the gradients."""
        for group in self._groups:
            for parameter in group.parameters:
                parameter.grad = None

    def state_dict(self) -> dict[str, Any]:
        """Copies of all that changes from step to step besides the parameters.

        `lr` and, for each parameter, arrays by its name (`momentum/encoder.weight`) and the number of its
        updates (`steps/encoder.weight`).
        """
        state: dict[str, Any] = {"lr": self.lr}
        for group in self._groups:
            for i, (name, parameter) in enumerate(zip(group.names, group.parameters, strict=True)):
                state[f"steps/{name}"] = int(group.steps[i])
                for label, slot in zip(self._slots, group.slots, strict=True):
                    state[f"{label}/{name}"] = slot[group.slices[i]].reshape(parameter.shape).copy()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` returned: all of it or, if anything does not fit, nothing.

        Raises:
            KeyError: if entries are missing or unknown.
            ValueError: if a shape or kind of number differs.
        """
        title, expected = type(self).__name__, self.state_dict()
        missing = ", ".join(name for name in expected if name not in state) or "nothing"
        unknown = ", ".join(str(name) for name in state if name not in expected) or "nothing"
        if missing != "nothing" or unknown != "nothing":
            raise KeyError(f"{title}: the state lacks {missing} and has unknown {unknown}")
        found = {}
        for key, value in expected.items():
            array, kind = np.asarray(state[key]), "iu" if key.startswith("steps/") else "fciu"
            if array.shape != np.shape(value):
                raise ValueError(f"{title}: {key} has shape {array.shape}, expected {np.shape(value)}")
            if array.dtype.kind not in kind or not np.can_cast(
                array.dtype, np.asarray(value).dtype, "same_kind"
            ):
                raise ValueError(
                    f"{title}: {key} has dtype {array.dtype}, expected {np.asarray(value).dtype}"
                )
            found[key] = array.astype(np.asarray(value).dtype)
        self.lr = _checked("lr", float(found["lr"]), 0)
        for group in self._groups:
            for i, name in enumerate(group.names):
                group.steps[i] = found[f"steps/{name}"]
                for label, slot in zip(self._slots, group.slots, strict=True):
                    slot[group.slices[i]] = found[f"{label}/{name}"].reshape(-1)


class SGD(Optimizer):
    """v ← μ v + g, p ← p - lr v; without momentum, v is g. As PyTorch's."""

    def __init__(self, parameters: Parameters, lr: float = 1e-2, momentum: float = 0.0) -> None:
        self.momentum = _checked("momentum", momentum, 0)
        self._slots = ("momentum",) if momentum else ()
        super().__init__(parameters, lr)

    def _update(
        self, p: np.ndarray, g: np.ndarray, scratch: np.ndarray, slots: list[np.ndarray], number: int
    ) -> None:
        for velocity in slots:
            velocity *= self.momentum
            velocity += g
            g = velocity
        np.multiply(g, self.lr, out=scratch)
        p -= scratch


class Adam(Optimizer):
    """p ← p - lr m̂ / (√v̂ + ε), with running means m of g and v of g². Kingma and Ba 2015, algorithm 1."""

    _slots = ("mean", "mean_square")

    def __init__(
        self,
        parameters: Parameters,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        self.betas = (_checked("betas", betas[0], 0, 1), _checked("betas", betas[1], 0, 1))
        self.eps = _checked("eps", eps, 0, above=True)
        super().__init__(parameters, lr)

    def _update(
        self, p: np.ndarray, g: np.ndarray, scratch: np.ndarray, slots: list[np.ndarray], number: int
    ) -> None:
        (mean, mean_square), (beta1, beta2) = slots, self.betas
        mean *= beta1
        np.multiply(g, 1 - beta1, scratch)
        mean += scratch
        mean_square *= beta2
        np.multiply(g, g, g)
        g *= 1 - beta2
        mean_square += g
        # lr m̂ / (√v̂ + ε), with the corrections of both means drawn out of the arrays
        correction = (1 - beta2**number) ** 0.5
        np.sqrt(mean_square, scratch)
        scratch += self.eps * correction
        np.divide(mean, scratch, scratch)
        scratch *= self.lr * correction / (1 - beta1**number)
        np.subtract(p, scratch, p)


class Adadelta(Optimizer):
    """p ← p - lr Δ, Δ = √(D + ε) / √(v + ε) · g, with running means v of g² and D of Δ². Zeiler 2012."""

    _slots = ("mean_square", "mean_square_update")

    def __init__(self, parameters: Parameters, lr: float = 1.0, rho: float = 0.95, eps: float = 1e-6) -> None:
        self.rho = _checked("rho", rho, 0, 1)
        self.eps = _checked("eps", eps, 0, above=True)
        super().__init__(parameters, lr)

    def _update(
        self, p: np.ndarray, g: np.ndarray, scratch: np.ndarray, slots: list[np.ndarray], number: int
    ) -> None:
        mean_square, mean_square_update = slots
        np.multiply(g, g, out=scratch)
        scratch *= 1 - self.rho
        mean_square *= self.rho
        mean_square += scratch
        np.add(mean_square_update, self.eps, out=scratch)
        scratch /= mean_square + self.eps
        np.sqrt(scratch, out=scratch)
        g *= scratch
        np.multiply(g, g, out=scratch)
        scratch *= 1 - self.rho
        mean_square_update *= self.rho
        mean_square_update += scratch
        g *= self.lr
        p -= g


def clip_grad_norm(parameters: Parameters, max_norm: float) -> float:
    """Scales all gradients together so that their norm over all entries is at most `max_norm`, as PyTorch.

    Args:
        parameters: tensors, or (name, tensor) pairs; those without a gradient are passed over.
        max_norm: at least zero; infinity to measure the norm alone.

    Returns:
        The norm before clipping.

    Raises:
        NonFiniteError: if a gradient holds NaN or infinity; nothing is scaled then.
    """
    if not max_norm >= 0:
        raise ValueError(f"max_norm is {max_norm}, expected a number of at least 0")
    unique = {id(p): (name, p) for name, p in _all_named("clip_grad_norm", parameters) if p.grad is not None}
    gradients = [(name, np.asarray(parameter.grad)) for name, parameter in unique.values()]
    with np.errstate(over="ignore", invalid="ignore"):
        norm = math.sqrt(sum(float(np.vdot(gradient, gradient).real) for _, gradient in gradients))
    if not 1e-12 < norm < math.inf:  # squares may have overflowed, or vanished
        _check_finite(gradients)
        norm = _scaled_norm([gradient for _, gradient in gradients])
    scale = max_norm / (norm + 1e-6)
    if scale < 1:
        for _, parameter in unique.values():
            gradient = _gradient(parameter)
            if isinstance(gradient, np.ndarray) and gradient.dtype.kind in "fc":
                gradient *= scale
            else:  # numbers that somebody put there
                parameter.grad = np.asarray(np.multiply(gradient, scale))
    return norm


def _scaled_norm(arrays: list[np.ndarray]) -> float:
    """The norm over all entries, divided by the largest before they are squared."""
    largest = max((float(np.abs(array).max(initial=0)) for array in arrays), default=0.0)
    if largest == 0:
        return 0.0
    squares = (np.square(np.abs(array).astype(np.float64) / largest).sum() for array in arrays)
    return largest * math.sqrt(sum(map(float, squares)))


def _all_named(title: str, parameters: Any) -> list[tuple[str, Tensor]]:
    """(name, parameter) for each entry; unnamed ones are called by their own name and their position."""
    if isinstance(parameters, Tensor) or not isinstance(parameters, Iterable):
        kind = type(parameters).__name__
        raise TypeError(
            f"{title}: expected tensors in a list or the like, such as model.parameters(), got a {kind}"
        )
    found = []
    for position, entry in enumerate(parameters):
        name, parameter = entry if isinstance(entry, tuple) and len(entry) == 2 else (None, entry)
        if not isinstance(parameter, Tensor):
            raise TypeError(
                f"{title}: parameter number {position} is a {type(parameter).__name__}, expected a Tensor"
            )
        found.append((name or f"{parameter.name or 'parameter'} (number {position})", parameter))
    return found


def _gradient(parameter: Tensor) -> np.ndarray:
    assert parameter.grad is not None
    return parameter.grad


def _check_shape(name: str, what: str, array: Any, expected: tuple[int, ...]) -> None:
    if np.shape(array) != expected:
        raise ValueError(f"{name}: {what} has shape {np.shape(array)}, expected {expected}")


def _check_finite(named: Iterable[tuple[str, np.ndarray]]) -> None:
    """Raises NonFiniteError naming the parameters whose gradients are not finite."""
    faults = []
    for name, gradient in named:
        wrong = ~np.isfinite(gradient)
        if wrong.any():
            first = tuple(int(i) for i in np.argwhere(wrong)[0])
            count = np.count_nonzero(wrong)
            faults.append(f"{name} {gradient.shape}: {count} entries, the first {gradient[first]} at {first}")
    if faults:
        raise NonFiniteError("gradients are not finite, nothing was updated: " + "; ".join(faults))


def _checked(
    name: str, value: float, low: float, below: float | None = None, *, above: bool = False
) -> float:
    if not (
        math.isfinite(value) and (value > low if above else value >= low) and (below is None or value < below)
    ):
        upper = "" if below is None else f" and below {below}"
        raise ValueError(
            f"{name} is {value}, expected a number {'above' if above else 'of at least'} {low}{upper}"
        )
    return float(value)
