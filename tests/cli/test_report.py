"""The command report, on runs that have ended and on one that has just begun."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tinygrad_attn.cli import main


def test_the_page_of_a_run(copy_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(copy_run)]) == 0
    assert capsys.readouterr().out == f"{copy_run / 'report.html'}\n"
    path = tmp_path / "lecture.html"
    assert main(["report", str(copy_run), "--out", str(path)]) == 0
    assert path.read_bytes() == (copy_run / "report.html").read_bytes()
    assert json.loads((copy_run / "examples.json").read_text("utf-8"))["predictions"]


def test_the_page_without_weights_shows_what_there_is(
    copy_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("config.json", "vocab.json", "metrics.jsonl"):
        (tmp_path / name).write_bytes((copy_run / name).read_bytes())
    assert main(["report", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert "model.safetensors: not there" in printed.err and printed.out == f"{tmp_path / 'report.html'}\n"


def a_copy(run: Path, path: Path) -> Path:
    return Path(shutil.copytree(run, path / "run"))


@pytest.mark.parametrize("empty", [False, True])
def test_lost_metrics_are_told_and_cost_nothing_else(
    empty: bool, copy_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = a_copy(copy_run, tmp_path)
    assert main(["report", str(run)]) == 0
    kept = {name: (run / name).read_bytes() for name in ("report.html", "examples.json")}
    metrics = run / "metrics.jsonl"
    metrics.unlink()
    if empty:
        metrics.write_text("")
    lost = f"{metrics}: {'empty' if empty else 'not there'}"
    capsys.readouterr()
    assert main(["report", str(run)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {lost}") and "--out" in error and error.count("\n") == 1
    assert main(["report", str(run), "--out", str(tmp_path / "x.html")]) == 0
    assert capsys.readouterr().err == f"{lost}; the page is without figures and curves\n"
    assert {name: (run / name).read_bytes() for name in kept} == kept
    (run / "report.html").unlink()
    assert main(["report", str(run)]) == 0
    assert capsys.readouterr().err.startswith(lost)


@pytest.mark.parametrize("name", ["metrics.jsonl", "snapshots.jsonl"])
def test_a_damaged_file_is_told_once_and_nothing_is_written(
    name: str, copy_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = a_copy(copy_run, tmp_path)
    (run / "examples.json").write_text("")
    (run / name).write_text("{")
    assert main(["report", str(run)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {run / name}, line 1: damaged") and error.count("\n") == 1
    (run / name).unlink()
    (run / name).mkdir()
    assert main(["report", str(run)]) == 2
    assert capsys.readouterr().err == f"error: {run / name}: unreadable (Is a directory)\n"
    assert not (run / "examples.json").read_text()


def test_wrong_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path}: not the folder of a run, it has no config.json\n"
    assert main(["report"]) == 2


def test_a_run_that_may_not_be_written_to(
    copy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(folder: object) -> None:
        raise PermissionError(13, "Permission denied", str(copy_run / "examples.json"))

    monkeypatch.setattr("tinygrad_attn.cli.report.observe", refuse)
    page = tmp_path / "page.html"
    assert main(["report", str(copy_run), "--out", str(page)]) == 0
    shown = capsys.readouterr()
    assert shown.err == f"examples are left as they were: {copy_run}: Permission denied\n"
    assert shown.out == f"{page}\n" and page.exists()


def test_damaged_examples_of_data_that_are_gone_are_one_line(
    words_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = a_copy(words_run, tmp_path)
    (run / "config.json").write_text((run / "config.json").read_text().replace("words.tsv", "gone.tsv"))
    assert main(["report", str(run)]) == 0
    assert "examples are left as they were" in capsys.readouterr().err
    (run / "examples.json").write_text("[")
    assert main(["report", str(run)]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith(f"error: {run / 'examples.json'}: damaged") and shown.err.count("\n") == 1
