"""Which part of a task a sequence belongs to: training, development or test.

Each sequence belongs to one part by a keyed hash of itself, so that nothing has to be stored, and a training
stream that never ends can be kept clear of the other two.
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

from tinygrad_attn.data.vocabulary import FIRST_CONTENT_ID, Ids

Hashes = npt.NDArray[np.uint64]

TEST_SHARE, DEVELOPMENT_SHARE = 10, 20
"""One in ten sequences of a length may be tested on, one in twenty belongs to development."""
ENUMERATED = 20_000
"""Up to this many sequences of one length the shares are exact; beyond, they hold up to chance."""

_HASH_KEY, _SET_KEY = 1, 2  # keep the random numbers for one use apart from those for another
_WORD = 2**64


class Membership:
    """The parts of all sequences of `symbols` content ids with `min_length` to `max_length` of them.

    Of each length, one sequence in ten is for testing and one in twenty for development, but at least one
    each, if there are three; training has all the others, so it has sequences of every length.
    """

    def __init__(self, symbols: int, min_length: int, max_length: int, seed: int) -> None:
        self.symbols, self.min_length, self.max_length, self._seed = symbols, min_length, max_length, seed
        words = np.random.SeedSequence([_HASH_KEY, seed]).generate_state(max_length + 1, np.uint64)
        self._offset, self._factors = words[:1], words[1:] | np.uint64(1)
        # A sequence of length n is for testing if its hash is below _tested[n], else for development if its
        # hash is below _held[n].
        self._tested = np.zeros(max_length + 1, np.uint64)
        self._held = np.zeros(max_length + 1, np.uint64)
        for length in range(min_length, max_length + 1):
            self._tested[length], self._held[length] = self._limits(length)

    def held_out(self, rows: Ids, lengths: Ids) -> npt.NDArray[np.bool_]:
        """Whether each of `rows` (B, T), content ids padded with PAD, is for development or testing (B,)."""
        held: npt.NDArray[np.bool_] = self._hash(rows) < self._held[lengths]
        return held

    def sets(self, development: int, test: int) -> tuple[list[Ids], list[Ids]]:
        """That many different sequences for development and for testing, or fewer where there are fewer.

        Lengths come as evenly as there are sequences of each, in mixed order. Each sequence is an array (n,).
        """
        lengths = range(self.min_length, self.max_length + 1)
        shares = [self._shares(length) for length in lengths]
        # Of a length with too many sequences to list there are always as many as could be asked for.
        quotas = zip(
            even_quotas([development if share is None else share[1] for share in shares], development),
            even_quotas([test if share is None else share[0] for share in shares], test),
            strict=True,
        )
        found = [self._find(length, *quota) for length, quota in zip(lengths, quotas, strict=True)]
        rng = np.random.default_rng([_SET_KEY, self._seed])
        parts = [[row for rows in part for row in rows] for part in zip(*found, strict=True)]
        mixed = [[part[place] for place in rng.permutation(len(part))] for part in parts]
        return mixed[0], mixed[1]

    def _hash(self, rows: Ids) -> Hashes:
        """A keyed hash (B,) of `rows` (B, T); PAD, which is 0, adds nothing.

        A linear form with random odd factors modulo 2**64 (multilinear hashing), finished by the bit mixing
        of SplitMix64 (Steele, Lea and Flood 2014, Fast Splittable Pseudorandom Number Generators).
        """
        h: Hashes = rows.astype(np.uint64) @ self._factors[: rows.shape[1]]
        h += self._offset
        h ^= h >> np.uint64(30)
        h *= np.uint64(0xBF58476D1CE4E5B9)
        h ^= h >> np.uint64(27)
        h *= np.uint64(0x94D049BB133111EB)
        h ^= h >> np.uint64(31)
        return h

    def _shares(self, length: int) -> tuple[int, int] | None:
        """How many sequences of one length are for testing and for development; None if too many to list."""
        count = self.symbols**length
        if count > ENUMERATED:
            return None
        at_least = 1 if count >= 3 else 0
        return max(count // TEST_SHARE, at_least), max(count // DEVELOPMENT_SHARE, at_least)

    def _limits(self, length: int) -> tuple[int, int]:
        """The hashes that end the test part and the development part of one length."""
        shares = self._shares(length)
        if shares is None:
            return _WORD // TEST_SHARE, _WORD // TEST_SHARE + _WORD // DEVELOPMENT_SHARE
        ranked = np.sort(self._hash(self._all(length)))
        return int(ranked[shares[0]]), int(ranked[sum(shares)])

    def _all(self, length: int) -> Ids:
        """All sequences of one length (symbols ** length, length)."""
        content = range(FIRST_CONTENT_ID, FIRST_CONTENT_ID + self.symbols)
        return np.array(list(itertools.product(content, repeat=length)), np.int64)

    def _find(self, length: int, development: int, test: int) -> tuple[Ids, Ids]:
        """That many different sequences of one length for development and for testing, in random order."""
        rng = np.random.default_rng([_SET_KEY, self._seed, length])
        if self._shares(length) is not None:
            rows = rng.permutation(self._all(length))
        else:
            rows = np.zeros((0, length), np.int64)
        while True:
            hashes = self._hash(rows)
            tested = hashes < self._tested[length]
            parts = rows[(hashes < self._held[length]) & ~tested], rows[tested]
            if len(parts[0]) >= development and len(parts[1]) >= test:
                return parts[0][:development], parts[1][:test]
            count = 32 * (development + test)  # should hold the wanted ones: one in 10 and one in 20
            drawn = rng.integers(FIRST_CONTENT_ID, FIRST_CONTENT_ID + self.symbols, (count, length))
            drawn = np.concatenate([rows, drawn[self._hash(drawn) < self._held[length]]])
            _, first = np.unique(self._hash(drawn), return_index=True)
            rows = drawn[np.sort(first)]  # each once, in the order drawn


def even_quotas(available: list[int], total: int) -> list[int]:
    """How many to take of each kind, as evenly as `available` allows, `total` in all or all there are."""
    quotas = [0] * len(available)
    remaining, kinds = total, list(range(len(available)))
    while short := [kind for kind in kinds if available[kind] * len(kinds) <= remaining]:
        for kind in short:  # fewer than an even share: all of them
            quotas[kind] = available[kind]
            remaining -= available[kind]
        kinds = [kind for kind in kinds if kind not in short]
    for place, kind in enumerate(kinds):  # what does not divide evenly is spread over the kinds
        quotas[kind] = remaining * (place + 1) // len(kinds) - remaining * place // len(kinds)
    return quotas
