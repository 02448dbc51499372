"""Optimisers: rules that move parameters against their gradients.

The parameters of one precision are laid end to end in one flat array, of which each `.data` becomes a view. An update
is then a handful of numpy calls, however many parameters there are.
"""

from __future__ import annotations

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
        ends = np.cumsum([parameter.size for parameter in self.parameters]).tolist()
        self.slices = [slice(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]
        self.flat = np.empty(ends[-1], dtype)
        self.gradient = np.zeros_like(self.flat)
        self.scratch = np.empty_like(self.flat)
        self.slots = [np.zeros_like(self.flat) for _ in range(slots)]
        self.steps = np.zeros(len(named), np.int64)
        self._views: list[np.ndarray | None] = [None] * len(named)
        self._gradient_views = [
            self.gradient[part].reshape(parameter.shape) for part, parameter in zip(self.slices, self.parameters, strict=True)
        ]

    def adopt(self) -> None:
        """Makes every `.data` a view of the flat array, keeping its values (again, if someone replaced it)."""
        for i, parameter in enumerate(self.parameters):
            if parameter.data is not self._views[i]:
                view = self.flat[self.slices[i]].reshape(parameter.shape)
                np.copyto(view, parameter.data)
                parameter.data = self._views[i] = view

    def gather(self) -> None:
        """Copies the gradients into the flat one. Raises NonFiniteError, with nothing else changed, if one is not finite."""
        for parameter, view in zip(self.parameters, self._gradient_views, strict=True):
            if parameter.grad is None:
                view[...] = 0
            else:
                np.copyto(view, parameter.grad)
        if not np.isfinite(np.dot(self.gradient, self.gradient)):
            _check_finite(zip(self.names, self.parameters, strict=True))

    def runs(self) -> Iterator[tuple[slice, int]]:
        """(part of the flat arrays, number of its next update), for each stretch of parameters that have a gradient."""
        start = None
        for i, parameter in enumerate(self.parameters):
            if parameter.grad is None:
                continue
            self.steps[i] += 1
            parameter.note_written()
            if start is None:
                start = self.slices[i].start
            following = i + 1 < len(self.parameters) and self.parameters[i + 1].grad is not None
            if not (following and self.steps[i + 1] + 1 == self.steps[i]):
                yield slice(start, self.slices[i].stop), int(self.steps[i])
                start = None


class Optimizer:
    """What the optimisers share.

    Args:
        parameters: tensors, or (name, tensor) pairs, whose names then stand in error messages.
        lr: the learning rate, also an attribute that may be set before any step.

    Parameters whose `.grad` is None are left alone. A step writes in place, so a graph recorded before it cannot be
    walked any more.
    """

    _slots: tuple[str, ...] = ()

    def __init__(self, parameters: Parameters, lr: float) -> None:
        self.lr = _checked("lr", lr, 0)
        named = [_named(i, entry) for i, entry in enumerate(parameters)]
        if not named:
            raise ValueError(f"{type(self).__name__}: expected parameters, got none")
        if len({id(parameter) for _, parameter in named}) < len(named):
            raise ValueError(f"{type(self).__name__}: a parameter is given twice")
        by_dtype: dict[Any, list[tuple[str, Tensor]]] = {}
        for name, parameter in named:
            if not parameter.is_leaf or not parameter.requires_grad:
                raise ValueError(f"{type(self).__name__}: {name} is not a leaf that requires a gradient")
            by_dtype.setdefault(parameter.dtype, []).append((name, parameter))
        self._groups = [_Group(members, dtype, len(self._slots)) for dtype, members in by_dtype.items()]

    def step(self) -> None:
        """Updates every parameter that has a gradient.

        Raises:
            NonFiniteError: if a gradient holds NaN or infinity; no parameter and no state is changed then.
        """
        for group in self._groups:
            group.adopt()
            group.gather()
        for group in self._groups:
            for part, number in group.runs():
                self._update(
                    group.flat[part], group.gradient[part], group.scratch[part], [slot[part] for slot in group.slots], number
                )

    def _update(self, p: np.ndarray, g: np.ndarray, scratch: np.ndarray, slots: list[np.ndarray], number: int) -> None:
        """Update number `number` of the stretch `p`; may write to all arrays."""
        raise NotImplementedError

    def zero_grad(self) -> None:
        """Forgets the gradients."""
        for group in self._groups:
            for parameter in group.parameters:
                parameter.grad = None

    def state_dict(self) -> dict[str, Any]:
        """Copies of all that later steps depend on besides the parameters: `lr` and, for each parameter, arrays by
        name (`momentum/encoder.weight`) and the number of updates (`steps/encoder.weight`)."""
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
            ValueError: if a shape differs.
        """
        expected = self.state_dict()
        missing, unknown = sorted(expected.keys() - state.keys()), sorted(state.keys() - expected.keys())
        if missing or unknown:
            raise KeyError(f"{type(self).__name__}: the state lacks {missing} and has unknown {unknown}")
        for key, value in expected.items():
            if np.shape(state[key]) != np.shape(value):
                raise ValueError(f"{type(self).__name__}: {key} has shape {np.shape(state[key])}, expected {np.shape(value)}")
        self.lr = _checked("lr", state["lr"], 0)
        for group in self._groups:
            for i, name in enumerate(group.names):
                group.steps[i] = int(state[f"steps/{name}"])
                for label, slot in zip(self._slots, group.slots, strict=True):
                    slot[group.slices[i]] = np.asarray(state[f"{label}/{name}"]).reshape(-1)


class SGD(Optimizer):
    """v ← μ v + g, p ← p - lr v; without momentum, v is g. As PyTorch's."""

    def __init__(self, parameters: Parameters, lr: float = 1e-2, momentum: float = 0.0) -> None:
        self.momentum = _checked("momentum", momentum, 0)
        self._slots = ("momentum",) if momentum else ()
        super().__init__(parameters, lr)

    def _update(self, p: np.ndarray, g: np.ndarray, scratch: np.ndarray, slots: list[np.ndarray], number: int) -> None:
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
        self.eps = _checked("eps", eps, 0)
        super().__init__(parameters, lr)

    def _update(self, p: np.ndarray, g: np.ndarray, scratch: np.ndarray, slots: list[np.ndarray], number: int) -> None:
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
        self.eps = _checked("eps", eps, 0)
        super().__init__(parameters, lr)

    def _update(self, p: np.ndarray, g: np.ndarray, scratch: np.ndarray, slots: list[np.ndarray], number: int) -> None:
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
    """Scales all gradients together so that their norm, over all entries, is at most `max_norm`.

    Args:
        parameters: tensors, or (name, tensor) pairs; those without a gradient are passed over.
        max_norm: above zero.

    Returns:
        The norm before clipping.

    Raises:
        NonFiniteError: if a gradient holds NaN or infinity; nothing is scaled then.
    """
    max_norm = _checked("max_norm", max_norm, 0)
    named = [(name, p) for name, p in (_named(i, entry) for i, entry in enumerate(parameters)) if p.grad is not None]
    norm = float(np.sqrt(sum(float(np.vdot(p.grad, p.grad).real) for _, p in named)))
    if not np.isfinite(norm):
        _check_finite(named)
        norm = float(np.sqrt(sum(np.square(np.abs(_gradient(p).astype(np.float64))).sum() for _, p in named)))
    if norm > max_norm:
        for _, parameter in named:
            gradient = _gradient(parameter)
            np.multiply(gradient, max_norm / (norm + 1e-6), out=gradient, casting="same_kind")
    return norm


def _named(position: int, entry: Any) -> tuple[str, Tensor]:
    name, parameter = entry if isinstance(entry, tuple) else (None, entry)
    if not isinstance(parameter, Tensor):
        raise TypeError(f"parameter number {position} is a {type(parameter).__name__}, expected a Tensor")
    return name or f"{parameter.name or 'parameter'} (number {position})", parameter


def _gradient(parameter: Tensor) -> np.ndarray:
    assert parameter.grad is not None
    return parameter.grad


def _check_finite(named: Iterable[tuple[str, Tensor]]) -> None:
    """Raises NonFiniteError naming the parameters whose gradients are not finite."""
    faults = []
    for name, parameter in named:
        if parameter.grad is None:
            continue
        wrong = ~np.isfinite(parameter.grad)
        if wrong.any():
            first = tuple(int(i) for i in np.argwhere(wrong)[0])
            value = parameter.grad[first]
            faults.append(f"{name} {parameter.shape}: {wrong.sum()} entries, the first {value} at {first}")
    if faults:
        raise NonFiniteError("gradients are not finite, nothing was updated: " + "; ".join(faults))


def _checked(name: str, value: float, low: float, below: float | None = None) -> float:
    if not (np.isfinite(value) and value >= low and (below is None or value < below)):
        upper = "" if below is None else f" and below {below}"
        raise ValueError(f"{name} is {value}, expected a number of at least {low}{upper}")
    return float(value)
