from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tinygrad_attn.cli import main
from tinygrad_attn.train import Prediction, Predictor, RunFolder, load_run

Output = pytest.CaptureFixture[str]


class Standard:
    """Stands for standard input."""

    def __init__(self, content: bytes) -> None:
        self.buffer = io.BytesIO(content)


def predicted(capsys: Output, *arguments: str | Path) -> tuple[list[str], str]:
    """(lines of output, messages)."""
    assert main(["predict", *map(str, arguments)]) == 0
    shown = capsys.readouterr()
    return shown.out.removesuffix("\n").split("\n"), shown.err


def test_one_line_for_each_text(copy_run: Path, capsys: Output) -> None:
    predictor, text_format = load_run(copy_run)
    expected = [text_format.join_target(predictor.predict(text.split()).tokens) for text in ("1 2 3", "4")]
    lines, messages = predicted(capsys, copy_run, "1 2 3", "", " 4  ", "   ")
    assert lines == [expected[0], "", expected[1], ""] and not messages
    assert all(set(line) <= set("0123456789 ") for line in lines)


def test_lines_from_standard_input(copy_run: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    lines, _ = predicted(capsys, copy_run, "1 2", "", "3")
    for content in (b"1 2\n\n3\n", b"1 2\r\n\r\n3"):
        monkeypatch.setattr(sys, "stdin", Standard(content))
        assert predicted(capsys, copy_run)[0] == lines


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf"])
def test_nothing_in_nothing_out(
    content: bytes, copy_run: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Standard(content))
    assert predicted(capsys, copy_run) == ([""], "")


def test_a_byte_order_mark_does_not_count(
    copy_run: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a file of pairs; within, it is a symbol like others."""
    expected, _ = predicted(capsys, copy_run, "1 2", "3")
    monkeypatch.setattr(sys, "stdin", Standard(b"\xef\xbb\xbf1 2\n3\n"))
    assert predicted(capsys, copy_run) == (expected, "")
    monkeypatch.setattr(sys, "stdin", Standard(b"1 2\n\xef\xbb\xbf3\n"))
    assert "input 2: unknown to the model" in predicted(capsys, copy_run)[1]


def test_arguments_are_utf_8_whatever_the_locale(words_run: Path, capsys: Output) -> None:
    """Where the locale has no é, Python hands its bytes over as halves of surrogate pairs."""
    expected = predicted(capsys, words_run, "éab")
    assert "unknown" not in expected[1]
    assert predicted(capsys, words_run, "\udcc3\udca9ab") == expected
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for command in ("predict", "flow"):
        done = subprocess.run(
            [sys.executable, "-m", "tinygrad_attn", command, str(words_run), "éab"],
            env={**os.environ, **locale},
            capture_output=True,
        )
        assert done.returncode == 0 and b"unknown" not in done.stderr


@pytest.mark.parametrize("command", ["predict", "graph", "flow", "heatmap", "report"])
def test_weights_that_are_not_finite(command: str, copy_run: Path, tmp_path: Path, capsys: Output) -> None:
    run = shutil.copytree(copy_run, tmp_path / "run")
    (run / "model.safetensors").unlink()
    weights = RunFolder(copy_run).weights()
    weights["decoder.output.bias"][1] = float("nan")
    RunFolder(run).write_weights(weights, 10)
    text = {"report": [], "heatmap": ["1 2", "--out", str(tmp_path / "x.svg")]}.get(command, ["1 2"])
    assert main([command, str(run), *text]) == 2
    shown = capsys.readouterr().err
    assert f"{run / 'model.safetensors'}: decoder.output.bias holds" in shown and shown.count("\n") == 1


def test_outputs_are_joined_as_the_data_was_split(words_run: Path, capsys: Output) -> None:
    (line,), _ = predicted(capsys, words_run, "abe")
    assert all(len(token) == 1 for token in line.split(" "))


def test_unknown_symbols_are_told(words_run: Path, capsys: Output) -> None:
    lines, messages = predicted(capsys, words_run, "axay\x1b", "e\u0301ab")
    assert len(lines) == 2
    assert messages.count("\n") == 1
    assert "input 1: unknown to the model and read as <unk>: 'x', 'y', '\\x1b'" in messages


def test_json_for_machines(words_run: Path, capsys: Output) -> None:
    lines, _ = predicted(capsys, words_run, "--json", "--alignment", "éxa", "")
    row, empty = map(json.loads, lines)
    assert row["input"] == "éxa" and row["source"] == ["é", "x", "a"] and row["unknown"] == ["x"]
    assert row["output"] == " ".join(row["tokens"]) and row["log_probability"] < 0
    assert len(row["weights"]) == len(row["tokens"])
    assert all(len(weights) == 3 and sum(weights) == pytest.approx(1) for weights in row["weights"])
    assert empty == {
        **dict.fromkeys(("input", "output"), ""),
        **{name: [] for name in ("source", "tokens", "unknown", "weights")},
        "log_probability": None,
        "complete": True,
    }
    assert "weights" not in json.loads(predicted(capsys, words_run, "--json", "abc")[0][0])


def test_a_wider_beam_finds_nothing_less_likely(copy_run: Path, capsys: Output) -> None:
    def found(beam: int) -> Any:
        return json.loads(predicted(capsys, copy_run, "--json", "--beam", str(beam), "1 2 3")[0][0])

    assert found(4)["log_probability"] >= found(1)["log_probability"] - 1e-5


def test_an_output_that_was_cut(copy_run: Path, capsys: Output) -> None:
    assert len(predicted(capsys, copy_run, "1 2 3 4 5 6")[0][0].split()) > 1
    lines, messages = predicted(capsys, copy_run, "--max-length", "1", "1 2 3 4 5 6")
    assert len(lines[0].split()) == 1 and "cut at the longest length" in messages


def test_the_alignment_is_drawn_below(
    copy_run: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    lines, _ = predicted(capsys, copy_run, "--alignment", "1 2 3")
    assert len(lines) == 2 + len(lines[0].split())
    assert lines[1].split() == ["1", "2", "3"]
    assert not any("\x1b" in line for line in lines)


def test_of_a_long_output_the_beginning_is_drawn(
    copy_run: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    def predict(self: Predictor, source: list[str], **_: Any) -> Prediction:
        return Prediction(tuple(source), ("7",) * 45, -1.0, np.ones((45, len(source))), (), False)

    monkeypatch.setattr(Predictor, "predict", predict)
    lines, _ = predicted(capsys, copy_run, "--alignment", "1 2 3")
    assert [line.split()[0] for line in lines[2:-1]] == ["7"] * 40
    assert lines[-1] == "(not drawn: the last 5 of 45 symbols)"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["\udcff"], "source '\\udcff' is not UTF-8 at character 1"),
        (["1", "2\n3"], "text 2 has several lines"),
    ],
)
def test_wrong_input(copy_run: Path, arguments: list[str], message: str, capsys: Output) -> None:
    assert main(["predict", str(copy_run), *arguments]) == 2
    shown = capsys.readouterr()
    assert message in shown.err and shown.err.count("\n") == 1


def test_bytes_that_are_no_text(copy_run: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """What came before them is answered."""
    monkeypatch.setattr(sys, "stdin", Standard(b"1 2\n\n3 \xff 4\n5\n"))
    assert main(["predict", str(copy_run)]) == 2
    shown = capsys.readouterr()
    assert shown.out.count("\n") == 2
    assert shown.err == "error: standard input, line 3: byte 0xff is not UTF-8\n"


@pytest.mark.parametrize("name", ["config.json", "vocab.json", "model.safetensors"])
@pytest.mark.parametrize("damage", [None, b"", b"{}", b"junk"])
def test_damaged_runs(
    copy_run: Path, tmp_path: Path, name: str, damage: bytes | None, capsys: Output
) -> None:
    for file in ("config.json", "vocab.json", "model.safetensors"):
        (tmp_path / file).write_bytes((copy_run / file).read_bytes())
    (tmp_path / name).unlink()
    if damage is not None:
        (tmp_path / name).write_bytes(damage)
    assert main(["predict", str(tmp_path), "1"]) == 2
    shown = capsys.readouterr()
    assert str(tmp_path) in shown.err and name in shown.err and shown.err.count("\n") == 1


@pytest.mark.parametrize("folder", ["nowhere", "file", ""])
def test_no_run(tmp_path: Path, folder: str, capsys: Output) -> None:
    (tmp_path / "file").write_text("")
    assert main(["predict", str(tmp_path / folder), "1"]) == 2
    shown = capsys.readouterr()
    assert "expected the folder of a run" in shown.err or "not the folder of a run" in shown.err
    assert ("a file, expected the folder of a run" in shown.err) == (folder == "file")


def test_answers_come_line_by_line_and_a_reader_may_leave(copy_run: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tinygrad_attn", "predict", str(copy_run)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin and process.stdout and process.stderr
    for line in (b"1 2\n", b"3\n"):
        process.stdin.write(line)
        process.stdin.flush()
        assert process.stdout.readline().endswith(b"\n")  # although standard input is still open
    process.stdout.close()
    process.stdin.write(b"4\n" * 1000)
    process.stdin.close()
    assert process.wait(timeout=30) == 0
    assert process.stderr.read() == b""
    process.stderr.close()


@pytest.mark.parametrize(("option", "most"), [("--beam", 10_000), ("--max-length", 1_000_000)])
@pytest.mark.parametrize("value", ["0", "-1", str(10**30)])
def test_numbers_that_are_too_small_or_too_large(
    option: str, most: int, value: str, copy_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", str(copy_run), "1 2", option, value]) == 2
    assert capsys.readouterr().err == f"error: {option} is {value}, expected from 1 to {most}\n"


def test_without_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict"]) == 2
    assert "arguments are required: FOLDER (see" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["predict", "report", "heatmap", "flow", "graph"])
def test_a_folder_without_a_name_is_not_the_current_one(
    command: str, copy_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(copy_run)
    text = [] if command == "report" else ["1 2"]
    out = ["--out", "a.svg"] if command == "heatmap" else []
    assert main([command, "", *text, *out]) == 2
    assert capsys.readouterr().err == "error: '': no name, expected the folder of a run\n"


def test_long_unknown_symbols_are_named_in_short(copy_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(copy_run), f"1 {'x' * 10_000}", "--alignment"]) == 0
    shown = capsys.readouterr()
    assert len(shown.err) < 200 and "'xxx" in shown.err and "…" in shown.err
