"""`detect_anomaly` names the operation, where it was called, and what it was given."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn.data import make_batch
from tinygrad_attn.engine.modes import thread

HERE = __file__


def caught(function: Any) -> ta.AnomalyError:
    with pytest.raises(ta.AnomalyError) as error, ta.detect_anomaly():
        function()
    return error.value


def test_forward() -> None:
    x = ta.Tensor([[0.0, 1.0, -2.0]], requires_grad=True)

    def run() -> None:
        with ta.scope("decoder"), ta.scope("step 7"), ta.scope("attention"):
            ta.log(x * 2)  # here
        raise AssertionError("not reached")

    error = caught(run)
    assert isinstance(error, FloatingPointError)
    assert (error.operation, error.phase, error.scope) == ("log", "forward", "decoder/step 7/attention")
    assert error.site is not None and error.site.file == HERE and error.site.text.endswith("# here")
    text = str(error)
    assert "log made 1 NaN and 1 infinite of 3 entries in decoder/step 7/attention" in text
    assert "input 0: shape (1, 3), float64, from -4 to 2" in text
    assert f"{HERE}:{error.site.line}" in text


def test_backward() -> None:
    x = ta.Tensor([0.0, 4.0], requires_grad=True)

    def run() -> None:
        with ta.scope("encoder"):
            y = ta.sqrt(x)  # made here
        (y * 3).sum().backward()  # backward here

    error = caught(run)
    assert (error.operation, error.phase, error.scope) == ("sqrt", "backward", "encoder")
    assert error.site is not None and error.site.text.endswith("# backward here")
    assert error.forward_site is not None and error.forward_site.text.endswith("# made here")
    text = str(error)
    assert "the rule of sqrt for its input number 0 made 1 infinite of 2 entries in encoder" in text
    assert "upstream gradient: shape (2,), float64, from 3 to 3" in text
    assert "forward called at" in text and "backward called at" in text


def test_backward_of_a_graph_made_outside() -> None:
    y = ta.sqrt(ta.Tensor([0.0], requires_grad=True))
    assert "a line outside detect_anomaly" in str(caught(lambda: y.sum().backward()))


@pytest.mark.parametrize("explicit", [False, True])
def test_inside_a_fused_operation(explicit: bool) -> None:
    x = ta.Tensor([1.0, 2.0], requires_grad=True)
    bad = ta.fused(
        lambda x: ta.exp(x * 1000.0),
        lambda x: np.exp(x * 1000.0),
        lambda g, y, x: (g * y * 1000,),
        name="bad",
    )

    def run() -> None:
        with ta.explicit() if explicit else ta.scope("kernels"):
            bad(x)

    error = caught(run)
    assert error.operation == "exp" and error.scope == ("bad" if explicit else "kernels/bad")
    assert explicit or (error.site is not None and error.site.text == "bad(x)")


def test_what_only_a_kernel_does() -> None:
    x = ta.Tensor([1.0, 2.0], requires_grad=True)
    forward = ta.fused(lambda x: x * 2.0, lambda x: x / 0.0, lambda g, y, x: (g,), name="forward")
    error = caught(lambda: forward(x))
    assert (error.operation, error.phase, error.scope) == ("forward", "forward", "")
    backward = ta.fused(lambda x: x * 2.0, lambda x: x * 2.0, lambda g, y, x: (g / 0.0,), name="backward")

    def run() -> None:
        with ta.scope("outside"):
            y = backward(x)
        y.sum().backward()

    error = caught(run)
    assert (error.operation, error.phase, error.scope) == ("backward", "backward", "outside")


def test_a_naive_definition_of_a_stable_kernel_is_no_fault() -> None:
    def definition(x: Any) -> Any:
        if x.data[0] > 2000:
            raise RuntimeError("not for such numbers")
        return ta.log(ta.sum(ta.exp(x)))

    def kernel(x: Any) -> Any:
        return np.log(np.exp(x - x.max()).sum()) + x.max()

    stable = ta.fused(definition, kernel, lambda g, y, x: (g * np.exp(x - y),), name="stable")
    with ta.detect_anomaly():
        for largest in (1000.0, 3000.0):
            x = ta.Tensor([largest, 1.0], requires_grad=True)
            stable(x).backward()
            assert x.grad is not None and x.grad.tolist() == [1, 0]


def test_the_step_within_a_kernel_is_named() -> None:
    """A training takes the kernels, where a step is no operation of its own."""
    model = ta.nn.Seq2Seq(6, 6, 3, 4, dtype=np.float64, rng=np.random.default_rng(0))
    batch = make_batch([(np.array([4, 5]), np.array([4, 5, 4]))])
    model.decoder.attention.v_a.data[:] = 1.7e308
    model.decoder.attention.U_a.data[:] = 50.0
    error = caught(lambda: model.loss(batch))
    assert error.phase == "forward" and error.scope == "decoder/bahdanau_decoder/step 1/additive_scores"
    assert error.site is not None and "model.loss(batch)" in error.site.text


def test_an_infinity_that_is_gone_after_the_step() -> None:
    model = ta.nn.Seq2Seq(6, 6, 3, 4, dtype=np.float64, rng=np.random.default_rng(0))
    batch = make_batch([(np.array([4, 5]), np.array([5, 4, 5]))])
    model.target_embedding.weight.data[5] = 1e308
    model.decoder.cell.weight_ih.data[:] = 9.0
    with np.errstate(all="ignore"):
        assert np.isfinite(model.loss(batch).item())
    assert "step 2" in caught(lambda: model.loss(batch)).scope


def test_the_step_within_a_kernel_whose_gradient_is_at_fault() -> None:
    x = ta.Tensor([0.0, 4.0], requires_grad=True)
    root = ta.fused(
        lambda x: ta.sqrt(x) * 2.0, lambda x: 2 * np.sqrt(x), lambda g, y, x: (g / np.sqrt(x),), name="root"
    )

    def run() -> None:
        with ta.scope("encoder"):
            y = root(x)  # made here
        (y * 3).sum().backward()  # backward here

    error = caught(run)
    assert (error.operation, error.phase, error.scope) == ("sqrt", "backward", "encoder/root")
    assert error.site is not None and error.site.text.endswith("# backward here")
    assert error.forward_site is not None and error.forward_site.text.endswith("# made here")


@pytest.mark.parametrize(
    ("operation", "run"),
    [
        ("log", lambda: ta.log(ta.Tensor([0.0, np.inf]))),
        ("log", lambda: ta.log(ta.Tensor([0.0, np.nan]))),
        ("exp", lambda: ta.exp(ta.Tensor([-np.inf, 1000.0]))),
        ("div", lambda: ta.Tensor([0.0, np.nan]) / ta.Tensor([0.0, 1.0])),
        ("sub", lambda: ta.Tensor([np.inf, np.nan]) - ta.Tensor([np.inf, 1.0])),
        ("log", lambda: ta.log(ta.Tensor([0.0, np.inf, 1.0], requires_grad=True) + 0.0)),
    ],
)
def test_what_was_not_finite_before_does_not_hide_what_an_operation_makes(operation: str, run: Any) -> None:
    assert caught(run).operation == operation


def test_nor_in_the_backward_pass() -> None:
    x = ta.Tensor([0.0, np.inf, 4.0], requires_grad=True)
    error = caught(lambda: ta.sqrt(x).backward(np.ones(3)))
    assert (error.operation, error.phase) == ("sqrt", "backward")


def test_a_sum_of_gradients_that_overflows() -> None:
    x = ta.Tensor([1.0], requires_grad=True)

    def run() -> None:
        y = x * 1.0
        ta.concatenate([y, y]).backward(np.full(2, 1.5e308))

    error = caught(run)
    assert (
        error.operation == "mul"
        and "the sum of the gradients for the output of mul has 1 infinite" in str(error)
    )


def test_create_graph_and_products() -> None:
    x = ta.Tensor([[0.0, 4.0]], requires_grad=True)
    W = ta.Tensor(np.ones((1, 2)), requires_grad=True)
    error = caught(lambda: ta.grad(ta.sqrt(x).sum(), x, create_graph=True))
    assert error.operation in ("sqrt", "div")
    with ta.detect_anomaly():
        model = ta.nn.Linear(2, 3, dtype=np.float64)
        (model(x) * W.sum()).sum().backward()
    assert model.weight.grad is not None


def test_what_was_not_finite_before_is_not_the_operation_s_fault() -> None:
    with ta.detect_anomaly():
        x = ta.Tensor([-np.inf, 0.0, 1.0], requires_grad=True)
        y = ta.softmax(x + 0.0)
        assert (y.data[0], np.isfinite(y.data).all()) == (0.0, True)
        (ta.Tensor([np.nan, 1.0]) * 2).sum()
        y.sum().backward()
    assert caught(lambda: x - x).operation == "sub"  # a NaN out of infinities is


def test_integers_and_empty_tensors_pass() -> None:
    with ta.detect_anomaly():
        assert ta.sum(ta.Tensor(np.zeros((0, 3))), axis=0).tolist() == [0, 0, 0]
        assert (ta.Tensor([1, 2]) + 1).tolist() == [2, 3]


def test_the_mode_is_restored_and_belongs_to_a_thread() -> None:
    before = thread.mode
    results = []
    with ta.detect_anomaly():
        worker = threading.Thread(
            target=lambda: results.append(thread.mode.watcher), name="without a watcher"
        )
        worker.start()
        worker.join()
        with ta.no_grad(), pytest.raises(ta.AnomalyError):
            ta.log(ta.Tensor([0.0]))
    assert results == [None] and thread.mode == before
    with np.errstate(divide="ignore"):
        assert np.isinf(ta.log(ta.Tensor([0.0])).data).all()


def test_memory_of_dead_tensors_is_let_go() -> None:
    with ta.detect_anomaly():
        watcher: Any = thread.mode.watcher
        kept = ta.Tensor([1.0]) * 2
        for _ in range(100):
            kept + 1
        assert len(watcher._sites) <= 2


def test_within_a_model() -> None:
    rng = np.random.default_rng(0)
    model = ta.nn.Seq2Seq(6, 6, 3, 4, dtype=np.float64, rng=rng)
    model.decoder.attention.v_a.data[:] = np.inf if hasattr(model.decoder.attention, "v_a") else 0
    source, target = np.array([[4, 5]]), np.array([[1, 4]])
    error = caught(lambda: model(source, None, target))
    assert error.site is not None and error.site.file == HERE
    assert error.scope


def test_the_error_can_be_copied_and_sent() -> None:
    with pytest.raises(ta.AnomalyError) as raised, ta.scope("somewhere"), ta.detect_anomaly():
        ta.log(ta.Tensor(np.zeros(1)))
    for other in (pickle.loads(pickle.dumps(raised.value)), copy.deepcopy(raised.value)):
        assert str(other) == str(raised.value) and vars(other) == vars(raised.value)


def test_a_nan_that_was_there_before_is_told_in_the_backward_pass() -> None:
    layer = ta.nn.Linear(3, 2, rng=np.random.default_rng(0), dtype=np.float64)
    layer.weight.data[0, 1] = np.nan
    error = caught(lambda: ((layer(np.ones((1, 3))) ** 2).sum()).backward())
    line = next(line for line in str(error).splitlines() if "had come in" in line)
    assert line.startswith("  NaN had come in with input 1 of linear: shape (2, 3), float64")
    assert line.endswith("1 NaN of 6 entries")
