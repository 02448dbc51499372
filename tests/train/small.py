"""Runs that take a moment, and what of them has to be the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tinygrad_attn.data import Task
from tinygrad_attn.train import ModelConfig, TrainingConfig
from tinygrad_attn.train.arrays import unpack

WALL_CLOCK = {"seconds", "tokens_per_second", "train_seconds", "test_seconds"}


def small_task(name: str = "reverse") -> Task:
    """84 sequences, most of them for training."""
    return Task(name, symbols=4, max_length=3)


def small_model(**changes: Any) -> ModelConfig:
    return ModelConfig(**{"hidden": 6, "embedding": 3, **changes})


def small_training(**changes: Any) -> TrainingConfig:
    settings = {
        "steps": 12,
        "batch": 4,
        "lr": 1e-2,
        "evaluate_every": 5,
        "log_every": 3,
        "stop_when_solved": False,
    }
    return TrainingConfig(**{**settings, **changes})


def without_times(value: Any) -> Any:
    """`value`, plain JSON, without what the clock measured."""
    if isinstance(value, dict):
        return {key: without_times(entry) for key, entry in value.items() if key not in WALL_CLOCK}
    return value


def what_remains(folder: Path) -> dict[str, Any]:
    """All that a run leaves, but for what the clock measured: two runs are the same if this is equal."""
    left: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.name == "metrics.jsonl":
            left[name] = [without_times(json.loads(line)) for line in path.read_text().splitlines()]
        elif path.name == "report.html":  # its head names the folder and the time
            left[name] = path.read_text(encoding="utf-8").partition("</header>")[2]
        elif path.parent.name == "checkpoint":
            arrays, note = unpack(path)
            left[name] = {
                key: (array.dtype.str, array.shape, array.tobytes()) for key, array in arrays.items()
            }
            left[f"{name}: note"] = without_times(note)
        elif path.is_file():
            left[name] = path.read_bytes()
    return left
