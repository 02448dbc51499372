from __future__ import annotations

import subprocess
import sys
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
    [[], ["trian"], ["train", "--hiden", "3"], ["train", "--batch", "x"], ["predict"], ["--verbose"]],
)
def test_wrong_use_is_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("error: ") and "--help" in shown.err
    assert shown.err.count("\n") == 1 and not shown.out


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (OSError(28, "No space left on device", "runs/a"), 2, "error: runs/a: No space left on device\n"),
        (OSError("broken"), 2, "error: broken\n"),
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
    monkeypatch.setattr("tinygrad_attn.cli.command._discard_output", lambda: None)
    assert main(["predict", "a", "b"]) == code
    assert capsys.readouterr().err == message


def test_a_fault_of_the_program_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(folder: str) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(predict_command, "load_run", fail)
    with pytest.raises(ZeroDivisionError):
        main(["predict", "a", "b"])
