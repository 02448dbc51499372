"""The gradient flow: parts, paths, table and figures."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb

import tinygrad_attn as ta
from tests.viz.support import CELLS, SCORES, batch, running_example, small_loss, small_model
from tinygrad_attn.viz.picture import unit_of
from tinygrad_attn.viz.report.data import flow_data

TIGHT: Any = {"rtol": 1e-12, "atol": 1e-14}


def total(parts: Any) -> Any:
    return sum(parts.values() if isinstance(parts, dict) else parts)


def test_running_example_against_the_formulas() -> None:
    loss = running_example()
    loss.backward()
    flow = ta.viz.gradient_flow(loss)
    h, s = np.array([0.2, 0.9, 0.1]), 0.5
    e = np.tanh(s + h)
    alpha = np.exp(e) / np.exp(e).sum()
    c = alpha @ h
    to_c = 2 * (c - 1)
    to_alpha = to_c * h
    to_e = alpha * (to_alpha - alpha @ to_alpha)
    through_tanh = to_e * (1 - e**2)
    assert flow.labels == ["loss", "c1", "α1", "e1", "h", "s0"] and flow.count == 1
    np.testing.assert_allclose(flow.gradient("α1"), to_alpha, **TIGHT)
    np.testing.assert_allclose(flow.gradient("e1"), to_e, **TIGHT)
    np.testing.assert_allclose(flow.gradient("s₀"), through_tanh.sum(), **TIGHT)
    parts = flow.parts("h")
    assert list(parts) == ["value", "key"]
    np.testing.assert_allclose(parts["value"], to_c * alpha, **TIGHT)
    np.testing.assert_allclose(parts["key"], through_tanh, **TIGHT)
    np.testing.assert_allclose(flow.path("loss", "c1", "h"), to_c * alpha, **TIGHT)
    np.testing.assert_allclose(flow.path("loss", "c1", "alpha1", "e1", "h"), through_tanh, **TIGHT)
    with pytest.raises(ValueError, match="from loss the gradient comes to c1 first, not to e1"):
        flow.path("loss", "e1", "h")
    assert [str(path) for path in flow.paths("loss", "h")] == ["loss → c1 → h", "loss → c1 → α1 → e1 → h"]


@pytest.mark.parametrize("query", ["previous", "current"])
@pytest.mark.parametrize("attention", SCORES)
@pytest.mark.parametrize("cell", CELLS)
def test_parts_and_paths_sum_to_the_whole(cell: str, attention: str, query: str) -> None:
    model = small_model(cell=cell, attention=attention, query=query)
    data = batch(2, 3, 2)
    output = model(data.source, data.lengths, data.target_in)
    loss = ta.cross_entropy(output.logits, data.target_out, ignore_index=ta.PAD)
    loss.backward()
    flow = ta.viz.gradient_flow(loss, output)
    for label, tensor in [("h", output.annotations), ("s0", output.initial.s), ("s1", output.steps[0].s)]:
        np.testing.assert_allclose(total(flow.parts(label)), tensor.grad, **TIGHT)
        paths = flow.paths("loss", label)
        np.testing.assert_allclose(total(path.gradient for path in paths), tensor.grad, **TIGHT)
        np.testing.assert_allclose(flow.between("loss", label), tensor.grad, **TIGHT)
        for path in paths:
            np.testing.assert_allclose(flow.path(*path.labels), path.gradient, **TIGHT)
    if attention != "none":
        assert set(flow.parts("h")) == {"value", "key", "state"}
        np.testing.assert_allclose(flow.gradient("α2"), output.steps[1].weights.grad, **TIGHT)
    names = {"recurrence", "output", *(() if attention == "none" else ("scores",))}
    assert set(flow.parts("s1")) == names
    middle = flow.paths("c1", "h")
    np.testing.assert_allclose(total(path.gradient for path in middle), flow.between("c1", "h"), **TIGHT)


def test_value_and_key_parts_of_one_step_against_differences() -> None:
    """The value part is the gradient of an h in contexts alone, the key part that of one in scores."""
    rng = np.random.default_rng(0)
    h0 = rng.standard_normal((1, 3, 8))
    model = small_model(attention="general")

    def loss_of(values: Any, keys: Any, start: Any) -> ta.Tensor:
        decoder = model.decoder
        memory = decoder.memory(ta.nn.Encoding(keys, start, start, np.ones((1, 3), bool)))
        memory = memory._replace(annotations=values)
        state = decoder.initial_state(ta.nn.Encoding(keys, start, start, np.ones((1, 3), bool)))
        step = decoder.step(model.target_embedding(np.array([1])), state, memory)
        return ta.cross_entropy(step.logits, np.array([5]))

    start = ta.Tensor(np.zeros((1, 4)))
    h = ta.Tensor(h0, requires_grad=True, name="h")
    loss = loss_of(h, h, start)
    loss.backward()
    parts = ta.viz.gradient_flow(loss).parts("h")
    values, keys = ta.Tensor(h0, requires_grad=True), ta.Tensor(h0, requires_grad=True)
    apart = loss_of(values, keys, start)
    apart.backward()
    np.testing.assert_allclose(parts["value"], values.grad, **TIGHT)
    np.testing.assert_allclose(parts["key"], keys.grad, **TIGHT)
    assert ta.gradcheck(lambda values, keys: loss_of(values, keys, start), (values, keys))


def test_a_fused_loss_is_opened_and_found_by_name() -> None:
    data = batch(4, 5)
    model = small_model()
    loss = model.loss(data)
    loss.backward()
    found = ta.viz.gradient_flow(loss)
    output = model(data.source, data.lengths, data.target_in)
    same = ta.cross_entropy(output.logits, data.target_out)
    same.backward()
    given = ta.viz.gradient_flow(same, output)
    assert found.labels == given.labels and found.count == 4
    for label in found.labels:
        np.testing.assert_allclose(found.gradient(label), given.gradient(label), **TIGHT)
        for name, part in found.parts(label).items():
            np.testing.assert_allclose(part, given.parts(label)[name], **TIGHT)


def test_norms_rows_and_one_example_of_a_batch() -> None:
    data = batch(3, 4, 2)
    model = small_model()
    output = model(data.source, data.lengths, data.target_in)
    loss = ta.cross_entropy(output.logits, data.target_out)
    loss.backward()
    for example in (0, 1):
        flow = ta.viz.gradient_flow(loss, example=example)
        norms = [np.linalg.norm(step.weights.grad[example]) for step in output.steps]
        np.testing.assert_allclose(flow.norms("α"), norms)
        np.testing.assert_allclose(flow.norms("h"), np.linalg.norm(output.annotations.grad[example], axis=-1))
        rows = [flow.rows("h", part) for part in flow.part_names("h")]
        np.testing.assert_allclose(np.sum(rows, axis=0), output.annotations.grad[example], **TIGHT)
    assert ta.viz.gradient_flow(loss, example=0).norms("h")[-1] == 0.0  # padding
    of_steps = [flow.parts("h", step)["value"] for step in (1, 2, 3)]
    np.testing.assert_allclose(total(of_steps), flow.parts("h")["value"], **TIGHT)


def test_tensors_made_by_hand_with_one_annotation_each() -> None:
    hs = [ta.Tensor([v], requires_grad=True, name=f"h{j}") for j, v in enumerate((0.2, 0.9, 0.1), 1)]
    query = ta.Tensor([0.5], requires_grad=True)
    scores = ta.stack([ta.tanh(query + h)[0] for h in hs])
    weights = ta.softmax(scores)
    context = ta.stack([weights[j] * hs[j] for j in range(3)]).sum()
    loss = (context - 1.0) ** 2
    loss.backward()
    flow = ta.viz.gradient_flow(loss, s=query, e=scores, alpha=weights, c=context)
    assert {"h1", "h2", "h3", "s0", "e1", "α1", "c1"} < set(flow.labels)
    for j, h in enumerate(hs, 1):
        assert set(flow.parts(f"h{j}")) == {"value", "key"}
        np.testing.assert_allclose(total(flow.parts(f"h{j}")), h.grad, **TIGHT)
    assert "h3" in str(flow) and len(flow.rows("h")) == 3
    flow.figure().svg()


def test_table() -> None:
    flow = ta.viz.gradient_flow(small_loss())
    overview, step = str(flow), flow.table(2)
    assert "‖∂s‖" in overview and "loss = " in overview
    assert f"{flow.norms('α')[1]:.4g}" in overview
    assert step.startswith("step 2 of 3") and "recurrence" in step and "value of step 2" in step
    row = next(line for line in step.splitlines() if line.startswith("α2"))
    assert row.split()[2:] == [f"{x:.4g}" for x in flow.gradient("α2")[0]]
    with pytest.raises(ValueError, match="step is 4, expected one from 1 to 3"):
        flow.table(4)


def test_figure_and_step_graph(tmp_path: Path) -> None:
    flow = ta.viz.gradient_flow(small_loss(batch(3, 4)))
    flow.save(tmp_path / "flow.svg", source=["日本", "b", "$x$", "<eos>"], target=["x", "y", "z"])
    text = (tmp_path / "flow.svg").read_text("utf-8")
    assert "日本" in text and "$x$" in text and "∂loss/∂α" in text and "recurrence" in text
    with pytest.raises(ValueError, match="3 source tokens given for 4"):
        flow.figure(source=["a", "b", "c"])
    graph = flow.graph(2)
    assert [node.name for node in graph.nodes] == ["h", "s₁", "e₂", "α₂", "c₂", "s₂", "logits", "loss"]
    used = {(edge.source, edge.target): edge.gradient for edge in graph.edges}
    key = used[graph["h"].id, graph["e₂"].id]
    np.testing.assert_allclose(key, flow.parts("h", 2)["key"], **TIGHT)
    assert "Step 2 of 3" in graph.svg()
    assert flow._repr_svg_().startswith("<?xml")


def legends_and_lines(axes: Any) -> tuple[Any, Any]:
    """Where the legend of a drawn panel is, and where its curves or bars are allowed to be."""
    return axes.get_legend().get_window_extent(), axes.get_window_extent()


@pytest.mark.parametrize("step", [None, 2])
def test_legends_stand_beside_the_curves_and_titles_are_free(step: int | None) -> None:
    picture = ta.viz.gradient_flow(small_loss(batch(3, 4))).figure(step=step)
    picture.draw_without_rendering()
    for axes in [axes for axes in picture.axes if axes.get_legend()]:
        legend, panel = legends_and_lines(axes)
        assert legend.x0 >= panel.x1
    titles = [axes.title.get_window_extent() for axes in picture.axes if axes.get_title()]
    assert len(titles) == 4
    for axes in picture.axes:
        for axis in (axes.xaxis, axes.yaxis):
            offset = axis.get_offset_text()
            assert not offset.get_text()  # a factor has its place beside the axis
    assert titles[2].y1 + 8 < picture.axes[0].get_window_extent().y0


def test_the_parts_can_be_told_apart_in_grey() -> None:
    picture = ta.viz.gradient_flow(small_loss(batch(3, 4))).figure()
    for axes in picture.axes[2:4]:
        greys = [np.dot(to_rgb(line.get_color()), [0.299, 0.587, 0.114]) for line in axes.lines]
        assert len(greys) == 4 and min(np.diff(sorted(greys))) > 0.1


def test_small_numbers_have_their_power_of_ten_beside_the_axis() -> None:
    h = ta.Tensor([0.2, 0.9, 0.1], requires_grad=True, name="h")
    alpha = ta.softmax(ta.tanh(h * 1.0))
    alpha.name = "α"
    loss = (alpha * h).sum() * 3e-5
    loss.backward()
    axes = ta.viz.gradient_flow(loss).figure().axes
    by_title = {one.get_title(): one for one in axes}
    assert by_title["‖∂loss/∂h‖ by source position"].get_ylabel() == "in 10⁻⁵"
    (scale,) = by_title["∂loss/∂α"].child_axes
    assert scale.get_ylabel() == "in 10⁻⁵"


def test_what_there_is_once_is_drawn_as_bars_side_by_side() -> None:
    loss = running_example()
    loss.backward()
    flow = ta.viz.gradient_flow(loss)
    axes = next(one for one in flow.figure().axes if "∂loss/∂s" in one.get_title())
    scores, whole = axes.containers
    assert [scores.get_label(), whole.get_label()] == ["scores", "whole"]
    assert scores[0].get_height() == pytest.approx(flow.norms("s")[0]) == whole[0].get_height()
    assert scores[0].get_x() + scores[0].get_width() <= whole[0].get_x() + 1e-9


def test_figure_of_one_step() -> None:
    flow = ta.viz.gradient_flow(small_loss(batch(3, 4)))
    tokens: Any = {"source": ["日本", "b", "$x$", "d"], "target": ["x", "$y$", "z"]}
    picture = flow.figure(step=2, **tokens)
    text = picture.svg()
    assert "step 2 of 3" in text and "$y$" in text and "日本" in text
    alpha, e, s, h = picture.axes
    assert [one.get_title() for one in (alpha, e)] == ["∂loss/∂α₂", "∂loss/∂e₂"]
    for axes, role in ((alpha, "α"), (e, "e")):
        unit, name = unit_of(np.abs(flow.rows(role)[1]).max())
        assert axes.get_ylabel() == name
        np.testing.assert_allclose(
            [bar.get_height() for bar in axes.containers[0]], flow.rows(role)[1] / unit
        )
    assert [label.get_text() for label in s.get_xticklabels()] == ["s₁", "s₂"]
    by_name = {bars.get_label(): [bar.get_height() for bar in bars] for bars in s.containers}
    np.testing.assert_allclose(by_name["whole"], flow.norms("s")[1:3])
    np.testing.assert_allclose(
        by_name["scores"], [np.linalg.norm(flow.parts(label)["scores"]) for label in ("s1", "s2")]
    )
    by_name = {bars.get_label(): [bar.get_height() for bar in bars] for bars in h.containers}
    assert list(by_name) == ["value", "key"]
    keys, values = ([np.linalg.norm(row) for row in flow.rows("h", part, 2)] for part in ("key", "value"))
    np.testing.assert_allclose(by_name["key"], np.divide(keys, unit_of(max(*keys, *values))[0]))
    assert text != flow.figure(step=1, **tokens).svg() and text != flow.figure(**tokens).svg()
    with pytest.raises(ValueError, match="step is 4, expected one from 1 to 3"):
        flow.figure(step=4)


def test_wrong_arguments() -> None:
    loss = running_example()
    with pytest.raises(RuntimeError, match="backward"):
        ta.viz.gradient_flow(loss)
    loss.backward()
    with pytest.raises(TypeError, match="ndarray"):
        ta.viz.gradient_flow(loss.data)
    with pytest.raises(ValueError, match="not part of what the loss was computed from"):
        ta.viz.gradient_flow(loss, h=ta.Tensor([1.0], requires_grad=True))
    with pytest.raises(TypeError, match="h holds a float"):
        ta.viz.gradient_flow(loss, h=[1.0])
    flow: Any = ta.viz.gradient_flow(loss)  # to be called with what its types exclude
    with pytest.raises(KeyError, match="there is no 'q'; there are loss, c1"):
        flow.gradient("q")
    with pytest.raises(ValueError, match=r"the labels are \('loss',\), expected the two ends"):
        flow.path("loss")
    with pytest.raises(TypeError, match="a label is 2, expected text"):
        flow.path("loss", 2)
    with pytest.raises(KeyError, match="there is no role 'alhpa'; there are loss, h, s"):
        flow.norms("alhpa")
    assert flow.norms("alpha") == flow.norms("α") != []
    with pytest.raises(KeyError, match="h has no part 'vlaue', only value, key"):
        flow.rows("h", "vlaue")
    with pytest.raises(TypeError, match="step is '1', expected an integer"):
        flow.table("1")
    with pytest.raises(TypeError, match=r"source holds \[1, 2, 3\], expected strings"):
        flow.figure([1, 2, 3])
    with pytest.raises(TypeError, match="h holds a int, expected Tensors"):
        ta.viz.gradient_flow(loss, h=3)
    half: Any = 0.5
    with pytest.raises(TypeError, match=r"example is 0\.5, expected an integer"):
        ta.viz.gradient_flow(loss, example=half)
    x = ta.Tensor(1.0, requires_grad=True)
    with pytest.raises(RuntimeError, match="the loss is a leaf"):
        ta.viz.gradient_flow(x)
    y = x * x
    y.backward()
    with pytest.raises(ValueError, match="no tensor is called 'α' or 'e'"):
        ta.viz.gradient_flow(y)
    with pytest.raises(ValueError, match="example 3 is not one of the 1"):
        ta.viz.gradient_flow(small_loss(), example=3)


def test_too_many_paths_are_refused() -> None:
    flow = ta.viz.gradient_flow(small_loss(batch(14, 3)))
    with pytest.raises(ValueError, match="more than 20,000"):
        flow.paths("loss", "h")
    assert np.isfinite(flow.path("loss", "logits", "s14", "s13", "c13", "h")).all()


@pytest.mark.parametrize("step", [None, 1])
def test_long_names_leave_room_for_the_panels(step: int | None) -> None:
    flow = ta.viz.gradient_flow(small_loss())
    length, count = flow.rows("α")[0].shape[-1], flow.count
    sizes = []
    for name in ("a", "x" * 100):
        picture = flow.figure([name] * length, ["b"] * count, step)
        picture.svg()  # lays it out; warnings, such as of panels that have collapsed, are errors
        sizes.append([axes.get_position().height * picture.get_figheight() for axes in picture.axes[:4]])
    assert all(after > 0.7 * before for before, after in zip(*sizes, strict=True))


@pytest.mark.parametrize("step", [None, 1])
@pytest.mark.parametrize(("length", "count"), [(40, 3), (4, 40), (60, 60)])
@pytest.mark.parametrize("name", ["{}", "word{}"])
def test_names_do_not_overlap(length: int, count: int, name: str, step: int | None) -> None:
    flow = ta.viz.gradient_flow(small_loss(batch(count, length, 1)))
    source, target = ([name.format(i) for i in range(n)] for n in (flow.rows("α")[0].shape[-1], flow.count))
    picture = flow.figure(source, target, step)
    picture.svg()
    for axes in picture.axes[:4]:
        for axis, side in ((axes.xaxis, "x"), (axes.yaxis, "y")):
            boxes = [label.get_window_extent() for label in axis.get_ticklabels() if label.get_text()]
            ends = sorted((getattr(box, f"{side}0"), getattr(box, f"{side}1")) for box in boxes)
            assert all(end <= start + 1 for (_, end), (start, _) in pairwise(ends))


def named(tensor: ta.Tensor, name: str) -> ta.Tensor:
    tensor.name = name
    return tensor


def all_at_once() -> tuple[ta.Tensor, dict[str, ta.Tensor]]:
    """Attention of all five steps over a batch of two in one tensor each."""
    rng = np.random.default_rng(0)
    h, s = (
        ta.Tensor(rng.standard_normal(shape), requires_grad=True, name=name)
        for shape, name in (((2, 4, 3), "h"), ((2, 5, 3), "s"))
    )
    e = named(s @ h.swapaxes(1, 2), "e")
    alpha = named(ta.softmax(e), "α")
    c = named(alpha @ h, "c")
    loss = (c * c).sum()
    loss.backward()
    return loss, {"h": h, "s": s, "e": e, "α": alpha, "c": c}


def test_steps_that_one_tensor_holds_are_shown_together_and_not_one_by_one() -> None:
    loss, tensors = all_at_once()
    flow = ta.viz.gradient_flow(loss, example=1)
    assert flow.count == 5 and set(flow.parts("h")) == {"value", "key"}
    h, s = tensors["h"], tensors["s"]
    assert h.grad is not None and s.grad is not None
    np.testing.assert_allclose(flow.norms("h"), np.linalg.norm(h.grad[1], axis=-1))
    np.testing.assert_allclose(flow.norms("s"), np.linalg.norm(s.grad[1], axis=-1))
    assert len(flow.rows("α")) == 5 and flow.rows("α")[0].shape == (4,)
    assert len(str(flow).splitlines()) == 2 + 6 + 1 + 5
    flow.figure().svg()
    for look in (
        lambda: flow.parts("h", 2),
        lambda: flow.rows("h", "value", 2),
        lambda: flow.table(2),
        lambda: flow.graph(2),
        lambda: flow.figure(step=2),
        lambda: flow.save("never.svg", step=2),
    ):
        with pytest.raises(ValueError, match=r"step 2 alone.*one tensor holds all 5 steps"):
            look()
    data = flow_data(flow, list("abcd"), list("vwxyz"))
    assert data["h"] == {} and np.shape(data["∂α"]) == (5, 4)


@pytest.mark.parametrize("batch_axes", [(), (2,)])
def test_one_annotation_alone_is_one_position(batch_axes: tuple[int, ...]) -> None:
    h = ta.Tensor(np.arange(1.0, 4.0) * np.ones((*batch_axes, 3)), requires_grad=True, name="h1")
    together = ta.stack([h], axis=-2)
    alpha = ta.softmax(together.sum(axis=-1), axis=-1)
    loss = (ta.expand_dims(alpha, -1) * together).sum()
    loss.backward()
    flow = ta.viz.gradient_flow(loss, h=[h], alpha=[alpha])
    assert flow.norms("h") == [pytest.approx(np.sqrt(3))]
    flow.figure(source=["word"])


def test_one_sequence_without_a_batch() -> None:
    rng = np.random.default_rng(0)
    h = ta.Tensor(rng.standard_normal((4, 3)), requires_grad=True, name="h")
    s = ta.Tensor(rng.standard_normal((2, 3)), requires_grad=True, name="s")
    c = named(named(ta.softmax(named(s @ h.T, "e")), "α") @ h, "c")
    (loss := (c * c).sum()).backward()
    flow = ta.viz.gradient_flow(loss)
    assert flow.count == 2 and h.grad is not None
    np.testing.assert_allclose(flow.norms("h"), np.linalg.norm(h.grad, axis=-1))
    assert [row.shape for row in flow.rows("α")] == [(4,), (4,)]
    flow.figure(list("abcd"), list("xy")).svg()
    for unbatched in (loss, running_example()):
        if unbatched is not loss:
            unbatched.backward()
        with pytest.raises(ValueError, match="example 3: there is one sequence, without an axis for a batch"):
            ta.viz.gradient_flow(unbatched, example=3)


def test_a_single_step_of_a_batch_is_no_sequence_of_steps() -> None:
    rng = np.random.default_rng(0)
    h = ta.Tensor(rng.standard_normal((2, 4, 3)), requires_grad=True, name="h")
    alpha = named(ta.softmax((h * h).sum(axis=2)), "α")
    (loss := ((alpha[:, :, None] * h).sum(axis=1) ** 2).sum()).backward()
    flow = ta.viz.gradient_flow(loss, example=1)
    assert flow.count == 1 and h.grad is not None
    np.testing.assert_allclose(flow.norms("h"), np.linalg.norm(h.grad[1], axis=-1))


def test_the_gradient_of_constant_weights_is_absent() -> None:
    flow = ta.viz.gradient_flow(small_loss(attention="none"))
    assert flow.rows("α") == [] and flow.norms("α") == [] and len(flow.values("α")) == 3
    assert "∂α" not in str(flow) and "α2" not in flow.table(2)
    assert "value of step 2" in flow.table(2) and "key" not in flow.table(2)
    for picture in (flow.figure(), flow.figure(step=2)):
        assert [text.get_text() for axes in picture.axes[:2] for text in axes.texts] == ["–", "–"]
        picture.svg()
    data = flow_data(flow, list("abcd"), list("xyz"))
    assert data["∂α"] == [] and len(data["α"]) == 3


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_gradients_of_any_size_are_measured_and_drawn(size: float) -> None:
    h = ta.Tensor([[0.2, 0.5], [0.9, 0.1]], requires_grad=True, name="h")
    alpha = named(ta.softmax(h.sum(axis=1)), "α")
    loss = named(((alpha[:, None] * h).sum() - 1.0) * size, "loss")
    loss.backward()
    flow = ta.viz.gradient_flow(loss)
    assert h.grad is not None
    np.testing.assert_allclose(flow.norms("h"), np.linalg.norm(h.grad / size, axis=1) * size)
    assert " 0 " not in str(flow) and "∞" not in str(flow)
    for picture in (flow.figure(), flow.figure(step=1)):
        assert f"in 10{'⁻²' if size < 1 else '²'}" in picture.svg()


def test_messages_name_a_few_tensors_of_many() -> None:
    flow = ta.viz.gradient_flow(small_loss(batch(60, 3)))
    with pytest.raises(ValueError, match=r"the gradient comes to .*, … first, not to h") as caught:
        flow.path("logits", "h")
    assert len(str(caught.value)) < 400
    with pytest.raises(KeyError, match=r"there are loss, .*, …"):
        flow.gradient("q")
