"""The optimisers: rules that move parameters against their gradients."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from tinygrad_attn.engine import Tensor
from tinygrad_attn.errors import check_number
from tinygrad_attn.optim.gradients import Parameters, all_named, labelled
from tinygrad_attn.optim.group import Group


class Optimizer(ABC):
    """What the optimisers share.

    Args:
        parameters: tensors, or (name, tensor) pairs, whose names then stand in error messages.
        lr: the learning rate, also an attribute that may be set before any step.
        weight_decay: λ; every gradient g is taken as g + λ p, that of the loss with ½ λ |p|² added.

    Parameters whose `.grad` is None, and frozen ones (`requires_grad = False`), are left alone. Of complex
    ones, the real and the imaginary part move each for itself, as in PyTorch. A step writes in place, so a
    graph recorded before it cannot be walked any more. An optimiser moves the parameters' arrays into one:
    what shares memory with a `.data` from before, shares none with the one after.

    Raises:
        TypeError: for anything but tensors.
        ValueError: if there are none, one comes twice, two have one name, one is no leaf, or none requires a
            gradient.
    """

    _slots: tuple[str, ...] = ()

    def __init__(self, parameters: Parameters, lr: float, weight_decay: float = 0.0) -> None:
        self.lr = lr
        self.weight_decay = _checked("weight_decay", weight_decay, 0)
        title = type(self).__name__
        named = labelled(all_named(title, parameters))
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
        self._groups = [Group(members, dtype, len(self._slots)) for dtype, members in by_dtype.items()]
        for group in self._groups:
            group.adopt()

    def __repr__(self) -> str:
        settings = {
            name.lstrip("_"): value for name, value in vars(self).items() if name not in ("_groups", "_slots")
        }
        listed = ", ".join(f"{name}={value!r}" for name, value in settings.items())
        return (
            f"{type(self).__name__}({sum(len(group.names) for group in self._groups)} parameters, {listed})"
        )

    @property
    def lr(self) -> float:
        """The learning rate; setting it raises as the constructor does."""
        return self._lr

    @lr.setter
    def lr(self, value: float) -> None:
        self._lr = _checked("lr", value, 0)

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
                arrays = (group.flat, group.gradient, group.scratch, *group.slots)
                p, g, scratch, *slots = (array[part].view(group.real) for array in arrays)
                if self.weight_decay:
                    self._decay(p, g, scratch)
                self._update(p, g, scratch, slots, number)

    def _check_eps(self, eps: float, smallest: float = 1) -> None:
        """Raises ValueError if `eps`, times the smallest factor it meets, is zero in a parameter's dtype.

        Where the squares of gradients vanish, too, 0 / 0 would follow.
        """
        for group in self._groups:
            dtype = group.flat.dtype
            if not dtype.type(eps * smallest):
                title = type(self).__name__
                raise ValueError(f"{title}: eps {eps} is too small for {dtype}; give a larger, such as 1e-4")

    def _decay(self, p: np.ndarray, g: np.ndarray, scratch: np.ndarray) -> None:
        """Counts the weight decay in, before the update; may write to all arrays."""
        np.multiply(p, self.weight_decay, out=scratch)
        g += scratch

    @abstractmethod
    def _update(
        self, p: np.ndarray, g: np.ndarray, scratch: np.ndarray, slots: list[np.ndarray], number: int
    ) -> None:
        """Update number `number` of the stretch `p`; may write to all arrays."""

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
                state[f"steps/{name}"] = group.steps[i]
                for label, slot in zip(self._slots, group.slots, strict=True):
                    state[f"{label}/{name}"] = slot[group.slices[i]].reshape(parameter.shape).copy()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` returned: all of it or, if anything does not fit, nothing.

        Raises:
            TypeError: if `state` is not a mapping.
            KeyError: if entries are missing or unknown.
            ValueError: if a shape or kind of number differs, or a count is negative.
        """
        title, expected = type(self).__name__, self.state_dict()
        if not isinstance(state, Mapping):
            kind = type(state).__name__
            raise TypeError(f"{title}: the state is a {kind}, expected what state_dict returned")
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
            if kind == "iu" and array < 0:
                raise ValueError(f"{title}: {key} is {array}, expected a number of at least 0")
            found[key] = array.astype(np.asarray(value).dtype)
        self.lr = float(found["lr"])
        for group in self._groups:
            for i, name in enumerate(group.names):
                group.steps[i] = int(found[f"steps/{name}"])
                for label, slot in zip(self._slots, group.slots, strict=True):
                    slot[group.slices[i]] = found[f"{label}/{name}"].reshape(-1)


class SGD(Optimizer):
    """v ← μ v + g, p ← p - lr v; without momentum, v is g, and is not kept. As PyTorch's."""

    def __init__(
        self, parameters: Parameters, lr: float = 1e-2, momentum: float = 0.0, weight_decay: float = 0.0
    ) -> None:
        self._slots = ("momentum",) if momentum else ()
        self.momentum = momentum
        super().__init__(parameters, lr, weight_decay)

    @property
    def momentum(self) -> float:
        """μ; setting it raises as the constructor does, and where it was zero from the beginning."""
        return self._momentum

    @momentum.setter
    def momentum(self, value: float) -> None:
        checked = _checked("momentum", value, 0)
        if checked and not self._slots:
            raise ValueError("SGD was made without momentum and keeps no v; make it with one above zero")
        self._momentum = checked

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
        weight_decay: float = 0.0,
    ) -> None:
        if np.shape(betas) != (2,):
            raise TypeError(f"betas is {betas!r}, expected two numbers")
        self.betas = (_checked("betas", betas[0], 0, 1), _checked("betas", betas[1], 0, 1))
        self.eps = _checked("eps", eps, 0, above=True)
        super().__init__(parameters, lr, weight_decay)
        self._check_eps(self.eps, (1 - self.betas[1]) ** 0.5)

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


class AdamW(Adam):
    """Adam with decoupled weight decay: p ← (1 - lr λ) p, then Adam's update. Loshchilov and Hutter 2019,
    algorithm 2, with lr in place of their schedule multiplier, as in PyTorch.
    """

    def __init__(
        self,
        parameters: Parameters,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        super().__init__(parameters, lr, betas, eps, weight_decay)

    def _decay(self, p: np.ndarray, g: np.ndarray, scratch: np.ndarray) -> None:
        p *= 1 - self.lr * self.weight_decay


class Adadelta(Optimizer):
    """p ← p - lr Δ, Δ = √(D + ε) / √(v + ε) · g, with running means v of g² and D of Δ². Zeiler 2012."""

    _slots = ("mean_square", "mean_square_update")

    def __init__(
        self,
        parameters: Parameters,
        lr: float = 1.0,
        rho: float = 0.95,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        self.rho = _checked("rho", rho, 0, 1)
        self.eps = _checked("eps", eps, 0, above=True)
        super().__init__(parameters, lr, weight_decay)
        self._check_eps(self.eps)

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


def _checked(
    name: str, value: float, low: float, below: float | None = None, *, above: bool = False
) -> float:
    check_number(name, value)
    if not (
        math.isfinite(value) and (value > low if above else value >= low) and (below is None or value < below)
    ):
        upper = "" if below is None else f" and below {below}"
        raise ValueError(
            f"{name} is {value}, expected a number {'above' if above else 'of at least'} {low}{upper}"
        )
    return float(value)
