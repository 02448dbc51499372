"""How right an output is: by token, by whole sequence, by edit distance."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import numpy as np

from tinygrad_attn.data import Vocabulary
from tinygrad_attn.tokens import BOS, EOS, PAD, UNK

Symbols = tuple[str | None, ...]
"""An output as it is compared with a reference; None is `<unk>`, which equals no symbol."""


def spelled(vocabulary: Vocabulary, ids: Iterable[int]) -> Symbols:
    """The symbols of one row of `ids` up to EOS or PAD; whatever stands after it is not looked at."""
    symbols: list[str | None] = []
    for number in ids:
        if number in (EOS, PAD):
            break
        if number != BOS:
            symbols.append(None if number == UNK else vocabulary.token(int(number)))
    return tuple(symbols)


def nearest_reference(
    output: Sequence[Hashable], references: Sequence[Sequence[Hashable]]
) -> tuple[int, int]:
    """(edit distance, length) of the reference nearest to `output`; of equally near ones, the longest."""
    if tuple(output) in {tuple(reference) for reference in references}:
        return 0, len(output)
    distance, length = min((edit_distance(output, reference), -len(reference)) for reference in references)
    return distance, -length


def edit_distance(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    """The fewest insertions, deletions and replacements that turn `a` into `b` (Levenshtein 1966)."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        corner, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            corner, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, corner + (x != y))
    return row[-1]


def right_tokens(predicted: np.ndarray, target: np.ndarray) -> int:
    """How many tokens are predicted right: both (B, N) ids; where the target is PAD nothing counts."""
    return int(np.count_nonzero((predicted == target) & (target != PAD)))
