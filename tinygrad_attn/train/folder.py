"""The folder of a run, and the names of what is in it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tinygrad_attn.data import Dataset, Vocabulary
from tinygrad_attn.errors import CheckpointError
from tinygrad_attn.files import TEMPORARY_PREFIX, from_json, read_whole, write_atomically
from tinygrad_attn.train.arrays import is_finite, pack, unpack
from tinygrad_attn.train.checkpoint import Checkpoints
from tinygrad_attn.train.config import (
    ConfigError,
    ModelConfig,
    TrainingConfig,
    settings_from_json,
    settings_to_json,
)
from tinygrad_attn.viz.report.read import read_metrics, read_snapshots

if sys.platform != "win32":
    import fcntl

FORMAT = "tinygrad_attn run 1"

_OLD = "-old"
"""How the name of a folder ends that holds a run which is being removed."""
_CONFIG = "config.json"
_CONTENT = (
    "checkpoint",
    "vocab.json",
    "metrics.jsonl",
    "snapshots.jsonl",
    "examples.json",
    "model.safetensors",
    "alignment.svg",
    "loss.svg",
    "graph.svg",
    "report.html",
    _CONFIG,  # last: while it is there, the folder is known as a run
)


@dataclass(frozen=True)
class RunConfig:
    """What `config.json` holds: all that decides how a run goes."""

    data: Mapping[str, Any]
    """What the data set says of itself; see `from_description`."""
    model: ModelConfig
    training: TrainingConfig

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary for `json`."""
        return {
            "format": FORMAT,
            "data": dict(self.data),
            "model": settings_to_json(self.model),
            "training": settings_to_json(self.training),
        }

    def identity(self) -> str:
        """A digest that is the same for the same settings and data, wherever the files of the data lie: the
        path of a file with a SHA-256 beside it does not count."""
        content = self.to_json()
        content["data"] = _without_paths(content["data"])
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class RunFolder:
    """Reads and writes the files of one run; each appears whole or not at all."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """CheckpointError for an empty name, which would be the current folder."""
        if path == "":
            raise CheckpointError("'': no name, expected the folder of a run")
        self.path = Path(path)

    def make(self) -> None:
        """Make the folder, unless it is there. CheckpointError if it cannot be."""
        try:
            os.makedirs(self.path, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise CheckpointError(f"{self.path}: not a folder, and none can be made there") from None
        except OSError as error:
            raise CheckpointError(
                f"{self.path}: the run folder cannot be made there ({error.strerror or error})"
            ) from error

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Within a `with` block this process alone trains in the folder; CheckpointError if another does.

        The system lets go of it when the process ends, in whatever way. Where it has no such locks, as on
        Windows and some network drives, nothing is held.
        """
        if sys.platform == "win32":
            yield
            return
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise CheckpointError(
                f"{self.path}: another process trains in this folder; wait for it, stop it, or choose "
                "another with --out"
            ) from None
        except OSError:  # no locks there
            pass
        try:
            yield
        finally:
            os.close(descriptor)

    def begin(self, config: RunConfig, *, overwrite: bool = False) -> None:
        """Make the folder, with its `config.json`.

        Raises CheckpointError if the folder holds a run, unless `overwrite`, or anything else, in any case.
        """
        path = self.path
        self.make()
        if any(not name.startswith(TEMPORARY_PREFIX) for name in os.listdir(path)):
            if not self._is_run():
                raise CheckpointError(f"{path}: a folder that is not a run, expected an empty or new one")
            if not overwrite:
                raise CheckpointError(
                    f"{path}: holds a run already; continue it with --resume, replace it with --overwrite, "
                    "or choose another folder with --out"
                )
            self._remove_run()
        self.write_config(config)

    def write_config(self, config: RunConfig) -> None:
        """Write `config.json`."""
        self._write_json(_CONFIG, config.to_json())

    def command_to_resume(self, *task: str) -> str:
        """The command that goes on with the run, to be pasted into a shell; `task` if its data have moved."""
        names = [f".{os.sep}{name}" if name.startswith("-") else name for name in (*task, str(self.path))]
        return shlex.join(["tinygrad-attn", "train", *names[:-1], "--resume", "--out", names[-1]])

    def sweep(self) -> None:
        """Remove the temporary files that a process left when it was killed while writing."""
        for folder in (self.path, self.path / "checkpoint"):
            for path in folder.glob(f"{TEMPORARY_PREFIX}*"):
                if not path.is_dir():
                    path.unlink(missing_ok=True)
                elif path.name.endswith(_OLD):  # others are not ours
                    shutil.rmtree(path, ignore_errors=True)

    def config(self) -> RunConfig:
        """The settings of the run. Raises CheckpointError if there is none, or `config.json` is damaged."""
        content = self._read_json(_CONFIG)
        if not isinstance(content, Mapping) or content.get("format") != FORMAT:
            raise CheckpointError(f"{self.path / _CONFIG}: not the settings of a run ({FORMAT!r})")
        where = str(self.path / _CONFIG)
        if not isinstance(content.get("data"), Mapping):
            raise CheckpointError(f"{where}: it does not say which data the run uses")
        try:
            model = settings_from_json(ModelConfig, content.get("model"), f"{where}: model")
            training = settings_from_json(TrainingConfig, content.get("training"), f"{where}: training")
        except ConfigError as error:
            raise CheckpointError(str(error)) from None
        return RunConfig(content["data"], model, training)

    def checkpoints(self, config: RunConfig) -> Checkpoints:
        """The checkpoints of the run."""
        return Checkpoints(self.path / "checkpoint", config.identity())

    def write_vocabularies(self, data: Dataset) -> None:
        """Write `vocab.json`."""
        sides = {"source": data.source_vocabulary, "target": data.target_vocabulary}
        self._write_json("vocab.json", {side: vocabulary.to_json() for side, vocabulary in sides.items()})

    def vocabularies(self) -> tuple[Vocabulary, Vocabulary]:
        """The vocabularies of source and target."""
        content = self._read_json("vocab.json")
        path = self.path / "vocab.json"
        if not isinstance(content, Mapping) or set(content) != {"source", "target"}:
            raise CheckpointError(f"{path}: expected the vocabularies of source and target")
        try:
            return Vocabulary.from_json(content["source"]), Vocabulary.from_json(content["target"])
        except ValueError as error:
            raise CheckpointError(f"{path}: {error}") from None

    def write_weights(self, weights: Mapping[str, np.ndarray], step: int) -> None:
        """Write `model.safetensors`, the best weights, which are those after `step`."""
        write_atomically(self.path / "model.safetensors", pack(weights, {"step": step}))

    def weights(self) -> dict[str, np.ndarray]:
        """The best weights. CheckpointError if there are none yet, or they are damaged or not finite."""
        path = self.path / "model.safetensors"
        if not path.exists():
            raise CheckpointError(
                f"{path}: not there; train first, or go on with: {self.command_to_resume()}"
            )
        weights = unpack(path)[0]
        for name, array in weights.items():
            if not is_finite(array):
                raise CheckpointError(f"{path}: {name} holds numbers that are not finite, expected weights")
        return weights

    def weights_step(self) -> int:
        """After which step the best weights were found; CheckpointError as for `weights`."""
        step = unpack(self.path / "model.safetensors")[1].get("step")
        return step if isinstance(step, int) else 0

    def write_rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write `metrics.jsonl`, one JSON object a line."""
        self._write_lines("metrics.jsonl", rows)

    def rows(self) -> list[dict[str, Any]]:
        """The rows of `metrics.jsonl`; none if it is not there yet. CheckpointError for damage."""
        return read_metrics(self.path)

    def write_snapshots(self, snapshots: Sequence[Mapping[str, Any]]) -> None:
        """Write `snapshots.jsonl`: how the gradient of a few examples flowed in the course of training."""
        self._write_lines("snapshots.jsonl", snapshots)

    def snapshots(self) -> list[dict[str, Any]]:
        """What `snapshots.jsonl` holds; nothing if it is not there yet. CheckpointError for damage."""
        return read_snapshots(self.path)

    def write_examples(self, examples: Mapping[str, Any]) -> None:
        """Write `examples.json`: what the trained model makes of a few examples."""
        write_atomically(self.path / "examples.json", json.dumps(examples, allow_nan=False) + "\n")

    def _write_lines(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        lines = [json.dumps(row, allow_nan=False) + "\n" for row in rows]
        write_atomically(self.path / name, "".join(lines))

    def _is_run(self) -> bool:
        with contextlib.suppress(CheckpointError):
            content = self._read_json(_CONFIG)
            return isinstance(content, Mapping) and str(content.get("format", "")).startswith(
                "tinygrad_attn run"
            )
        return False

    def _remove_run(self) -> None:
        """Remove what a run writes, and nothing else that someone may have put beside it: all of it or, if
        that cannot be (CheckpointError), nothing."""
        old = self.path / f"{TEMPORARY_PREFIX}{os.getpid()}-{secrets.token_hex(4)}{_OLD}"
        moved: list[str] = []
        name = ""
        try:
            old.mkdir()
            for name in _CONTENT:
                if os.path.lexists(self.path / name):
                    os.rename(self.path / name, old / name)
                    moved.append(name)
        except OSError as error:
            for back in reversed(moved):
                os.rename(old / back, self.path / back)
            with contextlib.suppress(OSError):
                old.rmdir()
            raise CheckpointError(
                f"{self.path / name}: cannot be removed ({error.strerror or error})"
            ) from error
        shutil.rmtree(old, ignore_errors=True)

    def _write_json(self, name: str, content: Mapping[str, Any]) -> None:
        text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        # Halves of surrogate pairs, as in names of files that are not UTF-8, as JSON escapes them.
        write_atomically(self.path / name, text.encode("utf-8", "backslashreplace"))

    def _read_json(self, name: str) -> Any:
        path = self.path / name
        if not self.path.is_dir():
            found = "a file" if self.path.exists() else "no such folder"
            raise CheckpointError(f"{self.path}: {found}, expected the folder of a run")
        try:
            return from_json(read_whole(path).decode("utf-8"))
        except FileNotFoundError:
            raise CheckpointError(f"{self.path}: not the folder of a run, it has no {name}") from None
        except OSError as error:
            raise CheckpointError(f"{path}: {error.strerror or error}") from error
        except (ValueError, RecursionError) as error:
            raise CheckpointError(f"{path}: damaged ({error})") from None


def _without_paths(value: Any) -> Any:
    if isinstance(value, Mapping):
        left_out = "path" if "sha256" in value else None
        return {key: _without_paths(entry) for key, entry in value.items() if key != left_out}
    return value
