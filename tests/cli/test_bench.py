"""`tinygrad-attn bench` prints a table, or JSON lines with what the comparison scripts read."""

import json

import pytest

from tinygrad_attn.cli import main


def rows(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, object]]:
    assert main(["bench", *arguments, "--seconds", "0.01", "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_step(capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = rows(capsys, "step", "--size", "S", "--workers", "1")
    assert row["size"] == "S" and row["threads"] == 1
    assert 0 < row["min_ms"] <= row["median_ms"]
    assert 0 < row["loss"] < 3


def test_decode(capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(capsys, "decode", "--size", "S")
    assert [row["search"] for row in found] == ["greedy", "beam 5"]
    assert all(row["median_ms"] > 0 for row in found)


def test_operations(capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(capsys, "ops")
    assert {"tanh", "matmul", "softmax"} <= {row["operation"] for row in found}


def test_memory(capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = rows(capsys, "memory", "--size", "S")
    assert 0 < row["step_peak_mb"] < 10
    assert row["step_left_mb"] < 0.1


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "step", "--size", "S", "--seconds", "0.01"]) == 0
    header, line = capsys.readouterr().out.splitlines()
    assert header.split()[:3] == ["size", "threads", "median_ms"]
    assert line.split()[0] == "S"


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        ["sleep"],
        ["step", "--size", "XL"],
        ["step", "--seconds", "nan"],
        ["step", "--workers", "0"],
        ["ops", "--seconds", "x"],
    ],
)
def test_wrong_use_is_one_line(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *wrong]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--seconds", "x", "a time above zero"),
        ("--seconds", "inf", "a time above zero"),
        ("--workers", "x", "a number of at least 1"),
        ("--workers", "0", "a number of at least 1"),
    ],
)
def test_wrong_numbers(option: str, value: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "step", option, value]) == 2
    assert f"argument {option}: {value!r} is not {expected}" in capsys.readouterr().err
