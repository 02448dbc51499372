from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.train.small import small_model, small_task, small_training
from tinygrad_attn.errors import CheckpointError
from tinygrad_attn.train import ModelConfig, RunConfig, RunFolder, TrainingConfig, train
from tinygrad_attn.viz import report
from tinygrad_attn.viz.report.read import RunFilesError, read_run

CONFIG = RunConfig(small_task().describe(), small_model(), small_training())


def begun(path: Path) -> RunFolder:
    folder = RunFolder(path)
    folder.begin(CONFIG)
    return folder


def test_what_is_written_is_read(tmp_path: Path) -> None:
    folder = begun(tmp_path / "a" / "run")
    assert folder.config() == CONFIG
    folder.write_vocabularies(small_task())
    assert folder.vocabularies() == (small_task().source_vocabulary, small_task().target_vocabulary)
    folder.write_weights({"w": np.ones(2)}, 7)
    assert folder.weights()["w"].tolist() == [1, 1]
    assert folder.rows() == []
    rows = [{"event": "train", "step": 1, "loss": 0.1 + 0.2}]
    folder.write_rows(rows)
    assert folder.rows() == rows


def test_a_run_is_replaced_only_on_demand_and_others_files_never(tmp_path: Path) -> None:
    folder = begun(tmp_path / "run")
    folder.write_rows([{"event": "train", "step": 1}])
    (folder.path / "checkpoint").mkdir()
    (folder.path / "notes.txt").write_text("mine")
    with pytest.raises(CheckpointError, match="holds a run already; continue it with --resume"):
        folder.begin(CONFIG)
    assert folder.rows()
    folder.begin(CONFIG, overwrite=True)
    assert sorted(path.name for path in folder.path.iterdir()) == ["config.json", "notes.txt"]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("content", [None, "{}", "[]", "junk", '{"format": "another program"}'])
def test_a_folder_that_is_no_run_is_left_alone(tmp_path: Path, content: str | None, overwrite: bool) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(CheckpointError, match="a folder that is not a run"):
        RunFolder(tmp_path).begin(CONFIG, overwrite=overwrite)
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_an_empty_folder_and_what_a_killed_process_left_are_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / ".tinygrad_attn-1-a").write_text("part")
    begun(tmp_path)


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("mine")
    for path in (tmp_path / "run", tmp_path / "run" / "inside"):
        with pytest.raises(CheckpointError, match="not a folder"):
            begun(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", None, "not the folder of a run, it has no config.json"),
        ("config.json", b"{", "config.json: damaged"),
        ("config.json", b"\xff\xfe", "config.json: damaged"),
        ("config.json", b"[" * 100_000, "config.json: damaged"),
        ("config.json", b"{}", "config.json: not the settings of a run"),
        ("config.json", b'{"format": "tinygrad_attn run 1"}', "does not say which data"),
        ("config.json", b'{"format": "tinygrad_attn run 1", "data": {}}', "config.json: model: NoneType"),
        ("vocab.json", None, "it has no vocab.json"),
        ("vocab.json", b"3", "vocab.json: expected the vocabularies"),
        ("vocab.json", b'{"source": 1, "target": 2}', "vocab.json: Vocabulary: int"),
        ("model.safetensors", None, "model.safetensors: not there; train first"),
        ("model.safetensors", b"", "model.safetensors: damaged"),
        ("metrics.jsonl", b"{", "metrics.jsonl, line 1: damaged"),
        ("metrics.jsonl", b"[]\n", r"metrics.jsonl, line 1: damaged \(a list"),
        ("metrics.jsonl", b"[" * 100_000, "metrics.jsonl, line 1: damaged"),
    ],
)
def test_damage_is_an_error_that_names_the_file(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    folder = begun(tmp_path)
    readers: dict[str, Any] = {
        "config.json": folder.config,
        "vocab.json": folder.vocabularies,
        "model.safetensors": folder.weights,
        "metrics.jsonl": folder.rows,
    }
    (tmp_path / name).unlink(missing_ok=True)
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=message) as caught:
        readers[name]()
    assert str(tmp_path) in str(caught.value)


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such folder"):
        RunFolder(tmp_path / "run").config()
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="file: a file, expected the folder of a run"):
        RunFolder(tmp_path / "file").config()


