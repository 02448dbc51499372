"""One table of samples, several for every operation, that all checks of operations draw from.

Each sample is a function of tensors with a way to draw inputs for it, away from kinks and poles. An operation
that no sample runs, or a rule that none takes a gradient through, fails the test suite (`all_primitives`,
`rules_used`).
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from tinygrad_attn import engine, ops
from tinygrad_attn.check.fused_samples import fused_samples
from tinygrad_attn.check.sample import Sample, normal, positive, spaced
from tinygrad_attn.engine import Primitive, Tensor, explicit
from tinygrad_attn.engine.backward import walk
from tinygrad_attn.engine.broadcast import identity, sum_to
from tinygrad_attn.ops.shapes import scatter


def samples() -> list[Sample]:
    """The whole table."""
    rng = np.random.default_rng(0)
    tables = (_elementwise(), _reductions(), _shapes(), _indexing(), _products(), fused_samples(rng))
    return [sample for table in tables for sample in table]


def all_primitives() -> list[Primitive]:
    """Every operation of the engine, of `ops` and of whatever else was imported, but the checks' own."""
    for package in (engine, ops):
        for found_module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            importlib.import_module(found_module.name)
    root = engine.__name__.partition(".")[0]
    found: dict[Primitive, None] = {}
    for name, module in sorted(sys.modules.items()):
        if name.partition(".")[0] == root and not name.startswith(f"{root}.check."):
            found.update((value, None) for value in vars(module).values() if isinstance(value, Primitive))
    return list(found)


def rules_used(sample: Sample) -> set[tuple[Primitive, int]]:
    """The operations, each with the number of the input, that gradients of `sample` pass.

    Both ways through fused operations are walked, kernels and definitions.
    """
    used: set[tuple[Primitive, int]] = set()

    def note(node: Tensor, slot: int, gradient: Any) -> None:
        assert node._primitive is not None
        used.add((node._primitive, slot))

    inputs = [Tensor(x, requires_grad=True) for x in sample.inputs(np.random.default_rng(0))]
    output = sample.fn(*inputs)
    walk(output, np.ones_like(output.data), observe=note)
    with explicit():
        output = sample.fn(*inputs)
    walk(output, np.ones_like(output.data), observe=note)
    return used


# The table


