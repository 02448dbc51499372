"""Pairs from a file: splitting, the three parts, several targets, training batches."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tinygrad_attn.data import Pairs
from tinygrad_attn.data.division import part_of
from tinygrad_attn.errors import DataError
from tinygrad_attn.tokens import UNK


def written(folder: Path, lines: list[str], name: str = "pairs.tsv") -> Path:
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


WORDS = [format(number * 7919 % 4096, "x") for number in range(1, 1500)]
LINES = [f"{word}\t{' '.join(word.upper())}" for word in WORDS]


def test_sides_are_guessed_separately_and_the_user_is_told(tmp_path: Path) -> None:
    pairs = Pairs(written(tmp_path, LINES))
    assert (pairs.source_split, pairs.target_split) == ("characters", "spaces")
    assert pairs.notes == ("pairs.tsv: sources are split into characters, targets at spaces (guessed)",)
    assert pairs.name == "pairs.tsv"
    assert pairs.split_source("1f") == ("1", "f")
    assert pairs.join_target(("1", "F")) == "1 F"


def test_one_line_with_a_space_inside_is_enough(tmp_path: Path) -> None:
    pairs = Pairs(written(tmp_path, [*LINES, "two words\tA"]))
    assert pairs.source_split == "spaces"


def test_a_chosen_split_is_kept(tmp_path: Path) -> None:
    pairs = Pairs(written(tmp_path, LINES), source_split="spaces", target_split="characters")
    assert pairs.notes == ()
    assert " " in pairs.target_vocabulary
    assert pairs.split_source("1f") == ("1f",)
    with pytest.raises(DataError, match="source split at 'words', expected one of characters, spaces"):
        Pairs(written(tmp_path, LINES), source_split="words")


def test_the_three_parts_follow_the_source(tmp_path: Path) -> None:
    pairs = Pairs(written(tmp_path, LINES))
    expected = {
        part: [w for w in WORDS if part_of(w) == part] for part in ("training", "development", "test")
    }
    assert [pairs.join_source(source) for source in pairs.development.sources] == expected["development"]
    assert [pairs.join_source(source) for source in pairs.test.sources] == expected["test"]
    assert pairs.training_size == len(expected["training"])
    seen = set()
    for step in range(200):
        for row in pairs.train_batch(step, 16).source:
            seen.add("".join(pairs.source_vocabulary.decode(row)))
    assert seen == set(expected["training"])


def test_training_batches_hold_their_pairs(tmp_path: Path) -> None:
    pairs = Pairs(written(tmp_path, LINES))
    training = [word for word in WORDS if part_of(word) == "training"]
    for step in range(50):
        batch = pairs.train_batch(step, 16)
        assert len(set(batch.lengths.tolist())) == 1
        for row, index in enumerate(batch.indices):
            assert "".join(pairs.source_vocabulary.decode(batch.source[row])) == training[index]
            assert "".join(pairs.target_vocabulary.decode(batch.target_out[row])) == training[index].upper()


def test_several_targets_of_a_source_stay_together(tmp_path: Path) -> None:
    lines = [
        line for word in WORDS for line in (f"{word}\tA {word}", f"{word}\tB {word}", f"{word}\tA {word}")
    ]
    pairs = Pairs(written(tmp_path, lines))
    for split in (pairs.development, pairs.test):
        assert len(set(split.sources)) == len(split)
        for source, targets in zip(split.sources, split.references, strict=True):
            word = pairs.join_source(source)
            assert targets == (("A", word), ("B", word))  # each once, in the order of the file
    assert pairs.training_size == 3 * sum(part_of(word) == "training" for word in WORDS)
    first = next(pairs.test.batches(4))
    assert pairs.target_vocabulary.decode(first.target_out[0])[0] == "A"


def test_sources_that_differ_in_spaces_alone_are_the_same(tmp_path: Path) -> None:
    lines = [line for word in WORDS for line in (f"x {word}\tA", f" x  {word}\tB")]
    pairs = Pairs(written(tmp_path, lines))
    assert all(targets == (("A",), ("B",)) for targets in pairs.test.references)


def test_vocabularies_come_from_the_training_part(tmp_path: Path) -> None:
    test_word = next(word for word in map(str, range(10_000, 20_000)) if part_of(f"é{word}") == "test")
    pairs = Pairs(written(tmp_path, [*LINES, f"é{test_word}\tÉ"]))
    assert "é" not in pairs.source_vocabulary and "É" not in pairs.target_vocabulary
    place = pairs.test.sources.index(("é", *test_word))
    assert pairs.test.references[place] == (("É",),)  # kept as it is, so that <unk> is not taken for right
    batch = next(b for b in pairs.test.batches(1) if b.indices[0] == place)
    assert batch.source[0, 0] == UNK and batch.target_out[0, 0] == UNK
    assert pairs.source_vocabulary.symbols == tuple(sorted(pairs.source_vocabulary.symbols))


def test_a_small_file_says_how_it_was_cut(tmp_path: Path) -> None:
    path = written(tmp_path, ["a\tA", "b\tB", "c\tC"])
    pairs = Pairs(path, source_split="characters", target_split="characters")
    assert len(pairs.development) == len(pairs.test) == pairs.training_size == 1
    assert len(pairs.notes) == 1 and pairs.notes[0].startswith(f"{path}: too few different sources (3)")
    batch = pairs.train_batch(5, 64)
    assert len(batch) == 1
    with pytest.raises(DataError, match=r"pairs\.tsv: 2 different sources, expected at least 3, one each"):
        Pairs(written(tmp_path, ["a\tA", "b\tB", "b\tC"]))


def test_own_files_for_development_and_test(tmp_path: Path) -> None:
    main = written(tmp_path, LINES)
    development = written(tmp_path, ["zz\tZ Z", f"{WORDS[0]}\tA"], "development.tsv")
    test = written(tmp_path, ["yy\tY Y"], "test.tsv")
    pairs = Pairs(main, development=development, test=test)
    assert pairs.training_size == len(LINES)
    assert pairs.development.sources == (("z", "z"), tuple(WORDS[0]))
    assert pairs.test.sources == (("y", "y"),)
    assert f"{development}: 1 of its sources are also in the training part" in pairs.notes
    assert not any("test.tsv" in note for note in pairs.notes)
    alone = Pairs(main, test=test)
    assert alone.development.sources == Pairs(main).development.sources
    assert alone.training_size == len(LINES) - len(alone.development)
    assert (
        Pairs(written(tmp_path, ["a\tA"], "one.tsv"), development=development, test=test).training_size == 1
    )
    with pytest.raises(DataError, match=r"bad\.tsv:1: no tab"):
        Pairs(main, test=written(tmp_path, ["x"], "bad.tsv"))


def test_malformed_lines_are_found_before_anything_else(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=rf"pairs\.tsv:{len(LINES) + 1}: no tab in 'x', expected source<TAB>target"
    ):
        Pairs(written(tmp_path, [*LINES, "x"]))


@pytest.mark.parametrize("seed", [-1, 1.0, True])
def test_seeds_that_are_none(tmp_path: Path, seed: int) -> None:
    with pytest.raises(DataError, match=r"seed is .*, expected an integer of at least 0"):
        Pairs(written(tmp_path, LINES), seed=seed)


def test_seeds_may_be_numpys_integers(tmp_path: Path) -> None:
    path = written(tmp_path, LINES)
    assert json.dumps(Pairs(path, seed=np.int64(3)).describe()) == json.dumps(Pairs(path, seed=3).describe())


def test_the_seed_changes_the_order_alone(tmp_path: Path) -> None:
    path = written(tmp_path, LINES)
    one, other = Pairs(path), Pairs(path, seed=1)
    assert one.test == other.test and one.source_vocabulary == other.source_vocabulary
    assert not np.array_equal(one.train_batch(0, 16).indices, other.train_batch(0, 16).indices)
