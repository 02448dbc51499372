"""What the data sets ask of their settings."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad_attn.errors import DataError


def integer(name: str, value: Any, least: int, most: int | None = None) -> int:
    """`value` as an int; DataError if it is no integer, or not from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise DataError(f"{name} is {value!r}, expected an integer of at least {least}")
    if most is not None and value > most:
        raise DataError(f"{name} is above {most}, the most that it may be")
    return int(value)
