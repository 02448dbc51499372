"""Dividing sources into training, development and test parts by their text alone."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence

from tinygrad_attn.errors import DataError

PARTS = ("training", "development", "test")


def part_of(source: str) -> str:
    """The part of a source text by its SHA-256 modulo 1000: 0-99 test, 100-119 development, else training."""
    place = _sha256(source) % 1000
    return "test" if place < 100 else "development" if place < 120 else "training"


def divide(sources: Sequence[str], wanted: Iterable[str], name: str) -> tuple[list[str], str | None]:
    """The part of each of `sources`; the same text is always in one part.

    `wanted` are the parts beside training to be filled; sources of others stay in training. Where the usual
    rule leaves a part empty, all different sources are instead cut in the order of their SHA-256, and the
    note that comes back says so. DataError, naming the data `name`, if there are fewer different sources than
    parts.
    """
    wanted = list(wanted)
    parts = {source: part for source in dict.fromkeys(sources) if (part := part_of(source)) in wanted}
    counts = Counter(parts.values())
    note = None
    if not all(counts[part] for part in wanted) or len(parts) == len(set(sources)):
        different = sorted(set(sources), key=_sha256)
        if len(different) <= len(wanted):
            raise DataError(
                f"{name}: {len(different)} different sources, expected at least {len(wanted) + 1}, "
                f"one each for training and {' and '.join(wanted)}"
            )
        parts, start = {}, 0
        for part, share in (("test", 10), ("development", 50)):
            if part in wanted:
                end = start + max(1, len(different) // share)
                parts.update(dict.fromkeys(different[start:end], part))
                start = end
        sizes = ", ".join(f"{list(parts.values()).count(part)} for {part}" for part in wanted)
        note = (
            f"{name}: too few different sources ({len(different)}) for the usual parts, so they were cut in "
            f"the order of their SHA-256: {sizes}, {len(different) - len(parts)} for training"
        )
    return [parts.get(source, "training") for source in sources], note


def _sha256(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode("utf-8")).digest(), "big")
