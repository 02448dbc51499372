"""Our `gradcheck` and PyTorch's on the same functions: where the verdicts differ, `why` says so."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra `oracle`)")
pytestmark = pytest.mark.oracle

NORMAL = np.random.default_rng(0).standard_normal


def rule(factor: float, at: Callable[[Any], Any] = lambda x: x) -> tuple[Any, Any]:
    """A square whose rule gives `factor` times the right gradient, here and in PyTorch."""
    square = ta.Primitive("square", lambda x: x * x, lambda g, y, x: factor * 2 * g * at(x))

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return factor * 2 * g * at(x)

    return square, Square.apply


@dataclass(frozen=True)
class Case:
    """The same function twice, with both verdicts, and the reason where they differ."""

    name: str
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    inputs: tuple[np.ndarray, ...]
    verdicts: tuple[bool, bool]  # ours, PyTorch's
    why: str = ""
    order: int = 1


RNG = np.random.default_rng(7)
CASES = [
    Case("product", lambda a, b: a @ b, lambda a, b: a @ b, (NORMAL((2, 3)), NORMAL((3, 4))), (True, True)),
    Case("softmax", ta.softmax, lambda x: torch.softmax(x, -1), (NORMAL((2, 3)),), (True, True), order=2),
    Case("view", lambda x: x.T, lambda x: x.T, (NORMAL((2, 3)),), (True, True)),
    Case("0-d", ta.exp, torch.exp, (np.array(0.3),), (True, True)),
    Case("empty", lambda x: x * 2, lambda x: x * 2, (np.zeros((0, 3)),), (True, True)),
    Case("two outputs", lambda x: (x * x, x), lambda x: (x * x, x), (NORMAL(3),), (True, True)),
    Case("factor 0.9", *rule(0.9), (NORMAL(3),), (False, False)),
    Case("sign", *rule(-1.0), (NORMAL(3),), (False, False)),
    Case("away from a kink", ta.relu, torch.relu, (np.array([0.5, -0.5]),), (True, True)),
    Case(
        "at a kink",
        ta.relu,
        torch.relu,
        (np.array([0.0, 1.0, -1.0]),),
        (True, False),
        "0 lies between the slopes 0 and 1, so it is as right as any; PyTorch compares it with their mean",
    ),
    Case(
        "tie of a maximum",
        lambda x: x.max(),
        lambda x: x.amax(),
        (np.array([1.0, 1.0]),),
        (True, True),
        "both share the gradient, which is the mean that central differences see",
    ),
    Case(
        "norm of nothing",
        lambda x: ta.norm(x),
        torch.linalg.norm,
        (np.zeros(2),),
        (True, True),
        "central differences of an even function give the 0 of the rule; we report the kink",
    ),
    Case(
        "factor 1 + 1e-6",
        *rule(1 + 1e-6),
        (NORMAL(3),),
        (False, True),
        "PyTorch allows an error of 1e-3 relative and 1e-5 absolute, we of 1e-12",
    ),
    Case(
        "factor 1.0005",
        *rule(1.0005),
        (NORMAL(3),),
        (False, True),
        "within PyTorch's 1e-3",
    ),
    Case(
        "tiny values",
        *rule(0.5),
        (1e-7 * NORMAL(3),),
        (False, True),
        "an error of half of a gradient of 1e-7 lies within PyTorch's absolute tolerance",
    ),
    Case(
        "float32",
        lambda x: 100 * (x * x).sum(),
        lambda x: 100 * (x * x).sum(),
        (np.array([1.1, 2.3], np.float32),),
        (True, False),
        "PyTorch steps by 1e-6 in float32, which rounding swallows, and warns; we check in float64",
    ),
    Case(
        "not deterministic",
        lambda x: x * RNG.random(),
        lambda x: x * torch.rand(()),
        (NORMAL(3),),
        (False, False),
    ),
    Case("detached factor", lambda x: x * x.detach(), lambda x: x * x.detach(), (NORMAL(3),), (False, False)),
    Case(
        "second derivative cut",
        *rule(1.0, at=lambda x: x.detach() if hasattr(x, "detach") else x),
        (NORMAL(3),),
        (False, False),
        order=2,
    ),
    Case(
        "input with overlapping memory",
        lambda x: x * x,
        lambda x: x * x,
        (np.broadcast_to(NORMAL((1, 3)), (2, 3)),),
        (True, False),
        "PyTorch refuses such inputs; we check a copy of their entries and say so",
    ),
    Case(
        "no finite value",
        ta.log,
        torch.log,
        (np.array([-1.0, 1.0]),),
        (False, False),
    ),
]


def ours(case: Case) -> bool:
    return bool(ta.gradcheck(case.ours, case.inputs, order=case.order, raise_exception=False))


def theirs(case: Case) -> bool:
    inputs = []
    for x in case.inputs:
        if x.size and 0 in x.strides:  # as PyTorch's expand makes it
            inputs.append(torch.from_numpy(x[:1].copy()).requires_grad_().expand(x.shape))
        else:
            tensor = torch.from_numpy(np.array(x))
            inputs.append(torch.empty(x.shape, dtype=tensor.dtype).copy_(tensor).requires_grad_())
    check = torch.autograd.gradcheck if case.order == 1 else torch.autograd.gradgradcheck
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return bool(check(case.theirs, inputs, raise_exception=False))
        except (RuntimeError, ValueError):
            return False


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_verdicts(case: Case) -> None:
    assert (ours(case), theirs(case)) == case.verdicts
    assert case.why or case.verdicts[0] == case.verdicts[1], "a difference needs a reason"


def test_ours_names_the_entry_where_theirs_prints_matrices() -> None:
    square, _ = rule(0.9)
    report = ta.gradcheck(square, NORMAL((2, 3)), raise_exception=False)
    assert len(report.worst[0].index) == 2 and report.rows[0].cause == "0.9 times the right value everywhere"
