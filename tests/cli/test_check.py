from __future__ import annotations

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


def test_wrong_seed(capsys: Output) -> None:
    assert main(["check", "--seed", "-1"]) == 2
    assert capsys.readouterr().err == "error: --seed is -1, expected at least 0\n"
