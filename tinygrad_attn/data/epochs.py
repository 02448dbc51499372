"""Which training pairs make up the batch of each step."""

from __future__ import annotations

import numpy as np

from tinygrad_attn.data.batch import check_batch_size
from tinygrad_attn.data.vocabulary import Ids

_EPOCH_KEY = 4  # keeps these random numbers apart from those of the toy tasks


class Epochs:
    """Epoch after epoch over all pairs in batches of like lengths, a function of the seed and the step alone.

    An epoch takes every pair once. Within a batch all sources have one length, and target lengths are as near
    as the pairs allow; only where a source length has fewer pairs than a batch, neighbouring lengths share
    one. Which of the pairs of equal lengths meet in a batch, and the order of the batches, is drawn anew for
    each epoch.

    What is kept between calls is a cache: every call gives the same whatever was called before.
    """

    def __init__(self, source_lengths: Ids, target_lengths: Ids, seed: int) -> None:
        self._seed = seed
        self._key = source_lengths * (int(target_lengths.max()) + 1) + target_lengths
        _, self._counts = np.unique(source_lengths, return_counts=True)
        self._bounds: tuple[int, Ids] = (0, np.zeros(0, np.int64))
        self._plan: tuple[tuple[int, int], Ids, Ids] = ((-1, 0), np.zeros(0, np.int64), np.zeros(0, np.int64))

    def rows(self, step: int, batch_size: int) -> Ids:
        """The places (B,) of the pairs of step `step` (0, 1, ...); B is at most `batch_size`."""
        check_batch_size(batch_size)
        if step < 0:
            raise ValueError(f"training step {step}, expected 0 or more")
        bounds = self._batch_bounds(batch_size)
        epoch, place = divmod(step, len(bounds) - 1)
        order, batches = self._epoch(epoch, batch_size, len(bounds) - 1)
        batch = batches[place]
        return order[bounds[batch] : bounds[batch + 1]]

    def _batch_bounds(self, batch_size: int) -> Ids:
        """Where the batches begin and end (K + 1,) in a list of all pairs that is sorted by length."""
        if self._bounds[0] != batch_size:
            self._bounds = (batch_size, np.array(batch_bounds(self._counts.tolist(), batch_size), np.int64))
        return self._bounds[1]

    def _epoch(self, epoch: int, batch_size: int, batches: int) -> tuple[Ids, Ids]:
        """The pairs sorted by length, and shuffled within (n,), and the order of the batches (K,)."""
        if self._plan[0] != (epoch, batch_size):
            rng = np.random.default_rng([_EPOCH_KEY, self._seed, epoch])
            shuffled = rng.permutation(len(self._key))
            order = shuffled[np.argsort(self._key[shuffled], kind="stable")]
            self._plan = ((epoch, batch_size), order, rng.permutation(batches))
        return self._plan[1:]


def batch_bounds(counts: list[int], batch_size: int) -> list[int]:
    """Where batches begin and end, given how many pairs there are of each length in ascending order.

    Lengths are joined from short to long until there are enough for a batch (too few at the end join the
    last), and each group is cut into as few batches as possible, of equal size but for one pair.
    """
    groups: list[int] = []
    joined = 0
    for count in counts:
        joined += count
        if joined >= batch_size:
            groups.append(joined)
            joined = 0
    if joined and groups:
        groups[-1] += joined
    elif joined:
        groups = [joined]
    bounds = [0]
    for group in groups:
        start, batches = bounds[-1], -(-group // batch_size)
        bounds += [start + group * (number + 1) // batches for number in range(batches)]
    return bounds
