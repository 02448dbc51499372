from __future__ import annotations

from pathlib import Path

import pytest

from tinygrad_attn import nn
from tinygrad_attn.check import suite
from tinygrad_attn.cli import main

Output = pytest.CaptureFixture[str]


@pytest.mark.parametrize(("passed", "code"), [(True, 0), (False, 1)])
def test_the_table_and_the_exit_code(
    passed: bool, code: int, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    line = suite.Line("tanh", "rule", cases=1, entries=3, failures=[] if passed else [None])
    asked: list[object] = []

    def run(modules: object, *, seed: int, on_line: object) -> suite.SuiteResult:
        asked.extend([modules, seed])
        on_line(line)
        return suite.SuiteResult([line])

    monkeypatch.setattr(suite, "run", run)
    assert main(["check", "--seed", "7"]) == code
    shown = capsys.readouterr()
    assert "tanh" in shown.out and not shown.err
    assert asked == [nn, 7]


MINE = """
import numpy as np
import tinygrad_attn as ta
operation = ta.Primitive("cube", lambda x: x**3, lambda g, y, x: 3 * g * x**2)
wrong = ta.Primitive("wrong", lambda x: x**3, lambda g, y, x: 2 * g * x**2)
gradcheck_inputs = {"operation": (np.ones(2),), "wrong": (np.ones(2),)}
"""


@pytest.mark.parametrize(("name", "code"), [("operation", 0), ("wrong", 1)])
def test_an_operation_of_ones_own(name: str, code: int, tmp_path: Path, capsys: Output) -> None:
    path = tmp_path / "mine.py"
    path.write_text(MINE, encoding="utf-8")
    assert main(["check", f"{path}::{name}"]) == code
    shown = capsys.readouterr()
    assert ("cube" if name == "operation" else "wrong") in shown.out and not shown.err


def test_a_target_that_is_not_there(tmp_path: Path, capsys: Output) -> None:
    assert main(["check", f"{tmp_path / 'mine.py'}::operation"]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path / 'mine.py'}: no such file\n"


def test_wrong_seed(capsys: Output) -> None:
    assert main(["check", "--seed", "-1"]) == 2
    assert capsys.readouterr().err == "error: --seed is -1, expected at least 0\n"


@pytest.mark.parametrize("code", ["0", "3", "'text'", ""])
@pytest.mark.parametrize("where", ["importing", "checking"])
def test_a_file_that_ends_the_process(code: str, where: str, tmp_path: Path, capsys: Output) -> None:
    path = tmp_path / "mine.py"
    inside = "" if where == "importing" else "def f(x=np.ones(2)):\n    "
    path.write_text(f"import sys\nimport numpy as np\n{inside}sys.exit({code})\n", encoding="utf-8")
    assert main(["check", f"{path}::f"]) == 2
    said = f"it called sys.exit({code or None}), expected to come to its end"
    what = f"importing {path}" if where == "importing" else "f"
    shown = capsys.readouterr()
    assert shown.err == f"error: {what}: {said}\n" and not shown.out


def test_names_that_are_there_only_by_a_function(tmp_path: Path, capsys: Output) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def __getattr__(name):\n    raise KeyError(name)\nnothing = None\n", encoding="utf-8")
    assert main(["check", f"{path}::f"]) == 2
    assert "mine.py, f: KeyError: 'f'" in capsys.readouterr().err
    assert main(["check", f"{path}::nothing"]) == 2
    assert "is a NoneType, expected" in capsys.readouterr().err


@pytest.mark.parametrize("raised", ["KeyError(name)", "SystemExit(0)"])
def test_values_that_do_not_like_to_be_looked_at(raised: str, tmp_path: Path, capsys: Output) -> None:
    path = tmp_path / "mine.py"
    lazy = f"class Lazy:\n    def __getattr__(self, name):\n        raise {raised}\nlazy = Lazy()\n"
    path.write_text(lazy + "def f(x):\n    return x\n", encoding="utf-8")
    assert main(["check", f"{path}::nope"]) == 2
    assert f"{path} defines no nope; it defines" in capsys.readouterr().err
