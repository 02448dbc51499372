from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tinygrad_attn import __version__
from tinygrad_attn.cli import main
from tinygrad_attn.cli import predict as predict_command

COMMAND = [sys.executable, "-m", "tinygrad_attn"]


def test_the_module_is_the_command() -> None:
    done = subprocess.run([*COMMAND, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"tinygrad-attn {__version__}\n" and not done.stderr


@pytest.mark.parametrize(
    "arguments", [["--help"], ["train", "--help"], ["predict", "--help"], ["check", "--help"]]
)
def test_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    shown = capsys.readouterr()
    assert "usage: tinygrad-attn" in shown.out and "  tinygrad-attn " in shown.out and not shown.err


@pytest.mark.parametrize(
    "arguments",
    [
        *([], ["trian"], ["train", "--hiden", "3"], ["train", "--batch", "x"], ["predict"], ["--verbose"]),
        *(["predict", "run", "3 1", "--beam=--"], ["train", "copy", "--out=--"]),
        *(["flow", "--step=--"], ["walkthrough", "--v-a=--"]),
    ],
)
def test_wrong_use_is_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("error: ") and "--help" in shown.err
    assert shown.err.count("\n") == 1 and not shown.out


def test_unknown_arguments_are_those_of_their_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "copy", "--hiden", "3"]) == 2
    assert capsys.readouterr().err == (
        "error: unrecognized arguments: --hiden 3 (see tinygrad-attn train --help)\n"
    )


@pytest.mark.parametrize(
    "arguments", [["train", "--", "-x"], ["predict", "--", "-x", "-y"], ["report", "--", "-x"]]
)
def test_what_stands_behind_two_dashes_is_no_option(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("error: -x: no such ")


def test_signs_that_command_a_terminal_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir("/")
    assert main(["predict", "\x1b[2J\u202e\udcff é"]) == 2
    assert capsys.readouterr().err.startswith(r"error: \x1b[2J\u202e\udcff é: no such folder")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (OSError(28, "No space left on device", "runs/a"), 2, "error: runs/a: No space left on device\n"),
        (OSError("broken"), 2, "error: broken\n"),
        (
            ModuleNotFoundError("No module named 'tqdm.auto'", name="tqdm.auto"),
            2,
            "error: tqdm is not installed; python -m pip install tqdm\n",
        ),
        (MemoryError(), 2, "error: not enough memory; choose smaller sizes\n"),
        (FloatingPointError("the logits hold NaN"), 1, "error: the logits hold NaN\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (KeyboardInterrupt("saved"), 130, "saved\n"),
        (BrokenPipeError(), 0, ""),
    ],
)
def test_what_errors_become(
    error: BaseException,
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(folder: str) -> Any:
        raise error

    monkeypatch.setattr(predict_command, "load_run", fail)
    monkeypatch.setattr("tinygrad_attn.cli.command.discard", lambda stream: None)
    assert main(["predict", "a", "b"]) == code
    assert capsys.readouterr().err == message


def test_ctrl_c_while_the_options_are_collected(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(commands: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(predict_command, "add_parser", interrupted)
    assert main(["predict", "a", "b"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_a_fault_of_the_program_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(folder: str) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(predict_command, "load_run", fail)
    with pytest.raises(ZeroDivisionError):
        main(["predict", "a", "b"])


FAILING = """
import numpy as np
import tinygrad_attn as ta
wrong = ta.Primitive("wrong", lambda x: x**3, lambda g, y, x: 2 * g * x**2)
gradcheck_inputs = (np.ones(2),)
"""
on_posix = pytest.mark.skipif(sys.platform == "win32", reason="a POSIX shell")


def in_shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """What the line gives, where $TA is the command."""
    command = " ".join(map(shlex.quote, COMMAND))
    return subprocess.run(
        ["sh", "-c", line], cwd=folder, env={**os.environ, "TA": command}, capture_output=True, text=True
    )


@on_posix
def test_a_check_that_failed_says_so_though_nobody_reads_its_table(tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text(FAILING)
    done = in_shell("{ $TA check failing.py::wrong; echo $? >code; } | true; sleep 0.1", tmp_path)
    assert (tmp_path / "code").read_text() == "1\n" and not done.stderr
    assert in_shell("$TA check failing.py::wrong >&-", tmp_path).returncode == 1


SMALL = "--hidden 4 --embedding 3 --batch 4 --steps 6 --evaluate-every 3 --development 5 --workers 1"


@on_posix
@pytest.mark.parametrize("stderr", ["2>&-", "2>/dev/full"])
def test_training_goes_on_though_nobody_listens(stderr: str, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}{b}\t{b}{a}\n" for a in "abcd" for b in "efgh"))
    done = in_shell(f"$TA train pairs.tsv {SMALL} --progress --out run {stderr}", tmp_path)
    assert done.returncode == 0
    assert (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1].startswith('{"event": "test"')


@on_posix
@pytest.mark.parametrize(
    "command",
    [
        "walkthrough >&-",
        "flow >&-",
        "graph --backward --out x.dot >&-",
        "predict none <&- 2>err; test $? = 2",
    ],
)
def test_closed_streams_are_no_fault(command: str, tmp_path: Path) -> None:
    done = in_shell(f"$TA {command}", tmp_path)
    assert done.returncode == 0 and not done.stderr


@on_posix
def test_a_back_end_of_somebody_elses_is_no_matter(tmp_path: Path) -> None:
    done = in_shell("MPLBACKEND=module://none $TA heatmap --out x.svg", tmp_path)
    assert done.returncode == 0 and not done.stderr and (tmp_path / "x.svg").exists()
