"""Descriptions that make the same data set again, on any process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tinygrad_attn.data import Dataset, Pairs, Task, files_of, from_description, text_format
from tinygrad_attn.errors import DataError

ROOT = Path(__file__).parents[2]
LINES = [f"{number}\t{' '.join(str(number))}" for number in range(3, 3000, 7)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{line}\n" for line in LINES))
    return path


def fingerprint(dataset: Dataset) -> list[Any]:
    batches = [dataset.train_batch(step, 16) for step in (0, 1, 77, 1000)]
    fields = ("source", "lengths", "target_in", "target_out", "target_lengths", "indices")
    return [
        [getattr(batch, name).tolist() for batch in batches for name in fields],
        [[split.name, split.sources, split.references] for split in (dataset.development, dataset.test)],
        [dataset.source_vocabulary.to_json(), dataset.target_vocabulary.to_json()],
        dataset.notes,
    ]


def test_tasks_are_made_again() -> None:
    task = Task("reverse", symbols=7, min_length=2, max_length=5, seed=3, equal_lengths=False)
    again = from_description(json.loads(json.dumps(task.describe())))
    assert fingerprint(again) == fingerprint(task)
    assert again.describe() == task.describe()


def test_pairs_are_made_again_from_another_folder(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    (path.parent / "test.tsv").write_text("9\t9\n")
    pairs = Pairs("pairs.tsv", source_split="characters", target_split="spaces", test="test.tsv", seed=5)
    monkeypatch.chdir("/")
    again = from_description(json.loads(json.dumps(pairs.describe())))
    assert fingerprint(again) == fingerprint(pairs)
    assert again.describe() == pairs.describe()


def test_a_changed_file_is_noticed(path: Path) -> None:
    description = Pairs(path).describe()
    path.write_text("".join(f"{line}\n" for line in [*LINES, "x\ty"]))
    with pytest.raises(DataError, match=r"pairs\.tsv: the file has changed.* \(SHA-256 .*\), expected "):
        from_description(description)
    path.unlink()
    with pytest.raises(DataError, match=r"pairs\.tsv: No such file"):
        from_description(description)


def test_files_that_moved_are_named(path: Path) -> None:
    test = path.with_name("test.tsv")
    test.write_text("9\t9\n")
    pairs = Pairs(path, test=test)
    description = pairs.describe()
    assert files_of(description) == {"file": str(path), "test": str(test)}
    assert files_of(Task("copy").describe()) == {}
    moved = path.rename(path.with_name("moved.tsv"))
    again = from_description(description, {"file": moved})
    assert fingerprint(again)[:3] == fingerprint(pairs)[:3]
    assert files_of(again.describe()) == {"file": str(moved), "test": str(test)}
    with pytest.raises(DataError, match=r"moved\.tsv: the file has changed, or is another"):
        from_description(description, {"file": moved, "test": moved})
    with pytest.raises(DataError, match="development: the data have no such file, but file, test"):
        from_description(description, {"development": moved})
    with pytest.raises(DataError, match="file: the data have no such file"):
        from_description(Task("copy").describe(), {"file": moved})


def test_text_formats_need_no_file(path: Path) -> None:
    description = Pairs(path).describe()
    path.unlink()
    form = text_format(description)
    assert form.split_source("12") == ("1", "2") and form.join_target(["a", "b"]) == "a b"
    assert text_format(Task("copy").describe()).split_source("1 2") == ("1", "2")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "tasks"}, "kind 'tasks', expected 'task' or 'pairs'"),
        ({"kind": []}, r"kind \[\], expected"),
        ({"more": 1}, r"keys \[.*'more'.*\], expected \["),
        ({"symbols": "10"}, "symbols is '10', expected a number"),
        ({"equal_lengths": 1}, "equal_lengths is 1, expected true or false"),
        ({"name": "sort"}, "unknown task 'sort'"),
        ({"symbols": -4}, "symbols is -4, expected an integer of at least 1"),
    ],
)
def test_damaged_descriptions_of_tasks(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        from_description({**Task("copy").describe(), **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"file": "pairs.tsv"}, "file is 'pairs.tsv', expected a path and its sha256"),
        ({"file": {"path": "x"}}, r"file: keys \['path'\], expected \['path', 'sha256'\]"),
        ({"test": {"path": 1, "sha256": "x"}}, "test: path is 1, expected text"),
        ({"source_split": "words"}, "source split at 'words', expected one of characters, spaces"),
        ({"source_split": None}, "source_split is None, expected text"),
    ],
)
def test_damaged_descriptions_of_pairs(path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        from_description({**Pairs(path).describe(), **change})


@pytest.mark.parametrize("foreign", [None, [], "x", {}])
def test_foreign_descriptions(foreign: Any) -> None:
    for make in (from_description, text_format):
        with pytest.raises(DataError, match="kind None, expected 'task' or 'pairs'"):
            make(foreign)


PROGRAM = """
import hashlib, json, sys
from tinygrad_attn.data import from_description
from tests.data.test_dataset import fingerprint
for description in json.load(sys.stdin):
    print(hashlib.sha256(json.dumps(fingerprint(from_description(description))).encode()).hexdigest())
"""


def test_every_process_gets_the_same(path: Path) -> None:
    datasets: list[Dataset] = [Task("reverse"), Task("copy", equal_lengths=False, seed=1), Pairs(path)]
    descriptions = [dataset.describe() for dataset in datasets]
    outputs = set()
    for hash_seed in ("0", "1", "12345"):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            input=json.dumps(descriptions),
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        outputs.add(done.stdout)
    assert len(outputs) == 1
    assert len(set(outputs.pop().split())) == 3


def test_the_split_of_a_task_is_the_one_of_earlier_versions() -> None:
    """Figures are comparable between versions only if the same sequences are tested on."""
    task = Task("reverse")
    assert [" ".join(source) for source in task.test.sources[:3]] == ["9 3 2 9 1 8", "8 6 1 1", "4 3 2 2"]
    assert [" ".join(source) for source in task.development.sources[:2]] == ["8 7 9 0", "3 6 3 5 2 6 2 8 8"]


def test_data_needs_numpy_and_the_standard_library_alone() -> None:
    program = (
        "import sys; import numpy; before = set(sys.modules); import tinygrad_attn.data; "
        "print(sorted({name.split('.')[0] for name in set(sys.modules) - before}"
        " - set(sys.stdlib_module_names) - {'numpy', 'tinygrad_attn'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
