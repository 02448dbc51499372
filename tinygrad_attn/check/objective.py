"""The scalar functions whose gradients are checked.

Order 1: the outputs weighted by random upstream gradients, Σ ḡ·y. Its gradient is one backward pass.
Order 2: that gradient weighted by a random direction, Σ v·x̄, as a function of the inputs and the upstream
gradients. Its gradient is the backward pass differentiated by `create_graph`; its values are backward passes
on plain arrays, with complex steps on complex ones.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinygrad_attn.check.problem import Problem
from tinygrad_attn.engine import Primitive, Tensor, grad
from tinygrad_attn.engine.tensor import leaf

MULTIPLE = -(2.0**10)
"""What upstream gradients are multiplied by, to see whether rules are linear in them: of the other sign, and
a power of two, so that right rules round alike."""


class Objective(ABC):
    """A scalar function of named arrays, a weighted sum, that knows its own gradient, right or wrong."""

    names: list[str]
    arrays: list[np.ndarray]

    @abstractmethod
    def parts(self, arrays: Sequence[np.ndarray], recorded: bool = False) -> list[np.ndarray]:
        """What is summed at `arrays`, real or complex, followed by the weights of each.

        `recorded`: rules that are needed for it run on tensors, so that the thread's watcher sees all that
        they compute.
        """

    @abstractmethod
    def gradient(self, arrays: Sequence[np.ndarray], recorded: bool = False) -> list[np.ndarray]:
        """The gradient by the rules under test, an array of its own for each of `arrays`.

        `recorded` as above.
        """

    def ignores_upstream(self, which: int) -> bool:
        """Whether the gradient for array number `which` stays the same when the upstream gradients change."""
        return False

    def value(self, arrays: Sequence[np.ndarray], recorded: bool = False) -> Any:
        """The number at `arrays`; `recorded` as above."""
        return _weigh(*self.parts(arrays, recorded))[()]

    def magnitude(self) -> float:
        """The sum without its signs: what rounding errors of the value are relative to."""
        return float(_weigh(*map(np.abs, self.parts(self.arrays))))


class BackwardError(Exception):
    """The backward pass raised; the exception it raised is the cause."""


def _half(tensors: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    return tensors[: len(tensors) // 2], tensors[len(tensors) // 2 :]


def _weigh(*arrays: Any) -> Any:
    values, weights = _half(arrays)
    return np.asarray(sum(np.sum(value * weight) for value, weight in zip(values, weights, strict=True)))


# Not a sum of products by the operations of the tables: those may be what is under test.
weigh = Primitive(
    "weighted sum",
    _weigh,
    each=lambda g, y, *tensors, index: g * tensors[(index + len(tensors) // 2) % len(tensors)],
)


class FirstOrder(Objective):
    """The outputs of a problem, each weighted by an upstream gradient."""

    def __init__(self, problem: Problem, upstream: Sequence[np.ndarray]) -> None:
        self.names = [variable.name for variable in problem.variables]
        self.arrays = problem.arrays
        self.upstream = upstream
        self._problem = problem

    def parts(self, arrays: Sequence[np.ndarray], recorded: bool = False) -> list[np.ndarray]:
        """y and ḡ."""
        _, outputs = self._problem.run(arrays)
        return [*(output.data for output in outputs), *self.upstream]

    def gradient(self, arrays: Sequence[np.ndarray], recorded: bool = False) -> list[np.ndarray]:
        """One backward pass with the upstream gradients. Raises BackwardError if that raises."""
        variables, outputs = self._problem.run(arrays)
        return [g.data for g in _by_rules(weigh(*outputs, *self.upstream), variables, recorded)]

    def gradient_again(self) -> list[list[np.ndarray]]:
        """Two backward passes through one graph, one for each array alone, one with `MULTIPLE` times the
        upstream gradients, divided by it again, and one through the same graph after the problem was run at
        other values. Raises BackwardError."""
        variables, outputs = self._problem.run(self.arrays)
        total = weigh(*outputs, *self.upstream)

        def gradient() -> list[np.ndarray]:
            return [g.data.copy() for g in _by_rules(total, variables)]

        first, second = gradient(), gradient()
        alone = [_by_rules(total, [variable])[0].data.copy() for variable in variables]
        larger = weigh(*outputs, *(MULTIPLE * g for g in self.upstream))
        multiple = [
            np.where(np.isfinite(g.data), g.data / MULTIPLE, once)  # what overflows tells nothing
            for g, once in zip(_by_rules(larger, variables), first, strict=True)
        ]
        with contextlib.suppress(Exception):  # of a function that refuses to go there
            self._problem.run([array * (1 - 2.0**-10) for array in self.arrays])
        return [first, second, alone, multiple, gradient()]

    def ignores_upstream(self, which: int) -> bool:
        """As `Objective.ignores_upstream`; compares with upstream gradients of another size and ratio."""
        other = FirstOrder(self._problem, [2 * g + 1 for g in self.upstream])
        before, after = self.gradient(self.arrays)[which], other.gradient(self.arrays)[which]
        return bool(np.allclose(before, after, rtol=1e-9, atol=0.0))


class SecondOrder(Objective):
    """The gradient of a problem, weighted by a direction, in its inputs and upstream gradients."""

    def __init__(
        self, problem: Problem, upstream: Sequence[np.ndarray], direction: Sequence[np.ndarray]
    ) -> None:
        several = len(upstream) > 1
        self.names = [variable.name for variable in problem.variables]
        self.names += [f"upstream {i}" if several else "upstream" for i in range(len(upstream))]
        self.arrays = [*problem.arrays, *upstream]
        self._count = len(problem.variables)
        self._direction = direction
        self._problem = problem

    def parts(self, arrays: Sequence[np.ndarray], recorded: bool = False) -> list[np.ndarray]:
        """x̄, from one backward pass, and v."""
        variables, outputs = self._problem.run(arrays[: self._count])
        found = _by_rules(weigh(*outputs, *arrays[self._count :]), variables, recorded)
        return [*(g.data for g in found), *self._direction]

    def gradient(self, arrays: Sequence[np.ndarray], recorded: bool = False) -> list[np.ndarray]:
        """Backward through the backward pass. Raises BackwardError if either raises."""
        variables, outputs = self._problem.run(arrays[: self._count])
        upstream = [leaf(array) for array in arrays[self._count :]]
        for tensor in upstream:
            tensor.requires_grad = True
        found = _by_rules(weigh(*outputs, *upstream), variables, create_graph=True)
        return [g.data for g in _by_rules(weigh(*found, *self._direction), [*variables, *upstream], recorded)]


def gradients(
    output: Any, inputs: Sequence[Tensor], upstream: Any = None, create_graph: bool = False
) -> Sequence[Tensor]:
    """`grad`, with zeros where nothing of the way to `output` is recorded."""
    if not isinstance(output, Tensor) or not output.requires_grad:
        return [leaf(np.zeros_like(x.data)) for x in inputs]
    return grad(output, inputs, upstream, create_graph=create_graph)


def _by_rules(total: Any, variables: Sequence[Tensor], create_graph: bool = False) -> Sequence[Tensor]:
    try:
        return gradients(total, variables, create_graph=create_graph)
    except Exception as error:
        raise BackwardError(f"{type(error).__name__}: {error}") from error