def _elementwise() -> Iterator[Sample]:
    pairs = {
        "same shape": ((2, 3), (2, 3)),
        "row": ((2, 3), (3,)),
        "column and row": ((2, 1), (1, 3)),
        "leading axes": ((3,), (4, 2, 3)),
        "0-d": ((), ()),
        "0-d and matrix": ((), (2, 3)),
        "empty": ((0, 3), (3,)),
        "one against empty": ((1, 3), (0, 3)),
    }
    for name, fn, left, right in (
        ("add", ops.add, normal, normal),
        ("sub", ops.sub, normal, normal),
        ("mul", ops.mul, normal, normal),
        ("div", ops.div, normal, positive),
        ("pow", ops.pow, positive, normal),
    ):
        for case, (a, b) in pairs.items():
            yield Sample(name, case, fn, (left(*a), right(*b)))
    for name, fn in (("maximum", ops.maximum), ("minimum", ops.minimum)):
        yield Sample(name, "same shape", lambda x, fn=fn: fn(x[0], x[1]), (spaced(2, 3, 4),))
        yield Sample(name, "row", lambda x, fn=fn: fn(x[:6].reshape(2, 3), x[6:]), (spaced(9),))
        yield Sample(name, "0-d", lambda x, fn=fn: fn(x[0], x[1]), (spaced(2),))
        yield Sample(name, "number", lambda x, fn=fn: fn(x, 0.0), (spaced(2, 3),))
        yield Sample(name, "empty", fn, (normal(0, 3), normal(3)))
    for name, fn, draw in (
        ("neg", ops.neg, normal),
        ("exp", ops.exp, normal),
        ("log", ops.log, positive),
        ("sqrt", ops.sqrt, positive),
        ("sin", ops.sin, normal),
        ("cos", ops.cos, normal),
        ("tanh", ops.tanh, normal),
        ("sigmoid", ops.sigmoid, normal),
        ("relu", ops.relu, spaced),
        ("abs", ops.abs, spaced),
    ):
        for case, shape in {"matrix": (2, 3), "0-d": (), "empty": (0, 3), "three axes": (2, 1, 4)}.items():
            yield Sample(name, case, fn, (draw(*shape),))
    yield Sample("add", "tensor with itself", lambda x: x + x, (normal(2, 3),))
    yield Sample("mul", "tensor with itself", lambda x: x * x, (normal(2, 3),))
    yield Sample(
        "add",
        "numbers and arrays on either side",
        lambda x: 2.0 + x + np.arange(3.0) + (1.0 + x),
        (normal(2, 3),),
    )
    yield Sample("sub", "number on the left", lambda x: 1.0 - x, (normal(2, 3),))
    yield Sample("div", "number on the left", lambda x: 2.0 / x, (positive(2, 3),))
    yield Sample("pow", "square of negative numbers", lambda x: x**2, (spaced(2, 3),))
    yield Sample(
        "pow", "third power as an integer array", lambda x: x ** np.array([3, 2, 1]), (spaced(2, 3),)
    )
    yield Sample("pow", "root", lambda x: x**0.5, (positive(2, 3),))
    yield Sample("pow", "minus one", lambda x: x**-1, (positive(2, 3),))
    yield Sample("pow", "power zero", lambda x: x**0, (spaced(2, 3),))
    yield Sample("pow", "number to a tensor", lambda x: 2.0**x, (normal(2, 3),))
    yield Sample("clip", "numbers", lambda x: ops.clip(x, -0.5, 0.5), (spaced(2, 3),))
    yield Sample("clip", "one bound", lambda x: ops.clip(x, None, 0.25), (spaced(2, 3),))
    yield Sample(
        "clip",
        "arrays",
        lambda x: ops.clip(x, np.zeros(3, np.float32), np.array([[1], [2]], np.float32)),
        (spaced(2, 3),),
    )
    yield Sample("clip", "0-d", lambda x: ops.clip(x, 0.0), (spaced(),))
    choice = np.array([[True, False, True], [False, False, True]])
    yield Sample("where", "same shape", lambda a, b: ops.where(choice, a, b), (normal(2, 3), normal(2, 3)))
    yield Sample("where", "broadcast", lambda a, b: ops.where(choice, a, b), (normal(3), normal(2, 1)))
    yield Sample("where", "wider condition", lambda a, b: ops.where(choice[0], a, b), (normal(), normal(1)))
    yield Sample("where", "number", lambda a: ops.where(choice, a, 0.0), (normal(2, 3),))
    yield Sample(
        "where", "tensor condition", lambda a, b: ops.where(a > b, a, b), (positive(2, 3), normal(2, 3))
    )
    yield Sample("astype", "wider", lambda x: x.astype(np.longdouble), (normal(2, 3),))
    yield Sample("astype", "same", lambda x: x.astype(np.float64), (normal(2, 3),))
    yield Sample("identity", "matrix", identity, (normal(2, 3),))


