from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import SMALL, train
from tests.train.small import what_remains
from tinygrad_attn.cli import main
from tinygrad_attn.engine.helper import POSSIBLE

Output = pytest.CaptureFixture[str]


def test_what_is_printed_at_the_end(tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert train(["reverse", "--out", tmp_path / "run"]) == 0
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert lines[0].startswith("training ended after step 10 in ")
    assert "of 50 sequences exactly right" in lines[1] and "token error rate" in lines[1]
    assert "% of the weight on the true source position" in lines[2]
    assert sum(" → " in line for line in lines) == 3
    assert lines[-1] == f"run folder: {tmp_path / 'run'}"
    assert "\x1b" not in shown.out and not shown.err


def test_the_bar_goes_to_standard_error_alone(tmp_path: Path, capsys: Output) -> None:
    assert train(["copy", "--out", tmp_path / "run", "--progress"]) == 0
    shown = capsys.readouterr()
    assert "tokens/s" in shown.err and "left" in shown.err and "loss" in shown.err
    assert "tokens/s" not in shown.out


def test_options_reach_the_run(tmp_path: Path, words: Path, capsys: Output) -> None:
    options = (
        "--attention scaled --query current --cell lstm --dropout 0.1 --schedule linear --warmup 0.1 --seed 3"
    )
    more = "--init paper --input-feeding --no-stop-when-solved --lr 0.01 --target-split spaces --minutes 1"
    assert train([words, "--out", tmp_path, *options.split(), *more.split(), "--quiet"]) == 0
    content = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    model, training, data = content["model"], content["training"], content["data"]
    assert (model["attention"], model["query"], model["cell"]) == ("scaled", "current", "lstm")
    assert (model["dropout"], model["init"], model["input_feeding"]) == (0.1, "paper", True)
    assert (training["schedule"], training["warmup"], training["seed"], training["lr"]) == (
        "linear",
        0.1,
        3,
        0.01,
    )
    assert (training["steps"], training["minutes"], training["stop_when_solved"]) == (10, 1.0, False)
    assert (data["seed"], data["target_split"]) == (3, "spaces")


def test_the_user_is_told_how_a_file_was_split(tmp_path: Path, words: Path, capsys: Output) -> None:
    assert train([words, "--out", tmp_path]) == 0
    assert "sources are split into characters, targets at spaces (guessed)" in capsys.readouterr().err


def test_a_budget_replaces_the_usual_one(tmp_path: Path, words: Path) -> None:
    arguments = [str(words), "--out", str(tmp_path), "--quiet", *SMALL]
    assert main(["train", *arguments]) == 0
    training = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))["training"]
    assert (training["steps"], training["minutes"]) == (10, None)


