"""Where --out points is looked at before anything is computed or printed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import train
from tinygrad_attn.cli import main

Output = pytest.CaptureFixture[str]
on_linux = pytest.mark.skipif(not Path("/proc/self").exists(), reason="no folder that takes no files")

GRAPH = "a graph is saved as .svg, .png, .pdf, .dot or .gv"
PICTURE = "a picture is saved as .svg, .png or .pdf"
PAGE = "a page is saved as .html or .htm"


@pytest.mark.parametrize(
    ("command", "out", "message"),
    [
        ("graph", "x.jpeg", f"x.jpeg: {GRAPH}"),
        ("flow", "x.dot", f"x.dot: {PICTURE}"),
        ("heatmap", "x", f"x: {PICTURE}"),
        ("report", "mine.py", f"mine.py: {PAGE}"),
        ("graph", "", f"--out is empty; {GRAPH}"),
        ("flow", "", f"--out is empty; {PICTURE}"),
        ("heatmap", "", f"--out is empty; {PICTURE}"),
        ("report", "", f"--out is empty; {PAGE}"),
        ("graph", "folder.svg", "folder.svg: a folder, expected a file"),
        ("flow", "none/x.svg", "none/x.svg: there is no folder {here}/none"),
        ("heatmap", "mine.py/x.svg", "mine.py/x.svg: there is no folder {here}/mine.py"),
        ("report", "none/x.html", "none/x.html: there is no folder {here}/none"),
        pytest.param("flow", "/proc/x.svg", "/proc/x.svg: nothing can be written to /proc (", marks=on_linux),
    ],
)
def test_where_nothing_can_be_written_nothing_is_computed(
    command: str,
    out: str,
    message: str,
    copy_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Output,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.svg").mkdir()
    (tmp_path / "mine.py").write_text("mine")
    examples = copy_run / "examples.json"
    examples.unlink(missing_ok=True)
    assert main([command, *([str(copy_run)] if command == "report" else []), "--out", out]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith(f"error: {message.format(here=tmp_path.resolve())}")
    assert shown.err.count("\n") == 1 and not shown.out and not examples.exists()
    assert {path.name for path in tmp_path.iterdir()} == {"folder.svg", "mine.py"}
    assert (tmp_path / "mine.py").read_text() == "mine"


@on_linux
def test_standard_output_by_a_link_is_written_to(tmp_path: Path) -> None:
    """Where it is a pipe, its real path is in no folder."""
    link = tmp_path / "out.svg"
    link.symlink_to("/dev/stdout")
    command = [sys.executable, "-m", "tinygrad_attn", "graph", "--out", str(link)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert shown.startswith("<?xml") and shown.endswith(f"</svg>\n{link}\n")


def test_a_file_is_replaced_and_endings_may_be_in_capitals(tmp_path: Path) -> None:
    for _ in range(2):
        assert main(["graph", "--out", str(tmp_path / "x.DOT")]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["x.DOT"]


@on_linux
def test_a_place_that_takes_no_run_folder(capsys: Output) -> None:
    assert train(["copy", "--out", "/proc/x/run"]) == 2
    expected = "error: /proc/x/run: the run folder cannot be made there (No such file or directory)\n"
    assert capsys.readouterr().err == expected
