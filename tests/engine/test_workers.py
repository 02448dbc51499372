"""Who shares the work: helpers that are started when they are needed, or none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tinygrad_attn.engine import workers as module
from tinygrad_attn.engine.workers import RESTS, Pace, Workers


class Noted:
    """In place of a process."""

    made: list[Noted]

    def __init__(self, program: str) -> None:
        self.program, self.closed = program, False
        self.made.append(self)

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> list[Noted]:
    Noted.made = []
    monkeypatch.setattr(module, "Helper", Noted)
    monkeypatch.setattr(module, "POSSIBLE", True)
    return Noted.made


def test_helpers_are_started_when_they_are_needed(made: list[Noted]) -> None:
    workers = Workers(3)
    assert workers.count == 3 and not made
    assert workers.helper(1, "a.program") is workers.helper(1, "a.program") is made[0]
    assert workers.helper(2, "a.program") is made[1]
    assert [helper.program for helper in made] == ["a.program", "a.program"]
    workers.close()
    assert all(helper.closed for helper in made)
    workers.close()


@pytest.mark.parametrize("error", [BlockingIOError, FileNotFoundError, MemoryError])
def test_where_none_can_be_started(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    tried = []

    def refuse(program: str) -> Any:
        tried.append(program)
        raise error

    monkeypatch.setattr(module, "Helper", refuse)
    workers = Workers(2)
    assert workers.helper(1, "a.program") is None
    assert workers.helper(1, "a.program") is None
    assert tried == ["a.program"]
    workers.close()


def test_a_system_without_them(monkeypatch: pytest.MonkeyPatch, made: list[Noted]) -> None:
    monkeypatch.setattr(module, "POSSIBLE", False)
    assert Workers(2).helper(1, "a.program") is None and not made


def test_none_are_started_after_the_end(made: list[Noted]) -> None:
    """As where blocks of coroutines overlap, and one finds again what another has ended."""
    workers = Workers(2)
    workers.close()
    assert workers.helper(1, "program") is None and not made


def test_the_count() -> None:
    assert Workers(np.int64(2)).count == 2
    for wrong in (0, -1):
        with pytest.raises(ValueError, match=f"workers: {wrong} given, expected at least 1"):
            Workers(wrong)
    for kind in (2.5, "2", None):
        with pytest.raises(TypeError, match=f"workers: {kind!r} given, expected an integer"):
            Workers(kind)


def asked(pace: Pace, turns: int, *, with_help: float, without: float = 1.0) -> int:
    """In how many turns the helpers are asked, if they take so long, a forward and a backward pass each."""
    count = 0
    for _ in range(turns):
        helped = pace.helps()
        count += helped
        for _ in range(2):
            pace.note(with_help if helped else without, helped=helped)
    return count


def test_helpers_that_pay_are_always_asked() -> None:
    assert asked(Pace(), 1000, with_help=0.8) == 1000


def test_helpers_that_are_waited_for_are_left_alone_but_for_a_try_now_and_then() -> None:
    pace = Pace()
    assert asked(pace, 9, with_help=1.5) < 5
    asked(pace, 500, with_help=1.5)
    assert 1 <= asked(pace, 10 * RESTS[1], with_help=1.5) <= 11
    # The machine is free again: from the next try on they are asked as ever.
    asked(pace, RESTS[1], with_help=0.6)
    assert asked(pace, 100, with_help=0.6) == 100


def test_helpers_are_asked_where_all_takes_long_but_less_with_them() -> None:
    """On a machine with much other work each process gets little, and two get twice as much."""
    pace = Pace()
    asked(pace, 50, with_help=1.4, without=2.0)
    assert asked(pace, 1000, with_help=1.4, without=2.0) > 750


def test_one_slow_turn_does_not_tell() -> None:
    pace = Pace()
    assert asked(pace, 2, with_help=5.0) == 2  # while all is new
    assert asked(pace, 10, with_help=0.6) == 10
    pace.note(1.5, helped=True)
    assert asked(pace, 10, with_help=0.6) == 10
