"""Levels of detail, folding, the limit."""

from __future__ import annotations

import sys
import time
from collections import Counter

import numpy as np
import pytest

import tinygrad_attn as ta
from tests.viz.support import batch, running_example, small_loss
from tinygrad_attn.viz.dot_label import SHADES


def names(graph: ta.viz.Graph) -> Counter[str | None]:
    return Counter(node.name for node in graph.nodes)


def test_three_levels() -> None:
    loss = small_loss()
    model, paper, primitive = (
        ta.viz.graph(loss, detail=d, limit=None) for d in ("model", "paper", "primitive")
    )
    assert len(model.nodes) < len(paper.nodes) < len(primitive.nodes)
    assert {"encoder", "source_embedding", "target_embedding", "step 1", "step 2", "step 3", "loss"} <= set(
        names(model)
    )
    assert {node.kind for node in model.nodes if node.name == "encoder"} == {"module"}
    found = names(paper)
    assert found["h"] == found["logits"] == found["loss"] == 1
    assert found["e"] == found["α"] == found["c"] == 3 and found["s"] == 4
    assert "gru_cell" in paper.dot.source and "gru_cell" not in {node.operation for node in primitive.nodes}
    assert not any(node.kind == "fused" for node in primitive.nodes)
    assert any("definition" in notice for notice in primitive.notices)
    assert ", opened" in primitive.dot.source


def test_an_opened_operation_ends_with_the_value_and_gradient_that_were_recorded() -> None:
    loss = running_example()
    loss.backward()
    paper, primitive = ta.viz.graph(loss), ta.viz.graph(loss, detail="primitive")
    for name in ("e", "α", "c", "h", "s₀", "loss"):
        assert paper[name].id == primitive[name].id
        np.testing.assert_array_equal(paper[name].value, primitive[name].value)
        np.testing.assert_allclose(paper[name].gradient, primitive[name].gradient, rtol=1e-15)
    assert {"exp", "sum", "div"} <= {node.operation for node in primitive.nodes}
    assert paper["α"].operation == "softmax"


def test_a_pictures_own_operation_written_by_the_user_can_be_opened() -> None:
    square = ta.fused(lambda x: x * x, lambda x: x * x, lambda g, y, x: (2 * g * x,), name="square")
    x = ta.Tensor([1.0, 3.0], requires_grad=True, name="x")
    loss = square(x).sum()
    loss.backward()
    graph = ta.viz.graph(loss, detail="primitive")
    uses = [edge.gradient for edge in graph.edges if edge.source == graph["x"].id]
    np.testing.assert_array_equal(uses, [[1.0, 3.0], [1.0, 3.0]])
    np.testing.assert_array_equal(ta.viz.graph(loss).edges[0].gradient, [2.0, 6.0])


def test_fold_and_open() -> None:
    loss = small_loss()
    folded = ta.viz.graph(loss, fold=["step *", "encoder"])
    steps = folded["step 1 … 3"]
    assert steps.kind == "steps" and steps.count == 3
    assert Counter(m.name for m in steps.members if m.name)["α"] == 3
    assert folded["encoder"].kind == "module" and "h" not in names(folded)
    assert "× 3" in folded.dot.source
    loop = [edge for edge in folded.edges if edge.source == edge.target == steps.id]
    assert len(loop) == 1 and len(loop[0].parts) == 4  # s_1 and s_2, each to the scores and the cell
    apart = ta.viz.graph(loss, fold=["step 1", "step 3"])  # what lies between them is not
    assert names(apart)["step 1"] == names(apart)["step 3"] == 1 and names(apart)["α"] == 1
    one = ta.viz.graph(loss, fold="decoder/step 2")
    assert one["step 2"].count == 1 and names(one)["α"] == 2
    opened = ta.viz.graph(loss, open="step 2")
    inner = {node.operation for node in opened.nodes if node.scope[:2] == ("decoder", "step 2")}
    assert {"exp", "tanh", "matmul"} <= inner
    assert not {node.operation for node in opened.nodes if node.scope[:2] == ("decoder", "step 1")} & {
        "exp",
        "matmul",
    }
    halfway = ta.viz.graph(loss, detail="model", open="encoder")
    assert names(halfway)["h"] == 1 and names(halfway)["step 2"] == 1


