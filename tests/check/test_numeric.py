"""Derivatives of a function of one number."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tinygrad_attn.check.numeric import Slope, complex_slope, slope


def counted(function: Callable[[Any], Any]) -> tuple[Callable[[float], float], list[float]]:
    calls: list[float] = []

    def wrapped(s: float) -> float:
        calls.append(s)
        with np.errstate(all="ignore"):
            return float(function(np.float64(s)))

    return wrapped, calls


def found(function: Callable[[Any], Any], **settings: float) -> Slope:
    return slope(counted(function)[0], **settings)


SMOOTH = {
    "tanh": (lambda s: np.tanh(0.3 + s), 1 - np.tanh(0.3) ** 2),
    "exp": (lambda s: np.exp(5 + s), np.exp(5)),
    "fast": (lambda s: np.sin(100 * (s + 0.1)), 100 * np.cos(10)),
    "near a pole": (lambda s: np.log(1e-3 + s), 1e3),
    "very near a pole": (lambda s: np.log(1e-6 + s), 1e6),
    "kink nearby": (lambda s: np.maximum(s + 1e-4, 0), 1.0),
    "large constant": (lambda s: 1e3 + np.tanh(s), 1.0),
}


@pytest.mark.parametrize(("function", "right"), SMOOTH.values(), ids=SMOOTH)
def test_smooth(function: Any, right: float) -> None:
    result = found(function)
    assert abs(result.value - right) <= 1e-9 * abs(right)
    assert abs(result.value - right) <= 3 * result.error
    assert not result.kink and result.settled
    assert result.left == pytest.approx(right, rel=1e-3) == result.right


BESIDE_SOMETHING: dict[str, tuple[Any, float]] = {
    "relu": (lambda s: np.maximum(s + 1e-5, 0), 1.0),
    "relu below": (lambda s: np.maximum(s - 1e-9, 0), 0.0),
    "modulus": (lambda s: 3 + np.abs(s - 1e-7), -1.0),
    "a jump": (lambda s: s + (s > 1e-6), 1.0),
    "a length": (lambda s: np.sqrt((3e-5 + s) ** 2 + 1e-10), 3e-5 / np.sqrt(1e-9)),
    "a pole": (lambda s: 1 / (1e-5 + s) ** 2, -2e15),
    "a pole in front of a constant": (lambda s: 5 + 1e-6 / (1e-5 + s) ** 2, -2e9),
    "oscillations": (lambda s: np.sin(1e6 * (s + 1e-4)), 1e6 * np.cos(100)),
    "oscillations that large steps hide": (lambda s: np.sin(1e6 * (170 + 170 * s)), 1.7e8 * np.cos(1.7e8)),
    "an edge": (lambda s: 1 / (s + 1e-8), -1e16),
}


@pytest.mark.parametrize(("function", "right"), BESIDE_SOMETHING.values(), ids=BESIDE_SOMETHING)
def test_what_lies_beside_the_point_is_told_from_what_lies_in_it(function: Any, right: float) -> None:
    result = found(function, claim=right, target=1e-10 * abs(right))
    assert not result.kink and not result.jump
    assert abs(result.value - right) <= max(1e-6 * abs(right), 30 * result.error)
    assert not result.contradicts(right, 1e-6 * abs(right))
    other = found(function, claim=0.9 * right - 0.3, target=1e-10 * abs(right))
    assert not other.kink and other.contradicts(0.9 * right - 0.3, 1e-6 * abs(right))


def test_a_constant_contradicts_a_slope() -> None:
    result = found(np.sign, scale=0.1, claim=3.0)
    assert result.jump  # there, at zero
    result = found(lambda s: np.sign(0.3 + s), claim=3.0)
    assert result.contradicts(3.0, 1e-6) and not result.contradicts(0.0, 1e-6)


FLAT = {
    "constant": lambda s: 3.0,
    "cosine": np.cos,
    "fourth power": lambda s: s**4,
    "squared relu": lambda s: np.maximum(s, 0) ** 2,
}


@pytest.mark.parametrize("function", FLAT.values(), ids=FLAT)
def test_flat(function: Any) -> None:
    result = found(function, target=1e-9)
    assert abs(result.value) < 1e-8 and not result.kink


KINKS = {
    "relu": (lambda s: np.maximum(s, 0), 0.0, 1.0),
    "modulus": (np.abs, -1.0, 1.0),
    "slight": (lambda s: s if s > 0 else 0.999 * s, 0.999, 1.0),
    "on a slope": (lambda s: np.maximum(s, 0) + np.exp(3 * s), 3.0, 4.0),
}


@pytest.mark.parametrize(("function", "left", "right"), KINKS.values(), ids=KINKS)
def test_kinks(function: Any, left: float, right: float) -> None:
    result = found(function)
    assert result.kink
    assert result.left == pytest.approx(left, abs=1e-6) and result.right == pytest.approx(right, abs=1e-6)
    assert result.contradicts(left - 0.1, 0.0) and not result.contradicts((left + right) / 2, 0.0)


def test_an_edge_of_the_domain() -> None:
    result = found(np.sqrt)
    assert math.isnan(result.value) and not result.settled and not result.contradicts(5.0, 0.0)


@pytest.mark.parametrize("middle", [0.0, 1.0, 0.3])
def test_a_jump_has_no_slope_but_one_on_each_side(middle: float) -> None:
    result = found(lambda s: middle if s == 0 else 3 * s + 1 if s > 0 else 2 * np.sin(s))
    assert result.jump and not result.kink and not result.settled and not result.contradicts(5.0, 0.0)
    assert result.left == pytest.approx(2, rel=1e-3) and result.right == pytest.approx(3, rel=1e-3)


def test_it_stops_when_it_is_exact_enough() -> None:
    function, calls = counted(lambda s: np.tanh(0.3 + s))
    assert abs(slope(function, target=1e-9).value - (1 - np.tanh(0.3) ** 2)) < 1e-9
    assert len(calls) <= 11
    function, calls = counted(lambda s: 3.0)
    slope(function)
    assert len(calls) <= 60


def test_rounding_is_no_kink() -> None:
    """A loss of 1e-13 is made of differences of ones; its steps look like corners."""
    assert not found(lambda s: np.log1p(np.exp(-30.0 - s)) + 1.0 - 1.0).kink


def test_complex_slope() -> None:
    assert complex_slope(lambda s: np.exp(1 + s)) == pytest.approx(np.e, rel=1e-15)
    assert complex_slope(lambda s: 3.0) == 0.0


@pytest.mark.parametrize("distance", [1e-12, 1e-13, 3e-14, 1e-15])
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_a_kink_too_near_to_be_told_from_one_in_the_point(distance: float, scale: float) -> None:
    for side, right in ((1, 1.0), (-1, 0.1)):
        result = found(
            lambda s, at=side * distance: np.maximum(s + at, 0) + 0.1 * np.minimum(s + at, 0),
            claim=right,
            scale=scale,
        )
        assert math.isfinite(result.value) or result.kink
        assert not result.contradicts(right, 1e-6) and result.contradicts(right + 1, 1e-6)