def _reductions() -> Iterator[Sample]:
    axes: dict[str, Any] = {
        "all": {},
        "one axis": {"axis": 1},
        "negative axis": {"axis": -1},
        "several axes": {"axis": (0, 2)},
        "negative axes out of order": {"axis": (-1, 0)},
        "no axis at all": {"axis": ()},
        "all, kept": {"keepdims": True},
        "several axes, kept": {"axis": (0, -1), "keepdims": True},
    }
    for name, fn, draw in (
        ("sum", ops.sum, normal),
        ("mean", ops.mean, normal),
        ("max", ops.max, spaced),
        ("min", ops.min, spaced),
        ("var", ops.var, normal),
        ("std", ops.std, spaced),
        ("norm", ops.norm, spaced),
        ("logsumexp", ops.logsumexp, normal),
    ):
        for case, settings in axes.items():
            if name == "std" and settings.get("axis") == ():
                continue  # the spread of one entry is zero, where the root has no derivative
            yield Sample(name, case, lambda x, fn=fn, settings=settings: fn(x, **settings), (draw(2, 3, 4),))
        if name not in ("var", "std"):
            yield Sample(name, "0-d", fn, (draw(),))
            yield Sample(name, "axis of length one", lambda x, fn=fn: fn(x, axis=0), (draw(1, 3),))
        yield Sample(name, "no rows", lambda x, fn=fn: fn(x, axis=1), (draw(0, 3),))
    yield Sample("sum", "empty axis", lambda x: ops.sum(x, axis=0), (normal(0, 3),))
    yield Sample("var", "ddof", lambda x: ops.var(x, axis=1, ddof=1), (normal(2, 5),))
    yield Sample("std", "ddof", lambda x: ops.std(x, axis=1, ddof=1, keepdims=True), (spaced(2, 5),))
    yield Sample("max", "as a method, broadcast back", lambda x: x.max() + x, (spaced(4),))


def _shapes() -> Iterator[Sample]:
    yield Sample("transpose", "reversed", ops.transpose, (normal(2, 3, 4),))
    yield Sample("transpose", "cycle", lambda x: ops.transpose(x, (1, 2, 0)), (normal(2, 3, 4),))
    yield Sample("transpose", "negative axes", lambda x: ops.transpose(x, (-1, 0, -2)), (normal(2, 3, 4),))
    yield Sample("transpose", "vector", lambda x: x.T, (normal(3),))
    yield Sample("transpose", "0-d", lambda x: x.T, (normal(),))
    yield Sample("swapaxes", "negative", lambda x: ops.swapaxes(x, 0, -1), (normal(2, 3, 4),))
    yield Sample("swapaxes", "an axis with itself", lambda x: ops.swapaxes(x, 1, 1), (normal(2, 3),))
    yield Sample("reshape", "unknown size", lambda x: ops.reshape(x, (4, -1)), (normal(2, 3, 4),))
    yield Sample("reshape", "to 0-d", lambda x: ops.reshape(x, ()), (normal(1, 1),))
    yield Sample("reshape", "empty", lambda x: ops.reshape(x, (3, 0, 2)), (normal(0, 5),))
    yield Sample("squeeze", "all", ops.squeeze, (normal(1, 3, 1),))
    yield Sample("squeeze", "one", lambda x: ops.squeeze(x, axis=-1), (normal(1, 3, 1),))
    yield Sample("expand_dims", "one", lambda x: ops.expand_dims(x, 1), (normal(2, 3),))
    yield Sample("expand_dims", "several", lambda x: ops.expand_dims(x, (0, -1)), (normal(2, 3),))
    yield Sample("broadcast_to", "leading axis", lambda x: ops.broadcast_to(x, (4, 3)), (normal(3),))
    yield Sample("broadcast_to", "inner axis", lambda x: ops.broadcast_to(x, (2, 2, 3)), (normal(2, 1, 3),))
    yield Sample("broadcast_to", "0-d", lambda x: ops.broadcast_to(x, (2, 3)), (normal(),))
    yield Sample("broadcast_to", "to nothing", lambda x: ops.broadcast_to(x, (0, 3)), (normal(1, 3),))
    yield Sample("sum_to", "leading and inner axes", lambda x: sum_to(x, shape=(2, 1)), (normal(4, 2, 3),))
    yield Sample("sum_to", "0-d", lambda x: sum_to(x, shape=()), (normal(2, 3),))
    yield Sample("sum_to", "nothing to sum", lambda x: sum_to(x, shape=(2, 3)), (normal(2, 3),))
    yield Sample("sum_to", "from nothing", lambda x: sum_to(x, shape=(1, 3)), (normal(0, 3),))
    yield Sample(
        "concatenate", "first axis", lambda a, b: ops.concatenate([a, b]), (normal(2, 3), normal(1, 3))
    )
    yield Sample(
        "concatenate",
        "last axis",
        lambda a, b: ops.concatenate((a, b), axis=-1),
        (normal(2, 3), normal(2, 2)),
    )
    yield Sample(
        "concatenate", "same tensor twice", lambda x: ops.concatenate([x, x], axis=1), (normal(2, 3),)
    )
    yield Sample(
        "concatenate", "with an array", lambda x: ops.concatenate([np.ones((1, 3)), x]), (normal(2, 3),)
    )
    yield Sample(
        "concatenate", "with nothing", lambda a, b: ops.concatenate([a, b]), (normal(0, 3), normal(2, 3))
    )
    yield Sample("stack", "first axis", lambda a, b: ops.stack([a, b]), (normal(2, 3), normal(2, 3)))
    yield Sample(
        "stack", "last axis", lambda a, b: ops.stack([a, b, a], axis=-1), (normal(2, 3), normal(2, 3))
    )
    yield Sample("stack", "0-d", lambda a, b: ops.stack([a, b]), (normal(), normal()))
    yield Sample("stack", "nested lists", lambda x: ops.stack([[x[0], x[1]], [x[1], x[2]]]), (normal(3),))
    yield Sample("split", "equal parts", lambda x: ops.mul(*ops.split(x, 2, axis=-1)), (normal(3, 4),))
    yield Sample(
        "split", "at places", lambda x: ops.split(x, [1, 3])[1] * ops.split(x, [1, 3])[0], (normal(4, 2),)
    )


