"""DOT and what is drawn from it: literal names, numbers, files, and a machine without Graphviz."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

import tinygrad_attn as ta
from tests.viz.support import running_example, small_loss
from tinygrad_attn.viz import render

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = [
    'say "hello"',
    "back\\slash\\n \\l",
    "\\N \\G \\E \\T \\H \\L \\\\N \\",
    "{braces|bars}",
    "colon:port:n",
    "<b>bold</b>",
    "<>",
    "<half",
    "&amp; & &#65;",
    "日本語の名前",
    "שלום עולם",
    "مرحبا",
    "😀 👩‍👩‍👧",
    "node",
    "-> [label=x]",
    "'; drop",
    "]]>",
    "<!-- -->",
    "%s {0} $x",
    "<img src=x onerror=alert(1)>",
]


def parsed(svg: str) -> tuple[list[ET.Element], list[ET.Element], list[str]]:
    root = ET.fromstring(svg)
    groups = list(root.iter(SVG + "g"))
    texts = ["".join(text.itertext()).replace("\u00a0", " ") for text in root.iter(SVG + "text")]
    return (
        [g for g in groups if g.get("class") == "node"],
        [g for g in groups if g.get("class") == "edge"],
        texts,
    )


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_shown_literally(name: str) -> None:
    x = ta.Tensor([1.0, 2.0], requires_grad=True, name=name)
    with ta.scope(name):
        y = x * x
        y.name = name
    y.backward(np.ones(2))
    graph = ta.viz.graph(y)
    nodes, edges, texts = parsed(graph.svg())
    assert len(nodes) == len(graph.nodes) == 2 and len(edges) == len(graph.edges) == 2
    assert [text.strip() for text in texts].count(name) == 3  # two nodes and a frame


def test_line_ends_and_control_characters_are_visible() -> None:
    x = ta.Tensor(1.0, requires_grad=True, name="first\nsecond")
    y = x * 2.0
    y.name = "a\tb\x00c\x1b[31m\ud800\u2028"
    _, _, texts = parsed(ta.viz.graph(y).svg())
    stripped = [text.strip() for text in texts]
    assert "first" in stripped and "second" in stripped
    assert "a␉b␀c␛[31m\ufffd\ufffd" in stripped
    long = ta.Tensor(1.0, requires_grad=True, name="x" * 10_000 + "\n" * 50) * 2.0
    assert len(ta.viz.graph(long).dot.source) < 4_000


@pytest.mark.parametrize("detail", ["model", "paper", "primitive"])
def test_svg_has_a_group_for_each_node_and_edge(detail: str) -> None:
    graph = ta.viz.graph(small_loss(), detail=detail)
    nodes, edges, texts = parsed(graph.svg())
    assert {g.get("id") for g in nodes} == {node.id for node in graph.boxes}
    ends = sorted("".join(g.find(SVG + "title").itertext()) for g in edges)
    assert ends == sorted(f"{edge.source}->{edge.target}" for edge in graph.lines)
    assert "logits" in "".join(texts) and "loss" in "".join(texts)


def test_values_and_gradients_are_on_the_picture() -> None:
    loss = running_example()
    loss.backward()
    _, _, texts = parsed(ta.viz.graph(loss).svg())
    shown = {text.strip() for text in texts}
    assert {"0.3068 0.4064 0.2868", "0.4558"} <= {" ".join(text.split()) for text in shown}
    assert "-0.2797 -0.4848 -0.2332" in {" ".join(text.split()) for text in shown}
    assert "0.05422 -0.04247 0.07904" in {" ".join(text.split()) for text in shown}  # the part along one edge


def test_nan_and_infinity_stand_out() -> None:
    x = ta.Tensor(np.r_[np.nan, np.inf, -np.inf, np.arange(20.0)], requires_grad=True, name="x")
    y = x * 2.0
    text = ta.viz.graph(y).dot.source
    assert "NaN × 1, ∞ × 2" in text and "0 … 19" in text and "#c81e1e" in text
    assert "NaN" not in ta.viz.graph(ta.Tensor([1.0], requires_grad=True) * 2.0).dot.source


@pytest.mark.parametrize("place", [0, 1, 2])
def test_nan_stands_out_among_the_gradients_of_folded_steps(place: int) -> None:
    x = ta.Tensor([1.0, 2.0], requires_grad=True, name="x")
    steps = []
    for i in range(3):
        with ta.scope(f"step {i + 1}"):
            s = x * 1.0
            s.name = "s"
            steps.append((s * (np.nan if i == place else 2.0 + i)).sum())
    y = steps[0] + steps[1] + steps[2]
    y.backward()
    text = ta.viz.graph(y, fold="step *").dot.source
    known = sorted(np.sqrt(2) * (2.0 + i) for i in range(3) if i != place)
    row = next(line for line in text.split("<tr>") if "s × 3" in line)
    assert f"NaN × 1, {known[0]:.4g} … {known[1]:.4g}" in row
    assert 'bgcolor="#f9c6c6"' in row and "#c81e1e" in row


@pytest.mark.parametrize("kind", ["svg", "png", "pdf", "dot", "gv"])
def test_files_by_suffix(kind: str, tmp_path: Path) -> None:
    graph = ta.viz.graph(running_example())
    path = tmp_path / f"picture.{kind.upper() if kind == 'png' else kind}"
    graph.save(path)
    start = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF", "dot": b"digraph", "gv": b"digraph"}[kind]
    assert path.read_bytes().startswith(start)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_file_does_not_say_when_it_was_made(tmp_path: Path) -> None:
    graph = ta.viz.graph(running_example())
    graph.save(tmp_path / "a.pdf")
    content = (tmp_path / "a.pdf").read_bytes()
    assert content.count(b"CreationDate (D:19700101000000") == 1 and b"ModDate" not in content


def test_unknown_suffix(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\.jpeg: a graph is saved as \.svg, \.png, \.pdf, \.dot, \.gv"):
        ta.viz.graph(running_example()).save(tmp_path / "x.jpeg")
    assert not list(tmp_path.iterdir())


def test_the_public_object_and_the_notebook() -> None:
    import graphviz

    graph = ta.viz.graph(running_example())
    assert isinstance(graph.dot, graphviz.Digraph) and graph.dot.source.startswith("digraph")
    bundle = graph._repr_mimebundle_()
    assert graph._repr_svg_() == bundle["image/svg+xml"]
    assert bundle["image/svg+xml"].startswith("<?xml") and "nodes" in bundle["text/plain"]


def test_drawing_needs_no_program(tmp_path: Path) -> None:
    script = (
        "import tinygrad_attn as ta\n"
        "x = ta.Tensor([1.0], requires_grad=True, name='x')\n"
        f"ta.viz.graph(x * x).save({str(tmp_path / 'x.svg')!r})\n"
    )
    done = subprocess.run([sys.executable, "-c", script], env={"PATH": ""}, capture_output=True, check=True)
    assert (tmp_path / "x.svg").read_text("utf-8").startswith("<?xml")
    assert done.stderr == b""


def test_without_graphviz_one_clear_error_and_the_text(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pygraphviz", None)
    monkeypatch.setenv("PATH", "")
    graph = ta.viz.graph(running_example())
    for draw in (graph.svg, lambda: graph.save(tmp_path / "x.png")):
        with pytest.raises(ta.viz.RenderError, match=r"pip install 'pygraphviz>=2'.*graphviz.*\.dot\.source"):
            draw()
    assert not list(tmp_path.iterdir())
    graph.save(tmp_path / "x.dot")
    assert (tmp_path / "x.dot").read_text("utf-8") == graph.dot.source
    assert "pygraphviz" in graph._repr_mimebundle_()["text/plain"] and graph._repr_svg_() is None


def test_the_system_program_is_used_where_the_wheel_is_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "dot"
    program.write_text("#!/bin/sh\n/bin/cat >/dev/null\necho '<svg>by the program</svg>'\n")
    program.chmod(0o755)
    monkeypatch.setitem(sys.modules, "pygraphviz", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "by the program" in ta.viz.graph(running_example()).svg()


def test_a_failing_layout_is_an_error_that_says_why() -> None:
    with pytest.raises(ta.viz.RenderError, match="could not lay the graph out"):
        render.render("digraph { this is { not dot", "svg")
    with pytest.raises(ValueError, match="format 'jpeg'"):
        render.render("digraph {}", "jpeg")


def test_json_holds_the_snapshot_and_the_picture() -> None:
    loss = small_loss()
    graph = ta.viz.graph(loss, fold="step *")
    data = json.loads(json.dumps(graph.to_json(values=50), allow_nan=False))
    nodes = {node["id"]: node for node in data["nodes"]}
    assert len(nodes) == len(graph.record.nodes) and nodes[data["output"]]["name"] == "loss"
    boxes = {box["id"]: box for box in data["boxes"]}
    assert sorted(m for box in boxes.values() for m in box["members"]) == sorted(nodes)
    assert all(key in boxes[node["box"]]["members"] for key, node in nodes.items())
    alpha = next(node for node in graph.record.nodes if node.name == "α")
    assert nodes[alpha.id]["value"]["data"] == alpha.value.ravel().tolist()
    assert nodes[alpha.id]["gradient"]["shape"] == [1, 4]
    big = next(node for node in data["nodes"] if node["value"]["shape"] == [12, 11])
    assert big["value"]["data"] is None and big["value"]["norm"] > 0
    edge = data["edges"][0]
    assert {"source", "target", "slot", "gradient"} == set(edge)
    assert all(data["edges"][i]["source"] in nodes for line in data["lines"] for i in line["edges"])
    strange = ta.viz.graph(ta.Tensor([np.nan, np.inf, 1.0], requires_grad=True) * 1.0).to_json()
    assert (
        strange["nodes"][0]["value"]["data"] == ["NaN", "Infinity", 1.0]
        and strange["nodes"][0]["gradient"] is None
    )


def test_threads_that_draw_leave_standard_error_as_it_was() -> None:
    before = os.fstat(2)
    with render._without_font_warnings():
        other = threading.Thread(target=lambda: ta.viz.graph(running_example()).svg())
        other.start()
        time.sleep(0.2)
    other.join()
    assert os.path.samestat(os.fstat(2), before)


def test_no_descriptor_is_lost_where_no_file_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> None:
        raise OSError("no space")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    free = os.dup(2)
    os.close(free)
    with pytest.raises(OSError, match="no space"), render._without_font_warnings():
        pass
    again = os.dup(2)
    os.close(again)
    assert again == free


UNSEEN = [
    "",
    " ",
    "\n",
    "\u200b",
    "\u200d",
    "\ufe0f",
    "\u0301",
    "\u3000",
    "\u202e",
    "\u00ad",
    "\ufeff",
    "\u2060",
]


@pytest.mark.parametrize("name", UNSEEN, ids=ascii)
def test_names_that_cannot_be_seen_are_no_trouble(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    x = ta.Tensor([1.0, 2.0], requires_grad=True, name=name)
    with ta.scope("m"), ta.scope(name):
        y = ta.tanh(x)
        y.name = name
        z = y * 2.0
        z.name = "z"
    loss = z.sum()
    loss.name = name
    loss.backward()
    for graph in (ta.viz.graph(loss), ta.viz.graph(loss, fold="m"), ta.viz.graph(loss, detail="model")):
        parsed(graph.svg())
    assert capfd.readouterr().err == ""


def test_marks_that_turn_the_direction_of_text_are_visible() -> None:
    x = ta.Tensor(1.0, requires_grad=True, name="a\u202eb\u200bc\u3164")
    _, _, texts = parsed(ta.viz.graph(x * 2.0).svg())
    assert "a\ufffdb\ufffdc\ufffd" in [text.strip() for text in texts]


def test_sizes_far_from_one_are_drawn() -> None:
    for size in (1e-200, 1e200):
        x = ta.Tensor(np.full(40, 2.0), requires_grad=True, name="x")
        y = x * ta.Tensor(np.full(40, size), requires_grad=True, name="w")
        y.backward(np.ones(40))
        source = ta.viz.graph(y).dot.source
        assert f"norm {np.sqrt(40) * size:.4g}" in source and "norm 0" not in source and "∞" not in source
    x, w = (ta.Tensor(np.full(40, v), requires_grad=True) for v in (1e200, 1e-200))
    y = x * w
    y.backward(np.ones(40))
    assert ta.viz.graph(y).svg()


def test_a_notice_is_given_in_full() -> None:
    x = ta.Tensor([1.0], requires_grad=True, name="x" * 59)
    y = x * 2.0
    y.backward()
    with ta.no_grad():
        x *= 0.5
    assert "x" * 59 in ta.viz.graph(y).dot.source.partition("label=<<font")[2]
