"""The toy tasks: copy a sequence of digits, reverse it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from tinygrad_attn.data.batch import Batch, Split, check_batch_size
from tinygrad_attn.data.checks import integer
from tinygrad_attn.data.membership import Membership
from tinygrad_attn.data.text import TextFormat
from tinygrad_attn.data.vocabulary import FIRST_CONTENT_ID, Ids, Vocabulary
from tinygrad_attn.errors import DataError
from tinygrad_attn.tokens import PAD

DEVELOPMENT_SIZE, TEST_SIZE = 500, 1000
MOST_SYMBOLS, LONGEST = 100_000, 2_000
"""Beyond these the sets of a toy task would take minutes to find."""

_STREAM_KEY = 3  # keeps these random numbers apart from those of membership


def copied(rows: Ids, lengths: Ids) -> Ids:
    """The target of each row (B, T) of the copy task: the row itself."""
    return rows


def reversed_within(rows: Ids, lengths: Ids) -> Ids:
    """Each row (B, T) reversed within its own length (B,); the padding stays where it is."""
    steps = np.arange(rows.shape[1])
    places = lengths[:, None] - 1 - steps  # (B, T)
    return rows[np.arange(len(rows))[:, None], np.where(places >= 0, places, steps)]


TASKS: Mapping[str, Callable[[Ids, Ids], Ids]] = MappingProxyType(
    {"copy": copied, "reverse": reversed_within}
)
"""The tasks by name, each as the function from sources (B, T) and lengths (B,) to targets (B, T)."""


class Task(TextFormat):
    """The task "copy" or "reverse" on sequences of the content symbols "0", "1", ..., `symbols` of them.

    Training batches come from an endless stream. Lengths are drawn evenly from `min_length` to `max_length`,
    one for each batch, so that nothing is padded, or with `equal_lengths=False` one for each sequence. The
    development and test sets are fixed, and no sequence is in more than one of the three. The seed fixes all.

    Raises DataError for an unknown name, and for sizes that leave nothing to test on.
    """

    def __init__(
        self,
        name: str,
        *,
        symbols: int = 10,
        min_length: int = 1,
        max_length: int = 10,
        seed: int = 0,
        equal_lengths: bool = True,
    ) -> None:
        super().__init__("spaces", "spaces")
        if name not in TASKS:
            raise DataError(f"unknown task {name!r}, expected one of {', '.join(TASKS)}")
        self.name = name
        self._symbols = integer(f"{name}: symbols", symbols, 1, MOST_SYMBOLS)
        self._min_length = integer(f"{name}: min_length", min_length, 1, LONGEST)
        self._max_length = integer(f"{name}: max_length", max_length, self._min_length, LONGEST)
        self._seed = integer(f"{name}: seed", seed, 0)
        self._equal_lengths = bool(equal_lengths)
        self._membership = Membership(self._symbols, self._min_length, self._max_length, self._seed)
        self.source_vocabulary = self.target_vocabulary = Vocabulary(tuple(str(n) for n in range(symbols)))
        development, test = self._membership.sets(DEVELOPMENT_SIZE, TEST_SIZE)
        if not development or not test:
            raise DataError(
                f"{name}: {symbols} symbols at lengths {min_length}-{max_length} leave nothing to test on, "
                "expected at least 3 sequences of one length"
            )
        self.development, self.test = (
            self._fixed_set("development", development),
            self._fixed_set("test", test),
        )
        self.notes: tuple[str, ...] = ()

    def train_batch(self, step: int, batch_size: int) -> Batch:
        """The batch of training step `step` (0, 1, ...), a function of the seed and the arguments alone.

        All rows have one length if the task has `equal_lengths`; no row is in the development or test set.
        """
        check_batch_size(batch_size)
        rng = np.random.default_rng([_STREAM_KEY, self._seed, step])
        shortest, longest = self._min_length, self._max_length
        if self._equal_lengths:
            shortest = longest = int(rng.integers(shortest, longest + 1))
        source, lengths = self._draw(rng, shortest, longest, batch_size)
        while len(source) < batch_size:
            more = self._draw(rng, shortest, longest, batch_size)
            source, lengths = np.concatenate([source, more[0]]), np.concatenate([lengths, more[1]])
        lengths = lengths[:batch_size]
        source = source[:batch_size, : lengths.max()]  # (B, T)
        target = TASKS[self.name](source, lengths)
        return Batch.from_padded(source, lengths, target, lengths, step * batch_size + np.arange(batch_size))

    def describe(self) -> dict[str, object]:
        """What makes the same data set again (`from_description`), for `json`."""
        return {
            "kind": "task",
            "name": self.name,
            "symbols": self._symbols,
            "min_length": self._min_length,
            "max_length": self._max_length,
            "seed": self._seed,
            "equal_lengths": self._equal_lengths,
        }

    def _draw(self, rng: np.random.Generator, shortest: int, longest: int, wanted: int) -> tuple[Ids, Ids]:
        """Random training sources (n, longest), padded, and their lengths (n,); most often n >= wanted."""
        count = 4 * wanted // 3 + 8  # about 15 % of them are held out
        rows = rng.integers(FIRST_CONTENT_ID, FIRST_CONTENT_ID + self._symbols, (count, longest))
        lengths = np.full(count, longest)
        if shortest < longest:
            lengths = rng.integers(shortest, longest + 1, count)
            rows[np.arange(longest) >= lengths[:, None]] = PAD
        kept = ~self._membership.held_out(rows, lengths)
        return rows[kept], lengths[kept]

    def _fixed_set(self, name: str, rows: list[Ids]) -> Split:
        decode = self.source_vocabulary.decode
        targets = [TASKS[self.name](row[None], np.array([len(row)]))[0] for row in rows]
        return Split(
            name,
            self.source_vocabulary,
            self.target_vocabulary,
            tuple(tuple(decode(row)) for row in rows),
            tuple((tuple(decode(target)),) for target in targets),
        )