def _indexing() -> Iterator[Sample]:
    ids = np.array([[1, 1, 3], [1, 0, 3]])
    mask = np.array([[True, False, True], [False, False, True], [True, True, False], [False, True, False]])
    indices: dict[str, Any] = {
        "integer": 1,
        "negative integer": -1,
        "numpy integer": np.int64(2),
        "0-d array": np.array(2),
        "slice": slice(1, 3),
        "slice with a step": slice(0, 4, 2),
        "negative step": slice(None, None, -1),
        "negative step from the middle": slice(2, None, -2),
        "empty slice": slice(2, 2),
        "one entry": (1, 2),
        "column": (slice(None), -1),
        "ellipsis": (..., 0),
        "ellipsis alone": ...,
        "nothing": (),
        "new axis": None,
        "new axes": (None, slice(1, 3), None, ..., None),
        "mask of rows": np.array([True, False, True, False]),
        "mask of rows as a list": [True, False, True, False],
        "mask of entries": mask,
        "empty mask": np.zeros((4, 3), bool),
        "true": True,
        "false": False,
        "mask of columns": (slice(None), np.array([True, False, True])),
        "repeated rows": [0, 0, 2],
        "ids": ids,
        "negative repeated": np.array([-1, 3, -4, 0]),
        "unsigned": np.array([0, 3], np.uint8),
        "no rows": [],
        "pairs": ([0, 0, 3], [2, 2, 1]),
        "grid": (np.array([[0], [3]]), np.array([0, 0, 2])),
        "array and integer": (np.array([0, 0, 2]), 1),
        "array and slice": (np.array([0, 2, 0]), slice(0, 2)),
        "slice and array": (slice(None, None, 2), np.array([2, 2])),
        "apart, with a new axis": (np.array([0, 1]), None, np.array([2, 2])),
    }
    for case, index in indices.items():
        yield Sample("getitem", case, lambda x, index=index: ops.getitem(x, index), (normal(4, 3),))
    yield Sample("getitem", "arrays apart", lambda x: x[[0, 1, 1], :, [2, 2, 2]], (normal(2, 3, 4),))
    yield Sample("getitem", "0-d", lambda x: x[()], (normal(),))
    yield Sample("getitem", "0-d with a new axis", lambda x: x[None], (normal(),))
    yield Sample("getitem", "iteration", lambda x: ops.mul(*x), (normal(2, 3),))
    for case, index, shape in (
        ("slice", slice(1, 3), (2, 3)),
        ("repeated rows", np.array([0, 0, 2]), (3, 3)),
        ("mask", mask, (6,)),
    ):
        yield Sample(
            "scatter", case, lambda g, index=index: scatter(g, index=index, shape=(4, 3)), (normal(*shape),)
        )
    yield Sample("take", "rows", lambda x: ops.take(x, ids, axis=0), (normal(4, 2),))
    yield Sample("take", "last axis", lambda x: ops.take(x, [0, -1, 0], axis=-1), (normal(2, 3),))
    yield Sample("take", "in a row", lambda x: ops.take(x, ids), (normal(2, 3),))
    yield Sample("take", "one", lambda x: ops.take(x, 1, axis=0), (normal(2, 3),))
    yield Sample("take", "none", lambda x: ops.take(x, [], axis=0), (normal(2, 3),))


