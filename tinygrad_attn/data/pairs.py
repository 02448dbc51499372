"""Pairs from a file as a data set."""

from __future__ import annotations

import os
from collections.abc import Iterable

from tinygrad_attn.data.batch import Batch, Ragged, Split
from tinygrad_attn.data.checks import integer
from tinygrad_attn.data.division import PARTS, divide
from tinygrad_attn.data.epochs import Epochs
from tinygrad_attn.data.parse import ParsedFile, parse_pairs
from tinygrad_attn.data.text import SplitAt, TextFormat
from tinygrad_attn.data.vocabulary import Tokens, Vocabulary

TokenPair = tuple[Tokens, Tokens]


class Pairs(TextFormat):
    """Pairs from a UTF-8 file, one `source<TAB>target` a line (see `parse_pairs` for what a file may hold).

    Each side is split into "characters" or at "spaces" (see `split`); with None, at spaces if that side has a
    space inside in any line, else into characters.

    Which part a pair belongs to depends on its source alone, so that pairs with the same source stay
    together: the SHA-256 of the source text (tokens joined, UTF-8) as a number modulo 1000 is below 100 for
    test, 100 to 119 for development, else training. A file in which a part would be empty is instead cut in
    the order of these SHA-256: a tenth for test, a fiftieth for development, at least one source each;
    `notes` says so. A part that is given as a file of its own, `development` or `test`, takes nothing from
    the main file.

    The vocabularies are those of the training part. The seed fixes the order of training.

    Raises DataError for a malformed file, and for one with too few sources.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        source_split: SplitAt | None = None,
        target_split: SplitAt | None = None,
        development: str | os.PathLike[str] | None = None,
        test: str | os.PathLike[str] | None = None,
        seed: int = 0,
    ) -> None:
        self._seed = integer("seed", seed, 0)
        main = parse_pairs(path)
        guessed = [guess_split(side) for side in zip(*main.pairs, strict=True)]
        super().__init__(source_split or guessed[0], target_split or guessed[1])
        self.name = os.path.basename(main.path)
        self._files = {"file": _identity(main)}
        notes = []
        if source_split is None or target_split is None:
            how = {"characters": "into characters", "spaces": "at spaces"}
            source, target = how[self.source_split], how[self.target_split]
            notes.append(f"{self.name}: sources are split {source}, targets {target} (guessed)")
        own = {"development": development, "test": test}
        parts: dict[str, list[TokenPair]] = {part: [] for part in PARTS}
        pairs = self._tokens(main)
        texts = [self.join_source(source) for source, _ in pairs]
        names, note = divide(texts, [part for part, file in own.items() if file is None], main.path)
        for pair, part in zip(pairs, names, strict=True):
            parts[part].append(pair)
        notes += [note] if note else []
        for part, file in own.items():
            if file is not None:
                parsed = parse_pairs(file)
                self._files[part] = _identity(parsed)
                parts[part] = self._tokens(parsed)
                known = {source for source, _ in parts["training"]} & {source for source, _ in parts[part]}
                if known:
                    notes.append(f"{parsed.path}: {len(known)} of its sources are also in the training part")
        training = parts["training"]
        self.source_vocabulary = Vocabulary.of(source for source, _ in training)
        self.target_vocabulary = Vocabulary.of(target for _, target in training)
        self._sources = Ragged.encoded(self.source_vocabulary, [source for source, _ in training])
        self._targets = Ragged.encoded(self.target_vocabulary, [target for _, target in training])
        self._epochs = Epochs(self._sources.lengths, self._targets.lengths, self._seed)
        self.development = self._split_of("development", parts["development"])
        self.test = self._split_of("test", parts["test"])
        self.notes = tuple(notes)

    @property
    def training_size(self) -> int:
        """The number of training pairs."""
        return len(self._sources.lengths)

    @property
    def sha256(self) -> dict[str, str]:
        """The SHA-256 of each file: "file", and "development" and "test" if given."""
        return {part: file["sha256"] for part, file in self._files.items()}

    def train_batch(self, step: int, batch_size: int) -> Batch:
        """The batch of training step `step` (0, 1, ...), a function of the data, the seed and the step alone.

        It has at most `batch_size` pairs of like lengths (see `Epochs`); `indices` are places among the
        training pairs.
        """
        rows = self._epochs.rows(step, batch_size)
        return Batch.from_padded(*self._sources.padded(rows), *self._targets.padded(rows), rows)

    def describe(self) -> dict[str, object]:
        """What makes the same data set again (`from_description`), for `json`; files by path and SHA-256."""
        return {
            "kind": "pairs",
            "file": self._files["file"],
            "development": self._files.get("development"),
            "test": self._files.get("test"),
            "source_split": self.source_split,
            "target_split": self.target_split,
            "seed": self._seed,
        }

    def _tokens(self, file: ParsedFile) -> list[TokenPair]:
        return [(self.split_source(source), self.split_target(target)) for source, target in file.pairs]

    def _split_of(self, name: str, pairs: Iterable[TokenPair]) -> Split:
        targets: dict[Tokens, dict[Tokens, None]] = {}
        for source, target in pairs:
            targets.setdefault(source, {})[target] = None
        references = tuple(tuple(several) for several in targets.values())
        return Split(name, self.source_vocabulary, self.target_vocabulary, tuple(targets), references)


def guess_split(sides: Iterable[str]) -> SplitAt:
    """At spaces if any of `sides` has one inside, else into characters."""
    return "spaces" if any(" " in side for side in sides) else "characters"


def _identity(file: ParsedFile) -> dict[str, str]:
    """What a file is found by, from any folder, and told from others."""
    return {"path": os.path.abspath(file.path), "sha256": file.sha256}
