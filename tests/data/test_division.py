"""Sources to training, development and test."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygrad_attn.data.division import PARTS, divide, part_of
from tinygrad_attn.errors import DataError

BOTH = ("development", "test")


@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_the_usual_rule(source: str) -> None:
    place = int(hashlib.sha256(source.encode()).hexdigest(), 16) % 1000
    expected = "test" if place < 100 else "development" if place < 120 else "training"
    assert part_of(source) == expected


def test_many_sources_follow_the_rule_and_keep_together() -> None:
    sources = [f"word {number // 2}" for number in range(2000)]
    parts, note = divide(sources, BOTH, "here")
    assert note is None
    assert parts == [part_of(source) for source in sources]
    assert parts[::2] == parts[1::2]
    assert set(parts) == set(PARTS)


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=60), st.sampled_from([(), *[(p,) for p in BOTH], BOTH])
)
def test_every_part_gets_a_source_and_no_source_is_parted(
    numbers: list[int], wanted: tuple[str, ...]
) -> None:
    sources = [f"{number}" for number in numbers]
    if len(set(sources)) <= len(wanted):
        with pytest.raises(
            DataError, match=rf"here: \d different sources, expected at least {len(wanted) + 1}"
        ):
            divide(sources, wanted, "here")
        return
    parts, note = divide(sources, wanted, "here")
    assert len(parts) == len(sources)
    assert set(parts) == {"training", *wanted}
    assert len(set(zip(sources, parts, strict=True))) == len(set(sources))
    turned, _ = divide(sources[::-1], wanted, "here")
    assert turned == parts[::-1]  # nothing hangs on the order
    if note is None:
        usual = [part_of(source) for source in sources]
        assert parts == [part if part in wanted else "training" for part in usual]
    else:
        assert f"({len(set(sources))})" in note


def test_small_data_are_cut_and_the_note_tells_the_sizes() -> None:
    sources = [f"{number}" for number in range(20)]
    parts, note = divide(sources, BOTH, "here")
    assert Counter(parts) == {"training": 17, "test": 2, "development": 1}
    assert note == (
        "here: too few different sources (20) for the usual parts, so they were cut in the order of their "
        "SHA-256: 1 for development, 2 for test, 17 for training"
    )


def test_training_is_never_left_empty() -> None:
    only_test = [source for source in map(str, range(100)) if part_of(source) == "test"][:3]
    parts, note = divide(only_test, ["test"], "here")
    assert Counter(parts) == {"training": 2, "test": 1} and note is not None
