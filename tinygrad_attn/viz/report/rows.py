"""What the lines of `metrics.jsonl` and `snapshots.jsonl` hold, checked before anything is made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tinygrad_attn.viz.token_names import shortened


@dataclass(frozen=True)
class _Kind:
    name: str
    fits: Callable[[Any], bool]


def _number(most: float) -> Callable[[Any], bool]:
    return lambda value: type(value) in (int, float) and 0 <= value <= most


_COUNT = _Kind("an integer of at least 0", lambda value: type(value) is int and 0 <= value <= 10**15)
_AMOUNT = _Kind("a number of at least 0", _number(1e300))
_SHARE = _Kind("a number from 0 to 1", _number(1))
_TRUTH = _Kind("true or false", lambda value: type(value) is bool)

_EVALUATION = {
    "sequences": _COUNT,
    "tokens": _COUNT,
    "loss": _AMOUNT,
    "token_accuracy": _SHARE,
    "exact_match": _SHARE,
    "token_error_rate": _AMOUNT,
    "alignment_weight": _SHARE,
    "alignment_accuracy": _SHARE,
}
_FIGURES: dict[str, dict[str, _Kind]] = {
    "train": {
        "loss": _AMOUNT,
        "gradient_norm": _AMOUNT,
        "tokens": _COUNT,
        "tokens_per_second": _AMOUNT,
        "lr": _AMOUNT,
        "seconds": _AMOUNT,
    },
    "evaluation": {**_EVALUATION, "best": _TRUTH, "seconds": _AMOUNT},
    "test": {**_EVALUATION, "best_step": _COUNT, "train_seconds": _AMOUNT, "test_seconds": _AMOUNT},
}
"""The figures of each event. A row may lack some; what is told of the test may not."""
_TOLD = ("sequences", "exact_match", "token_error_rate", "train_seconds")

_EVENT = _Kind("text", lambda value: type(value) is str)
_FLOWS = _Kind("a list of objects", lambda value: type(value) is list and all(type(x) is dict for x in value))


def check_metrics(row: Mapping[str, Any]) -> None:
    """ValueError, saying what is wrong, if `row` is none of `metrics.jsonl`. Rows of other events may be
    there, and other figures."""
    _check(row, {"event": _EVENT, "step": _COUNT}, needed=("event", "step"))
    event = row["event"]
    _check(row, _FIGURES.get(event, {}), needed=_TOLD if event == "test" else ())


def check_snapshot(row: Mapping[str, Any]) -> None:
    """ValueError, saying what is wrong, if `row` is none of `snapshots.jsonl`; flows are looked at no deeper,
    as the page says itself which it cannot draw."""
    _check(row, {"step": _COUNT, "flows": _FLOWS}, needed=("step", "flows"))


def _check(row: Mapping[str, Any], kinds: Mapping[str, _Kind], needed: tuple[str, ...]) -> None:
    for key in needed:
        if key not in row:
            raise ValueError(f"without {key}")
    for key, kind in kinds.items():
        if key in row and not kind.fits(row[key]):
            raise ValueError(f"{key} is {shortened(repr(row[key]), 40)}, expected {kind.name}")
