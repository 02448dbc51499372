"""Who shares the work on a batch: this process, and helpers beside it."""

from __future__ import annotations

import operator

from tinygrad_attn.engine.helper import POSSIBLE, Helper

SMOOTHING = 0.3
"""How much the last turn counts, beside what was known before."""

FADING = 0.003
"""How much of what was known of turns without helpers is forgotten with each turn with them."""

WORTHWHILE = 0.95
"""Help does not pay beyond this share of the time that a turn takes without it."""

COLD = 4
"""Notes of turns with helpers that do not count: at first these load and make what later serves again."""

RESTS = 8, 128
"""For how many turns helpers are left alone when they do not pay: the first time, and at most."""


class Pace:
    """Whether it pays to ask helpers, judged by how long turns took of late, with them and without.

    On a busy machine each process gets a part of a processor, and all wait for the last. Times are in
    multiples of what the processor would need for the turn's work, all of it in this process.
    """

    def __init__(self) -> None:
        self._with, self._without = 0.5, 1.0
        self._cold = COLD
        self._turns = 0  # left to do without helpers
        self._rest = RESTS[0]

    def helps(self) -> bool:
        """Whether to ask the helpers this turn."""
        self._turns = max(0, self._turns - 1)
        return not self._turns

    def note(self, time: float, *, helped: bool) -> None:
        """How long a turn took, or a part of it."""
        if not helped:
            self._without += SMOOTHING * (time - self._without)
        elif self._cold:
            self._cold -= 1
        elif not self._turns:  # else the turn is judged already
            self._with += SMOOTHING * (time - self._with)
            self._without += FADING * (1 - self._without)
            if self._with < WORTHWHILE * self._without:
                self._rest = max(RESTS[0], self._rest - 1)
                return
            self._turns, self._rest = self._rest, min(2 * self._rest, RESTS[1])
            self._with = WORTHWHILE * self._without  # so that one turn tells whether they still do not pay


class Workers:
    """`count` processes, this one included. The others are started when they are first needed.

    Raises:
        TypeError: if `count` is no integer.
        ValueError: if it is below 1.
    """

    def __init__(self, count: int) -> None:
        try:
            self.count = operator.index(count)
        except TypeError:
            raise TypeError(f"workers: {count!r} given, expected an integer") from None
        if self.count < 1:
            raise ValueError(f"workers: {count} given, expected at least 1")
        self._helpers: dict[int, Helper | None] = {}
        self._closed = False
        self.pace = Pace()

    def helper(self, number: int, program: str) -> Helper | None:
        """Worker `number`, from 1 on (0 is this process), which runs `program`; None where there can be
        none."""
        if POSSIBLE and not self._closed and number not in self._helpers:
            try:
                self._helpers[number] = Helper(program)
            except (OSError, MemoryError):  # no more processes, files or memory
                self._helpers[number] = None
        return self._helpers.get(number)

    def close(self) -> None:
        """Ends the helpers; there will be no others."""
        self._closed = True
        for helper in self._helpers.values():
            if helper is not None:
                helper.close()
        self._helpers.clear()
