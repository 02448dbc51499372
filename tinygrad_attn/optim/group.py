"""Parameters laid end to end, so that an update is a handful of numpy calls, however many there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tinygrad_attn.engine import Tensor
from tinygrad_attn.optim.gradients import check_finite, check_shape, gradient_of


class Group:
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
        self.real = np.empty(0, dtype).real.dtype  # in which complex numbers are pairs
        self.steps = [0] * len(named)
        self.active = [False] * len(named)  # whether the next update is to move a parameter
        self._views: list[np.ndarray | None] = [None] * len(named)

    def __getstate__(self) -> dict[str, Any]:
        # Copies of views are no views any more: in the copy, every parameter is adopted again.
        return {**vars(self), "_views": [None] * len(self._views)}

    def adopt(self) -> None:
        """Makes every `.data` a view of the flat array, with its values (again, if someone replaced it)."""
        for i, parameter in enumerate(self.parameters):
            if parameter.data is not self._views[i]:
                view = self.flat[self.slices[i]].reshape(self.shapes[i])
                check_shape(self.names[i], "the data", parameter.data, view.shape)
                np.copyto(view, parameter.data, casting="same_kind")
                parameter.data = self._views[i] = view

    def gather(self) -> None:
        """Copies the gradients into the flat one.

        Raises NonFiniteError or ValueError, with no parameter and no state changed, if one is not finite or
        does not fit.
        """
        gradients = [parameter.grad for parameter in self.parameters]
        self.active = [
            gradient is not None and parameter.requires_grad
            for gradient, parameter in zip(gradients, self.parameters, strict=True)
        ]
        arrays = [np.asarray(gradient) for gradient in gradients] if all(self.active) else []
        if [array.shape for array in arrays] == self.shapes:
            flat = [array.reshape(-1) for array in arrays]
            np.concatenate(flat, out=self.gradient, casting="same_kind")
        else:
            self._gather_some()
        with np.errstate(over="ignore", invalid="ignore"):
            square = np.dot(self.gradient, self.gradient)
        if not np.isfinite(square):  # or the squares overflow, which is no fault
            views = (
                self.gradient[part].reshape(shape)
                for part, shape in zip(self.slices, self.shapes, strict=True)
            )
            check_finite(zip(self.names, views, strict=True))

    def _gather_some(self) -> None:
        """The same where some parameters have no gradient, or one does not fit."""
        for i, parameter in enumerate(self.parameters):
            view = self.gradient[self.slices[i]].reshape(self.shapes[i])
            if self.active[i]:
                check_shape(self.names[i], "the gradient", parameter.grad, view.shape)
                np.copyto(view, gradient_of(parameter), casting="same_kind")
            else:
                view[...] = 0

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
                yield slice(start, self.slices[i].stop), self.steps[i]
                start = None
