"""Errors that a user can mend. The command line reports them in one line and exits with code 2.

Wrong calls from Python raise the built-in ValueError, TypeError or IndexError where those say it best.
"""

from __future__ import annotations

from typing import Any


class UserError(Exception):
    """Wrong use or wrong input; the message says what came and what was expected."""


class DataError(UserError, ValueError):
    """Data, a vocabulary or a description of a data set that cannot be used as it is."""


class CheckpointError(UserError, ValueError):
    """A checkpoint or run folder that is damaged, incomplete or not ours."""


def check_number(what: str, value: Any) -> None:
    """Raises TypeError for what is no number."""
    if not hasattr(value, "__float__"):
        raise TypeError(f"{what} is {value!r}, expected a number")
