"""Every operation against PyTorch in float64: values, gradients and second derivatives, random upstream."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn.check import fused_samples as fused_table
from tinygrad_attn.check import samples as table
from tinygrad_attn.check.sample import Sample

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra `oracle`)")
in_torch = importlib.import_module("tests.oracle.in_torch")

# PyTorch counts the degrees of freedom of no rows at all as none; there is nothing to compare but the shape.
pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore:.*degrees of freedom:UserWarning")]

# What PyTorch has no word for: its own definition, of operations compared here, is its test.
NOT_IN_TORCH = {"reset_before_gru_cell", "lstm_memory", "lstm_hidden", "bidirectional", "bahdanau_decoder"}

# Where the sample's function uses what only our tensors or numpy have.
WRITTEN_OUT: dict[str, Callable[..., Any]] = {
    "add: numbers and arrays on either side": lambda x: 2.0 + x + torch.arange(3.0) + (1.0 + x),
    "pow: third power as an integer array": lambda x: x ** torch.tensor([3, 2, 1]),
    "astype: wider": lambda x: x.double(),
    "astype: same": lambda x: x.double(),
    "transpose: vector": lambda x: x.clone(),
    "transpose: 0-d": lambda x: x.clone(),
}


@contextmanager
def ops_in_torch() -> Iterator[None]:
    """The tables of samples made of PyTorch's functions."""
    found = []
    for module in (table, fused_table):
        for name in vars(module).copy():
            if name == "ops" or (hasattr(in_torch, name) and name not in ("np", "Any")):
                found.append((module, name, getattr(module, name)))
                setattr(module, name, in_torch if name == "ops" else getattr(in_torch, name))
    try:
        yield
    finally:
        for module, name, value in found:
            setattr(module, name, value)


with ops_in_torch():
    TWINS = {sample.name: WRITTEN_OUT.get(sample.name, sample.fn) for sample in table.samples()}
COMPARED = [sample for sample in table.samples() if sample.operation not in NOT_IN_TORCH]


def close(ours: Any, theirs: Any) -> None:
    """Within 1e-10, relative to the largest entry."""
    theirs = np.zeros_like(ours) if theirs is None else theirs.numpy(force=True)
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max(initial=0) <= 1e-10 * (1e-3 + np.abs(theirs).max(initial=0))


@pytest.mark.parametrize("sample", COMPARED, ids=lambda sample: sample.name)
def test_value_gradients_and_second_derivatives(sample: Sample) -> None:
    rng = np.random.default_rng(1)
    arrays = sample.inputs(rng)
    inputs = [ta.Tensor(x, requires_grad=True) for x in arrays]
    theirs = [torch.tensor(x, requires_grad=True) for x in arrays]
    output = sample.fn(*inputs)
    with ops_in_torch():
        expected = TWINS[sample.name](*theirs)
    close(output.data, expected)

    upstream = rng.standard_normal(output.shape)
    gradients = ta.grad(output, inputs, upstream, create_graph=True)
    right = torch.autograd.grad(
        expected, theirs, torch.tensor(upstream), create_graph=True, allow_unused=True
    )
    for g, r in zip(gradients, right, strict=True):
        close(g.data, r)
    output.backward(upstream, retain_graph=True)
    for x, r in zip(inputs, right, strict=True):
        close(np.zeros_like(x.data) if x.grad is None else x.grad, r)

    directions = [rng.standard_normal(x.shape) for x in arrays]
    along = ta.Tensor(0.0)
    for g, v in zip(gradients, directions, strict=True):
        along = along + (g * v).sum()
    their_along = sum(
        (r * torch.tensor(v)).sum()
        for r, v in zip(right, directions, strict=True)
        if r is not None and r.requires_grad
    )
    if not isinstance(their_along, torch.Tensor):  # linear: nothing is left to differentiate
        seconds: tuple[Any, ...] = (None,) * len(theirs)
    else:
        seconds = torch.autograd.grad(their_along, theirs, allow_unused=True)
    ours = ta.grad(along, inputs) if along.requires_grad else [ta.Tensor(np.zeros_like(x)) for x in arrays]
    for g, r in zip(ours, seconds, strict=True):
        close(g.data, r)


def test_the_operations_of_the_contract_are_compared() -> None:
    contract = (
        "add sub mul div neg pow exp log sqrt tanh sigmoid relu abs maximum minimum where sum mean max min "
        "var std norm logsumexp softmax log_softmax matmul einsum transpose swapaxes reshape squeeze "
        "expand_dims broadcast_to getitem concatenate stack split take cross_entropy"
    )
    assert set(contract.split()) <= {sample.operation for sample in COMPARED}


@pytest.mark.parametrize(
    ("ours", "theirs", "data"),
    [
        (lambda x: ta.norm(x), lambda x: torch.linalg.vector_norm(x), [0.0, 0.0]),
        (lambda x: ta.std(x), lambda x: torch.std(x, correction=0), [2.0, 2.0, 2.0]),
        (lambda x: ta.abs(x).sum(), lambda x: x.abs().sum(), [0.0, -1.0, 2.0]),
        (lambda x: ta.relu(x).sum(), lambda x: x.relu().sum(), [0.0, -1.0, 2.0]),
        (lambda x: ta.max(x), lambda x: x.amax(), [1.0, 3.0, 3.0]),
        (lambda x: ta.min(x), lambda x: x.amin(), [1.0, 1.0, 3.0]),
        (lambda x: ta.maximum(x[0], x[1]), lambda x: torch.maximum(x[0], x[1]), [1.0, 1.0]),
        (lambda x: ta.sigmoid(x).sum(), lambda x: x.sigmoid().sum(), [-1000.0, -40.0, 0.0, 40.0, 1000.0]),
        (lambda x: ta.tanh(x).sum(), lambda x: x.tanh().sum(), [-1000.0, -50.0, 0.0, 50.0, 1000.0]),
        (lambda x: (x**0).sum(), lambda x: (x**0).sum(), [0.0, 1.0]),
        (lambda x: ta.clip(x, 0, 1).sum(), lambda x: x.clip(0, 1).sum(), [-1.0, 0.0, 0.5, 1.0, 2.0]),
        (lambda x: (x**2).sum(), lambda x: (x**2).sum(), [0.0, -1.0]),
        (lambda x: ta.pow(2.0, x).sum(), lambda x: (2.0**x).sum(), [0.0, -1.0]),
        (lambda x: ta.softmax(x)[0], lambda x: x.softmax(0)[0], [1000.0, 0.0, -1000.0]),
        (lambda x: ta.logsumexp(x), lambda x: x.logsumexp(0), [1000.0, 999.0, -1000.0]),
        (lambda x: ta.log_softmax(x)[2], lambda x: x.log_softmax(0)[2], [1000.0, 999.0, -1000.0]),
    ],
)
def test_kinks_ties_and_extremes(ours: Any, theirs: Any, data: Any) -> None:
    x, t = ta.Tensor(data, requires_grad=True), torch.tensor(data, dtype=torch.float64, requires_grad=True)
    a, b = ours(x), theirs(t)
    a.backward()
    b.backward()
    close(a.data, b)
    close(x.grad, t.grad)
