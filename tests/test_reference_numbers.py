"""The worked numbers of the two texts on attention that this package follows, in full precision.

The numbers stand in `tinygrad_attn.worked`; here they are held against what is printed, and the identities
behind them against one another.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn.worked import NUMBERS, RUNNING, VECTOR, Number, number

H = np.array(RUNNING.h)[:, 0]
S = RUNNING.s[0][0]


@pytest.mark.parametrize("found", NUMBERS, ids=lambda found: found.key)
def test_a_computed_number_is_the_printed_one(found: Number) -> None:
    values = found.values()
    assert len(values) == len(found.printed)
    for value, text in zip(values, found.printed, strict=True):
        unit = 10.0 ** -len(text.partition(".")[2])
        assert abs(value - float(text)) <= found.units * unit + 1e-15


def bounds(text: str) -> np.ndarray:
    """Between which numbers one lies that is printed like this."""
    half = 0.5 * 10.0 ** -len(text.partition(".")[2])
    return float(text) + half * np.array([-1, 1])


def test_which_exponentials_are_slips() -> None:
    """Those that no number with the printed digits of the score has; docs/numbers.md names them."""
    slips = {}
    for key, of in (("exp e", "e"), ("exp shifted e", "shifted e")):
        pairs = list(zip(number(key).printed, number(of).printed, strict=True))
        within = [(np.exp(bounds(score)), bounds(printed)) for printed, score in pairs]
        slips[key] = [not (a[0] <= b[1] and b[0] <= a[1]) for a, b in within]
    assert slips == {"exp e": [False, True, False], "exp shifted e": [True, True, True]}
    for key, of in (("Z", "exp e"), ("shifted Z", "exp shifted e")):  # their sums follow
        assert sum(map(float, number(of).printed)) == pytest.approx(float(number(key).printed[0]), abs=1e-9)


def test_only_what_was_rounded_on_the_way_or_slipped_is_off_by_more_than_its_rounding() -> None:
    off = {found.key for found in NUMBERS if found.units > 0.5}
    assert off == {
        *("total", "difference", "gap", "exp e", "Z", "alpha", "exp shifted e", "shifted Z", "shifted alpha"),
        *("rewritten terms", "rewritten c"),
    }


@pytest.fixture
def annotations() -> ta.Tensor:
    return ta.Tensor(H.reshape(1, 3, 1), requires_grad=True, name="h")


@pytest.fixture
def attended(annotations: ta.Tensor) -> Any:
    """The first target word of the running example, by the module with all weights one."""
    return RUNNING.attention()(ta.Tensor([[S]], requires_grad=True), annotations)


def test_the_module_gives_the_numbers(attended: Any) -> None:
    for key, tensor in (("e", attended.scores), ("alpha", attended.weights), ("c", attended.context)):
        np.testing.assert_allclose(tensor.data[0], number(key).values(), rtol=1e-15)
    np.testing.assert_allclose(attended.scores.data, [np.tanh(S + H)], rtol=1e-15)


@pytest.mark.parametrize("key", ["one", "half", "uniform", "c", "rewritten c", "fixed"])
def test_a_context_lies_between_the_annotations(key: str) -> None:
    (c,) = number(key).values()
    assert min(H) <= c <= max(H)


def test_hyperbolic_tangents_by_their_definition() -> None:
    ratio = number("difference").values() / number("total").values()
    np.testing.assert_allclose(ratio, number("e").values(), rtol=1e-14)


def test_the_largest_annotation_scores_highest_in_the_scalar_case(annotations: ta.Tensor) -> None:
    (slope,) = ta.grad(ta.tanh(S + annotations).sum(), annotations)
    np.testing.assert_allclose(slope.data, 1 / np.cosh(S + annotations.data) ** 2, rtol=1e-14)
    assert (slope.data > 0).all() and number("e").values().argmax() == H.argmax()


def test_weights_are_shares_of_one() -> None:
    alpha, exponentials = number("alpha").values(), number("exp e").values()
    assert alpha.sum() == pytest.approx(1, rel=1e-15) and (alpha > 0).all()
    np.testing.assert_allclose(exponentials / exponentials.sum(), alpha, rtol=1e-14)


def test_ratio_of_weights_is_the_exponential_of_the_difference_of_scores() -> None:
    assert number("ratio").values() == pytest.approx(number("exp gap").values(), rel=1e-14)


def test_softmax_ignores_a_shift() -> None:
    np.testing.assert_allclose(number("shifted alpha").values(), number("alpha").values(), rtol=1e-14)


def test_context_rewritten() -> None:
    assert number("rewritten c").values() == pytest.approx(number("c").values(), rel=1e-14)
    assert number("terms").values().sum() == pytest.approx(number("c").values()[0], rel=1e-14)


@pytest.mark.parametrize("explicit", [False, True])
def test_gradient_of_the_context_with_respect_to_the_weights_is_the_annotations(
    annotations: ta.Tensor, explicit: bool
) -> None:
    with ta.explicit() if explicit else ta.scope("attention"):
        attended = RUNNING.attention()(ta.Tensor([[S]]), annotations)
    (found,) = ta.grad(attended.context, attended.weights)
    np.testing.assert_array_equal(found.data[0], H)


def test_gradient_reaches_the_decoder_state_and_every_annotation(annotations: ta.Tensor) -> None:
    """∂c/∂s = Σ_j h_j α_j (t_j - Σ_k α_k t_k), with t = 1 - tanh²: what the chain rule says."""
    state = ta.Tensor([[S]], requires_grad=True, name="s")
    attended = RUNNING.attention()(state, annotations)
    attended.context.sum().backward()
    h, alpha, slope = H, attended.weights.data[0], 1 - np.tanh(S + H) ** 2
    assert state.grad is not None and annotations.grad is not None
    assert state.grad.item() == pytest.approx((h * alpha * (slope - alpha @ slope)).sum(), rel=1e-13)
    np.testing.assert_allclose(annotations.grad[0, :, 0], alpha + alpha * (h - alpha @ h) * slope, rtol=1e-13)


def test_log_likelihood_is_the_loss_with_its_sign_turned_times_the_number_of_words() -> None:
    logits = ta.log(ta.Tensor([[0.8, 0.2], [0.4, 0.6]]))
    (expected,) = number("sum of log p").values()
    assert (-2 * ta.cross_entropy(logits, [0, 1])).item() == pytest.approx(expected, rel=1e-14)
    assert np.log(number("product").values()) == pytest.approx(expected, rel=1e-14)


def test_the_alignment_matrix_has_a_row_for_each_target_word() -> None:
    both = VECTOR.attention()(ta.Tensor([VECTOR.s]), ta.Tensor([VECTOR.h]))
    for i, row in enumerate(both.weights.data[0], 1):
        np.testing.assert_allclose(row, number(f"vector alpha {i}").values(), rtol=1e-15)


def test_scores_of_the_second_text() -> None:
    """Additive, dot product, general and scaled, each as its formula says; the context is their sum."""
    rng = np.random.default_rng(0)
    s, h = rng.standard_normal(4), rng.standard_normal((5, 4))
    w_1, w_2, v, w = (rng.standard_normal(shape) for shape in ((3, 4), (3, 4), (3,), (4, 4)))
    additive = ta.nn.AdditiveAttention(4, 4, 3, dtype=np.float64, rng=rng)
    additive.load_state_dict({"W_a": w_1, "U_a": w_2, "v_a": v})
    general = ta.nn.GeneralAttention(4, 4, dtype=np.float64, rng=rng)
    general.load_state_dict({"W_a": w})
    attentions = {
        additive: [v @ np.tanh(w_1 @ s + w_2 @ h_j) for h_j in h],
        ta.nn.DotAttention(): [s @ h_j for h_j in h],
        general: [s @ w @ h_j for h_j in h],
        ta.nn.ScaledDotAttention(): [s @ h_j / np.sqrt(4) for h_j in h],
    }
    for attention, scores in attentions.items():
        found = attention(ta.Tensor([s]), ta.Tensor([h]))
        np.testing.assert_allclose(found.scores.data[0], scores, rtol=1e-13)
        weights = np.exp(scores) / np.exp(scores).sum()
        np.testing.assert_allclose(found.weights.data[0], weights, rtol=1e-13)
        np.testing.assert_allclose(
            found.context.data[0], sum(a * h_j for a, h_j in zip(weights, h, strict=True)), rtol=1e-12
        )
