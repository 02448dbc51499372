"""What both kinds of data sets offer, and how one is made again from its description."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from tinygrad_attn.data.batch import Batch, Split
from tinygrad_attn.data.pairs import Pairs
from tinygrad_attn.data.tasks import Task
from tinygrad_attn.data.text import TextFormat
from tinygrad_attn.data.vocabulary import Tokens, Vocabulary
from tinygrad_attn.errors import DataError


class Dataset(Protocol):
    """Training batches, fixed development and test sets, and how their text is split and joined."""

    @property
    def name(self) -> str:
        """What the data set is called in messages and reports."""

    @property
    def source_vocabulary(self) -> Vocabulary:
        """The symbols of the sources of the training part."""

    @property
    def target_vocabulary(self) -> Vocabulary:
        """The symbols of the targets of the training part."""

    @property
    def development(self) -> Split:
        """What to choose the best weights by."""

    @property
    def test(self) -> Split:
        """What to report the final figures on."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Messages to the user about what was decided for the data."""

    def train_batch(self, step: int, batch_size: int) -> Batch:
        """The batch of training step `step` (0, 1, ...): the same for the same data, seed and arguments."""

    def split_source(self, text: str) -> Tokens:
        """The symbols of one source; DataError if there are none."""

    def join_source(self, tokens: Iterable[str]) -> str:
        """One source as text."""

    def join_target(self, tokens: Iterable[str]) -> str:
        """One target as text."""

    def describe(self) -> dict[str, object]:
        """What `from_description` makes the same data set from, for `json`."""


_KINDS: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "a number": (int,),
    "true or false": (bool,),
    "a path and its sha256": (dict,),
    "a path and its sha256, or null": (dict, type(None)),
}
_TASK_FIELDS = {
    "kind": "text",
    "name": "text",
    "symbols": "a number",
    "min_length": "a number",
    "max_length": "a number",
    "seed": "a number",
    "equal_lengths": "true or false",
}
_PAIRS_FIELDS = {
    "kind": "text",
    "file": "a path and its sha256",
    "development": "a path and its sha256, or null",
    "test": "a path and its sha256, or null",
    "source_split": "text",
    "target_split": "text",
    "seed": "a number",
}
_FILES = ("file", "development", "test")
_FILE_FIELDS = {"path": "text", "sha256": "text"}


def files_of(description: Mapping[str, Any]) -> dict[str, str]:
    """Where the files were of the data set that gave `description`: "file", and "development" and "test" if
    they were files of their own; none for a task. DataError if the description is damaged or foreign."""
    if _kind(description) == "task":
        return {}
    files = {part: description[part] for part in _FILES if description[part] is not None}
    for part, file in files.items():
        _check_fields(file, _FILE_FIELDS, f"data set description: {part}")
    return {part: file["path"] for part, file in files.items()}


def from_description(
    description: Mapping[str, Any], moved: Mapping[str, str | os.PathLike[str]] | None = None
) -> Dataset:
    """The data set that gave `description`.

    Args:
        description: what `describe` of a data set returned.
        moved: where files of `files_of(description)` are now, if not where they were.

    Raises DataError if the description is damaged or foreign, or if a file has changed since.
    """
    paths: dict[str, str | os.PathLike[str]] = {**files_of(description)}
    for part in moved or {}:
        if part not in paths:
            raise DataError(f"{part}: the data have no such file, but {', '.join(paths) or 'none'}")
    paths.update(moved or {})
    if not paths:
        options = {name: value for name, value in description.items() if name not in ("kind", "name")}
        return Task(description["name"], **options)
    pairs = Pairs(
        paths["file"],
        source_split=description["source_split"],
        target_split=description["target_split"],
        development=paths.get("development"),
        test=paths.get("test"),
        seed=description["seed"],
    )
    for part, path in paths.items():
        found, expected = pairs.sha256[part], description[part]["sha256"]
        if found != expected:
            changed = (
                f"the file has changed, or is another (SHA-256 {found[:12]}...), expected {expected[:12]}..."
            )
            raise DataError(f"{os.fspath(path)}: {changed}")
    return pairs


def text_format(description: Mapping[str, Any]) -> TextFormat:
    """How the text of the data set that gave `description` is split and joined; needs none of its files.

    Raises DataError if the description is damaged or foreign.
    """
    if _kind(description) == "task":
        return TextFormat("spaces", "spaces")
    return TextFormat(description["source_split"], description["target_split"])


def _kind(description: Mapping[str, Any]) -> str:
    kind = description.get("kind") if isinstance(description, Mapping) else None
    if kind not in ("task", "pairs"):
        raise DataError(
            f"data set description: kind {kind!r}, expected 'task' or 'pairs'; a data set of your own is "
            "given as `data`, from Python"
        )
    _check_fields(description, _TASK_FIELDS if kind == "task" else _PAIRS_FIELDS, "data set description")
    return str(kind)


def _check_fields(content: Mapping[str, Any], fields: Mapping[str, str], name: str) -> None:
    if set(content) != set(fields):
        raise DataError(f"{name}: keys {sorted(map(str, content))}, expected {sorted(fields)}")
    for key, kind in fields.items():
        if not isinstance(content[key], _KINDS[kind]):
            raise DataError(f"{name}: {key} is {content[key]!r}, expected {kind}")
