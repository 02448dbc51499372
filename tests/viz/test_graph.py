"""The snapshot: what is a node, what is an edge, and the gradients on both."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tests.viz.support import CELLS, SCORES, batch, running_example, small_loss, small_model

TIGHT = {"rtol": 1e-12, "atol": 1e-12}


def assert_uses_sum(nodes: Any, edges: Any, output: str) -> int:
    """For every node with a gradient, the gradients along its uses sum to it. Returns how many there were."""
    sums: dict[str, Any] = {}
    for edge in edges:
        if edge.gradient is not None:
            sums[edge.source] = sums.get(edge.source, 0) + edge.gradient
    count = 0
    for node in nodes:
        if node.gradient is not None and node.id != output and node.value is not None:
            np.testing.assert_allclose(sums[node.id], node.gradient, **TIGHT, err_msg=str(node))
            count += 1
    return count


@pytest.mark.parametrize("detail", ["paper", "primitive"])
@pytest.mark.parametrize("query", ["previous", "current"])
@pytest.mark.parametrize("attention", SCORES)
@pytest.mark.parametrize("cell", CELLS)
def test_gradients_along_uses_sum_to_the_gradient(cell: str, attention: str, query: str, detail: str) -> None:
    loss = small_loss(batch(2, 3, 2), cell=cell, attention=attention, query=query)
    graph = ta.viz.graph(loss, detail=detail, limit=None)
    assert assert_uses_sum(graph.record.nodes, graph.record.edges, graph.record.output) > 20
    assert assert_uses_sum(graph.nodes, graph.edges, graph.record.output) > 8


@pytest.mark.parametrize("reset_after", [True, False])
def test_gradients_are_those_of_backward(reset_after: bool) -> None:
    model = small_model(reset_after=reset_after)
    data = batch(size=2)
    output = model(data.source, data.lengths, data.target_in)
    loss = ta.cross_entropy(output.logits, data.target_out)
    loss.backward()
    for detail in ("paper", "primitive"):
        graph = ta.viz.graph(loss, detail=detail, limit=None)
        by_tensor = {id(t): key for key, t in graph.record.tensors.items()}
        nodes = {node.id: node for node in graph.record.nodes}
        looked = [*model.parameters(), output.annotations, *(s.weights for s in output.steps), output.logits]
        for tensor in looked:
            if id(tensor) in by_tensor:
                np.testing.assert_allclose(nodes[by_tensor[id(tensor)]].gradient, tensor.grad, **TIGHT)
        assert sum(id(tensor) in by_tensor for tensor in looked) >= len(list(model.parameters()))


def test_interior_gradient_and_two_edges_of_a_square() -> None:
    a, b = ta.Tensor(2.0, requires_grad=True, name="a"), ta.Tensor(-4.0, requires_grad=True, name="b")
    c = a * b
    e = c * c
    e.backward()
    graph = ta.viz.graph(e)
    middle = graph.nodes[2]
    assert middle.operation == "mul" and middle.gradient == -16.0 and graph["a"].gradient == 64.0
    uses = [edge for edge in graph.edges if edge.source == middle.id]
    assert [edge.slot for edge in uses] == [0, 1]
    assert [edge.gradient for edge in uses] == [-8.0, -8.0]
    assert graph.dot.source.count(f"{middle.id} -> {graph.record.output} ") == 2


def test_shared_weight_is_one_node() -> None:
    w = ta.Tensor([[0.5, 0.1], [0.2, -0.3]], requires_grad=True, name="W")
    h = ta.Tensor([[1.0, 2.0]])
    for _ in range(5):
        h = ta.tanh(h @ w)
    h.sum().backward()
    graph = ta.viz.graph(h.sum())
    (node,) = [node for node in graph.nodes if node.name == "W"]
    assert sum(edge.source == node.id for edge in graph.edges) == 5


def test_before_backward_gradients_are_absent_and_zeros_are_zeros_after() -> None:
    x = ta.Tensor([1.0, 2.0], requires_grad=True, name="x")
    loss = (x * 0.0).sum()
    graph = ta.viz.graph(loss)
    assert all(node.gradient is None for node in graph.nodes)
    assert all(edge.gradient is None for edge in graph.edges)
    assert "–" in graph.dot.source and any("backward()" in notice for notice in graph.notices)
    loss.backward()
    after = ta.viz.graph(loss)
    np.testing.assert_array_equal(after["x"].gradient, [0, 0])
    assert not after.notices and "–" not in after.dot.source
    assert graph["x"].gradient is None  # a snapshot stays what it was


def test_drawing_touches_no_gradient_and_the_graph_stays_spent() -> None:
    loss = running_example()
    loss.backward()
    record = ta.viz.graph(loss, detail="primitive").record
    leaves = [tensor for tensor in record.tensors.values() if tensor.is_leaf and tensor.requires_grad]
    before = [leaf.grad.copy() for leaf in leaves if leaf.grad is not None]
    ta.viz.graph(loss, detail="primitive").svg()
    assert len(before) == 2
    for leaf, gradient in zip([leaf for leaf in leaves if leaf.grad is not None], before, strict=True):
        np.testing.assert_array_equal(leaf.grad, gradient)
    with pytest.raises(RuntimeError, match="freed"):
        loss.backward()


def test_zeroed_leaf_shows_none_and_constants_have_none() -> None:
    x = ta.Tensor([1.0, 2.0], requires_grad=True, name="x")
    k = ta.Tensor([3.0, 4.0], name="k")
    y = x * k
    cut = y.detach()
    cut.name = "cut"
    loss = (y * cut).sum()
    loss.backward()
    x.zero_grad()
    graph = ta.viz.graph(loss)
    assert graph["x"].gradient is None and graph["x"].kind == "leaf"
    assert graph["k"].kind == "constant" and graph["k"].gradient is None
    assert graph["cut"].kind == "constant" and not any(edge.target == graph["cut"].id for edge in graph.edges)
    np.testing.assert_array_equal(graph.nodes[2].gradient, [3.0, 8.0])


def test_backward_twice_accumulates_and_the_picture_follows() -> None:
    x = ta.Tensor(3.0, requires_grad=True, name="x")
    y = x * x
    y.backward(retain_graph=True)
    y.backward()
    graph = ta.viz.graph(y)
    assert x.grad == 12.0 and graph["x"].gradient == 12.0
    assert [edge.gradient for edge in graph.edges] == [6.0, 6.0] and not graph.notices


def test_gradients_of_other_losses_are_told_apart() -> None:
    x = ta.Tensor(3.0, requires_grad=True, name="x")
    first, second = x * 2.0, x * 5.0
    first.backward()
    second.backward()
    graph = ta.viz.graph(first)
    assert graph["x"].gradient == 2.0
    assert any("x holds" in notice for notice in graph.notices)


def test_a_vector_is_drawn_with_the_gradient_it_was_given() -> None:
    x = ta.Tensor([1.0, 2.0], requires_grad=True, name="x")
    y = x * x
    y.backward(np.array([1.0, 10.0]))
    np.testing.assert_array_equal(ta.viz.graph(y)["x"].gradient, [2.0, 40.0])


def test_parameters_written_since_are_said_to_be() -> None:
    model = small_model()
    loss = model.loss(batch())
    loss.backward()
    before = ta.viz.graph(loss)
    old = next(node for node in before.record.nodes if node.name == "W_a").value.copy()
    ta.optim.SGD(model.parameters(), lr=0.1).step()
    graph = ta.viz.graph(loss)
    assert any("written" in notice and "optimiser" in notice for notice in graph.notices)
    assert all(edge.gradient is None for edge in graph.record.edges)
    assert graph["loss"].gradient == 1.0  # what tensors keep is shown
    np.testing.assert_array_equal(next(n for n in before.record.nodes if n.name == "W_a").value, old)


def test_what_was_not_recorded_is_one_node() -> None:
    with ta.no_grad():
        y = ta.Tensor([1.0], requires_grad=True) * 2.0
    graph = ta.viz.graph(y)
    assert len(graph.nodes) == 1 and not graph.edges and any("no_grad" in notice for notice in graph.notices)
    assert ta.viz.graph(ta.Tensor(1.0, requires_grad=True, name="alone"))["alone"].kind == "leaf"


def test_scopes_follow_the_modules() -> None:
    scopes = {"/".join(node.scope) for node in ta.viz.graph(small_loss(attention="general")).record.nodes}
    assert {"encoder", "decoder/initial", "decoder/attention", "decoder/step 1/attention"} <= scopes
    assert {"decoder/step 3/cell", "decoder/output"} <= scopes
    fused = {"/".join(node.scope) for node in ta.viz.graph(small_loss()).record.nodes}
    assert {"decoder/step 1", "decoder/step 3"} <= fused  # one fused operation, opened
    written = {"/".join(node.scope) for node in ta.viz.graph(small_loss(), detail="primitive").record.nodes}
    assert any(scope.startswith("encoder/bidirectional/forward/step 3/gru_cell") for scope in written)


def test_nothing_watches_and_nothing_warns_while_drawing() -> None:
    with ta.detect_anomaly():
        loss = running_example()
        loss.backward()
        ta.viz.graph(loss, detail="primitive")
    x = ta.Tensor([0.0, 1.0], requires_grad=True, name="x")
    with np.errstate(all="ignore"):
        y = ta.log(x * 0.0)
        y.backward(np.ones(2))
    text = ta.viz.graph(y).dot.source
    assert "-∞  -∞" in text and "NaN  NaN" in text and "#c81e1e" in text


def test_the_same_text_in_two_processes() -> None:
    script = (
        "import tinygrad_attn as ta\n"
        "from tests.viz.support import small_loss\n"
        "for detail in ('model', 'paper', 'primitive'):\n"
        "    print(ta.viz.graph(small_loss(), detail=detail, fold='step *').dot.source)\n"
    )
    runs = []
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={
                "PYTHONHASHSEED": seed,
                "PATH": "",
                "OPENBLAS_NUM_THREADS": "1",
                "PYTHONIOENCODING": "utf-8",
            },
            stdout=subprocess.PIPE,
            check=True,
        )
        runs.append(done.stdout)
    assert runs[0] == runs[1] and len(runs[0]) > 10_000


def test_wrong_arguments() -> None:
    loss = running_example()
    with pytest.raises(TypeError, match="ndarray"):
        ta.viz.graph(loss.data)
    with pytest.raises(ValueError, match="detail 'all' is not one of model, paper, primitive"):
        ta.viz.graph(loss, detail="all")
    with pytest.raises(ValueError, match="direction"):
        ta.viz.graph(loss, direction="up")
    with pytest.raises(ValueError, match="limit is 1"):
        ta.viz.graph(loss, limit=1)
    with pytest.raises(ValueError, match="fold='decodr' matches no scope; there are: "):
        ta.viz.graph(small_loss(), fold="decodr")
    for setting, message in [
        ({"limit": "10"}, "limit is '10', expected an integer"),
        ({"limit": 2.5}, "limit is 2.5, expected an integer"),
        ({"fold": 3}, "fold is 3, expected a pattern"),
        ({"fold": [3]}, r"fold is \[3\], expected a pattern"),
        ({"open": None}, "open is None, expected a pattern"),
    ]:
        wrong: Any = setting
        with pytest.raises(TypeError, match=message):
            ta.viz.graph(loss, **wrong)
    nothing: Any = None
    with pytest.raises(TypeError, match="values is None, expected an integer"):
        ta.viz.graph(loss).to_json(nothing)
    with pytest.raises(KeyError, match="nobody"):
        ta.viz.graph(loss)["nobody"]


def test_gradients_of_another_loss_are_not_shown_as_this_ones() -> None:
    model, data = small_model(), batch()
    output = model(data.source, data.lengths, data.target_in)
    loss = ta.cross_entropy(output.logits, data.target_out)
    (loss + 10 * (output.steps[0].weights ** 2).sum()).backward()
    graph = ta.viz.graph(loss)
    assert graph.notices == ["No gradients: backward() has not been called on this tensor."]
    assert output.steps[0].weights.grad is not None and graph["α"].operation is not None
    assert all(node.gradient is None for node in graph.record.nodes)


def test_gradients_that_start_from_a_kept_one_are_not_called_the_tensors_own() -> None:
    x = ta.Tensor([1.0, 2.0], requires_grad=True, name="x")
    h = x * 3.0
    h.name = "h"
    h.retain_grad()
    loss = (h**2).sum()
    loss.name = "loss"
    loss.backward()
    inner, whole = ta.viz.graph(h), ta.viz.graph(loss)
    assert "∂h" not in inner.dot.source and ">∂<" in inner.dot.source
    assert "∂loss" in whole.dot.source and whole.notices == []
    np.testing.assert_array_equal(inner["x"].gradient, [18.0, 36.0])
    assert "∂x" not in ta.viz.graph(x).dot.source
