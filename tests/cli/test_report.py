"""The command report, on runs that have ended and on one that has just begun."""

from __future__ import annotations

import json
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


def test_wrong_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path}: not the folder of a run, it has no config.json\n"
    assert main(["report"]) == 2