def test_the_folder_has_the_name_of_the_task(
    tmp_path: Path, words: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert train(["copy", "--quiet"]) == 0
    assert train([words, "--quiet"]) == 0
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["copy", "words"]


WRONG = {
    "no task": ([], "no task is given, expected copy, reverse or a file of pairs"),
    "unknown task": (["revers"], "revers: no such task or file"),
    "hidden": (["copy", "--hidden", "0"], "hidden is 0, expected an integer of at least 1"),
    "odd width": (["copy", "--attention", "dot", "--hidden", "7"], "hidden is 7, expected an even number"),
    "lr": (["copy", "--lr", "nan"], "lr is nan, expected a finite number above 0"),
    "minutes": (["copy", "--minutes", "-1"], "minutes is -1.0, expected a number above 0"),
    "steps": (["copy", "--steps", "0"], "steps is 0, expected an integer of at least 1"),
    "seed": (["copy", "--seed", "-1"], "seed is -1, expected an integer of at least 0"),
    "attention": (["copy", "--attention", "more"], "attention is 'more', expected one of additive"),
    "split of a task": (["copy", "--source-split", "spaces"], "--source-split goes with a file of pairs"),
    "directory": (["."], "expected a file of pairs"),
    "resume where": (["--resume"], "--resume needs --out"),
    "resume what is not there": (["copy", "--resume"], "runs/copy: no such folder"),
    "resume what": (["--resume", "--out", "nowhere"], "nowhere: no such folder"),
    "no folder": (["copy", "--out", ""], "--out is empty, expected the folder of a run"),
    "no name": ([""], "no task is given"),
    "no dev": (["copy", "--dev", ""], "--dev is empty, expected a file of pairs"),
    "no test": (["--resume", "--out", "x", "--test", ""], "--test is empty, expected a file of pairs"),
    "resume no folder": (["--resume", "--out", ""], "--out is empty, expected the folder of a run"),
    "both": (["--resume", "--overwrite", "--out", "x"], "exclude one another"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_is_one_line_and_leaves_nothing(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, message = WRONG[case]
    assert main(["train", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("error: ") and message in shown.err and shown.err.count("\n") == 1
    assert not shown.out and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "content", [b"", b"no tab\n", b"a\tb\nc\td\te\n", b"a\t\xff\n", b"a\tb\n", b"\xff\xfea\tb\n"]
)
def test_a_malformed_file_is_an_error_before_anything_is_replaced(
    content: bytes, tmp_path: Path, capsys: Output
) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_bytes(content)
    assert train([file, "--out", tmp_path / "run"]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith(f"error: {file}") and shown.err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_folder_in_use(copy_run: Path, tmp_path: Path, capsys: Output) -> None:
    before = what_remains(copy_run)
    assert train(["copy", "--out", copy_run]) == 2
    assert "--resume" in capsys.readouterr().err and what_remains(copy_run) == before
    (tmp_path / "thesis").write_text("mine")
    assert train(["copy", "--out", tmp_path, "--overwrite"]) == 2
    assert "a folder that is not a run" in capsys.readouterr().err
    (tmp_path / "thesis").unlink()
    remains = []
    for _ in range(2):
        assert train(["copy", "--out", tmp_path, "--overwrite", "--quiet"]) == 0
        remains.append(what_remains(tmp_path))
    assert remains[0] == remains[1]


def test_no_folder_can_be_made(tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "file").write_text("")
    assert train(["copy", "--out", tmp_path / "file" / "run"]) == 2
    shown = capsys.readouterr()
    assert shown.err.count("\n") == 1 and str(tmp_path / "file") in shown.err


def test_the_help_says_which_values_there_are_and_which_are_usual(capsys: Output) -> None:
    assert main(["train", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for line in (
        "annotation: additive, dot, scaled, general, concat, none (default: additive)",
        "(Luong): previous, current (default: previous)",
        "encoder and decoder: gru, lstm, rnn (default: gru)",
        "PyTorch's, or Bahdanau's B.1: default, paper (default: default)",
        "paper's deep output: linear, maxout (default: linear)",
        "rule of the updates: adam, adamw, sgd, adadelta (default: adam)",
        "over the budget: constant, linear, cosine (default: cosine)",
        "width of the embeddings of both sides (default: 32 for a task, 64 for pairs)",
        "that of the state if not given (default: 128 for pairs)",
        "the budget in steps (default: 3000 for a task)",
        "the budget in minutes (default: 9.7 for pairs)",
        "sequences in a batch (default: 64)",
        "(query current) (default: no)",
        "two evaluations in a row (default: yes)",
    ):
        assert line in text


def test_divergence_is_a_failed_check(tmp_path: Path, capsys: Output) -> None:
    assert main(["train", "copy", "--out", str(tmp_path), "--lr", "1e30", *SMALL]) == 1
    shown = capsys.readouterr()
    assert "a lower learning rate may help" in shown.err and shown.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reverse"], "the run has task copy, not reverse"),
        (["--lr", "0.5"], "the run has lr 0.02, not 0.5"),
        (["--steps", "11"], "the run has steps 200, not 11"),
        (["--source-split", "characters"], "the run has source_split None, not characters"),
        (["--test", "x.tsv"], "leave out --test"),
        (["x.tsv"], "the run has task copy, not x.tsv"),
    ],
)
def test_a_run_is_resumed_as_it_is(
    copy_run: Path, arguments: list[str], message: str, capsys: Output
) -> None:
    assert main(["train", "--resume", "--out", str(copy_run), *arguments]) == 2
    shown = capsys.readouterr().err
    assert message in shown and shown.count("\n") == 1


def test_the_run_of_a_task_is_found_where_it_was_made(
    copy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(copy_run, tmp_path / "runs" / "copy")
    assert main(["train", "copy", "--resume"]) == 0
    assert "runs/copy: training has ended" in capsys.readouterr().err


def test_files_that_moved_are_named_and_found(
    words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    old, new = tmp_path / "old", tmp_path / "ne w"
    old.mkdir()
    for name in ("x.tsv", "test.tsv"):
        shutil.copy(words, old / name)
    run = ["--out", str(old / "run"), "--quiet"]
    assert train([old / "x.tsv", "--test", old / "test.tsv", *run]) == 0
    old.rename(new)
    capsys.readouterr()
    resumed = ["train", "--resume", "--quiet", "--out", str(new / "run")]
    moved, test = [str(new / "x.tsv")], ["--test", str(new / "test.tsv")]
    command = f"tinygrad-attn train FILE --resume --out '{new / 'run'}'"
    for named, message in (
        ([], f"{old / 'x.tsv'}: not there any more; name where the file is now: {command}"),
        (["copy"], f"the run has task {old / 'x.tsv'}, not copy"),
        (moved, f"{old / 'test.tsv'}: not there any more; name where the file is now with --test FILE"),
        ([*moved, "--dev", *moved], "leave out --dev"),
        ([str(new / "y.tsv"), *test], "y.tsv: No such file or directory"),
        ([str(new / "run" / "vocab.json"), *test], "vocab.json:1: no tab"),
    ):
        assert main([*resumed, *named]) == 2
        shown = capsys.readouterr().err
        assert message in shown and shown.count("\n") == 1
    (new / "y.tsv").write_text((new / "x.tsv").read_text() + "zzz\tZ Z Z\n")
    assert main([*resumed, str(new / "y.tsv"), *test]) == 2
    assert "y.tsv: the file has changed, or is another" in capsys.readouterr().err
    assert main([*resumed, *moved, *test]) == 0
    assert main(resumed) == 0  # the run has noted where they are


def test_wrong_folders_are_told_before_anything_else(copy_run: Path, words: Path, capsys: Output) -> None:
    assert train([words, "--out", copy_run]) == 2
    shown = capsys.readouterr().err
    assert "holds a run already" in shown and shown.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("metrics.jsonl", lambda row: row.pop("train_seconds")),
        ("metrics.jsonl", lambda row: row.update(exact_match="x")),
        ("metrics.jsonl", lambda row: row.update(alignment_weight=10**400)),
        ("metrics.jsonl", lambda row: row.update(sequences=[1])),
        ("snapshots.jsonl", lambda row: row.update(flows=3)),
        ("snapshots.jsonl", lambda row: row.update(step=None)),
    ],
)
def test_a_damaged_row_is_one_line(
    name: str, damage: Any, copy_run: Path, tmp_path: Path, capsys: Output
) -> None:
    run = shutil.copytree(copy_run, tmp_path / "run")
    *others, last = (run / name).read_text().splitlines()
    row = json.loads(last)
    damage(row)
    (run / name).write_text("\n".join([*others, json.dumps(row)]))
    for command in (["train", "--resume", "--out", str(run)], ["report", str(run)]):
        assert main(command) == 2
        shown = capsys.readouterr().err
        assert f"{run / name}, line {len(others) + 1}: damaged" in shown and shown.count("\n") == 1


def test_a_folder_in_place_of_a_checkpoint(copy_run: Path, tmp_path: Path, capsys: Output) -> None:
    run = shutil.copytree(copy_run, tmp_path / "run")
    newest = max((run / "checkpoint").iterdir())
    newest.unlink()
    newest.mkdir()
    assert main(["train", "--resume", "--out", str(run)]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith(f"error: {newest}: a folder") and shown.err.count("\n") == 1


def test_resuming_a_finished_run_says_so(
    copy_run: Path, words_run: Path, words: Path, capsys: Output
) -> None:
    assert main(["train", "--hidden", "6", "copy", "--resume", "--out", str(copy_run)]) == 0
    shown = capsys.readouterr()
    assert "nothing to go on with" in shown.err and "exactly right" in shown.out
    assert main(["train", str(words), "--resume", "--out", str(words_run), "--quiet"]) == 0


def test_what_cannot_be_written_is_told_first(copy_run: Path, tmp_path: Path, capsys: Output) -> None:
    run = shutil.copytree(copy_run, tmp_path / "run")
    (run / "vocab.json").unlink()
    (run / "vocab.json").mkdir()
    assert main(["train", "--resume", "--out", str(run)]) == 2
    shown = capsys.readouterr()
    assert shown.err == f"error: {run / 'vocab.json'}: Is a directory\n" and not shown.out


LONG = "--hidden 6 --embedding 3 --batch 4 --dropout 0.1 --steps 300 --evaluate-every 25"


def started(arguments: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tinygrad_attn", "train", "--quiet", *arguments]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def await_training(process: subprocess.Popen[str], path: Path, resumed: bool) -> None:
    """Wait until `process` is about to train; before, Python is loading."""
    assert process.stderr is not None
    while resumed and (line := process.stderr.readline()):
        if "going on" in line or "no checkpoint yet" in line or "nothing to go on" in line:
            return
    while not (path / "vocab.json").exists() and process.poll() is None:
        time.sleep(0.005)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, words: Path) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("runs") / "whole"
    started([str(words), *LONG.split(), "--out", str(path)]).communicate()
    return newest(what_remains(path))


def newest(remains: dict[str, Any]) -> dict[str, Any]:
    """Without the generation before the last, which another process may have saved after another step."""
    return {k: v for k, v in remains.items() if not k.startswith("checkpoint") or "000300" in k}


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize(("name", "seed"), [("SIGINT", 0), ("SIGKILL", 1)])
def test_a_signal_at_any_moment_changes_nothing(
    tmp_path: Path, name: str, seed: int, words: Path, uninterrupted: dict[str, Any]
) -> None:
    path, rng = tmp_path / "run", random.Random(seed)
    arguments = [str(words), *LONG.split(), "--out", str(path)]
    codes = []
    for resumed in (False, True):
        process = started(arguments)
        await_training(process, path, resumed)
        time.sleep(0.5 * rng.random())
        process.send_signal(signal.Signals[name])
        _, messages = process.communicate(timeout=60)
        codes.append(process.returncode)
        assert "Traceback" not in messages
        if process.returncode == 130:
            assert f"tinygrad-attn train --resume --out {path}" in messages
        arguments = ["--resume", "--out", str(path)]
    assert set(codes) <= {0, 130 if name == "SIGINT" else -9}
    started(arguments).communicate()
    assert newest(what_remains(path)) == uninterrupted


WITH_HELPERS = """
import sys
from tinygrad_attn.cli import main
from tinygrad_attn.engine import helper
from tinygrad_attn.nn import sharing
sharing.SMALLEST_SHARE = 1
answer, start = helper.Helper.answer, helper._started
answers = 0

def started(*arguments):
    process = start(*arguments)
    print("helper", process.pid, file=sys.stderr, flush=True)
    return process

def counted(self, number):
    global answers
    found = answer(self, number)
    answers += found is not None
    if answers == 5:
        print("answered", file=sys.stderr, flush=True)
    return found

helper._started, helper.Helper.answer = started, counted
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.skipif(not POSSIBLE, reason="no helpers on this system")
def test_ctrl_c_while_processes_share_the_work(tmp_path: Path, words: Path) -> None:
    """It reaches all processes of a terminal; the trainer saves, its helper goes."""
    path, script = tmp_path / "run", tmp_path / "train.py"
    script.write_text(WITH_HELPERS)
    settings = LONG.replace("300", "100000").split()
    arguments = ["train", str(words), "--quiet", "--out", str(path), "--workers", "2", *settings]
    process = subprocess.Popen(
        [sys.executable, str(script), *arguments],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert process.stderr is not None
    lines = iter(process.stderr.readline, "")
    helper = int(next(line for line in lines if line.startswith("helper")).split()[1])
    assert "answered\n" in lines
    os.killpg(process.pid, signal.SIGINT)
    _, messages = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in messages
    assert f"go on with: tinygrad-attn train --resume --out {path}" in messages
    with pytest.raises(ProcessLookupError):
        os.kill(helper, 0)
