"""What a beam search remembers: scores, where each candidate came from, and the best that has ended.

Plain arrays, and nothing of the model. Reordering candidates moves no words and no weights: each step keeps
its own, with the candidate that each one continues, and the best are traced back at the end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tinygrad_attn.engine import matrix_product
from tinygrad_attn.tokens import BOS, EOS, PAD

LEFT_BEFORE_CLEARING = 0.25
"""The share of the sentences that must be done before these leave the arrays, which copies the others."""


class _Taken(NamedTuple):
    """A step that was taken: the n sentences it was taken for, K candidates each."""

    sentences: np.ndarray  # (n,)
    words: np.ndarray  # (n, K): the step's word
    parents: np.ndarray  # (n, K): the candidate before the step that it continues
    weights: np.ndarray  # (n, candidates before the step, T): α


class Going(NamedTuple):
    """The candidates that go on, those of a sentence beside each other, the best first."""

    words: np.ndarray  # (n · K,)
    rows: np.ndarray  # (n · K,): the rows, of the step just taken, that they continue
    kept: np.ndarray | None  # (n,): which of the step's sentences are left; None for all


class Beams:
    """The candidates of a batch of sentences: one each at first, without words, then `size`.

    Args:
        batch: B, how many sentences.
        size: K, how many candidates of a sentence go on.
        max_length: how many words a sequence has at most.
        penalty: a sequence is worth log-probability / length^penalty.
    """

    def __init__(self, batch: int, size: int, max_length: int, penalty: float) -> None:
        self.total = np.full(batch, -np.inf)  # log-probability of the best that has ended
        self._worth = np.full(batch, -np.inf)
        self._ended = np.zeros(batch, int)  # how many have
        self._last = np.full((3, batch), -1)  # of the best: its last step, last word, and what that continues
        self._size, self._max_length, self._penalty = size, max_length, penalty
        self._sentences = np.arange(batch)  # those in the arrays
        self._score = np.zeros((batch, 1))  # of each candidate; -inf for those of a sentence that is done
        self._steps: list[_Taken] = []

    def advance(self, logits: np.ndarray, weights: np.ndarray) -> Going | None:
        """Takes the step that the decoder's logits and weights, a row for each candidate, are of.

        Returns what goes on, or None if nothing does: the search is over.
        """
        x, log_z = normalised(logits)
        count, before = self._score.shape
        vocabulary = x.shape[1]
        totals = (
            x.reshape(count, before, vocabulary) + (self._score - log_z.reshape(count, before))[..., None]
        )
        ends = totals[..., EOS].copy()
        totals[..., EOS] = -np.inf
        score, at = largest(totals.reshape(count, before * vocabulary), self._size)
        parents, words = np.divmod(at, vocabulary)
        self._steps.append(
            _Taken(self._sentences, words, parents, weights.reshape(count, before, weights.shape[1]))
        )
        self._set_aside(ends, np.arange(before) * vocabulary + EOS, score, at)
        going = self._may_improve(score[:, 0])
        if len(self._steps) == self._max_length:
            cut = np.flatnonzero(going)
            self._offer(cut, score[cut, 0], words[cut, 0], parents[cut, 0], 1)
            return None
        if not going.any():
            return None
        rows, kept = np.arange(count)[:, None] * before + parents, None
        if np.count_nonzero(~going) < LEFT_BEFORE_CLEARING * count:
            score[~going] = -np.inf
        else:
            kept = np.flatnonzero(going)
            score, words, rows = score[kept], words[kept], rows[kept]
            self._sentences = self._sentences[kept]
        self._score = score
        return Going(words.reshape(-1), rows.reshape(-1), kept)

    def traced(self, length: int) -> tuple[np.ndarray, np.ndarray]:
        """The best sequences' words (B, L), PAD after the end, and their weights (B, L, `length`)."""
        batch = len(self.total)
        last, word, parent = self._last
        longest = int(last.max(initial=-1)) + 1
        tokens = np.full((batch, longest), PAD, np.int64)
        weights = np.zeros((batch, longest, length), self._steps[0].weights.dtype if self._steps else float)
        place = np.empty(batch, int)
        beam = np.empty(batch, int)
        for i in reversed(range(longest)):
            step = self._steps[i]
            place[step.sentences] = np.arange(len(step.sentences))
            inside, end = np.flatnonzero(last > i), np.flatnonzero(last == i)
            tokens[inside, i] = step.words[place[inside], beam[inside]]
            beam[inside] = step.parents[place[inside], beam[inside]]
            tokens[end, i] = word[end]
            beam[end] = parent[end]
            rows = np.flatnonzero(last >= i)
            weights[rows, i] = step.weights[place[rows], beam[rows]]
        return tokens, weights

    def _set_aside(self, ends: np.ndarray, ends_at: np.ndarray, score: np.ndarray, at: np.ndarray) -> None:
        """Offers the candidates that end with EOS, scored `ends` (n, before), if they are among the K best.

        Those that go on are scored `score` (n, K), best first. Of equal ones the first in the order of
        (candidate, word) is the better: `at` and `ends_at`.
        """
        rows = np.flatnonzero((ends.max(axis=1) >= score[:, -1]) & np.isfinite(ends).any(axis=1))
        if not len(rows):
            return
        ends = ends[rows]
        scores = np.concatenate([score[rows], ends], axis=1)[:, None]  # (m, 1, K + before)
        places = np.concatenate([at[rows], np.broadcast_to(ends_at, ends.shape)], axis=1)[:, None]
        mine, mine_at = ends[..., None], ends_at[:, None]
        better = (scores > mine) | ((scores == mine) & (places < mine_at))
        ended = (np.count_nonzero(better, axis=2) < self._size) & np.isfinite(ends)
        number, best = np.count_nonzero(ended, axis=1), np.where(ended, ends, -np.inf).argmax(axis=1)
        some = np.flatnonzero(number)
        rows, best = rows[some], best[some]
        self._offer(rows, ends[some, best], EOS, best, number[some])

    def _offer(
        self,
        rows: np.ndarray,
        total: np.ndarray,
        word: np.ndarray | int,
        parent: np.ndarray,
        number: np.ndarray | int,
    ) -> None:
        """The best of the `number` candidates of each row that end with this step, all of one length."""
        sentences, length = self._sentences[rows], len(self._steps)
        self._ended[sentences] += number
        worth = total / length**self._penalty
        better = worth > self._worth[sentences]
        word = np.broadcast_to(word, better.shape)
        sentences = sentences[better]
        self._worth[sentences], self.total[sentences] = worth[better], total[better]
        self._last[0, sentences] = length - 1
        self._last[1, sentences] = word[better]
        self._last[2, sentences] = parent[better]

    def _may_improve(self, best_open: np.ndarray) -> np.ndarray:
        """Whether an open candidate of each sentence could still win, with the best that is open.

        Without a penalty that is sure, as probabilities only fall.
        """
        improves: np.ndarray = (
            best_open > self.total[self._sentences]
            if self._penalty == 0
            else self._ended[self._sentences] < self._size
        )
        improves &= np.isfinite(best_open)
        return improves


