"""The page of a run, read without a browser."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tests.viz.support import CELLS, SCORES, small_loss
from tinygrad_attn.viz.report import data as page_data
from tinygrad_attn.viz.report.data import flow_data, graph_data, plain
from tinygrad_attn.viz.report.page import page
from tinygrad_attn.viz.report.read import RunData, RunFilesError

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "<!--",
    "\u2028\u2029",
    "שלום",
    "👩‍👩‍👧",
    "{{ 7 * 7 }}",
    "\"'&lt;",
]


class Reader(HTMLParser):
    """The elements of a page with their attributes, and the text within scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, list[str]] = {"script": [], "style": []}
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in self.inside:
            self._open = tag
            self.inside[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open:
            self.inside[self._open][-1] += data

    @property
    def data(self) -> Any:
        return json.loads(self.inside["script"][0])


def made(source: list[str] | None = None, **settings: Any) -> RunData:
    """A run whose example has four source words and three steps."""
    loss = small_loss(**settings)
    tokens = source or ["a", "b", "c", "d"], ["x", "y", "<eos>"]
    flow = flow_data(ta.viz.gradient_flow(loss), *tokens)
    examples = {
        "step": 20,
        "versions": {"numpy": "2.0"},
        "predictions": [
            {
                "source": tokens[0],
                "tokens": tokens[1],
                "reference": tokens[1],
                "right": True,
                "weights": flow["α"],
                "log_probability": -0.5,
            }
        ],
        "flows": [flow],
        "graph": graph_data(ta.viz.graph(loss), *tokens),
    }
    config = {
        "format": "tinygrad_attn run 1",
        "data": {"kind": "task", "name": "reverse"},
        "model": {"attention": "additive", "cell": "gru", "dropout": 0.0, "input_feeding": False},
        "training": {"steps": 20, "minutes": None},
    }
    rows = [
        {"event": "train", "step": 10, "loss": 2.5, "gradient_norm": 0.5, "seconds": 1.25},
        {"event": "evaluation", "step": 10, "loss": 2.25, "exact_match": 0.5},
        {
            "event": "test",
            "step": 20,
            "sequences": 400,
            "loss": 0.125,
            "exact_match": 0.9975,
            "token_error_rate": 0.01,
            "train_seconds": 12.0,
        },
    ]
    return RunData("a-run", config, rows, [{"step": 0, "flows": [flow]}], examples)


def write(folder: Path, run: RunData) -> None:
    (folder / "config.json").write_text(json.dumps(run.config))
    (folder / "examples.json").write_text(json.dumps(run.examples))
    for name, rows in (("metrics.jsonl", run.rows), ("snapshots.jsonl", run.snapshots)):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_the_files_of_a_run_make_its_page(tmp_path: Path) -> None:
    run = made()
    write(tmp_path, run)
    assert ta.viz.report(tmp_path) == tmp_path / "report.html"
    text = (tmp_path / "report.html").read_text("utf-8")
    assert text == page(RunData(tmp_path.name, run.config, run.rows, run.snapshots, run.examples))
    assert ta.viz.report(tmp_path, tmp_path / "other.html") == tmp_path / "other.html"
    assert (tmp_path / "other.html").read_text("utf-8") == text
    assert "99.75 %" in text and "12 s" in text and len(text.encode()) < 3e6


def test_a_page_is_the_same_in_every_process() -> None:
    script = (
        "import sys; from tests.viz.test_report import made, page; "
        "sys.stdout.buffer.write(page(made()).encode())"
    )
    pages = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "PATH": "", "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert pages[0] == pages[1] and pages[0].startswith(b"<!DOCTYPE html>")


def test_nothing_comes_from_outside() -> None:
    text = page(made())
    addresses = [
        value
        for _, attributes in Reader(text).elements
        for name, value in attributes.items()
        if name in ("src", "href", "action", "srcset", "data", "poster")
    ]
    assert all(value is not None and value.startswith(("#", "data:,")) for value in addresses)
    assert text.count("://") == text.count("http://www.w3.org/2000/svg") == 1
    assert "@import" not in text and "url(" not in text and "fetch(" not in text


def test_the_policy_allows_the_pages_own_style_and_script_alone() -> None:
    read = Reader(page(made()))
    policy = next(a["content"] for _, a in read.elements if "http-equiv" in a)
    assert policy is not None and policy.startswith("default-src 'none'; ")
    for kind, text in (("script", read.inside["script"][1]), ("style", read.inside["style"][0])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy
    # The policy forbids both of these, so a template that wrote them would lose them in the browser.
    assert not any(name == "style" or name.startswith("on") for _, a in read.elements for name in a)


def test_nothing_of_the_data_becomes_markup() -> None:
    plain_run = made()
    assert plain_run.examples is not None
    names = {"kind": "pairs", "file": {"path": f"/x/{HOSTILE[0]}", "sha256": HOSTILE[1]}}
    hostile = RunData(
        HOSTILE[1],
        {**plain_run.config, "data": names, "model": {HOSTILE[0]: HOSTILE[1], "attention": HOSTILE[2]}},
        plain_run.rows,
        [],
        {**plain_run.examples, "versions": {HOSTILE[0]: HOSTILE[1]}, "predictions": [{"source": HOSTILE}]},
    )
    text = page(hostile)
    read = Reader(text)
    assert {tag for tag, _ in read.elements} <= {tag for tag, _ in Reader(page(plain_run)).elements}
    assert len(read.inside["script"]) == 2 and "alert(2)</script>" not in text
    assert read.data["examples"]["predictions"] == [{"source": HOSTILE}]
    assert not set(read.inside["script"][0]) & set("<>&\u2028\u2029")
    assert "49" not in text.partition("<main")[0].partition("</style>")[2]


@pytest.mark.parametrize("missing", ["examples.json", "snapshots.jsonl", "metrics.jsonl"])
def test_what_is_not_there_yet_is_left_out(tmp_path: Path, missing: str) -> None:
    write(tmp_path, made())
    (tmp_path / missing).unlink()
    data = Reader(ta.viz.report(tmp_path).read_text("utf-8")).data
    key = {"examples.json": "examples", "snapshots.jsonl": "snapshots", "metrics.jsonl": "rows"}[missing]
    assert not data[key]


def test_damaged_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(RunFilesError, match="has no config"):
        ta.viz.report(tmp_path)
    write(tmp_path, made())
    for name, content, message in [
        ("snapshots.jsonl", b'{"step": 0, "flows": []}\n{"st', "snapshots.jsonl, line 2: damaged"),
        ("examples.json", b"[1]", "examples.json: damaged .a list"),
        ("metrics.jsonl", b"\xff\xfe", "metrics.jsonl: unreadable"),
        ("config.json", b"{}", "config.json: not the settings of a run"),
    ]:
        kept = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content)
        with pytest.raises(RunFilesError, match=message):
            ta.viz.report(tmp_path)
        (tmp_path / name).write_bytes(kept)
    (tmp_path / "metrics.jsonl").unlink()
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(RunFilesError, match=r"metrics.jsonl: unreadable \(Is a directory\)"):
        ta.viz.report(tmp_path)
    assert not (tmp_path / "report.html").exists()


def near(found: Any, expected: Any) -> None:
    """Equal to five significant digits."""
    np.testing.assert_allclose(np.array(found), expected, rtol=1e-4, atol=1e-12)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("query", ["previous", "current"])
def test_the_flow_on_the_page_is_that_of_the_arrays(score: str, query: str) -> None:
    flow = ta.viz.gradient_flow(small_loss(attention=score, query=query))
    data = flow_data(flow, list("abcd"), list("xyz"))
    near(data["α"], np.stack(flow.values("α")))
    near(data["∂α"], np.stack(flow.rows("α")) if score != "none" else [])
    near(data["s"]["whole"], flow.norms("s"))
    near(data["logits"], [np.linalg.norm(row) for row in flow.gradient("logits")[0]])
    near(data["all"]["whole"], flow.norms("h"))
    for part in flow.part_names("h"):
        if part in data["h"]:
            for step in (1, 2, 3):
                rows = flow.rows("h", part, step)
                near(data["h"][part][step - 1], [np.linalg.norm(row) for row in rows])
    for user, used, amount in data["links"]:
        near(amount, np.linalg.norm(flow.links[user, used]))
    assert len(data["links"]) == len(flow.links)


@pytest.mark.parametrize("cell", CELLS)
def test_the_graph_on_the_page_is_that_of_the_arrays(cell: str) -> None:
    graph = ta.viz.graph(small_loss(cell=cell))
    data = graph_data(graph, list("abcd"), list("xyz"))
    boxes = {box["id"]: box for box in data["boxes"]}
    assert boxes.keys() == {node.id for node in graph.nodes}
    for node in graph.nodes:
        for array, shown in ((node.value, "value"), (node.gradient, "gradient")):
            if array is None:
                assert boxes[node.id][shown] is None
            else:
                near(np.array(boxes[node.id][shown]["data"]).reshape(array.shape), array)
                assert boxes[node.id][shown]["shape"] == list(array.shape)
    assert len(data["lines"]) == len(graph.edges)
    for line, edge in zip(data["lines"], graph.edges, strict=True):
        if edge.gradient is not None:
            near(line["gradient"]["norm"], np.linalg.norm(edge.gradient))
    labels = [box["label"] for box in data["boxes"]]
    assert {"s₀", "s₁", "α₂", "e₃", "h", "loss"} <= set(labels)
    order = [labels.index(label) for label in ("h", "s₀", "e₁", "α₁", "s₁", "α₃", "logits", "loss")]
    assert order == sorted(order)


def test_the_page_is_told_nothing_of_the_limit_of_a_picture() -> None:
    loss = small_loss()
    graph = ta.viz.graph(loss, limit=5)
    assert any("limit" in notice for notice in graph.notices)
    data = graph_data(graph, list("abcd"), list("xyz"))
    assert data["notices"] == graph.record.notices == graph_data(ta.viz.graph(loss), [], [])["notices"]
    assert sum(box["tensors"] for box in data["boxes"]) == len(graph.record.nodes)


def test_of_a_long_example_the_page_has_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = ta.viz.gradient_flow(small_loss())
    whole = flow_data(flow, list("abcd"), list("xyz"))
    assert whole["words"] == [4, 3]
    monkeypatch.setattr(page_data, "WORDS", 2)
    data = flow_data(flow, list("abcd"), list("xyz"))
    assert (data["source"], data["target"], data["words"]) == (["a", "b"], ["x", "y"], [4, 3])
    for key in ("α", "∂α", "∂e"):
        assert data[key] == [row[:2] for row in whole[key][:2]]
    for part, rows in whole["h"].items():
        assert data["h"][part] == [row[:2] for row in rows[:2]]
    for part, row in whole["all"].items():
        assert data["all"][part] == row[:2]
    for part, row in whole["s"].items():
        assert data["s"][part] == row[:3]
    assert data["logits"] == whole["logits"][:2]
    assert data["links"] == [link for link in whole["links"] if not {"3"} & {end[-1] for end in link[:2]}]


def test_a_graph_of_too_many_boxes_is_on_the_page_as_its_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = ta.viz.graph(small_loss(), limit=16)
    monkeypatch.setattr(page_data, "BOXES", 20)
    data = graph_data(graph, list("abcd"), list("xyz"))
    assert [box["id"] for box in data["boxes"] if box["kind"] == "steps"]
    assert {box["id"] for box in data["boxes"]} == {node.id for node in graph.boxes}
    assert len(data["lines"]) == len(graph.lines)
    assert data["notices"] == graph.notices and "repeated steps are folded" in data["notices"][-1]


def test_a_line_of_several_gradients_does_not_hide_nan() -> None:
    x = ta.Tensor([1.0, 2.0], requires_grad=True)
    with ta.scope("a"):
        first = [x * 1.0, x * 2.0]
    with ta.scope("b"):
        y = (first[0] * 3.0 + first[1] * np.nan).sum()
    y.backward()
    (line,) = [
        line
        for line in graph_data(ta.viz.graph(y, fold=["a", "b"]), [], [])["lines"]
        if line["gradient"].get("several")
    ]
    assert line["gradient"]["norm"] == "NaN"


def test_what_has_no_name_is_called_what_it_is() -> None:
    loss = (ta.Tensor([1.0, 2.0], requires_grad=True) * ta.Tensor([3.0, 4.0])).sum()
    loss.backward()
    labels = [box["label"] for box in graph_data(ta.viz.graph(loss), [], [])["boxes"]]
    assert sorted(labels) == ["constant", "leaf", "mul", "sum"]


def test_large_arrays_are_described_and_strange_numbers_are_words() -> None:
    x = ta.Tensor(np.arange(2000.0), requires_grad=True, name="x")
    y = ta.Tensor(np.array([np.nan, np.inf, -np.inf]), requires_grad=True, name="y")
    loss = x.sum() + y.sum()
    loss.backward()
    boxes = {box["label"]: box for box in graph_data(ta.viz.graph(loss), [], [])["boxes"]}
    assert boxes["x"]["value"]["data"] is None and boxes["x"]["value"]["high"] == "1999"
    assert boxes["y"]["value"]["data"] == ["NaN", "Infinity", "-Infinity"]
    assert plain(np.float32(1 / 3)) == 0.33333
