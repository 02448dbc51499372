"""Checkpoints: all that the rest of a training depends on, in two generations."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tinygrad_attn.errors import CheckpointError
from tinygrad_attn.files import write_atomically
from tinygrad_attn.train.arrays import pack, unpack

_GENERATIONS = 2
_NAME = re.compile(r"step-(\d+)\.safetensors")


@dataclass(frozen=True)
class Checkpoint:
    """The state of a training after some step."""

    step: int
    arrays: dict[str, np.ndarray]
    """`model/...`, `best/...` and `optimiser/...`."""
    state: dict[str, Any]
    """Everything else, as plain JSON: progress, random state, running sums."""

    def part(self, name: str) -> dict[str, np.ndarray]:
        """The arrays under `name/`, without it."""
        return {
            key[len(name) + 1 :]: array for key, array in self.arrays.items() if key.startswith(f"{name}/")
        }


class Checkpoints:
    """The folder `checkpoint/` of a run: the newest checkpoint and the one before, a file each."""

    def __init__(self, folder: Path, run: str) -> None:
        self._folder = folder
        self._run = run  # tells checkpoints of this run from those of others

    def files(self) -> list[Path]:
        """The files of the generations, the newest first."""
        found = self._folder.iterdir() if self._folder.is_dir() else ()
        steps = {path: int(match[1]) for path in found if (match := _NAME.fullmatch(path.name))}
        return sorted(steps, key=steps.__getitem__, reverse=True)

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a new generation; those older than the one before it are then removed."""
        self._folder.mkdir(exist_ok=True)
        note = {"run": self._run, "step": checkpoint.step, "state": checkpoint.state}
        path = self._folder / f"step-{checkpoint.step:09d}.safetensors"
        write_atomically(path, pack(checkpoint.arrays, note))
        for older in [file for file in self.files() if file != path][_GENERATIONS - 1 :]:
            with contextlib.suppress(OSError):
                older.unlink()

    def load(self, message: Callable[[str], None]) -> Checkpoint | None:
        """The newest checkpoint; where that is damaged, a message and the one before. None if there are none.

        Damaged generations are then removed. Raises CheckpointError, naming the newest file, if none is
        whole and of this run, or if something stands where the next ones are to be written.
        """
        if self._folder.exists() and not self._folder.is_dir():
            raise CheckpointError(f"{self._folder}: a file in place of the folder of checkpoints, remove it")
        files = self.files()
        for file in files:
            if file.is_dir():
                raise CheckpointError(f"{file}: a folder in place of a checkpoint, remove it")
        first: CheckpointError | None = None
        for file in files:
            try:
                checkpoint = self._read(file)
            except CheckpointError as error:
                first = first or error
                continue
            if first is not None:
                for damaged in files[: files.index(file)]:
                    try:
                        damaged.unlink()
                    except OSError as error:
                        raise CheckpointError(
                            f"{damaged}: damaged, and cannot be removed ({error.strerror or error})"
                        ) from error
                message(f"{first}; going on from the one before, {file.name}")
            return checkpoint
        if first is not None:
            raise CheckpointError(f"{first}; no whole checkpoint is left, train anew with --overwrite")
        return None

    def _read(self, path: Path) -> Checkpoint:
        arrays, note = unpack(path)
        if not isinstance(note, Mapping) or set(note) != {"run", "step", "state"}:
            raise CheckpointError(f"{path}: not a checkpoint")
        if note["run"] != self._run:
            raise CheckpointError(f"{path}: the checkpoint belongs to a run with other settings")
        return Checkpoint(note["step"], arrays, note["state"])
