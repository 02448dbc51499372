"""The worked numbers of the two texts on attention that this package follows, in full precision.

The texts round on the way, so that a printed number may differ from the exact one by a unit in its last
place; where it differs by more, the test says by how much.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta

H = [0.2, 0.9, 0.1]  # the annotations of three source words
S = 0.5  # the decoder's state before the first target word


def printed(found: ta.Tensor, *numbers: str, unit: float = 1.0) -> None:
    """Each entry is the printed number, give or take `unit` units of its last digit."""
    values = found.data.reshape(-1)
    assert len(values) == len(numbers)
    for value, number in zip(values, numbers, strict=True):
        last = 10.0 ** -len(number.partition(".")[2])
        assert abs(value - float(number)) <= unit * last


def additive(w_a: Any, u_a: Any, v_a: Any) -> ta.nn.AdditiveAttention:
    """The alignment model with the given weights."""
    w_a, u_a, v_a = (np.array(x, np.float64) for x in (w_a, u_a, v_a))
    attention = ta.nn.AdditiveAttention(
        w_a.shape[1], u_a.shape[1], len(v_a), dtype=np.float64, rng=np.random.default_rng(0)
    )
    attention.load_state_dict({"W_a": w_a, "U_a": u_a, "v_a": v_a})
    return attention


@pytest.fixture
def annotations() -> ta.Tensor:
    return ta.Tensor(np.reshape(H, (1, 3, 1)), requires_grad=True, name="h")


@pytest.fixture
def attended(annotations: ta.Tensor) -> Any:
    """The first target word of the running example, by the module with all weights one."""
    return additive([[1]], [[1]], [1])(ta.Tensor([[S]], requires_grad=True), annotations)


@pytest.mark.parametrize(
    ("weights", "context"), [([0, 1, 0], "0.9"), ([0.5, 0.5, 0], "0.55"), ([1 / 3, 1 / 3, 1 / 3], "0.4")]
)
def test_convex_combinations(weights: list[float], context: str) -> None:
    c = ta.Tensor(weights) @ ta.Tensor(H)
    printed(c, context, unit=1e-9)
    assert min(H) <= c.item() <= max(H)


def test_fixed_context_is_the_last_state(annotations: ta.Tensor) -> None:
    printed(annotations[0, -1], "0.1", unit=0)


def test_hyperbolic_tangents_by_their_definition() -> None:
    x = ta.Tensor([0.7, 1.4, 0.6])
    up, down = ta.exp(x), ta.exp(-x)
    printed(up, "2.0138", "4.0552", "1.8221")
    printed(down, "0.4966", "0.2466", "0.5488")
    printed(up - down, "1.5172", "3.8086", "1.2733")
    printed(up + down, "2.5104", "4.3018", "2.3709")
    np.testing.assert_allclose(((up - down) / (up + down)).data, ta.tanh(x).data, rtol=1e-14)


def test_scores(attended: Any) -> None:
    printed(attended.scores, "0.6044", "0.8854", "0.5370", unit=0.5)
    np.testing.assert_allclose(attended.scores.data, [np.tanh(S + np.array(H))], rtol=1e-15)


def test_the_largest_annotation_scores_highest_in_the_scalar_case(annotations: ta.Tensor) -> None:
    (slope,) = ta.grad(ta.tanh(S + annotations).sum(), annotations)
    np.testing.assert_allclose(slope.data, 1 / np.cosh(S + annotations.data) ** 2, rtol=1e-14)
    assert (slope.data > 0).all()


def test_exponentials(attended: Any) -> None:
    """The second is printed as 2.4235; it is 2.4238, and the sum 5.9649 for the printed 5.9645."""
    exponentials = ta.exp(attended.scores)
    printed(exponentials, "1.8302", "2.4235", "1.7108", unit=4)
    printed(ta.sum(exponentials), "5.9645", unit=4)


def test_weights(attended: Any) -> None:
    printed(attended.weights, "0.3069", "0.4063", "0.2868")
    assert attended.weights.data.sum() == pytest.approx(1, rel=1e-15) and (attended.weights.data > 0).all()
    np.testing.assert_allclose(
        ta.exp(attended.scores).data / ta.exp(attended.scores).data.sum(), attended.weights.data
    )


def test_ratio_of_weights_is_the_exponential_of_the_difference_of_scores(attended: Any) -> None:
    (alpha,), (e,) = attended.weights, attended.scores
    printed(alpha[1] / alpha[0], "1.324", unit=0.5)
    printed(e[1] - e[0], "0.2810")
    printed(ta.exp(e[1] - e[0]), "1.324", unit=0.5)
    assert (alpha[1] / alpha[0]).item() == pytest.approx(np.exp((e[1] - e[0]).item()), rel=1e-14)


def test_softmax_ignores_a_shift(attended: Any) -> None:
    """The exponentials are of rounded scores: 359.58 for 359.73, and so their sum, 885.07 for 885.27."""
    shifted = attended.scores + 5
    printed(shifted, "5.6044", "5.8854", "5.5370", unit=0.5)
    printed(ta.exp(shifted), "271.60", "359.58", "253.89", unit=15)
    printed(ta.sum(ta.exp(shifted)), "885.07", unit=20)
    printed(ta.softmax(shifted), "0.3069", "0.4063", "0.2868")
    np.testing.assert_allclose(ta.softmax(shifted).data, attended.weights.data, rtol=1e-14)


def test_context(attended: Any) -> None:
    printed(attended.weights[0] * np.array(H), "0.0614", "0.3657", "0.0287")
    printed(attended.context, "0.4558", unit=0.5)
    assert min(H) <= attended.context.item() <= max(H)


def test_context_rewritten(attended: Any) -> None:
    (alpha,) = attended.weights
    printed(0.1 * alpha[0], "0.03069", unit=1)
    printed(0.8 * alpha[1], "0.32504", unit=5)
    rewritten = 0.1 + 0.1 * alpha[0] + 0.8 * alpha[1]
    printed(rewritten, "0.45573", unit=4)
    assert rewritten.item() == pytest.approx(attended.context.item(), rel=1e-14)


@pytest.mark.parametrize("explicit", [False, True])
def test_gradient_of_the_context_with_respect_to_the_weights_is_the_annotations(
    annotations: ta.Tensor, explicit: bool
) -> None:
    with ta.explicit() if explicit else ta.scope("attention"):
        attended = additive([[1]], [[1]], [1])(ta.Tensor([[S]]), annotations)
    (found,) = ta.grad(attended.context, attended.weights)
    printed(found, "0.2", "0.9", "0.1", unit=0)


def test_gradient_reaches_the_decoder_state_and_every_annotation(annotations: ta.Tensor) -> None:
    """∂c/∂s = Σ_j h_j α_j (t_j - Σ_k α_k t_k), with t = 1 - tanh²: what the chain rule says."""
    state = ta.Tensor([[S]], requires_grad=True, name="s")
    attended = additive([[1]], [[1]], [1])(state, annotations)
    attended.context.sum().backward()
    h, alpha, slope = np.array(H), attended.weights.data[0], 1 - np.tanh(S + np.array(H)) ** 2
    assert state.grad is not None and annotations.grad is not None
    assert state.grad.item() == pytest.approx((h * alpha * (slope - alpha @ slope)).sum(), rel=1e-13)
    np.testing.assert_allclose(annotations.grad[0, :, 0], alpha + alpha * (h - alpha @ h) * slope, rtol=1e-13)


def test_annotation_joins_both_directions() -> None:
    forward, backward = ta.Tensor([0.4]), ta.Tensor([0.7])
    printed(ta.concatenate([forward, backward]), "0.4", "0.7", unit=0)


def test_log_likelihood_of_two_words() -> None:
    p = ta.Tensor([0.8, 0.6])
    printed(p[0] * p[1], "0.48", unit=1e-9)
    printed(ta.log(p), "-0.22314", "-0.51083", unit=0.5)
    printed(ta.log(p[0] * p[1]), "-0.73397", unit=0.5)
    printed(ta.sum(ta.log(p)), "-0.73397", unit=0.5)
    # The training loss is that sum with the sign turned, divided by the number of words.
    logits = ta.log(ta.Tensor([[0.8, 0.2], [0.4, 0.6]]))
    printed(-2 * ta.cross_entropy(logits, [0, 1]), "-0.73397", unit=0.5)


def test_ranking_flips_with_the_state_in_two_dimensions() -> None:
    attention = additive(np.eye(2), np.eye(2), [1, 1])
    annotations = ta.Tensor([[[1.0, 0.0], [0.0, 1.0]]])
    first = attention(ta.Tensor([[1.0, 0.0]]), annotations)
    printed(first.scores, "0.9640", "1.5232", unit=0.5)
    printed(first.weights, "0.3637", "0.6363", unit=0.5)
    second = attention(ta.Tensor([[0.0, 1.0]]), annotations)
    printed(second.scores, "1.5232", "0.9640", unit=0.5)
    printed(second.weights, "0.6363", "0.3637", unit=0.5)
    both = attention(
        ta.Tensor([[[1.0, 0.0], [0.0, 1.0]]]), annotations
    )  # the alignment matrix, a row a target word
    np.testing.assert_allclose(
        both.weights.data[0], [first.weights.data[0], second.weights.data[0]], rtol=1e-15
    )
    printed(ta.tanh(ta.Tensor([2.0, 1.0])), "0.9640", "0.7616", unit=0.5)


def test_scores_of_the_second_text() -> None:
    """Additive, dot product, general and scaled, each as its formula says; the context is their sum."""
    rng = np.random.default_rng(0)
    s, h = rng.standard_normal(4), rng.standard_normal((5, 4))
    w_1, w_2, v, w = (rng.standard_normal(shape) for shape in ((3, 4), (3, 4), (3,), (4, 4)))
    general = ta.nn.GeneralAttention(4, 4, dtype=np.float64, rng=rng)
    general.load_state_dict({"W_a": w})
    attentions = {
        additive(w_1, w_2, v): [v @ np.tanh(w_1 @ s + w_2 @ h_j) for h_j in h],
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