def normalised(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The logits (rows, vocabulary) with PAD and BOS impossible, and log Σ exp of each row, in float64."""
    x = logits.copy()
    x[:, PAD] = x[:, BOS] = -np.inf
    # numpy's max and sum along short rows take several times as long as argmax and a product.
    most = x[np.arange(len(x)), x.argmax(axis=1)]
    if not (np.isfinite(most).all() and np.max(logits, initial=-np.inf) < np.inf):
        raise FloatingPointError(
            "the decoder's logits hold NaN or infinity, so no word is the likeliest; look at the weights"
        )
    shifted = x - most[:, None]
    np.exp(shifted, out=shifted)
    total = matrix_product(shifted, np.ones(x.shape[1], x.dtype)).astype(np.float64)
    return x, np.log(total) + most


def largest(x: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The `count` largest of each row and where they stand; of equal ones the first.

    `x` is contiguous, and overwritten.

    As many passes as numbers wanted: for the few of a beam that is quicker than to sort or to partition,
    which settle no ties either.
    """
    values, places = np.empty((count, len(x)), x.dtype), np.empty((count, len(x)), np.intp)
    flat, first = x.reshape(-1), np.arange(len(x)) * x.shape[1]
    for value, place in zip(values, places, strict=True):
        x.argmax(axis=1, out=place)
        at = first + place
        flat.take(at, out=value, mode="clip")  # which is quicker than the mode that checks
        flat[at] = -np.inf
    return values.T, places.T
