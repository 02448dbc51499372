from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tinygrad_attn.cli import main
from tinygrad_attn.data import tasks
from tinygrad_attn.train import loop

SMALL = ["--hidden", "6", "--embedding", "3", "--batch", "8", "--steps", "10", "--evaluate-every", "5"]
LEARNING = ["--lr", "0.02", "--steps", "200", "--evaluate-every", "100"]  # enough to end an output by itself


@pytest.fixture(scope="module", autouse=True)
def small_sets() -> Iterator[None]:
    """Decoding a thousand sequences and drawing take longer than all the rest."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tasks, "TEST_SIZE", 50)
        patched.setattr(tasks, "DEVELOPMENT_SIZE", 50)
        patched.setattr(loop, "write_figures", lambda *arguments: None)
        yield


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of pairs: letters in, the same in upper case, spaced, out."""
    path = tmp_path_factory.mktemp("data") / "words.tsv"
    sources = [a + b + c for a in "abé" for b in "abcd" for c in "abcde"]
    path.write_text("".join(f"{s}\t{' '.join(s.upper())}\n" for s in sources), encoding="utf-8")
    return path


def train(arguments: Sequence[str | Path]) -> int:
    return main(["train", *map(str, arguments), *SMALL])


@pytest.fixture(scope="module")
def copy_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the copy task that has learned a little."""
    path = tmp_path_factory.mktemp("runs") / "copy"
    assert main(["train", "copy", "--out", str(path), "--quiet", *SMALL, *LEARNING]) == 0
    return path


@pytest.fixture(scope="module")
def words_run(tmp_path_factory: pytest.TempPathFactory, words: Path) -> Path:
    """A run on `words` that has learned a little."""
    path = tmp_path_factory.mktemp("runs") / "words"
    assert main(["train", str(words), "--out", str(path), "--quiet", *SMALL, *LEARNING]) == 0
    return path
