"""The files of a run that its page is made from."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tinygrad_attn.errors import CheckpointError
from tinygrad_attn.files import from_json, read_whole
from tinygrad_attn.viz.report.rows import check_metrics, check_snapshot


class RunFilesError(CheckpointError):
    """A folder without a run, or with a file that cannot be read."""


@dataclass(frozen=True)
class RunData:
    """What the page shows."""

    name: str
    """Of the run, for the title."""
    config: Mapping[str, Any]
    """What `config.json` holds."""
    rows: Sequence[Mapping[str, Any]]
    """Of `metrics.jsonl`."""
    snapshots: Sequence[Mapping[str, Any]]
    """Of `snapshots.jsonl`: `{"step", "flows": [flow_data, ...]}`, in the order of the steps."""
    examples: Mapping[str, Any] | None
    """What `examples.json` holds: `{"step", "versions", "predictions", "flows", "graph"}`."""


def read_run(folder: str | os.PathLike[str]) -> RunData:
    """What is in the folder of a run. RunFilesError if there is none, or a file is damaged."""
    path = Path(folder)
    config = _json(path / "config.json")
    if config is None:
        raise RunFilesError(f"{path}: not the folder of a run, it has no config.json")
    if not str(config.get("format", "")).startswith("tinygrad_attn run"):
        raise RunFilesError(f"{path / 'config.json'}: not the settings of a run")
    for part in ("data", "model", "training"):
        if not isinstance(config.get(part, {}), Mapping):
            raise RunFilesError(f"{path / 'config.json'}: damaged ({part} is no object)")
    examples = _json(path / "examples.json")
    return RunData(
        path.resolve().name,
        config,
        read_metrics(path),
        read_snapshots(path),
        examples,
    )


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The rows of `metrics.jsonl`; none if it is not there. RunFilesError, with the line, for damage."""
    return _lines(folder / "metrics.jsonl", check_metrics)


def read_snapshots(folder: Path) -> list[dict[str, Any]]:
    """The rows of `snapshots.jsonl`; none if it is not there. RunFilesError, with the line, for damage."""
    return _lines(folder / "snapshots.jsonl", check_snapshot)


def _json(path: Path) -> dict[str, Any] | None:
    text = _text(path)
    return None if text is None else _parsed(text, str(path))


def _lines(path: Path, check: Callable[[Mapping[str, Any]], None]) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate((_text(path) or "").splitlines(), 1):
        row = _parsed(line, f"{path}, line {number}")
        try:
            check(row)
        except ValueError as error:
            raise RunFilesError(f"{path}, line {number}: damaged ({error})") from None
        rows.append(row)
    return rows


def _text(path: Path) -> str | None:
    try:
        return read_whole(path).decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise RunFilesError(f"{path}: unreadable ({error.strerror or error})") from error
    except ValueError as error:  # bytes that are no text
        raise RunFilesError(f"{path}: unreadable ({error})") from error


def _parsed(text: str, where: str) -> dict[str, Any]:
    try:
        found = from_json(text)
    except (ValueError, RecursionError) as error:
        raise RunFilesError(f"{where}: damaged ({error})") from None
    if not isinstance(found, dict):
        raise RunFilesError(f"{where}: damaged (a {type(found).__name__}, expected an object)")
    return found
