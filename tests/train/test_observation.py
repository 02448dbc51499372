"""What a run keeps of a few examples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.train.small import small_model, small_task, small_training
from tinygrad_attn.data import Dataset
from tinygrad_attn.errors import UserError
from tinygrad_attn.nn import Seq2Seq
from tinygrad_attn.train import RunFolder, figures, train
from tinygrad_attn.train.observation import drawn, examples, is_due, observe, snapshot
from tinygrad_attn.viz.render import RenderError


def untrained(data: Dataset, rng: np.random.Generator | None = None, **changes: Any) -> Seq2Seq:
    sizes = len(data.source_vocabulary), len(data.target_vocabulary)
    return small_model(**changes).build(*sizes, rng or np.random.default_rng(3))


def test_snapshots_are_taken_ever_more_rarely() -> None:
    assert [step for step in range(2001) if is_due(step)] == [0, 10, 20, 50, 100, 200, 500, 1000, 2000]


def test_a_snapshot_changes_nothing() -> None:
    data, rng = small_task(), np.random.default_rng(3)
    model = untrained(data, rng, dropout=0.5)
    model.train()
    weights, state = model.state_dict(), rng.bit_generator.state
    first, second = snapshot(model, data, 0), snapshot(model, data, 0)
    assert first == second and first["step"] == 0
    assert model.training and rng.bit_generator.state == state
    assert all(parameter.grad is None for parameter in model.parameters())
    for name, array in model.state_dict().items():
        np.testing.assert_array_equal(array, weights[name])


def test_the_weights_of_a_snapshot_are_those_of_its_words() -> None:
    data = small_task()
    model = untrained(data)
    for flow in snapshot(model, data, 0)["flows"]:
        assert flow["target"] == [*flow["source"][::-1], "<eos>"]
        weights = np.array(flow["α"])
        assert weights.shape == (len(flow["target"]), len(flow["source"]))
        np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-4)


def test_examples_are_different_sources_of_all_lengths() -> None:
    data = small_task()
    model = untrained(data)
    found = examples(model, data, 7)
    sources = [tuple(one["source"]) for one in found["predictions"]]
    assert len(set(sources)) == len(sources) and {len(source) for source in sources} <= {1, 2, 3}
    assert found["step"] == 7 and set(found["versions"]) == {"tinygrad_attn", "numpy", "python", "platform"}
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert drawn(model, data)["loss"].gradient is not None


def test_a_run_can_be_observed_again(tmp_path: Path) -> None:
    train(small_task(), tmp_path, small_model(), small_training(), message=lambda text: None)
    folder = RunFolder(tmp_path)
    assert [kept["step"] for kept in folder.snapshots()] == [0, 10]
    before = (tmp_path / "examples.json").read_bytes()
    (tmp_path / "examples.json").unlink()
    observe(folder)
    assert (tmp_path / "examples.json").read_bytes() == before
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(UserError, match="not there"):
        observe(folder)


def test_a_run_ends_well_where_no_graph_can_be_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_graphviz(*arguments: object) -> None:
        raise RenderError("drawing needs Graphviz")

    monkeypatch.setattr(figures, "drawn", no_graphviz)
    messages: list[str] = []
    train(small_task(), tmp_path, small_model(), small_training(), message=messages.append)
    assert any("graph.svg: not written; drawing needs Graphviz" in message for message in messages)
    assert not (tmp_path / "graph.svg").exists() and (tmp_path / "report.html").exists()
