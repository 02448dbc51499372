"""The commands graph, flow and heatmap, on the running example and on a trained run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import SMALL
from tinygrad_attn.cli import main


def test_graph_of_the_running_example(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("digraph") and "0.4558" in printed.out and "0.388" not in printed.out
    assert printed.err == "No gradients: add --backward to compute and draw them.\n"
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


def test_graph_of_a_run_without_gradients(copy_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", str(copy_run), "1 2 3"]) == 0
    error = capsys.readouterr().err
    assert "add --backward" in error and "backward()" not in error
    assert "run once more on the recorded inputs. The" in error
    assert main(["graph", str(copy_run), "1 2 3", "--backward"]) == 0
    error = capsys.readouterr().err
    assert "--backward" not in error and "with the gradient that had arrived" in error


def test_flow(copy_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flow", "--step", "1"]) == 0
    assert "0.03045  -0.07004  0.03959" in capsys.readouterr().out  # ∂loss/∂e
    assert main(["flow", "--path", "loss", "logits", "c1", "h"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "loss → logits → c1 → h",
        "-0.119  -0.1577  -0.1113",
        "norm 0.2267; on all paths together 0.2161, which is less because they cancel in part",
    ]
    assert main(["flow", "--path", "loss", "logits", "c1"]) == 0
    assert capsys.readouterr().out.endswith("\nnorm 0.388; on all paths together 0.388\n")
    assert main(["flow", str(copy_run), "1 2 3", "--path", "loss", "logits", "c1", "h"]) == 0
    assert capsys.readouterr().out.count("norm") == 1
    path = tmp_path / "flow.png"
    assert main(["flow", str(copy_run), "1 2 3", "--target", "1 2", "--out", str(path)]) == 0
    assert "norms over 3 steps" in capsys.readouterr().out and path.read_bytes().startswith(b"\x89PNG")


def test_the_picture_is_there_though_nobody_reads_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(*_: object, **__: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("builtins.print", leave)
    path = tmp_path / "flow.svg"
    main(["flow", "--out", str(path)])
    assert path.read_text("utf-8").startswith("<?xml")


def test_names_are_utf_8_whatever_the_locale(capsys: pytest.CaptureFixture[str]) -> None:
    alpha = "\udcce\udcb1"  # its bytes, as Python hands them over where the locale has no α
    assert main(["flow", "--path", "loss", "logits", "c1", f"{alpha}1"]) == 0
    assert "c1 → α1" in capsys.readouterr().out
    for option in ("--fold", "--open"):
        assert main(["graph", option, alpha]) == 2
        assert "'α'" in capsys.readouterr().err


def test_the_picture_of_one_step_is_of_that_step(copy_run: Path, tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.svg" for name in ("all", "1", "2")]
    for path, more in zip(paths, ([], ["--step", "1"], ["--step", "2"]), strict=True):
        assert main(["flow", str(copy_run), "1 2 3", "--target", "1 2", *more, "--out", str(path)]) == 0
    pictures = [path.read_text("utf-8") for path in paths]
    assert len(set(pictures)) == 3 and "step 2 of 3" in pictures[2]


@pytest.mark.parametrize("more", [[], ["--gradient"]])
def test_heatmap(copy_run: Path, tmp_path: Path, more: list[str]) -> None:
    path = tmp_path / "heatmap.svg"
    arguments = ["heatmap", str(copy_run), "7 8 9", "--target", "7 8", "--out", str(path)]
    assert main([*arguments, *more]) == 0
    text = path.read_text("utf-8")
    assert "7" in text and "&lt;eos&gt;" in text and ("∂loss" in text) == bool(more)
    assert main(["heatmap", "--out", str(path), *more]) == 0
    assert "h₂" in path.read_text("utf-8")


def test_weights_that_no_score_made_have_no_gradient_to_draw(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, path = tmp_path / "none", tmp_path / "heatmap.svg"
    assert main(["train", "copy", "--attention", "none", "--out", str(run), "--quiet", *SMALL]) == 0
    capsys.readouterr()
    assert main(["heatmap", str(run), "7 8", "--out", str(path)]) == 0
    path.unlink()
    assert main(["heatmap", str(run), "7 8", "--gradient", "--out", str(path)]) == 2
    assert "leave out --gradient" in capsys.readouterr().err and not path.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["graph", "--target", "1"], "--target is for a run"),
        (["graph", "--fold", "nothing"], "fold='nothing' matches no scope"),
        (["graph", "--limit", "1"], "--limit is 1, expected at least 2"),
        (["graph", "--out", "x.jpeg"], "x.jpeg: a graph is saved as .svg"),
        (["graph", "--detail", "all"], "--detail"),
        (["graph", "no/such/folder", "1"], "no such folder"),
        (["graph", "no/such/folder"], "an input is missing"),
        (["flow", "--step", "7"], "step is 7, expected one from 1 to 1"),
        (["flow", "--path", "loss", "nobody"], "there is no 'nobody'"),
        (["flow", "--path", "loss", "h"], "the gradient comes to logits first"),
        (["flow", "--out", "x.txt"], "x.txt"),
        (["flow", "--path", "loss", "h", "--out", "x.svg"], "--path is printed, not drawn: leave out --out"),
        (["flow", "--path", "loss", "h", "--step", "1"], "--path names its steps itself: leave out --step"),
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