def test_layers_before_a_named_loss_are_drawn() -> None:
    x = ta.Tensor(np.ones((2, 4), np.float32), name="x")
    for number in range(3):
        with ta.scope(f"layers {number}"):
            x = ta.tanh(ta.nn.Linear(4, 4, rng=np.random.default_rng(0))(x))
    loss = ta.cross_entropy(x, [0, 1])
    loss.name = "loss"
    paper, model = ta.viz.graph(loss), ta.viz.graph(loss, detail="model")
    assert Counter(node.operation for node in paper.nodes)["linear"] == 3
    assert names(model)["layers 0"] == names(model)["layers 1"] == names(model)["layers 2"] == 1
    assert model["x"].scope == ()


@pytest.mark.parametrize("detail", ["paper", "primitive"])
def test_beside_a_folded_scope_there_is_no_frame_of_it(detail: str) -> None:
    graph = ta.viz.graph(small_loss(), detail=detail, fold="encoder", limit=None)
    assert graph["encoder"].kind == "module"
    assert not any("encoder" in node.scope for node in graph.nodes)
    weights = [m for node in graph.nodes for m in (node, *node.members) if m.name == "weight_hh"]
    assert len(weights) == 3  # two of the encoder's, one of the decoder's


@pytest.mark.parametrize("size", [1e-4, 1.0, 1e4])
def test_gradients_within_a_folded_box_may_be_the_largest(size: float) -> None:
    x = ta.Tensor([1.0], requires_grad=True, name="x")
    with ta.scope("inside"):
        u = x * (1 / size)
        u.name = "u"
        y = u * size
    y.backward()
    source = ta.viz.graph(y, fold="inside").dot.source
    row = next(part for part in source.split("<tr>") if ">u<" in part)
    own = next(part for part in source.split("<tr>") if ">∂<" in part)
    assert (SHADES[-1] in row) == (size >= 1) and (SHADES[-1] in own) == (size <= 1)


def test_leaves_in_one_box_stand_where_all_of_them_are_used() -> None:
    x = ta.Tensor(np.ones((2, 3, 4)), requires_grad=True, name="x")
    y = ta.Tensor(np.ones((2, 3, 4)), requires_grad=True, name="y")
    with ta.scope("around"):
        with ta.scope("one"):
            a = x * 2.0
        with ta.scope("two"):
            b = y * 3.0
        c = a + b
        c.name = "c"
    (bundle,) = (node for node in ta.viz.graph(c).nodes if node.kind == "parameters")
    assert bundle.scope == ("around",)


def test_a_weight_used_at_every_step_is_drawn_once() -> None:
    graph = ta.viz.graph(small_loss(attention="general"), detail="primitive", limit=None)
    weights = [node for node in graph.nodes if node.kind == "leaf"]
    assert len(weights) == len({id(graph.record.tensors[node.id]) for node in weights}) == 19
    bundles = [node for node in ta.viz.graph(small_loss()).nodes if node.kind == "parameters"]
    assert any(
        {m.name for m in node.members} == {"weight_ih", "weight_hh", "bias_ih", "bias_hh"} for node in bundles
    )


def test_explicit_recording_looks_the_same() -> None:
    with ta.explicit():
        loss = small_loss()
    graph = ta.viz.graph(loss)
    assert names(graph)["α"] == 3 and names(graph)["loss"] == 1


def test_limit_folds_steps_then_scopes_and_says_so() -> None:
    loss = small_loss(batch(8, 5))
    whole = ta.viz.graph(loss, limit=None)
    some = ta.viz.graph(loss, limit=40)
    assert len(some.boxes) <= 40 < len(whole.boxes) == len(some.nodes)
    assert any("limit of 40" in notice and "steps are folded" in notice for notice in some.notices)
    assert "limit of 40" in some.dot.source
    few = ta.viz.graph(loss, limit=9)
    assert len(few.boxes) <= 9 and any("deep" in notice for notice in few.notices)
    least = ta.viz.graph(loss, limit=2)
    assert len(least.boxes) == 2 and least.boxes[0].kind == "earlier"


