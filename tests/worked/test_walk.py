"""The examples worked by hand: against plain formulas, and against each other."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn.worked import NUMBERS, RUNNING, SCORES, VECTOR, Example, ExampleError, number, walk
from tinygrad_attn.worked.text import text

OTHER = Example(
    h=((0.3, -1.2, 0.5), (1.1, 0.4, -0.7)),
    s=((0.8, -0.5), (-1.0, 0.25)),
    targets=(3, 1),
    W_a=((0.5, -1.0), (2.0, 0.3)),
    U_a=((1.0, 0.2, -0.4), (-0.6, 0.9, 0.1)),
    v_a=(1.5, -0.7),
)
GENERAL = replace(OTHER, score="general", W_a=((0.5, -1.0, 0.1), (2.0, 0.3, -0.2)), U_a=None, v_a=None)
EXAMPLES = {
    **{f"running {score}": replace(RUNNING, score=score) for score in SCORES},
    **{f"vector {score}": replace(VECTOR, score=score) for score in SCORES},
    "own weights": OTHER,
    "own general weights": GENERAL,
}
every = pytest.mark.parametrize("name", EXAMPLES)


def loss_by_hand(example: Example, h: np.ndarray, v: np.ndarray, s: np.ndarray, i: int) -> float:
    """The loss of step `i` with `h` as keys and `v` as values, in plain numpy."""
    w = example.weights()
    if example.score == "additive":
        e = np.tanh(w["W_a"] @ s + h @ w["U_a"].T) @ w["v_a"]
    elif example.score == "general":
        e = h @ (w["W_a"].T @ s)
    else:
        e = h @ s / (np.sqrt(len(s)) if example.score == "scaled" else 1)
    c = np.exp(e) / np.exp(e).sum() @ v
    logits = np.append(c, 0.0) if len(c) == 1 else c
    return float(np.log(np.exp(logits).sum()) - logits[example.targets[i] - 1])


def slope(function: Any, x: np.ndarray) -> np.ndarray:
    """The gradient by central differences."""
    found = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[place] = 1e-6
        found[place] = (function(x + step) - function(x - step)) / 2e-6
    return found


@every
def test_every_gradient_is_what_plain_numpy_says(name: str) -> None:
    example = EXAMPLES[name]
    found, h = walk(example), np.array(example.h)
    for i, step in enumerate(found.steps):
        assert step.loss == pytest.approx(loss_by_hand(example, h, h, step.s, i), rel=1e-12)
        for gradient, numeric in (
            (step.d_s, slope(lambda s, i=i: loss_by_hand(example, h, h, s, i), step.s)),
            (step.d_h_key, slope(lambda k, i=i, s=step.s: loss_by_hand(example, k, h, s, i), h)),
            (step.d_h_value, slope(lambda v, i=i, s=step.s: loss_by_hand(example, h, v, s, i), h)),
        ):
            np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-9)
    assert found.loss == pytest.approx(sum(step.loss for step in found.steps), rel=1e-14)


@every
def test_the_steps_of_the_chain_rule_hold(name: str) -> None:
    """What the text puts in gives what it shows as the result."""
    example = EXAMPLES[name]
    found, h = walk(example), np.array(example.h)
    for step in found.steps:
        np.testing.assert_allclose(step.alpha, step.exp_e / step.exp_e.sum(), rtol=1e-14)
        np.testing.assert_allclose(step.d_logits, step.p - np.eye(len(step.p))[step.target - 1], rtol=1e-13)
        np.testing.assert_allclose(step.d_c, step.d_logits[: len(step.c)], rtol=1e-13)
        np.testing.assert_allclose(step.d_alpha, h @ step.d_c, rtol=1e-12)
        inner = step.d_alpha - step.alpha @ step.d_alpha
        np.testing.assert_allclose(step.d_e, step.alpha * inner, rtol=1e-10, atol=1e-15)
        np.testing.assert_allclose(step.d_s, step.d_e @ step.slope_s, rtol=1e-10, atol=1e-15)
        np.testing.assert_allclose(step.d_h_value, np.outer(step.alpha, step.d_c), rtol=1e-12)
        np.testing.assert_allclose(step.d_h_key, step.d_e[:, None] * step.slope_h, rtol=1e-10, atol=1e-15)
        np.testing.assert_allclose(step.d_h, step.d_h_value + step.d_h_key, rtol=1e-10, atol=1e-15)
    np.testing.assert_allclose(found.d_h, sum(step.d_h for step in found.steps), rtol=1e-10, atol=1e-15)


def test_the_ranking_flips() -> None:
    first, second = walk(VECTOR).steps
    assert first.alpha.argmax() == 1 and second.alpha.argmax() == 0


@every
@pytest.mark.parametrize("width", [10, 40, 80, 200])
def test_text_keeps_to_the_width(name: str, width: int) -> None:
    lines = text(walk(EXAMPLES[name]), "A title", width=width).splitlines()
    if width >= 80 or (name.startswith("running") and width >= 40):  # a vector is never broken
        assert max(len(line) for line in lines) <= width
    assert not any(line != line.rstrip() or "\u00a0" in line or "\x1b" in line for line in lines)


def test_colour_changes_nothing_else() -> None:
    plain = text(walk(VECTOR), "A title", width=70)
    coloured = text(walk(VECTOR), "A title", width=70, colour=True)
    assert coloured != plain and re.sub("\x1b\\[[0-9;]*m", "", coloured) == plain


def test_text_holds_the_numbers_of_the_walk() -> None:
    shown = text(walk(RUNNING), "", width=100)
    for key in ("exp e", "alpha", "c", "e"):
        assert all(value in shown for value in number(key).rounded())
    assert (
        "h₁ value = 0.3068·(-0.3880) = -0.1190" in shown and "∂loss/∂h₁ = -0.1190 + 0.0193 = -0.0997" in shown
    )


NEGATIVE = replace(RUNNING, h=((-0.2,), (0.9,), (-0.1,)), s=((0.5,), (-1.5,)), targets=(2, 1))
SIGNED = {
    **EXAMPLES,
    **{f"negative {score}": replace(NEGATIVE, score=score) for score in SCORES},
    "negative weights": replace(NEGATIVE, W_a=((-0.5,),), U_a=((-1.0,),), v_a=(-2.0,)),
}


@pytest.mark.parametrize("name", SIGNED)
def test_a_negative_number_is_in_brackets_after_a_sign_and_nowhere_else(name: str) -> None:
    shown = text(walk(SIGNED[name]), "", width=1000)
    assert not re.search(r"[-+·/] ?-[\d.].*", shown) and not re.search(r"= \(-[\d.e-]+\).*", shown)


@pytest.mark.parametrize("score", SCORES)
def test_a_state_among_several_is_named_everywhere(score: str) -> None:
    """ "s" is none of s₀ and s₁."""
    shown = text(walk(replace(VECTOR, score=score)), "", width=200)
    assert not re.search(r"\bs\b", shown)


def test_the_slopes_of_a_vector_have_their_numbers_put_in() -> None:
    assert "∂e₁/∂s₀ = 1 - (0.9640, 0)² = (0.0707, 1.0000)" in text(walk(VECTOR), "", width=200)


def test_the_slope_of_a_negative_score() -> None:
    shown = text(walk(replace(RUNNING, s=((0.5,), (-1.5,)), targets=(1, 1))), "", width=200)
    assert "∂e₂/∂s₁ = 1 - (-0.5370)² = 0.7116" in shown
    assert "∂loss/∂h₁ = -0.0997 + (-0.1075) = " in shown


def test_numbers_far_from_one_stay_readable() -> None:
    shown = text(walk(Example(h=((1e-5,), (3e7,)), s=((-1e-4,),), targets=(1,), score="dot")), "")
    assert "h₁ = 1e-05" in shown and "e₁ = -0.0001·1e-05 = -1.000e-09" in shown


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "score": ({"score": "cosine"}, "score is 'cosine', expected one of additive"),
    "no annotations": ({"h": ()}, "h is empty"),
    "ragged": ({"h": ((1.0,), (1.0, 2.0))}, r"h has rows of \[1, 2\] entries, expected one width"),
    "infinite": ({"s": ((float("inf"),),)}, "s holds inf, expected finite numbers"),
    "target": ({"targets": (3,)}, "target is 3, expected 1 to 2"),
    "targets": ({"targets": (1, 1)}, r"target is \(1, 1\), expected a word for each state, 1 in all"),
    "weights of another score": ({"score": "dot", "v_a": (1.0,)}, "v_a is given, but the dot score has none"),
    "widths": (
        {"score": "dot", "s": ((1.0, 2.0),)},
        "s has 2 entries and an annotation 1, expected the same",
    ),
    "widths of general": ({"score": "general", "s": ((1.0, 2.0),)}, "so W_a has to be given"),
    "widths of additive": ({"s": ((1.0, 2.0),)}, "so W_a and U_a have to be given"),
    "shape": ({"W_a": ((1.0, 2.0),)}, r"W_a has shape \(1, 2\), expected \(1, 1\) to go"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_examples_are_named(case: str) -> None:
    changes, message = WRONG[case]
    with pytest.raises(ExampleError, match=message):
        replace(RUNNING, **changes)


def test_numbers_beyond_all_bounds() -> None:
    with pytest.raises(ExampleError, match="too large"):
        walk(Example(h=((1e308,), (-1e308,)), s=((1e308,),), targets=(1,), score="dot"))


def test_keys_are_unique_and_missing_ones_named() -> None:
    assert len({found.key for found in NUMBERS}) == len(NUMBERS)
    with pytest.raises(KeyError, match="no number is called 'x'"):
        number("x")


def test_example_equals_the_module_it_stands_for() -> None:
    attention = OTHER.attention()
    found = attention(ta.Tensor(np.array(OTHER.s))[None], ta.Tensor(np.array(OTHER.h))[None])
    for i, step in enumerate(walk(OTHER).steps):
        np.testing.assert_allclose(found.weights.data[0, i], step.alpha, rtol=1e-13)
