"""Random graphs against an oracle that is slow and obviously right: numbers that carry their derivatives."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

import tinygrad_attn as ta


class Dual:
    """A number with its derivative by every entry of every leaf, {(leaf, entry): derivative}."""

    __array_ufunc__ = None

    def __init__(self, value: float, slopes: dict[tuple[int, int], float]) -> None:
        self.value = value
        self.slopes = slopes

    def _with(self, value: float, *terms: tuple[Dual, float]) -> Dual:
        slopes: dict[tuple[int, int], float] = {}
        for number, factor in terms:
            for key, slope in number.slopes.items():
                slopes[key] = slopes.get(key, 0.0) + factor * slope
        return Dual(value, slopes)

    def __add__(self, other: Dual) -> Dual:
        return self._with(self.value + other.value, (self, 1.0), (other, 1.0))

    def __sub__(self, other: Dual) -> Dual:
        return self._with(self.value - other.value, (self, 1.0), (other, -1.0))

    def __mul__(self, other: Dual) -> Dual:
        return self._with(self.value * other.value, (self, other.value), (other, self.value))

    def tanh(self) -> Dual:
        y = math.tanh(self.value)
        return self._with(y, (self, 1 - y * y))

    def sigmoid(self) -> Dual:
        y = 1 / (1 + math.exp(-self.value))
        return self._with(y, (self, y * (1 - y)))

    def neg(self) -> Dual:
        return self._with(-self.value, (self, -1.0))


def each(method: str, array: np.ndarray) -> np.ndarray:
    found = np.empty(array.shape, object)
    for index, number in np.ndenumerate(array):
        found[index] = getattr(number, method)()
    return found


def summed(array: np.ndarray, axis: int | None) -> np.ndarray:
    lines = np.moveaxis(array, axis, 0) if axis is not None else array.reshape(-1)
    total = lines[0]
    for line in lines[1:]:
        total = total + line
    return total if isinstance(total, np.ndarray) else object_array(total)


def object_array(number: Dual) -> np.ndarray:
    array = np.empty((), object)
    array[()] = number
    return array


def as_array(result: Any) -> np.ndarray:
    return result if isinstance(result, np.ndarray) else object_array(result)


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    found = np.empty((a.shape[0], b.shape[1]), object)
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            found[i, j] = summed(as_array(a[i] * b[:, j]), 0)[()]
    return found


Pair = tuple[ta.Tensor, np.ndarray]
SIDES = st.lists(st.integers(1, 3), max_size=3).map(tuple)


class Graphs(RuleBasedStateMachine):
    pairs = Bundle("pairs")

    def __init__(self) -> None:
        super().__init__()
        self.leaves: list[tuple[ta.Tensor, bytes]] = []
        self.rng = np.random.default_rng(0)

    def _leaf(self, shape: tuple[int, ...]) -> Pair:
        tensor = ta.Tensor(self.rng.standard_normal(shape), requires_grad=True)
        numbers = np.empty(shape, object)
        for entry, index in enumerate(np.ndindex(shape)):
            numbers[index] = Dual(float(tensor.data[index]), {(len(self.leaves), entry): 1.0})
        self.leaves.append((tensor, tensor.data.tobytes()))
        return tensor, numbers

    @initialize(target=pairs, seed=st.integers(0, 2**32 - 1), shape=SIDES)
    def start(self, seed: int, shape: tuple[int, ...]) -> Pair:
        self.rng = np.random.default_rng(seed)
        return self._leaf(shape)

    @rule(target=pairs, shape=SIDES)
    def new_leaf(self, shape: tuple[int, ...]) -> Pair:
        assume(len(self.leaves) < 4)
        return self._leaf(shape)

    @rule(target=pairs, x=pairs, name=st.sampled_from(["tanh", "sigmoid", "neg"]))
    def entry_by_entry(self, x: Pair, name: str) -> Pair:
        return getattr(ta, name)(x[0]), each(name, x[1])

    @rule(target=pairs, a=pairs, b=pairs, name=st.sampled_from(["add", "sub", "mul"]))
    def two(self, a: Pair, b: Pair, name: str) -> Pair:
        try:
            shape = np.broadcast_shapes(a[0].shape, b[0].shape)
        except ValueError:
            shape = None
        assume(shape is not None and math.prod(shape) <= 30)
        left, right = np.broadcast_arrays(a[1], b[1])
        numbers = {"add": left + right, "sub": left - right, "mul": left * right}[name]
        return getattr(ta, name)(a[0], b[0]), as_array(numbers)

    @rule(target=pairs, a=pairs, b=pairs)
    def matrices(self, a: Pair, b: Pair) -> Pair:
        assume(a[0].ndim == 2 == b[0].ndim and a[0].shape[1] == b[0].shape[0])
        return ta.tanh(a[0] @ b[0]), each("tanh", product(a[1], b[1]))

    @rule(target=pairs, x=pairs, axis=st.integers(-3, 2), whole=st.booleans())
    def add_up(self, x: Pair, axis: int, whole: bool) -> Pair:
        assume(x[0].ndim and -x[0].ndim <= axis < x[0].ndim)
        axes = None if whole else axis
        return x[0].sum(axis=axes), summed(x[1], axes)

    @rule(target=pairs, x=pairs, data=st.data())
    def rows(self, x: Pair, data: st.DataObject) -> Pair:
        assume(x[0].ndim)
        ids = data.draw(st.lists(st.integers(-x[0].shape[0], x[0].shape[0] - 1), min_size=1, max_size=3))
        return x[0][ids], x[1][ids]

    @rule(target=pairs, x=pairs)
    def turn_over(self, x: Pair) -> Pair:
        return x[0].T[::-1] if x[0].ndim else x[0].reshape(1), x[1].T[::-1] if x[0].ndim else x[1].reshape(1)

    @rule(target=pairs, a=pairs, b=pairs)
    def end_to_end(self, a: Pair, b: Pair) -> Pair:
        assume(a[0].ndim and a[0].shape[1:] == b[0].shape[1:] and a[0].ndim == b[0].ndim)
        assume(a[0].size + b[0].size <= 30)
        return ta.concatenate([a[0], b[0]]), np.concatenate([a[1], b[1]])

    @rule(target=pairs, a=pairs, b=pairs)
    def choose(self, a: Pair, b: Pair) -> Pair:
        assume(a[0].shape == b[0].shape)
        mask = self.rng.random(a[0].shape) < 0.5
        return ta.where(mask, a[0], b[0]), np.where(mask, a[1], b[1])

    @rule(x=pairs, create_graph=st.booleans())
    def compare(self, x: Pair, create_graph: bool) -> None:
        tensor, numbers = x
        values = np.array([number.value for number in numbers.flat]).reshape(numbers.shape)
        scale = np.abs(values).max(initial=1.0)
        assert numbers.shape == tensor.shape
        assert np.abs(tensor.data - values).max(initial=0.0) <= 1e-12 * scale
        upstream = self.rng.standard_normal(tensor.shape)
        held = upstream.copy()
        leaves = [leaf for leaf, _ in self.leaves]
        found = [g.data for g in ta.grad(tensor, leaves, upstream, create_graph=create_graph)]
        expected = [np.zeros(leaf.shape) for leaf in leaves]
        for number, weight in zip(numbers.flat, upstream.flat, strict=True):
            for (which, entry), slope in number.slopes.items():
                expected[which].flat[entry] += weight * slope
        for g, right in zip(found, expected, strict=True):
            assert np.abs(g - right).max(initial=0.0) <= 1e-11 * np.abs(right).max(initial=1.0)
        assert (upstream == held).all()
        if not create_graph:
            arrays = [*found, upstream, *(leaf.data for leaf in leaves)]
            for i, a in enumerate(arrays):
                assert not any(np.shares_memory(a, b) for b in arrays[i + 1 :])

    @rule(x=pairs)
    def backward_adds_to_grad(self, x: Pair) -> None:
        leaves = [leaf for leaf, _ in self.leaves]
        upstream = self.rng.standard_normal(x[0].shape)
        right = ta.grad(x[0], leaves, upstream)
        for leaf in leaves:
            leaf.grad = np.ones(leaf.shape)
        x[0].backward(upstream, retain_graph=True)
        for leaf, g in zip(leaves, right, strict=True):
            assert leaf.grad is not None
            assert np.allclose(leaf.grad, 1 + g.data, rtol=1e-12, atol=1e-12)
            leaf.grad = None

    @invariant()
    def leaves_are_as_they_were(self) -> None:
        for leaf, before in self.leaves:
            assert leaf.data.tobytes() == before


Graphs.TestCase.settings = settings(stateful_step_count=25)
TestGraphs = Graphs.TestCase
