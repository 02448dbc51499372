"""The files of a run that its page is made from."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tinygrad_attn.errors import UserError
from tinygrad_attn.files import from_json


class RunFilesError(UserError, ValueError):
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
    examples = _json(path / "examples.json")
    return RunData(
        path.resolve().name,
        config,
        _lines(path / "metrics.jsonl", step=int),
        _lines(path / "snapshots.jsonl", step=int, flows=list),
        examples,
    )


def _json(path: Path) -> dict[str, Any] | None:
    text = _text(path)
    return None if text is None else _parsed(text, str(path))


def _lines(path: Path, **kinds: type) -> list[dict[str, Any]]:
    lines = (_text(path) or "").splitlines()
    rows = [_parsed(line, f"{path}, line {number}") for number, line in enumerate(lines, 1)]
    for number, row in enumerate(rows, 1):
        for key, kind in kinds.items():
            if type(row.get(key)) is not kind:
                raise RunFilesError(f"{path}, line {number}: damaged (without {key} ({kind.__name__}))")
    return rows


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
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