def test_the_identity_is_that_of_settings_and_data_wherever_the_files_lie() -> None:
    def identity(path: str, sha256: str) -> str:
        return RunConfig({"file": {"path": path, "sha256": sha256}}, CONFIG.model, CONFIG.training).identity()

    assert identity("/a/x", "1") == identity("/b/x", "1") != identity("/a/x", "2")
    assert RunConfig(CONFIG.data, small_model(hidden=7), CONFIG.training).identity() != CONFIG.identity()
    # A path whose content no digest tells is part of what the data are.
    own = [RunConfig({"path": path}, CONFIG.model, CONFIG.training).identity() for path in "ab"]
    assert own[0] != own[1]


def test_the_command_that_goes_on_can_be_pasted(tmp_path: Path) -> None:
    folder = begun(tmp_path / "a b'c")
    command = folder.command_to_resume("x y.tsv")
    assert shlex.split(command) == [
        "tinygrad-attn",
        "train",
        "x y.tsv",
        "--resume",
        "--out",
        str(folder.path),
    ]
    command = RunFolder("-a").command_to_resume("-x.tsv")
    dashed = [os.path.join(".", name) for name in ("-x.tsv", "-a")]
    assert shlex.split(command) == ["tinygrad-attn", "train", dashed[0], "--resume", "--out", dashed[1]]
    with pytest.raises(CheckpointError) as caught:
        folder.weights()
    assert str(caught.value).endswith(f"go on with: {folder.command_to_resume()}")


