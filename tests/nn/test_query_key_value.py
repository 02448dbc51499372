"""`ta.attention` and `SelfAttention`: the formula, the classic case, causality, masks, wrong uses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn.nn import (
    AdditiveAttention,
    ConcatAttention,
    DotAttention,
    FixedContext,
    GeneralAttention,
    ScaledDotAttention,
    SelfAttention,
)

RNG = np.random.default_rng
MODULES = {
    "additive": lambda: AdditiveAttention(4, 4, 5, dtype=np.float64, rng=RNG(0)),
    "concat": lambda: ConcatAttention(4, 4, 5, dtype=np.float64, rng=RNG(0)),
    "general": lambda: GeneralAttention(4, 4, dtype=np.float64, rng=RNG(0)),
    "dot": DotAttention,
    "scaled": ScaledDotAttention,
    "none": FixedContext,
}
every = pytest.mark.parametrize("name", MODULES)
masks = pytest.mark.parametrize(
    "mask", [None, [[True, True, False], [False, True, True]]], ids=["all", "mask"]
)
queries = pytest.mark.parametrize("count", [None, 3])


def tensor(*shape: int, seed: int = 0) -> ta.Tensor:
    return ta.Tensor(RNG(seed).standard_normal(shape), requires_grad=True)


def same(a: ta.Tensor, b: ta.Tensor) -> None:
    np.testing.assert_array_equal(a.data, b.data)


@pytest.mark.parametrize(("score", "by"), [("dot", 1.0), ("scaled", 0.5)])
@masks
def test_the_formula_one_number_at_a_time(score: str, by: float, mask: Any) -> None:
    query, keys, values = tensor(2, 4), tensor(2, 3, 4, seed=1), tensor(2, 3, 5, seed=2)
    found = ta.attention(query, keys, values, score=score, mask=mask)
    for b in range(2):
        taking_part = [j for j in range(3) if mask is None or mask[b][j]]
        scores = {
            j: by * sum(float(query.data[b, i] * keys.data[b, j, i]) for i in range(4)) for j in range(3)
        }
        total = math.fsum(math.exp(scores[j]) for j in taking_part)
        for i in range(5):
            c = math.fsum(math.exp(scores[j]) / total * float(values.data[b, j, i]) for j in taking_part)
            assert found.context.data[b, i] == pytest.approx(c, rel=1e-12)


@every
@queries
@masks
def test_classic_attention_is_the_case_of_annotations_as_keys_and_values(
    name: str, count: int | None, mask: Any
) -> None:
    """Context, weights, scores and every gradient are the same bits."""
    module, shape = MODULES[name](), (2, 4) if count is None else (2, count, 4)
    gradients = []
    for classic in (True, False):
        state, annotations = tensor(*shape), tensor(2, 3, 4, seed=1)
        found = (
            module(state, annotations, mask=mask)
            if classic
            else ta.attention(state, annotations, annotations, score=module, mask=mask)
        )
        module.zero_grad()
        (found.context * found.context).sum().backward()
        gradients.append([*found, *(p.grad for p in module.parameters()), state.grad, annotations.grad])
    for a, b in zip(*gradients, strict=True):
        if a is None:
            assert b is None
        else:
            np.testing.assert_array_equal(getattr(a, "data", a), getattr(b, "data", b))


@pytest.mark.parametrize("name", ["dot", "scaled"])
def test_a_name_is_the_module_of_that_name(name: str) -> None:
    q, k, v = tensor(2, 4), tensor(2, 3, 4, seed=1), tensor(2, 3, 5, seed=2)
    same(ta.attention(q, k, v, score=name).context, MODULES[name]()(q, k, v).context)


@queries
def test_a_function_as_the_score(count: int | None) -> None:
    q = tensor(2, 4) if count is None else tensor(2, count, 4)
    k, v = tensor(2, 3, 4, seed=1), tensor(2, 3, 5, seed=2)

    def score(query: ta.Tensor, keys: ta.Tensor) -> ta.Tensor:
        """Minus the squared distance."""
        apart = ta.expand_dims(query, -2) - (keys if query.ndim == 2 else ta.expand_dims(keys, 1))
        return -(apart * apart).sum(axis=-1)

    found = ta.attention(q, k, v, score=score)
    one = ta.attention(q if count is None else q[:, 1], k, v, score=score)
    assert found.weights.data.sum(-1) == pytest.approx(1)
    np.testing.assert_allclose(
        found.context.data if count is None else found.context.data[:, 1], one.context.data
    )
    nearest = np.argmin(
        ((np.asarray(q.data)[..., None, :] - (k.data if count is None else k.data[:, None])) ** 2).sum(-1), -1
    )
    np.testing.assert_array_equal(found.weights.data.argmax(-1), nearest)
    assert ta.gradcheck(lambda *inputs: ta.attention(*inputs, score=score).context, (q, k, v), order=2)


def test_keys_and_values_may_differ_in_what_they_say() -> None:
    """A key that matches fetches a value that has nothing in common with it."""
    keys = np.eye(3)[None] * 100
    found = ta.attention(np.array([[0.0, 1.0, 0.0]]), keys, [[[1.0], [7.0], [3.0]]], score="dot")
    assert found.context.item() == pytest.approx(7, rel=1e-12)


WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "unknown name": ("cosine", ValueError, "score 'cosine' is not one of dot, scaled"),
    "name that needs weights": (
        "additive",
        ValueError,
        r"needs a module; pass score=ta.nn.AdditiveAttention",
    ),
    "number": (3, TypeError, "the score is 3, expected"),
    "class": (DotAttention, TypeError, "expected 'dot', 'scaled', an attention module or a function"),
    "no tensor": (lambda q, k: 1.0, TypeError, "the score returned a float, expected a Tensor"),
    "wrong shape": (lambda q, k: k, ValueError, r"the score returned shape \(2, 3, 4\), expected \(2, 3\)"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_scores_are_named(case: str) -> None:
    score, error, message = WRONG[case]
    with pytest.raises(error, match=message):
        ta.attention(tensor(2, 4), tensor(2, 3, 4), tensor(2, 3, 5), score=score)


def test_unequal_widths_say_what_to_change() -> None:
    with pytest.raises(ValueError, match=r"query has 4 features and key 6.*GeneralAttention"):
        ta.attention(tensor(2, 4), tensor(2, 3, 6), tensor(2, 3, 5))


def make(score: str = "scaled", causal: bool = False) -> SelfAttention:
    return SelfAttention(4, 6, 5, score, causal, dtype=np.float64, rng=RNG(0))


def test_self_attention_is_attention_of_three_projections() -> None:
    module, x = make(), tensor(2, 3, 4)
    q, k, v = x @ module.W_q.T, x @ module.W_k.T, x @ module.W_v.T
    found = module(x)
    expected = ta.attention(q, k, v, score="scaled")
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a.data, b.data, rtol=1e-13)
    assert found.context.shape == (2, 3, 5) and found.weights.shape == (2, 3, 3)
    assert dict(module.named_parameters()).keys() == {"W_q", "W_k", "W_v"}


def test_self_attention_with_identities_is_classic_attention_of_a_sequence_to_itself() -> None:
    module = SelfAttention(4, score="dot", dtype=np.float64, rng=RNG(0))
    module.load_state_dict({name: np.eye(4) for name in ("W_q", "W_k", "W_v")})
    x = tensor(2, 3, 4)
    for a, b in zip(module(x), DotAttention()(x, x), strict=True):
        np.testing.assert_allclose(a.data, b.data, rtol=1e-13)


@pytest.mark.parametrize("score", ["scaled", "dot", "general", "additive", "concat"])
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_of_self_attention(score: str, causal: bool) -> None:
    module = SelfAttention(2, 2, 2, score, causal, dtype=np.float64, rng=RNG(0))
    mask = np.array([[True, True, False]])
    assert ta.gradcheck(module, (tensor(1, 3, 2), mask), order=2)


def test_causal_positions_do_not_depend_on_later_ones() -> None:
    module, x = make(causal=True), RNG(0).standard_normal((1, 5, 4))
    before = module(x)
    assert not np.triu(before.weights.data[0], 1).any()
    np.testing.assert_allclose(before.weights.data.sum(-1), 1, rtol=1e-14)
    x[:, 3:] += 1
    np.testing.assert_array_equal(module(x).context.data[:, :3], before.context.data[:, :3])


@pytest.mark.parametrize("causal", [False, True])
def test_pads_receive_nothing(causal: bool) -> None:
    module, x = make(causal=causal), RNG(0).standard_normal((2, 4, 4))
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0]], bool)
    alone = module(x[1:, :2])
    x[1, 2:] = 1e3
    found = module(x, mask=mask)
    assert not found.weights.data[1, :, 2:].any()
    np.testing.assert_allclose(found.context.data[1, :2], alone.context.data[0], rtol=1e-12)
    both = np.broadcast_to(mask[:, None], (2, 4, 4))
    np.testing.assert_array_equal(module(x, mask=both).context.data, found.context.data)


@pytest.mark.parametrize("shape", [(1, 4), (2, 1), (1, 4, 4), (2, 1, 4), (2, 4, 1), (1, 1, 1)])
@pytest.mark.parametrize("causal", [False, True])
def test_a_mask_for_all_sentences_or_all_askers_is_repeated(causal: bool, shape: tuple[int, ...]) -> None:
    module, x = make(causal=causal), RNG(0).standard_normal((2, 4, 4))
    mask = RNG(1).random(shape) < 0.6
    whole = np.broadcast_to(mask[:, None] if mask.ndim == 2 else mask, (2, 4, 4))
    for a, b in zip(module(x, mask), module(x, whole), strict=True):
        np.testing.assert_allclose(a.data, b.data, rtol=1e-13)


@pytest.mark.parametrize(
    ("x", "mask", "message"),
    [
        ((2, 4), None, r"input has shape \(2, 4\), expected \(batch, steps, features\)"),
        ((2, 3, 5), None, "input has 5 features, expected 4"),
        ((2, 3, 4), (3,), r"mask has shape \(3,\), expected"),
        ((2, 3, 4), (2, 2), r"mask has shape \(2, 2\), expected"),
    ],
)
@pytest.mark.parametrize("causal", [False, True])
def test_wrong_sequences_are_named(causal: bool, x: Any, mask: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(causal=causal)(np.zeros(x), mask=None if mask is None else np.zeros(mask, bool))


def test_sizes_and_names_are_checked() -> None:
    with pytest.raises(ValueError, match="key_size is 0"):
        SelfAttention(4, 0)
    with pytest.raises(ValueError, match="'cosine' is not one of"):
        SelfAttention(4, score="cosine")