def test_a_hundred_thousand_operations() -> None:
    y = x = ta.Tensor(1.0, requires_grad=True, name="x")
    for _ in range(100_000):
        y = y + 0.001
    y.backward()
    limit = sys.getrecursionlimit()
    start = time.process_time()
    graph = ta.viz.graph(y)
    text = graph.dot.source
    assert time.process_time() - start < 10  # 1.5 s where nothing else runs
    assert sys.getrecursionlimit() == limit
    assert len(graph.nodes) == 100_001 and len(graph.boxes) == 250 and len(text) < 300_000
    assert graph.boxes[0].kind == "earlier" and "100,001 boxes are more than the limit of 250" in text
    assert x.grad == 1.0 and graph.nodes[0].gradient == 1.0


def test_a_gru_of_a_thousand_steps_folds() -> None:
    cell = ta.nn.GRUCell(3, 4, rng=np.random.default_rng(0))
    h = None
    for step in range(1, 1001):
        with ta.scope(f"step {step}"):
            h = cell(np.full((1, 3), 0.1, np.float32), h)
    loss = h.sum()
    loss.backward()
    start = time.process_time()
    graph = ta.viz.graph(loss, fold="step *")
    svg = graph.svg()
    assert time.process_time() - start < 5
    assert graph["step 1 … 1000"].count == 1000 and "× 1,000" in svg
    assert len(graph.nodes) == 3  # weights, steps, loss


def test_million_entries_do_not_lengthen_a_label() -> None:
    texts = []
    for size in (1_000, 1_000_000):
        x = ta.Tensor(np.linspace(-1, 1, size), requires_grad=True, name="x")
        loss = (x * x).sum()
        loss.backward()
        texts.append(ta.viz.graph(loss).dot.source)
    assert abs(len(texts[0]) - len(texts[1])) < 60
    assert "-1 … 1" in texts[1] and "(1000000)" in texts[1]


def test_repeated_modules_and_single_numbers_are_no_trouble() -> None:
    x = ta.Tensor([1.0], requires_grad=True, name="x")
    with ta.scope("7"), ta.scope(""), ta.scope("a/b"):
        y = x * 2.0
    with ta.scope("step 1"), ta.scope("step 2"), ta.scope("step 1"):
        y = y * 3.0
    y.backward()
    for detail in ("model", "paper", "primitive"):
        for fold in ((), "step *"):
            ta.viz.graph(y, detail=detail, fold=fold).svg()
    with pytest.raises(ValueError, match="matches no scope"):
        ta.viz.graph(y, fold="step 9")


def test_a_pattern_knows_no_sign_but_the_star() -> None:
    x = ta.Tensor([1.0], requires_grad=True)
    with ta.scope("layer[0]"):
        y = ta.tanh(x)
    with ta.scope("layer0"):
        z = ta.tanh(y)
    with ta.scope("why?"):
        loss = (z * 2.0).sum()
    assert names(ta.viz.graph(loss, fold="layer[0]"))["layer[0]"] == 1
    assert names(ta.viz.graph(loss, fold="layer[0]"))["layer0"] == 0
    assert names(ta.viz.graph(loss, fold="why?", detail="primitive"))["why?"] == 1
    with pytest.raises(ValueError, match=r"fold='layer\?' matches no scope"):
        ta.viz.graph(loss, fold="layer?")
    with pytest.raises(ValueError, match="open='whyx' matches no scope"):
        ta.viz.graph(loss, open="whyx")


@pytest.mark.parametrize("name", ["linear", "log2"])
def test_opened_operations_are_no_steps(name: str) -> None:
    double = ta.fused(lambda x: x * 2.0 + 0.0, lambda x: x * 2.0, lambda g, y, x: (2 * g,), name=name)
    y = ta.Tensor([1.0], requires_grad=True)
    for _ in range(6):
        y = double(y)
    for limit in (20, 10, 5):
        graph = ta.viz.graph(y, detail="primitive", limit=limit)
        assert all(node.kind != "steps" and node.count == 1 for node in (*graph.nodes, *graph.boxes))
        assert not any("repeated steps" in notice for notice in graph.notices)
