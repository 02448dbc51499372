"""Who shares the work on a batch: this process, and helpers beside it."""

from __future__ import annotations

import operator

from tinygrad_attn.engine.helper import POSSIBLE, Helper


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

    def helper(self, number: int, program: str) -> Helper | None:
        """Worker `number`, from 1 on (0 is this process), which runs `program`; None where there can be
        none."""
        if POSSIBLE and number not in self._helpers:
            try:
                self._helpers[number] = Helper(program)
            except (OSError, MemoryError):  # no more processes, files or memory
                self._helpers[number] = None
        return self._helpers.get(number)

    def close(self) -> None:
        """Ends the helpers."""
        for helper in self._helpers.values():
            if helper is not None:
                helper.close()
        self._helpers.clear()
