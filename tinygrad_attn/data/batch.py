"""Batches of padded sequences, and the fixed sets that a model is evaluated on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tinygrad_attn.data.vocabulary import Ids, Tokens, Vocabulary
from tinygrad_attn.tokens import BOS, EOS, PAD, SPECIAL_TOKENS, UNK


@dataclass(frozen=True, eq=False)
class Batch:
    """B examples, padded with PAD on the right; T is the longest source, N the longest target with EOS."""

    source: Ids
    """(B, T) source ids, without BOS and EOS."""
    lengths: Ids
    """(B,) how many ids of each source count, at least 1."""
    target_in: Ids
    """(B, N) what the decoder is fed: BOS, then the target."""
    target_out: Ids
    """(B, N) what the decoder has to produce: the target, then EOS."""
    target_lengths: Ids
    """(B,) how many ids of each row of `target_in`, and of `target_out`, count; at least 1."""
    indices: Ids
    """(B,) which examples the rows are: places in a Split, in the training pairs, or in an endless stream."""

    @property
    def tokens(self) -> int:
        """The number of target tokens that count, EOS included, PAD not."""
        return int(self.target_lengths.sum())

    def __len__(self) -> int:
        return len(self.lengths)

    def __repr__(self) -> str:
        return f"Batch({len(self)} examples, source {self.source.shape}, target {self.target_out.shape})"

    @classmethod
    def from_padded(cls, source: Ids, lengths: Ids, target: Ids, target_lengths: Ids, indices: Ids) -> Batch:
        """From padded sources (B, T) and padded targets (B, N - 1), the latter without BOS and EOS."""
        rows, width = target.shape
        target_in = np.full((rows, width + 1), PAD, np.int64)  # (B, N)
        target_in[:, 0] = BOS
        target_in[:, 1:] = target
        target_out = np.full((rows, width + 1), PAD, np.int64)  # (B, N)
        target_out[:, :-1] = target
        target_out[np.arange(rows), target_lengths] = EOS
        return cls(source, lengths, target_in, target_out, target_lengths + 1, indices)


class Ragged:
    """Many sequences of different lengths in one flat array, from which padded rows are gathered quickly."""

    def __init__(self, flat: Ids, lengths: Ids) -> None:
        self.lengths = lengths
        self._starts = np.cumsum(lengths) - lengths
        # Room for the last row to be read beyond its end; what is read there is replaced by PAD.
        self._flat = np.concatenate([flat, np.full(int(lengths.max(initial=0)), PAD, np.int64)])

    @classmethod
    def of(cls, sequences: Sequence[Ids]) -> Ragged:
        """From id sequences, each (n,)."""
        lengths = np.array([len(sequence) for sequence in sequences], np.int64)
        some = [np.asarray(ids) for ids in sequences if len(ids)]  # of an empty list the kind is not known
        return cls(np.concatenate([np.zeros(0, np.int64), *some], dtype=np.int64), lengths)

    @classmethod
    def encoded(cls, vocabulary: Vocabulary, sequences: Sequence[Tokens]) -> Ragged:
        """From sequences of symbols."""
        lengths = np.array([len(sequence) for sequence in sequences], np.int64)
        return cls(vocabulary.encode(token for sequence in sequences for token in sequence), lengths)

    def padded(self, rows: Ids) -> tuple[Ids, Ids]:
        """The sequences `rows` (B,), padded with PAD to the longest (B, T), and their lengths (B,)."""
        lengths = self.lengths[rows]
        steps = np.arange(lengths.max(initial=0))
        values = self._flat[self._starts[rows][:, None] + steps]  # (B, T)
        values[steps >= lengths[:, None]] = PAD
        return values, lengths


def pad(sequences: Sequence[Ids]) -> tuple[Ids, Ids]:
    """Id sequences, each (n,), padded with PAD to the longest (B, T), and their lengths (B,)."""
    return Ragged.of(sequences).padded(np.arange(len(sequences)))


def make_batch(pairs: Iterable[tuple[Ids, Ids]], indices: Ids | None = None) -> Batch:
    """The Batch of encoded (source, target) pairs, in their order; `indices` is 0, 1, ... unless given.

    Sources and targets are rows of content ids, and UNK. BOS and EOS are put around a target here; a source
    may hold them as any others. An empty target is fine.

    Raises:
        TypeError: for anything but pairs of rows of integers.
        ValueError: for no pairs, an empty source, an id of PAD or below, one of BOS or EOS in a target, or
            other than one index a pair.
    """
    pairs = list(pairs)
    if not pairs:
        raise ValueError("make_batch: no pairs, expected at least one")
    for number, pair in enumerate(pairs):
        if not hasattr(pair, "__len__") or len(pair) != 2:
            raise TypeError(f"make_batch: pair {number} is {pair!r}, expected (source, target)")
        for name, ids in zip(("source", "target"), pair, strict=True):
            if np.ndim(ids) != 1 or (len(ids) and np.asarray(ids).dtype.kind not in "iu"):
                raise TypeError(f"make_batch: the {name} of pair {number} is {ids!r}, expected a row of ids")
    source, lengths = pad([source for source, _ in pairs])
    if not lengths.all():
        raise ValueError(
            f"make_batch: the source of pair {int(lengths.argmin())} is empty, expected at least one id"
        )
    target, target_lengths = pad([target for _, target in pairs])
    _check_ids("source", source, lengths, PAD + 1)
    _check_ids("target", target, target_lengths, UNK)
    indices = np.arange(len(pairs)) if indices is None else np.asarray(indices)
    if indices.shape != (len(pairs),):
        raise ValueError(
            f"make_batch: indices have shape {indices.shape}, expected ({len(pairs)},), one a pair"
        )
    return Batch.from_padded(source, lengths, target, target_lengths, indices)


def _check_ids(name: str, rows: Ids, lengths: Ids, least: int) -> None:
    """Raises ValueError for an id below `least` within the lengths of padded rows (B, T)."""
    within = np.arange(rows.shape[1]) < lengths[:, None]
    wrong = np.argwhere(within & (rows < least))
    if len(wrong):
        row, place = wrong[0]
        number = rows[row, place]
        special = f", which is {SPECIAL_TOKENS[number]}" if number >= 0 else ""
        raise ValueError(
            f"make_batch: the {name} of pair {row} has id {number}{special}, expected ids from {least} on "
            f"({UNK + 1} is the first of a symbol)"
        )


@dataclass(frozen=True)
class Split:
    """A fixed set of different sources, each with all targets that count as right.

    Symbols are kept as they came, so that a target with a symbol that the vocabulary lacks is never taken for
    right because both sides became UNK.
    """

    name: str
    source_vocabulary: Vocabulary
    target_vocabulary: Vocabulary
    sources: tuple[Tokens, ...]
    references: tuple[tuple[Tokens, ...], ...]
    """For each source its different targets, at least one, in the order of the data."""

    def __len__(self) -> int:
        return len(self.sources)

    def __repr__(self) -> str:
        return f"Split({self.name!r}, {len(self)} sources)"

    def batches(self, batch_size: int) -> Iterator[Batch]:
        """Every source once with its first target, sorted by length (then target length, then place).

        `Batch.indices` are places in `sources` and `references`; the last batch may be smaller.
        """
        check_batch_size(batch_size)
        sources = Ragged.encoded(self.source_vocabulary, self.sources)
        targets = Ragged.encoded(self.target_vocabulary, [targets[0] for targets in self.references])
        order = np.lexsort((targets.lengths, sources.lengths))
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            yield Batch.from_padded(*sources.padded(rows), *targets.padded(rows), rows)


def check_batch_size(batch_size: int) -> None:
    """Raise ValueError unless a batch of `batch_size` has a row."""
    if batch_size < 1:
        raise ValueError(f"batch size {batch_size}, expected at least 1")
