from __future__ import annotations

import gc
import json
import re
import select
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import tinygrad_attn.files
from tests.train.small import small_model, small_task, small_training, what_remains
from tinygrad_attn.data import Batch, Pairs, Split, Task, TextFormat, Vocabulary, make_batch
from tinygrad_attn.engine import Tensor
from tinygrad_attn.engine import workers as crews
from tinygrad_attn.engine.helper import POSSIBLE, Helper
from tinygrad_attn.errors import CheckpointError, DataError
from tinygrad_attn.files import write_atomically
from tinygrad_attn.nn import sharing
from tinygrad_attn.optim import NonFiniteError
from tinygrad_attn.train import (
    ModelConfig,
    RunFolder,
    TrainingConfig,
    evaluate,
    load_run,
    loop,
    resume,
    train,
)
from tinygrad_attn.train.arrays import pack, unpack
from tinygrad_attn.train.figures import write_figures
from tinygrad_attn.train.learner import Learner

Remains = dict[str, Any]


@pytest.fixture(autouse=True)
def quick_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than these trainings."""

    def write_figures(folder: RunFolder, *others: object) -> None:
        for name in ("loss.svg", "alignment.svg"):
            write_atomically(folder.path / name, name)

    monkeypatch.setattr(loop, "write_figures", write_figures)


def quiet(message: str) -> None:
    """Messages are looked at where they matter."""


def trained(path: Path, model: ModelConfig, training: TrainingConfig) -> Remains:
    train(small_task(), path, model, training, message=quiet)
    return what_remains(path)


@pytest.mark.parametrize("kind", ["Adam", "AdamW", "SGD", "Adadelta"])
def test_the_optimiser_is_the_one_that_was_asked_for(kind: str) -> None:
    settings = small_training(optimiser=kind.lower(), weight_decay=0.25, lr=0.5)
    optimiser = Learner(small_model(), settings, small_task()).optimiser
    assert type(optimiser).__name__ == kind
    assert (optimiser.lr, optimiser.weight_decay) == (0.5, 0.25)


def interrupt_before(monkeypatch: pytest.MonkeyPatch, *steps: int, data: Any = Task) -> None:
    """Ctrl-C comes while the batches of these steps are made, once each."""
    left = set(steps)
    make: Callable[[Any, int, int], Batch] = data.train_batch

    def train_batch(task: Any, step: int, batch_size: int) -> Batch:
        if step in left:
            left.remove(step)
            signal.raise_signal(signal.SIGINT)
        return make(task, step, batch_size)

    monkeypatch.setattr(data, "train_batch", train_batch)


@pytest.mark.parametrize(
    ("model", "training"),
    [
        ({}, {}),
        (
            {"dropout": 0.3, "cell": "lstm", "query": "current"},
            {"optimiser": "adadelta", "schedule": "linear"},
        ),
        ({"dropout": 0.5, "cell": "rnn", "init": "paper"}, {"optimiser": "sgd", "warmup": 0.5}),
        ({"attention": "none"}, {"clip": 0.01, "optimiser": "adamw", "weight_decay": 0.1}),
        ({"dropout": 0.2}, {"workers": 2}),
    ],
)
def test_a_run_that_was_interrupted_is_the_run_that_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Any, training: Any
) -> None:
    monkeypatch.setattr(sharing, "SMALLEST_SHARE", 1)  # where there are workers
    settings = small_model(**model), small_training(**training)
    expected = trained(tmp_path / "whole", *settings)
    handler = signal.getsignal(signal.SIGINT)
    interrupt_before(monkeypatch, 0, 3, 4, 11)
    with pytest.raises(KeyboardInterrupt, match="saved after step 1"):
        trained(tmp_path / "run", *settings)
    for step in (4, 5):
        with pytest.raises(KeyboardInterrupt, match=f"saved after step {step}"):
            resume(tmp_path / "run", message=quiet)
    with pytest.raises(KeyboardInterrupt, match="saved after step 12"):  # in the test of the best weights
        resume(tmp_path / "run", message=quiet)
    result = resume(tmp_path / "run", message=quiet)
    assert what_remains(tmp_path / "run") == expected | checkpoints_of(tmp_path / "run")
    assert result.test["step"] == 12
    assert signal.getsignal(signal.SIGINT) is handler


def checkpoints_of(folder: Path) -> Remains:
    """The generation before the last is another one after an interruption; the last must be the same."""
    newest = max(path.name for path in (folder / "checkpoint").iterdir())
    return {k: v for k, v in what_remains(folder).items() if k.startswith("checkpoint") and newest not in k}


class Killed(BaseException):
    """The process ends here."""


def kill_at_write(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """The process ends when it is about to put its file number `count` in place."""
    left = iter(range(count))
    replace = tinygrad_attn.files.os.replace

    def replace_or_die(source: str, target: str) -> None:
        if next(left, None) is None:
            raise Killed
        replace(source, target)

    monkeypatch.setattr(tinygrad_attn.files.os, "replace", replace_or_die)


def test_a_run_that_was_killed_between_any_two_files_is_the_run_that_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = small_model(dropout=0.2), small_training()
    expected = trained(tmp_path / "whole", *settings)
    for count in range(1, 100):
        path = tmp_path / str(count)
        with monkeypatch.context() as patched:
            kill_at_write(patched, count)
            try:
                trained(path, *settings)
                break
            except Killed:
                pass
        resume(path, message=quiet)
        assert what_remains(path) == expected, count
    assert count > 12  # config, vocabularies, thrice metrics, weights and checkpoint, two figures, metrics


def test_what_a_killed_process_left_half_written_is_swept(tmp_path: Path) -> None:
    expected = trained(tmp_path, small_model(), small_training())
    for folder in (tmp_path, tmp_path / "checkpoint"):
        (folder / ".tinygrad_attn-123-abcd").write_bytes(b"half")
    resume(tmp_path, message=quiet)
    assert what_remains(tmp_path) == expected


def test_two_runs_are_the_same(tmp_path: Path) -> None:
    settings = small_model(dropout=0.2), small_training()
    assert trained(tmp_path / "a", *settings) == trained(tmp_path / "b", *settings)


def test_two_runs_are_the_same_whatever_the_helpers_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "SMALLEST_SHARE", 1)
    settings = small_model(dropout=0.2), small_training(workers=2)
    start, answer = Helper.start, Helper.answer
    answers = 0

    def start_when_ready(self: Helper, *arguments: Any) -> Any:
        if self._running == 0:  # it has not said that it is ready
            assert select.select([self._connection], [], [], 60)[0]
        return start(self, *arguments)

    def count_and_kill(self: Helper, number: int) -> Any:
        nonlocal answers
        found = answer(self, number)
        answers += found is not None
        if answers == 8:
            self.close()
        return found

    with monkeypatch.context() as patched:
        patched.setattr(crews.Pace, "helps", lambda pace: True)
        patched.setattr(Helper, "start", start_when_ready)
        patched.setattr(Helper, "answer", count_and_kill)
        with_a_helper = trained(tmp_path / "a", *settings)
    monkeypatch.setattr(crews, "POSSIBLE", False)
    assert trained(tmp_path / "b", *settings) == with_a_helper
    assert answers == (8 if POSSIBLE else 0)
    alone = trained(tmp_path / "c", settings[0], small_training())
    assert alone["model.safetensors"] != with_a_helper["model.safetensors"]


def test_the_seed_matters(tmp_path: Path) -> None:
    a, b = (trained(tmp_path / str(seed), small_model(), small_training(seed=seed)) for seed in (0, 1))
    assert a["model.safetensors"] != b["model.safetensors"]


def test_the_damaged_newest_checkpoint_falls_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = small_model(), small_training()
    expected = trained(tmp_path / "whole", *settings)
    interrupt_before(monkeypatch, 7)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "run", *settings)
    newest = tmp_path / "run" / "checkpoint" / "step-000000008.safetensors"
    newest.write_bytes(newest.read_bytes()[:-5])
    messages: list[str] = []
    resume(tmp_path / "run", message=messages.append)
    assert str(newest) in messages[0] and "step 5" in messages[1]
    assert what_remains(tmp_path / "run") == expected


def test_a_time_budget_counts_what_was_used_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_before(monkeypatch, 3)
    training = small_training(steps=None, minutes=0.5 / 60, evaluate_every=1000)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path, small_model(), training)
    row = resume(tmp_path, message=quiet).test
    assert 0.5 <= row["train_seconds"] < 2
    assert row["step"] > 4


def test_a_finished_run_is_left_as_it_is(tmp_path: Path) -> None:
    expected = trained(tmp_path, small_model(), small_training())
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("metrics.jsonl")}
    messages: list[str] = []
    result = resume(tmp_path, message=messages.append)
    assert what_remains(tmp_path) == expected
    assert times == {path: path.stat().st_mtime_ns for path in times}
    assert result.test == result.folder.rows()[-1] and "nothing to go on with" in messages[0]


def test_what_a_run_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "write_figures", write_figures)
    result = train(small_task(), tmp_path, small_model(), small_training(), message=quiet)
    names = {path.name for path in tmp_path.iterdir()}
    data = {"config.json", "vocab.json", "metrics.jsonl", "model.safetensors", "checkpoint"}
    observed = {"snapshots.jsonl", "examples.json"}
    assert names == data | observed | {"alignment.svg", "loss.svg", "graph.svg", "report.html"}
    for name in ("alignment.svg", "loss.svg", "graph.svg"):
        assert ElementTree.parse(tmp_path / name).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    rows = result.folder.rows()
    assert [(row["event"], row["step"]) for row in rows] == [
        ("train", 3), ("evaluation", 5), ("train", 6), ("train", 9), ("evaluation", 10), ("train", 12),
        ("evaluation", 12), ("test", 12),
    ]  # fmt: skip
    assert {"loss", "lr", "gradient_norm", "tokens", "tokens_per_second", "seconds"} <= rows[0].keys()
    shown = {
        "loss",
        "token_accuracy",
        "exact_match",
        "token_error_rate",
        "alignment_weight",
        "alignment_accuracy",
    }
    assert shown <= rows[1].keys() and shown | {"train_seconds", "best_step"} <= rows[-1].keys()
    # The weights in the folder are the best ones, and the test row is about them.
    predictor, _ = load_run(tmp_path)
    assert evaluate(predictor.model, small_task().test, task="reverse").row().items() <= rows[-1].items()
    best = [row["step"] for row in rows if row.get("best")]
    assert rows[-1]["best_step"] == best[-1]


def test_rows_weigh_by_token(tmp_path: Path) -> None:
    losses, tokens = [], []
    model = small_model().build(8, 8, np.random.default_rng(0))
    for step in range(3):
        batch = small_task().train_batch(step, 4)
        losses.append(model.loss(batch).item())
        tokens.append(batch.tokens)
    assert len(set(tokens)) > 1
    training = small_training(lr=1e-30)  # so that the weights stay what they are
    row = train(small_task(), tmp_path, small_model(), training, message=quiet).folder.rows()[0]
    assert row["tokens"] == sum(tokens)
    assert row["loss"] == pytest.approx(np.average(losses, weights=tokens), rel=1e-6)


def test_a_graph_is_gone_before_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = Task.train_batch
    alive: list[int] = []

    def train_batch(task: Task, step: int, batch_size: int) -> Batch:
        # By type: isinstance would ask objects of other libraries, which may warn of being looked at.
        alive.append(sum(type(x) is Tensor and not x.is_leaf for x in gc.get_objects()))
        return make(task, step, batch_size)

    monkeypatch.setattr(Task, "train_batch", train_batch)
    gc.collect()
    gc.disable()
    try:
        trained(tmp_path, small_model(), small_training())
    finally:
        gc.enable()
    assert alive == [alive[0]] * 12


def test_training_stops_once_the_task_is_solved(tmp_path: Path) -> None:
    training = small_training(steps=5000, batch=32, evaluate_every=25, stop_when_solved=True)
    result = train(small_task("copy"), tmp_path, small_model(hidden=16, embedding=8), training, message=quiet)
    evaluations = [row for row in result.folder.rows() if row["event"] == "evaluation"]
    assert [row["exact_match"] for row in evaluations[-2:]] == [1, 1]
    assert result.test["step"] < 2000 and "twice in a row" in result.reason
    assert result.test["exact_match"] >= 0.75


def test_what_diverges_stops_with_the_name_of_a_parameter(tmp_path: Path) -> None:
    training = small_training(lr=1e30, schedule="constant", evaluate_every=1000)
    with pytest.raises(NonFiniteError, match=r"step \d+: .*(weight|bias|W_a|U_a|v_a).*a lower learning rate"):
        trained(tmp_path, small_model(), training)
    with pytest.raises(NonFiniteError, match=r"step \d+"):
        trained(tmp_path / "b", small_model(), small_training(lr=1e30, evaluate_every=1))


def test_what_is_trained_in_which_way_are_objects(tmp_path: Path) -> None:
    wrong: list[tuple[Any, Any, Any, str]] = [
        ("copy", None, None, r"train: data is 'copy', expected a Task, Pairs or a data set of your own"),
        (small_task(), {"hidden": 6}, None, r"train: model is \{'hidden': 6\}, expected a ModelConfig"),
        (
            small_task(),
            None,
            small_model(),
            r"train: training is ModelConfig\(.*\), expected a TrainingConfig",
        ),
    ]
    for data, model, training, message in wrong:
        with pytest.raises(TypeError, match=message):
            train(data, tmp_path / "run", model, training)
    assert not list(tmp_path.iterdir())


def test_nothing_is_replaced_when_the_settings_are_impossible(tmp_path: Path) -> None:
    expected = trained(tmp_path, small_model(), small_training())
    with pytest.raises((MemoryError, ValueError)):
        train(small_task(), tmp_path, small_model(hidden=100_000), overwrite=True, message=quiet)
    assert what_remains(tmp_path) == expected


def a_file(path: Path) -> Path:
    words = [a + b + c for a in "abc" for b in "abcd" for c in "abcde"]
    path.write_text(
        "".join(f"{word}\t{' '.join(reversed(word.upper()))}\n" for word in words), encoding="utf-8"
    )
    return path


def test_pairs_from_a_file(tmp_path: Path) -> None:
    file = a_file(tmp_path / "words.tsv")
    result = train(Pairs(file), tmp_path / "run", small_model(), small_training(), message=quiet)
    assert "alignment_weight" not in result.test and result.test["sequences"] > 0
    file.unlink()  # prediction needs the run alone
    predictor, text_format = load_run(tmp_path / "run")
    source = text_format.split_source("abe")
    found = predictor.predict(source)
    assert predictor.predict(np.array(source)).tokens == found.tokens
    with pytest.raises(ValueError, match="predict: the source is empty, expected at least one symbol"):
        predictor.predict([])
    assert found.weights.shape == (len(found.tokens), 3)


def test_data_that_changed_cannot_be_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = a_file(tmp_path / "words.tsv")
    train(Pairs(file), tmp_path / "run", small_model(), small_training(), message=quiet)
    file.write_text(file.read_text() + "zzz\tZ Z Z\n")
    with pytest.raises(DataError, match=r"words\.tsv: the file has changed"):
        resume(tmp_path / "run")
    file.unlink()
    with pytest.raises(DataError, match=r"words\.tsv: No such file"):
        resume(tmp_path / "run")


def test_a_checkpoint_of_a_run_with_other_settings(tmp_path: Path) -> None:
    for name, hidden in (("a", 6), ("b", 7)):
        train(small_task(), tmp_path / name, small_model(hidden=hidden), small_training(), message=quiet)
    for file in (tmp_path / "b" / "checkpoint").iterdir():
        (tmp_path / "a" / "checkpoint" / file.name).write_bytes(file.read_bytes())
    with pytest.raises(CheckpointError, match=r"step-000000012\.safetensors: .*other settings"):
        resume(tmp_path / "a")


def test_weights_that_do_not_fit(tmp_path: Path) -> None:
    for name, hidden in (("a", 6), ("b", 7)):
        train(small_task(), tmp_path / name, small_model(hidden=hidden), small_training(), message=quiet)
    (tmp_path / "a" / "model.safetensors").write_bytes((tmp_path / "b" / "model.safetensors").read_bytes())
    with pytest.raises(CheckpointError, match=r"model\.safetensors: the weights do not fit"):
        load_run(tmp_path / "a")


@pytest.mark.parametrize("name", ["embedding", "hidden", "attention_size"])
def test_no_model_is_made_of_sizes_that_the_weights_lack(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "run"
    train(small_task(), folder, small_model(attention_size=5), small_training(), message=quiet)
    content = json.loads((folder / "config.json").read_text())
    content["model"][name] = 10**5
    (folder / "config.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=rf"do not fit .*no weight has the {name} of 100000"):
        load_run(folder)


@pytest.mark.parametrize("kind", [RuntimeError, OSError])
@pytest.mark.parametrize("name", ["loss.svg", "alignment.svg", "graph.svg", "report.html"])
def test_a_picture_that_cannot_be_drawn_costs_nothing_else(
    name: str, kind: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawing = {"loss.svg": "curves", "alignment.svg": "heatmap", "graph.svg": "drawn", "report.html": "page"}

    def fail(*arguments: Any) -> Any:
        raise kind("latex could not be found\nand more")

    monkeypatch.setattr("tinygrad_attn.train.loop.write_figures", write_figures)
    monkeypatch.setattr(f"tinygrad_attn.train.figures.{drawing[name]}", fail)
    said: list[str] = []
    training = small_training(lr=0.05, steps=60)
    result = train(small_task("copy"), tmp_path, small_model(), training, message=said.append)
    assert f"{tmp_path / name}: not written; latex could not be found" in said
    assert result.folder.rows()[-1]["event"] == "test"
    assert (tmp_path / "examples.json").exists() and not (tmp_path / name).exists()


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("progress", "step", "3"),
        ("progress", "finished", 1),
        ("progress", "best_loss", None),
        ("progress", "more", 1),
        ("window", "steps", 2.0),
        ("window", "tokens", True),
        ("progress", "step", 2**63),
        ("progress", "step", 11),
        ("progress", "best_step", 13),
        pytest.param("progress", "best_loss", 10**400, id="endless"),
        ("progress", "seconds", -1.0),
        ("progress", "solved", -1),
        pytest.param("window", "gradient_norm", 10**400, id="endless"),
        ("window", "steps", -1),
        ("optimiser", "lr", -1.0),
        pytest.param("optimiser", "lr", 10**400, id="endless"),
        pytest.param("optimiser", "steps/encoder.forward_cell.weight_ih", 10**400, id="endless"),
        ("optimiser", "steps/encoder.forward_cell.weight_ih", -1),
        ("optimiser", "steps/encoder.forward_cell.weight_ih", 13),
        ("optimiser", "steps/encoder.forward_cell.weight_ih", 2**63),
        ("random", "bit_generator", "MT19937"),
        ("random", "state", {"state": -1, "inc": 2**200}),
        ("random", "uinteger", None),
    ],
)
def test_a_checkpoint_of_wrong_values_does_not_fit(part: str, field: str, value: Any, tmp_path: Path) -> None:
    train(small_task(), tmp_path, small_model(), small_training(), message=quiet)
    for path in (tmp_path / "checkpoint").iterdir():
        arrays, note = unpack(path)
        note["state"][part][field] = value
        path.write_bytes(pack(arrays, note))
    with pytest.raises(CheckpointError, match="the checkpoint of step 12 does not fit the run"):
        resume(tmp_path)


@pytest.mark.parametrize(("part", "field"), [("window", "tokens"), ("progress", "seconds")])
def test_a_checkpoint_that_lacks_a_value_does_not_fit(part: str, field: str, tmp_path: Path) -> None:
    train(small_task(), tmp_path, small_model(), small_training(), message=quiet)
    for path in (tmp_path / "checkpoint").iterdir():
        arrays, note = unpack(path)
        del note["state"][part][field]
        path.write_bytes(pack(arrays, note))
    with pytest.raises(CheckpointError, match=f"does not fit the run .*without {field}"):
        resume(tmp_path)


def test_a_checkpoint_whose_best_weights_are_not_finite(tmp_path: Path) -> None:
    train(small_task(), tmp_path, small_model(), small_training(), message=quiet)
    for path in (tmp_path / "checkpoint").iterdir():
        arrays, note = unpack(path)
        arrays["best/decoder.output.bias"][0] = np.nan
        path.write_bytes(pack(arrays, note))
    with pytest.raises(CheckpointError, match=r"does not fit the run \(decoder.output.bias holds"):
        resume(tmp_path)


def test_ctrl_c_while_figures_are_drawn_is_told_once_the_run_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = trained(tmp_path / "whole", small_model(), small_training())
    figures = loop.write_figures

    def interrupted_figures(*arguments: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        figures(*arguments)

    monkeypatch.setattr(loop, "write_figures", interrupted_figures)
    with pytest.raises(
        KeyboardInterrupt, match=r"interrupted, but the run is complete; .* train --resume --out"
    ):
        trained(tmp_path / "run", small_model(), small_training())
    assert what_remains(tmp_path / "run") == expected
    assert resume(tmp_path / "run", message=quiet).test["event"] == "test"


def test_what_is_said_of_the_data_is_said_when_training_begins(tmp_path: Path) -> None:
    data, said = Pairs(a_file(tmp_path / "words.tsv")), list[str]()
    train(data, tmp_path / "run", small_model(), small_training(), message=said.append)
    assert said == list(data.notes) and "guessed" in said[0]
    with pytest.raises(CheckpointError, match="holds a run already"):
        train(data, tmp_path / "run", small_model(), small_training(), message=said.append)
    assert len(said) == len(data.notes)


def test_data_may_move(tmp_path: Path) -> None:
    file = a_file(tmp_path / "words.tsv")
    train(Pairs(file), tmp_path / "run", small_model(), small_training(), message=quiet)
    moved = file.rename(tmp_path / "moved.tsv")
    other = a_file(tmp_path / "other.tsv")
    other.write_text(moved.read_text() + "zzz\tZ Z Z\n")
    with pytest.raises(DataError, match="the run was on the data "):
        resume(tmp_path / "run", data=Pairs(other), message=quiet)
    resume(tmp_path / "run", data=Pairs(moved), message=quiet)
    assert RunFolder(tmp_path / "run").config().data["file"]["path"] == str(moved)
    resume(tmp_path / "run", message=quiet)  # it has been noted where they are


@pytest.mark.parametrize("emptied", [False, True])
@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["metrics.jsonl"], r"metrics\.jsonl lacks"),
        (["snapshots.jsonl"], r"snapshots\.jsonl lacks"),
        (["metrics.jsonl", "snapshots.jsonl"], r"metrics\.jsonl and snapshots\.jsonl lack"),
    ],
)
def test_a_history_that_was_lost_is_told(
    names: list[str], message: str, emptied: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_before(monkeypatch, 7)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path, small_model(), small_training())
    for name in names:
        (tmp_path / name).unlink()
        if emptied:
            (tmp_path / name).write_text("")
    said: list[str] = []
    resume(tmp_path, message=said.append)
    assert len(said) == 2 and re.search(f"{message} some of what was kept up to step 8", said[0])
    assert "going on after step 8" in said[1]


def test_rows_that_are_gone_from_the_history_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_before(monkeypatch, 7)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path, small_model(), small_training())
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:-1]))
    said: list[str] = []
    resume(tmp_path, message=said.append)
    assert len(said) == 2 and "lacks some of what was kept up to step 8" in said[0]


@pytest.mark.parametrize("shown", [True, None])
def test_training_goes_on_without_standard_error(
    shown: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = (tmp_path / "closed").open("w")
    closed.close()
    for name, stream in (("closed", closed), ("none", None)):
        monkeypatch.setattr("sys.stderr", stream)
        run = tmp_path / "runs" / name
        result = train(small_task(), run, small_model(), small_training(), progress=shown, message=quiet)
        assert result.folder.rows()[-1]["event"] == "test"


class Sorting(TextFormat):
    """A data set of one's own."""

    name, notes = "sorting", ()

    def __init__(self, seed: int = 1) -> None:
        super().__init__("characters", "characters")
        self.seed = seed
        self.source_vocabulary = self.target_vocabulary = Vocabulary(tuple("012345"))
        words = tuple((first, second) for first in "012345" for second in "012345")
        both = (self.source_vocabulary, self.target_vocabulary)
        references = tuple((tuple(sorted(word)),) for word in words)
        self.development = Split("development", *both, words[:18], references[:18])
        self.test = Split("test", *both, words[18:], references[18:])

    def train_batch(self, step: int, batch_size: int) -> Batch:
        rows = np.random.default_rng([self.seed, step]).integers(4, 10, (batch_size, 3))
        return make_batch([(row, np.sort(row)) for row in rows])

    def describe(self) -> dict[str, object]:
        return {"kind": "sorting", "seed": (self.seed,)}


def test_a_run_on_a_data_set_of_ones_own(tmp_path: Path) -> None:
    whole, parts, data = tmp_path / "whole", tmp_path / "parts", Sorting()
    train(data, whole, small_model(), small_training(), message=quiet)
    with pytest.MonkeyPatch.context() as patch:
        interrupt_before(patch, 8, data=Sorting)
        with pytest.raises(KeyboardInterrupt):
            train(data, parts, small_model(), small_training(), message=quiet)
    for call in (load_run, resume):
        with pytest.raises((CheckpointError, DataError), match="a data set of your own is given as `data`"):
            call(parts)
    with pytest.raises(DataError, match=r"the run was on the data .*'seed': \[1\].*, not on .*2"):
        resume(parts, data=Sorting(2))
    resume(parts, data=data, message=quiet)
    weights = [RunFolder(folder).weights() for folder in (whole, parts)]
    assert all(np.array_equal(array, weights[1][name]) for name, array in weights[0].items())
    predictor, text = load_run(parts, data)
    assert text is data
    assert len(predictor.predict(text.split_source("410"), max_length=5).source) == 3
