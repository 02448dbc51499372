"""The progress bar: loss, tokens per second, time left."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_FORMAT = "{desc} {percentage:3.0f}%|{bar}| {elapsed}{postfix}"


class ProgressBar:
    """A bar on standard error over the budget, whether that is of steps or of time.

    Args:
        name: what stands before the bar.
        shown: whether to show it; None shows it on a terminal alone.
    """

    def __init__(self, name: str, shown: bool | None = None) -> None:
        from tqdm import tqdm

        self._bar: Any = tqdm(disable=True)
        with self._as_long_as_it_is_seen():
            shown = sys.stderr.isatty() if shown is None else shown
            self._bar = tqdm(
                desc=name,
                total=1.0,
                bar_format=_FORMAT,
                disable=not shown,
                dynamic_ncols=True,
                mininterval=0.2,
                leave=True,
            )
        self.note = ""

    def update(self, progress: float, seconds: float, step: int, loss: float, speed: float) -> None:
        """Show the state after a step: the share of the budget used, and the seconds that took."""
        if self._bar.disable:
            return
        left = seconds * (1 - progress) / progress if progress else 0.0
        parts = [f"step {step}", f"loss {loss:.4f}", f"{speed:,.0f} tokens/s", f"{_clock(left)} left"]
        if self.note:
            parts.insert(2, self.note)
        with self._as_long_as_it_is_seen():
            self._bar.set_postfix_str(", ".join(parts), refresh=False)
            self._bar.update(progress - self._bar.n)

    def close(self) -> None:
        """Leave the bar as it stands."""
        with self._as_long_as_it_is_seen():
            self._bar.close()

    @contextmanager
    def _as_long_as_it_is_seen(self) -> Iterator[None]:
        """Where standard error is gone, training goes on without the bar."""
        try:
            yield
        except (OSError, ValueError, AttributeError):  # broken, closed, or none at all
            self._bar.disable = True


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
