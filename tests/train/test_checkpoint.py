from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tinygrad_attn.errors import CheckpointError
from tinygrad_attn.train.arrays import pack
from tinygrad_attn.train.checkpoint import Checkpoint, Checkpoints


def a_checkpoint(step: int) -> Checkpoint:
    return Checkpoint(step, {"model/w": np.full(3, step, np.float32), "best/w": np.zeros(3)}, {"x": step})


def saved(folder: Path, *steps: int) -> Checkpoints:
    checkpoints = Checkpoints(folder / "checkpoint", "this run")
    for step in steps:
        checkpoints.save(a_checkpoint(step))
    return checkpoints


def no_message(text: str) -> None:
    pytest.fail(text)


def test_two_generations_are_kept(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 5, 90, 1000, 1000)
    assert [file.name for file in checkpoints.files()] == [
        "step-000001000.safetensors",
        "step-000000090.safetensors",
    ]
    found = checkpoints.load(no_message)
    assert found is not None and (found.step, found.state) == (1000, {"x": 1000})
    assert found.part("model").keys() == {"w"} and (found.part("model")["w"] == 1000).all()


def test_none_yet(tmp_path: Path) -> None:
    assert saved(tmp_path).load(no_message) is None


@pytest.mark.parametrize(
    "damage", [lambda whole: b"", lambda whole: whole[:-1], lambda whole: whole[:-1] + b"\x07"]
)
def test_a_damaged_generation_falls_back_to_the_one_before(tmp_path: Path, damage: object) -> None:
    checkpoints = saved(tmp_path, 1, 2)
    newest, before = checkpoints.files()
    newest.write_bytes(damage(newest.read_bytes()))
    messages: list[str] = []
    found = checkpoints.load(messages.append)
    assert found is not None and found.step == 1
    assert len(messages) == 1 and str(newest) in messages[0] and before.name in messages[0]
    assert checkpoints.files() == [before]


def test_no_generation_is_whole(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 1, 2)
    for file in checkpoints.files():
        file.write_bytes(b"junk")
    with pytest.raises(CheckpointError, match=r"step-000000002\.safetensors.*no whole checkpoint is left"):
        checkpoints.load(no_message)
    assert len(checkpoints.files()) == 2


def test_a_checkpoint_of_another_run(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    with pytest.raises(CheckpointError, match="a run with other settings"):
        Checkpoints(tmp_path / "checkpoint", "that run").load(no_message)


def test_weights_are_no_checkpoint(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 1)
    checkpoints.files()[0].write_bytes(pack({"w": np.zeros(3)}, {"step": 1}))
    with pytest.raises(CheckpointError, match="not a checkpoint"):
        checkpoints.load(no_message)


@pytest.mark.parametrize("name", ["step-000000003.safetensors", "step-000000002.safetensors"])
def test_a_folder_in_place_of_the_newest_is_told_at_once(tmp_path: Path, name: str) -> None:
    checkpoints = saved(tmp_path, 1, 2)
    (tmp_path / "checkpoint" / name).unlink(missing_ok=True)
    (tmp_path / "checkpoint" / name).mkdir()
    with pytest.raises(CheckpointError, match=rf"{name}: a folder in place of a checkpoint, remove it"):
        checkpoints.load(no_message)


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_text("")
    with pytest.raises(CheckpointError, match="checkpoint: a file in place of the folder of checkpoints"):
        Checkpoints(tmp_path / "checkpoint", "this run").load(no_message)


def test_a_damaged_generation_that_cannot_be_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = saved(tmp_path, 1, 2)
    newest = checkpoints.files()[0]
    newest.write_bytes(b"junk")

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(
        CheckpointError, match=r"000000002\.safetensors: damaged.*cannot be removed .Permission"
    ):
        checkpoints.load(no_message)