def test_files_are_plain_json(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    content = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert content["model"]["hidden"] == 6 and content["training"]["steps"] == 12
    folder.write_vocabularies(small_task())
    vocabularies = json.loads((tmp_path / "vocab.json").read_text(encoding="utf-8"))
    assert vocabularies["source"]["symbols"] == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("metrics.jsonl", '{"event": "train", "step": "3"}'),
        ("metrics.jsonl", '{"event": "train", "step": true}'),
        ("metrics.jsonl", '{"event": "train", "step": 3, "loss": NaN}'),
        ("metrics.jsonl", '{"event": "train", "step": 3, "loss": 1e999}'),
        ("metrics.jsonl", '{"event": "train", "step": 3, "loss": -Infinity}'),
        ("snapshots.jsonl", '{"step": 3, "flows": {}}'),
        ("snapshots.jsonl", '{"step": 3, "flows": [NaN]}'),
        ("snapshots.jsonl", '{"step": 3, "flows": [3]}'),
        ("snapshots.jsonl", '{"step": -3, "flows": []}'),
    ],
)
def test_rows_of_a_wrong_kind(tmp_path: Path, name: str, content: str) -> None:
    folder = begun(tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(CheckpointError, match=name):
        {"metrics.jsonl": folder.rows, "snapshots.jsonl": folder.snapshots}[name]()
    with pytest.raises(RunFilesError, match=name):
        read_run(tmp_path)


TEST_ROW = {
    "event": "test",
    "step": 20,
    "best_step": 10,
    "sequences": 5,
    "tokens": 9,
    "loss": 0.5,
    "token_accuracy": 0.5,
    "exact_match": 1,
    "token_error_rate": 1.5,
    "alignment_weight": 0.25,
    "alignment_accuracy": 0.0,
    "train_seconds": 1e9,
    "test_seconds": 0,
}
FIGURES = [key for key in TEST_ROW if key != "event"]


@pytest.mark.parametrize("value", ["x", pytest.param(10**400, id="endless"), -1, True, None, [0.5], {"x": 1}])
@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_of_a_wrong_kind_is_named_with_its_line(tmp_path: Path, figure: str, value: object) -> None:
    folder = begun(tmp_path)
    folder.write_rows([TEST_ROW, TEST_ROW | {figure: value}])
    for read in (folder.rows, lambda: read_run(tmp_path)):
        with pytest.raises(
            CheckpointError, match=rf"metrics.jsonl, line 2: damaged \({figure} is "
        ) as caught:
            read()
        assert len(str(caught.value).removeprefix(str(tmp_path))) < 150


@pytest.mark.parametrize("figure", ["exact_match", "alignment_weight"])
def test_a_share_is_at_most_one(tmp_path: Path, figure: str) -> None:
    folder = begun(tmp_path)
    folder.write_rows([TEST_ROW | {figure: 1.5}])
    with pytest.raises(CheckpointError, match=f"{figure} is 1.5, expected a number from 0 to 1"):
        folder.rows()


@pytest.mark.parametrize("figure", ["sequences", "exact_match", "token_error_rate", "train_seconds"])
def test_a_row_of_the_test_has_what_is_told_of_it(tmp_path: Path, figure: str) -> None:
    folder = begun(tmp_path)
    folder.write_rows([{key: value for key, value in TEST_ROW.items() if key != figure}])
    with pytest.raises(CheckpointError, match=rf"line 1: damaged \(without {figure}\)"):
        folder.rows()


@pytest.mark.parametrize(
    ("part", "value"),
    [("data", [1]), ("data", {"kind": "pairs", "file": [1]}), ("model", "x"), ("model", {"cell": 3})],
)
def test_the_page_of_settings_that_are_none(tmp_path: Path, part: str, value: object) -> None:
    begun(tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(content | {part: value}))
    if isinstance(value, dict):
        assert report(tmp_path).exists()
    else:
        with pytest.raises(RunFilesError, match=f"config.json: damaged .{part} is "):
            report(tmp_path)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_weights_that_are_not_finite(tmp_path: Path, value: float) -> None:
    folder = begun(tmp_path)
    folder.write_weights({"whole": np.ones(2), "decoder.bias": np.array([1.0, value])}, 7)
    with pytest.raises(
        CheckpointError, match=r"model\.safetensors: decoder\.bias holds numbers that are not"
    ):
        folder.weights()


@pytest.mark.parametrize("field", ["lr", "clip", "minutes", "warmup"])
def test_settings_of_endless_digits(tmp_path: Path, field: str) -> None:
    folder = begun(tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    content["training"][field] = 10**400
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=f"training: {field} is 1"):
        folder.config()


def test_names_that_are_not_utf_8_go_round(tmp_path: Path) -> None:
    data = {"file": {"path": "w\udcff.tsv"}}
    folder = RunFolder(tmp_path)
    folder.begin(RunConfig(data, ModelConfig(), TrainingConfig(steps=1)))
    assert folder.config().data == data
    assert read_run(tmp_path).config["data"] == data
    assert "w\\udcff.tsv" in report(tmp_path).read_text(encoding="utf-8")


def test_one_process_at_a_time_trains_in_a_folder(tmp_path: Path) -> None:
    with RunFolder(tmp_path).held():
        for again in (RunFolder(tmp_path), RunFolder(tmp_path / ".")):
            with pytest.raises(CheckpointError, match="another process trains in this folder"), again.held():
                raise AssertionError("held twice")
        with pytest.raises(CheckpointError, match="another process trains"):
            train(small_task(), tmp_path, small_model(), small_training(), message=lambda said: None)
        assert not list(tmp_path.iterdir())
    with RunFolder(tmp_path).held():
        pass


def test_what_cannot_be_removed_is_named_before_anything_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = begun(tmp_path)
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "step-000000001.safetensors").write_bytes(b"1")
    (tmp_path / "metrics.jsonl").write_text("")
    before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))
    rename = os.rename

    def refuse(old: Path, new: Path) -> None:
        if old == tmp_path / "metrics.jsonl":
            raise PermissionError(13, "Permission denied", str(old))
        rename(old, new)

    monkeypatch.setattr("os.rename", refuse)
    with pytest.raises(CheckpointError, match=r"metrics.jsonl: cannot be removed \(Permission denied\)"):
        folder.begin(folder.config(), overwrite=True)
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == before
    monkeypatch.undo()
    folder.begin(folder.config(), overwrite=True)
    assert [path.name for path in tmp_path.rglob("*")] == ["config.json"]


def test_folders_among_the_temporary_files_stay(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    (tmp_path / ".tinygrad_attn-mine").mkdir()
    (tmp_path / ".tinygrad_attn-1-a-old").mkdir()
    (tmp_path / ".tinygrad_attn-1-a").write_text("part")
    folder.sweep()
    assert [path.name for path in tmp_path.glob(".t*")] == [".tinygrad_attn-mine"]


@pytest.mark.skipif(os.name == "nt", reason="no pipes with names")
@pytest.mark.parametrize("name", ["config.json", "vocab.json", "metrics.jsonl", "model.safetensors"])
def test_nobody_waits_for_a_pipe_in_the_place_of_a_file(tmp_path: Path, name: str) -> None:
    folder = begun(tmp_path / "run")
    (folder.path / name).unlink(missing_ok=True)
    os.mkfifo(folder.path / name)
    reads = {
        "config.json": folder.config,
        "vocab.json": folder.vocabularies,
        "metrics.jsonl": folder.rows,
        "model.safetensors": folder.weights,
    }
    with pytest.raises(CheckpointError, match=rf"{name}: .*a device or a pipe, expected a file"):
        reads[name]()