def _products() -> Iterator[Sample]:
    for case, a, b in (
        ("matrices", (2, 3), (3, 4)),
        ("vectors", (3,), (3,)),
        ("vector and matrix", (3,), (3, 4)),
        ("matrix and vector", (2, 3), (3,)),
        ("stacks", (5, 2, 3), (5, 3, 4)),
        ("stacks that broadcast", (5, 1, 2, 3), (4, 3, 2)),
        ("stack and matrix", (5, 2, 3), (3, 4)),
        ("matrix and stack", (2, 3), (5, 3, 4)),
        ("vector and stack", (3,), (5, 3, 4)),
        ("stack and vector", (2, 5, 2, 3), (3,)),
        ("nothing summed", (2, 0), (0, 3)),
        ("no rows", (0, 3), (3, 4)),
        ("empty stack", (0, 2, 3), (3, 4)),
        ("empty stack and vector", (0, 2, 3), (3,)),
    ):
        yield Sample("matmul", case, ops.matmul, (normal(*a), normal(*b)))
    yield Sample("matmul", "with its own transpose", lambda x: x @ x.T, (normal(2, 3),))
    for subscripts, *shapes in (
        ("ij,jk->ik", (2, 3), (3, 4)),
        ("bt,btv->bv", (2, 3), (2, 3, 4)),
        ("ij->ji", (2, 3)),
        ("ij->", (2, 3)),
        ("ij->j", (2, 3)),
        ("ii->i", (3, 3)),
        ("ii", (3, 3)),
        ("iij->ij", (2, 2, 3)),
        ("ba", (2, 3)),
        ("ij,jk", (2, 3), (3, 2)),
        ("i,i->", (3,), (3,)),
        ("i,j->ij", (2,), (3,)),
        ("ij,k->i", (2, 3), (4,)),
        ("...ij,...jk->...ik", (5, 2, 3), (5, 3, 2)),
        ("...i,i", (2, 4, 3), (3,)),
        ("...,...->...", (2, 3), (2, 3)),
        ("i...,i...->...", (2, 3), (2, 3)),
        ("...ij->...", (2, 3, 4)),
        ("i,ij,j->", (2,), (2, 3), (3,)),
        ("ab,bc,cd,d->a", (2, 3), (3, 2), (2, 4), (4,)),
        (",ij->ij", (), (2, 3)),
        ("ij,jk->ik", (0, 3), (3, 2)),
        ("ij,jk->ik", (2, 0), (0, 2)),
    ):
        case = f"{subscripts} of {' '.join(map(str, shapes))}"
        draws = tuple(normal(*shape) for shape in shapes)
        yield Sample("einsum", case, lambda *xs, subscripts=subscripts: ops.einsum(subscripts, *xs), draws)
