"""Who shares the work on a batch: this process, and helpers beside it."""

from __future__ import annotations

from tinygrad_attn.engine.helper import POSSIBLE, Helper


class Workers:
    """`count` processes, this one included. The others are started when they are first needed."""

    def __init__(self, count: int) -> None:
        if count < 1:
            raise ValueError(f"workers: {count} given, expected at least 1")
        self.count = count
        self._helpers: dict[int, Helper] = {}

    def helper(self, number: int, program: str) -> Helper | None:
        """Worker `number`, from 1 on (0 is this process), which runs `program`; None where there can be
        none."""
        if POSSIBLE and number not in self._helpers:
            self._helpers[number] = Helper(program)
        return self._helpers.get(number)

    def close(self) -> None:
        """Ends the helpers."""
        for helper in self._helpers.values():
            helper.close()
        self._helpers.clear()
