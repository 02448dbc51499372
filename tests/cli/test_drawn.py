"""The commands graph, flow and heatmap, on the running example and on a trained run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tinygrad_attn.cli import main


def test_graph_of_the_running_example(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("digraph") and "0.4558" in printed.out and "0.388" not in printed.out
    assert "backward()" in printed.err
    path = tmp_path / "example.svg"
    assert main(["graph", "--backward", "--detail", "primitive", "--right", "--out", str(path)]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{path}\n" and "0.388" in path.read_text("utf-8")


def test_graph_of_a_run(copy_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "graph.svg"
    arguments = ["graph", str(copy_run), "1 2 3", "--target", "3 1", "--backward", "--out", str(path)]
    assert main([*arguments, "--fold", "step *", "--open", "encoder"]) == 0
    text = path.read_text("utf-8")
    assert "step 1 … 3" in text and "logits" in text and "gru_cell, opened" not in text
    assert main([*arguments, "--detail", "model"]) == 0
    assert "encoder" in path.read_text("utf-8")


def test_flow(copy_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flow", "--step", "1"]) == 0
    assert "0.03045  -0.07004  0.03959" in capsys.readouterr().out  # ∂loss/∂e
    assert main(["flow", "--path", "loss", "logits", "c1", "h"]) == 0
    assert "loss → logits → c1 → h" in capsys.readouterr().out
    path = tmp_path / "flow.png"
    assert main(["flow", str(copy_run), "1 2 3", "--target", "1 2", "--out", str(path)]) == 0
    assert "norms over 3 steps" in capsys.readouterr().out and path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("more", [[], ["--gradient"]])
def test_heatmap(copy_run: Path, tmp_path: Path, more: list[str]) -> None:
    path = tmp_path / "heatmap.svg"
    arguments = ["heatmap", str(copy_run), "7 8 9", "--target", "7 8", "--out", str(path)]
    assert main([*arguments, *more]) == 0
    text = path.read_text("utf-8")
    assert "7" in text and "&lt;eos&gt;" in text and ("∂loss" in text) == bool(more)
    assert main(["heatmap", "--out", str(path), *more]) == 0
    assert "h₂" in path.read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["graph", "--target", "1"], "--target is for a run"),
        (["graph", "--fold", "nothing"], "fold='nothing' matches no scope"),
        (["graph", "--limit", "1"], "limit is 1"),
        (["graph", "--out", "x.jpeg"], "x.jpeg: a graph is saved as .svg"),
        (["graph", "--detail", "all"], "--detail"),
        (["graph", "no/such/folder", "1"], "no such folder"),
        (["graph", "no/such/folder"], "an input is missing"),
        (["flow", "--step", "7"], "step 7 is not from 1 to the 1"),
        (["flow", "--path", "loss", "nobody"], "there is no 'nobody'"),
        (["flow", "--path", "loss", "h"], "the gradient comes to logits first"),
        (["flow", "--out", "x.txt"], "x.txt"),
        (["heatmap"], "--out"),
        (["heatmap", "--out", "x.gif"], "x.gif"),
    ],
)
def test_wrong_use_is_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: ") and message in error


def test_unknown_symbols_are_told(copy_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", str(copy_run), "1 x", "--target", "y 2"]) == 0
    error = capsys.readouterr().err
    assert "input: unknown to the model and read as <unk>: 'x'" in error and "target: " in error
