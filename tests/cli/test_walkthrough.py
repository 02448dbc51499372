from __future__ import annotations

import json
import sys

import pytest

from tinygrad_attn.cli import main
from tinygrad_attn.worked import RUNNING, VECTOR, number, walk


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["walkthrough", *arguments]) == 0
    found = capsys.readouterr()
    assert not found.err
    return found.out


def test_the_running_example(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys)
    assert out.startswith("The running example: 3 source words, one number for each, additive score\n")
    for key in ("e", "alpha", "c"):
        assert all(value in out for value in number(key).rounded())
    assert "e₁ = tanh(0.5 + 0.2) = 0.6044" in out and "h₁ key" in out and "h₁ value" in out
    assert max(map(len, out.splitlines())) <= 100


def test_the_ranking_flips(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, "--vector")
    assert "largest weight with s₀ = α₂ = 0.6363" in out and "largest weight with s₁ = α₁ = 0.6363" in out


@pytest.mark.parametrize(
    ("score", "line"),
    [
        ("dot", "e₁ = 0.5·0.2 = 0.1000"),
        ("scaled", "e₁ = 0.5·0.2 / √1 = 0.1000"),
        ("general", "e₁ = 0.5·0.2 = 0.1000"),
    ],
)
def test_another_score(capsys: pytest.CaptureFixture[str], score: str, line: str) -> None:
    assert line in shown(capsys, "--score", score)


def test_own_numbers_that_begin_with_a_minus(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, "--h", "-0.2", ".9", "--s", "-.5", "1", "--target", "2", "1")
    assert "h₁ = -0.2" in out and "s₀ = -0.5" in out and "All target words together" in out
    out = shown(capsys, "--h", "-1,0", "0,-1", "--s", "-1,-2", "--score", "scaled")
    assert "h₁ = (-1, 0)" in out and "e₁ = (-1, -2)·(-1, 0) / √2 = 0.7071" in out


def test_own_weights(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, "--W-a", "2", "--U-a", "-1", "--v-a", "3")
    assert "e₁ = 3·tanh(1 + (-0.2)) = 3·0.6640 = 1.9921" in out


@pytest.mark.parametrize(("option", "example"), [([], RUNNING), (["--vector"], VECTOR)])
def test_json(capsys: pytest.CaptureFixture[str], option: list[str], example: object) -> None:
    assert json.loads(shown(capsys, "--json", *option)) == walk(example).to_json()


@pytest.mark.parametrize("value", ["1", ""])
def test_no_color(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", value)
    assert ("\x1b" in shown(capsys)) == (value == "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--h", "0.2", "x"], "--h: 'x' is not a number"),
        (["--h", "1,0", "1"], "h has rows of [1, 2] entries"),
        (["--h", "nan"], "h holds nan"),
        (["--h", "1,"], "--h: '1,' is not a number"),
        (["--s", "1,0"], "W_a and U_a have to be given"),
        (["--score", "cosine"], "score is 'cosine', expected one of additive, dot, scaled, general"),
        (["--score", "dot", "--h", "1,2"], "choose the general score"),
        (["--target", "0"], "target is 0, expected 1 to 2"),
        (["--target", "x"], "invalid int value: 'x'"),
        (["--v-a", "y"], "--v-a: 'y' is not a number"),
        (["--h"], "expected at least one argument"),
        (["more"], "more"),
    ],
)
def test_wrong_numbers_are_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["walkthrough", *arguments]) == 2
    found = capsys.readouterr()
    assert not found.out and found.err.count("\n") == 1 and message in found.err
