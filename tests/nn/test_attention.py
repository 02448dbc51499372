"""The attention family: published numbers, a loop that computes one number at a time, masks, wrong uses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tests.nn.support import largest_error
from tinygrad_attn.engine import Tensor
from tinygrad_attn.nn import (
    AdditiveAttention,
    Attention,
    ConcatAttention,
    DotAttention,
    FixedContext,
    GeneralAttention,
    ScaledDotAttention,
)

RNG = np.random.default_rng
SCORED = ("additive", "concat", "general", "dot", "scaled")
every = pytest.mark.parametrize("name", [*SCORED, "none"])
scored = pytest.mark.parametrize("name", SCORED)
queries = pytest.mark.parametrize("count", [None, 1, 3], ids=lambda count: f"N={count}")
both = pytest.mark.parametrize("explicit", [False, True], ids=["kernel", "definition"])


def make(name: str, query: int = 4, key: int = 6, inner: int = 5, dtype: Any = np.float64) -> Attention:
    rng = RNG(0)
    if name == "additive":
        return AdditiveAttention(query, key, inner, dtype=dtype, rng=rng)
    if name == "concat":
        return ConcatAttention(query, key, inner, dtype=dtype, rng=rng)
    if name == "general":
        return GeneralAttention(query, key, dtype=dtype, rng=rng)
    return {"dot": DotAttention, "scaled": ScaledDotAttention, "none": FixedContext}[name]()


def inputs(
    name: str,
    count: int | None,
    batch: int = 2,
    steps: int = 3,
    query: int = 4,
    key: int = 6,
    dtype: Any = np.float64,
) -> tuple[np.ndarray, np.ndarray]:
    rng = RNG(1)
    key = query if name in ("dot", "scaled") else key
    shape = (batch, query) if count is None else (batch, count, query)
    return rng.standard_normal(shape).astype(dtype), rng.standard_normal((batch, steps, key)).astype(dtype)


def mode(explicit: bool) -> Any:
    return ta.explicit() if explicit else ta.scope("plain")


def score(module: Any, q: list[float], k: list[float]) -> float:
    """One score e_j, one number at a time."""

    def product(row: Any, values: list[float]) -> float:
        return math.fsum(float(w) * v for w, v in zip(row, values, strict=True))

    if isinstance(module, AdditiveAttention):
        rows = zip(module.W_a.data, module.U_a.data, module.v_a.data, strict=True)
        return math.fsum(float(v) * math.tanh(product(w, q) + product(u, k)) for w, u, v in rows)
    if isinstance(module, ConcatAttention):
        rows = zip(module.W_a.data, module.v_a.data, strict=True)
        return math.fsum(float(v) * math.tanh(product(w, [*q, *k])) for w, v in rows)
    if isinstance(module, GeneralAttention):
        return math.fsum(a * product(row, k) for a, row in zip(q, module.W_a.data, strict=True))
    if isinstance(module, FixedContext):
        return 0.0
    dot = product(q, k)
    return dot / math.sqrt(len(q)) if isinstance(module, ScaledDotAttention) else dot


def retrieved(
    module: Any, q: list[float], keys: Any, values: Any, mask: Any
) -> tuple[list[float], list[float], list[float]]:
    """Context, weights and scores for one query, one number at a time."""
    scores = [score(module, q, list(map(float, k))) for k in keys]
    taking_part = [j for j in range(len(keys)) if mask[j]]
    weights = [0.0] * len(keys)
    if isinstance(module, FixedContext):
        for j in taking_part[-1:]:
            weights[j] = 1.0
    elif taking_part:
        top = max(scores[j] for j in taking_part)
        total = math.fsum(math.exp(scores[j] - top) for j in taking_part)
        for j in taking_part:
            weights[j] = math.exp(scores[j] - top) / total
    context = [
        math.fsum(w * float(v[d]) for w, v in zip(weights, values, strict=True))
        for d in range(values.shape[1])
    ]
    return context, weights, scores


MASKS: dict[str, Any] = {
    "none": None,
    "all": np.ones((2, 3), bool),
    "lengths": np.array([[1, 1, 1], [1, 1, 0]], bool),
    "holes": np.array([[0, 1, 0], [1, 0, 1]], bool),
    "one only": np.array([[0, 0, 1], [1, 0, 0]], bool),
    "a row of nothing": np.array([[0, 0, 0], [1, 1, 0]], bool),
    "nothing": np.zeros((2, 3), bool),
    "one row for all": np.array([[1, 1, 0]], bool),
}


@every
@queries
@both
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("values", ["keys", "others"])
def test_against_a_loop(name: str, count: int | None, explicit: bool, mask: str, values: str) -> None:
    module = make(name)
    query, keys = inputs(name, count)
    other = RNG(2).standard_normal((2, 3, 2)) if values == "others" else keys
    with mode(explicit):
        found = module(query, keys, None if values == "keys" else other, MASKS[mask])
    whole = np.broadcast_to(True if MASKS[mask] is None else MASKS[mask], (2, 3))
    assert found.weights.shape == found.scores.shape == (*query.shape[:-1], 3)
    assert found.context.shape == (*query.shape[:-1], other.shape[2])
    for place in np.ndindex(query.shape[:-1]):
        b = place[0]
        expected = retrieved(module, query[place].tolist(), keys[b], other[b], whole[b])
        for part, right in zip(found, expected, strict=True):
            np.testing.assert_allclose(part.data[place], right, rtol=1e-12, atol=1e-14)
        assert not found.weights.data[place][~whole[b]].any()


@every
@both
def test_a_mask_for_each_query(name: str, explicit: bool) -> None:
    module = make(name)
    query, keys = inputs(name, 3)
    mask = RNG(4).random((2, 3, 3)) < 0.5
    mask[0, 0] = False
    with mode(explicit):
        found = module(query, keys, mask=mask)
    for b, n in np.ndindex(2, 3):
        expected = retrieved(module, query[b, n].tolist(), keys[b], keys[b], mask[b, n])
        np.testing.assert_allclose(found.context.data[b, n], expected[0], rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(found.weights.data[b, n], expected[1], rtol=1e-12, atol=1e-14)


@every
@queries
def test_many_queries_equal_them_one_by_one(name: str, count: int | None) -> None:
    if count is None:
        return
    module = make(name)
    query, keys = inputs(name, count)
    mask = MASKS["lengths"]
    together = module(query, keys, mask=mask)
    for n in range(count):
        for a, b in zip(together, module(query[:, n], keys, mask=mask), strict=True):
            np.testing.assert_allclose(a.data[:, n], b.data, rtol=1e-12, atol=1e-14)


@every
@queries
def test_projected_keys_give_the_same(name: str, count: int | None) -> None:
    module = make(name)
    query, keys = inputs(name, count)
    results = []
    for given in (False, True):
        q, k = ta.Tensor(query, requires_grad=True), ta.Tensor(keys, requires_grad=True)
        module.zero_grad()
        found = module(q, k, mask=MASKS["lengths"], projected=module.project(k) if given else None)
        (found.context**2).sum().backward()
        results.append(
            [*(part.data for part in found), q.grad, k.grad, *(p.grad for p in module.parameters())]
        )
    for a, b in zip(*results, strict=True):
        if name == "none" and a is None:
            assert b is None
        else:
            np.testing.assert_array_equal(a, b)


@every
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (1, 3, 1, 1), (3, 1, 4, 4), (1, 1, 3, 3)])
def test_width_one_batch_one_step_one(name: str, sizes: tuple[int, int, int, int]) -> None:
    batch, steps, query, key = sizes
    module = make(name, query, key, 1)
    for count in (None, 1, 2):
        q, k = inputs(name, count, batch, steps, query, key)
        found = module(q, k)
        for place in np.ndindex(q.shape[:-1]):
            expected = retrieved(module, q[place].tolist(), k[place[0]], k[place[0]], [True] * steps)
            np.testing.assert_allclose(found.context.data[place], expected[0], rtol=1e-12, atol=1e-14)
            np.testing.assert_allclose(found.weights.data[place].sum(), 1, rtol=1e-14)


# What has gone wrong elsewhere


@scored
@queries
@both
@pytest.mark.parametrize("refill", [1e3, -1e3, "random"])
def test_pads_receive_no_attention(name: str, count: int | None, explicit: bool, refill: Any) -> None:
    """A batch of lengths 4 and 2 equals its sentences alone, whatever stands in the pads."""
    module = make(name)
    query, keys = inputs(name, count, steps=4)
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0]], bool)
    results = []
    for fill in (0.0, refill):
        filled = keys.copy()
        filled[1, 2:] = RNG(8).standard_normal(filled[1, 2:].shape) if fill == "random" else fill
        q, k = ta.Tensor(query, requires_grad=True), ta.Tensor(filled, requires_grad=True)
        module.zero_grad()
        with mode(explicit):
            found = module(q, k, mask=mask)
        (found.context * np.arange(1, 1 + found.context.size).reshape(found.context.shape)).sum().backward()
        assert not found.weights.data[1, ..., 2:].any()
        np.testing.assert_allclose(found.weights.data.sum(axis=-1), 1, rtol=1e-12)
        assert not k.grad[1, 2:].any()
        results.append(
            [found.context.data, found.weights.data, q.grad, k.grad, *(p.grad for p in module.parameters())]
        )
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)
    alone = module(query[1:], keys[1:, :2])
    np.testing.assert_allclose(found.context.data[1:], alone.context.data, rtol=1e-12)
    np.testing.assert_allclose(found.weights.data[1:, ..., :2], alone.weights.data, rtol=1e-12)


@both
def test_a_mask_excludes_before_the_softmax(explicit: bool) -> None:
    """Only valid logits take part, however large the others are."""
    module = DotAttention()
    mask = np.array([[True, True, False]])
    with mode(explicit):
        for scores, expected in (
            ([2.0, 1.0, 5.0], [0.731059, 0.268941, 0]),
            ([1.0, 0.0, 15.0], [0.731059, 0.268941, 0]),
            ([1e10, 1e10, 2e10], [0.5, 0.5, 0]),
            ([-1e10, -2e10, 0.0], [1, 0, 0]),
        ):
            weights = module([[1.0]], np.array(scores)[None, :, None], mask=mask).weights.data[0]
            np.testing.assert_allclose(weights, expected, atol=5e-7)
            assert weights[2] == 0


@both
def test_weights_are_normalised_over_the_keys(explicit: bool) -> None:
    """Also with a batch and a query of one; sentences do not influence each other."""
    with mode(explicit):
        keys = np.array([[[1.0, 0, 0], [0, 2, 0], [0, 0, 3]]])
        weights = DotAttention()(np.ones((1, 1, 3)), keys).weights.data
        np.testing.assert_allclose(weights[0, 0], [0.090031, 0.244728, 0.665241], atol=5e-7)
        for name in SCORED:
            module = make(name)
            query, keys = inputs(name, 2)
            before = module(query, keys).weights.data
            np.testing.assert_allclose(before.sum(axis=-1), 1, rtol=1e-14)
            keys[1] += 1
            query[1] += 1
            np.testing.assert_array_equal(module(query, keys).weights.data[0], before[0])


@both
def test_the_additive_score_has_its_tanh(explicit: bool) -> None:
    """The weights depend on the query, and its matrix learns."""
    module = AdditiveAttention(2, 2, 2, dtype=np.float64)
    module.load_state_dict({"W_a": np.eye(2), "U_a": np.array([[0.5, -0.5], [1, 1]]).T, "v_a": [1.0, 2.0]})
    keys = np.array([[[1.0, 0], [0, 1], [1, 1]]])
    with mode(explicit):
        for query, expected in (
            ([0.0, 0.0], [0.037759, 0.588817, 0.373424]),
            ([2.0, -1.0], [0.103973, 0.640900, 0.255127]),
        ):
            found = module([query], keys)
            np.testing.assert_allclose(found.weights.data[0], expected, atol=5e-7)
        (found.context * [[1.0, 2.0]]).sum().backward()
    assert np.abs(module.W_a.grad).max() > 1e-2


# Derivatives, precision, kinds of input


@scored
@pytest.mark.parametrize("count", [None, 2])
def test_gradients_by_complex_steps(name: str, count: int | None) -> None:
    module = make(name, 2, 3, 2)
    query, keys = inputs(name, count, 2, 3, 2, 3)
    values = RNG(2).standard_normal((2, 3, 2))
    mask = MASKS["a row of nothing"]
    assert ta.gradcheck(lambda q, k, v: module(q, k, v, mask), (query, keys, values), order=2)
    assert ta.gradcheck(module, (query, keys, values, mask))


def test_gradients_of_the_fixed_context() -> None:
    query, keys = inputs("none", None)
    assert ta.gradcheck(lambda k: FixedContext()(query, k, mask=MASKS["lengths"]).context, (keys,), order=2)


@scored
@queries
def test_kernel_equals_definition(name: str, count: int | None) -> None:
    for dtype, tolerance in ((np.float64, 1e-12), (np.float32, 1e-5)):
        module = make(name, dtype=dtype)
        query, keys = inputs(name, count, 3, 5, dtype=dtype)
        results = []
        for explicit in (False, True):
            q, k = ta.Tensor(query, requires_grad=True), ta.Tensor(keys, requires_grad=True)
            module.zero_grad()
            with mode(explicit):
                found = module(q, k, mask=RNG(6).random((3, 5)) < 0.7)
            (
                found.context * np.arange(found.context.size, dtype=dtype).reshape(found.context.shape)
            ).sum().backward()
            results.append(
                [*(part.data for part in found), q.grad, k.grad, *(p.grad for p in module.parameters())]
            )
        for a, b in zip(*results, strict=True):
            assert a.dtype == b.dtype == dtype and largest_error(a, b) < tolerance


@every
@pytest.mark.parametrize("query", [np.float32, np.float64])
@pytest.mark.parametrize("key", [np.float32, np.float64])
def test_mixed_precision(name: str, query: Any, key: Any) -> None:
    module = make(name, dtype=np.float64)
    q, k = inputs(name, None)
    exact = module(q, k)
    a, b = ta.Tensor(q.astype(query), requires_grad=True), ta.Tensor(k.astype(key), requires_grad=True)
    found = module(a, b, mask=MASKS["all"])
    np.testing.assert_allclose(found.context.data, exact.context.data, rtol=1e-4, atol=1e-5)
    found.context.sum().backward()
    assert b.grad.dtype == key and (name == "none" or a.grad.dtype == query)


@every
def test_lists_and_integers(name: str) -> None:
    module = make(name, 2, 2, 3)
    query, keys = [[1, 2], [3, 4]], [[[1, 0], [0, 1], [1, 1]], [[2, 0], [0, 2], [1, 2]]]
    found = module(query, keys, mask=[[1, 1, 0], [1, 1, 1]], projected=module.project(keys))
    expected = module(
        np.array(query, float), np.array(keys, float), mask=np.array([[1, 1, 0], [1, 1, 1]], bool)
    )
    for a, b in zip(found, expected, strict=True):
        assert isinstance(a, ta.Tensor)
        np.testing.assert_allclose(a.data, b.data, rtol=1e-14)


@every
def test_names_and_kept_gradients(name: str) -> None:
    module = make(name)
    query, keys = inputs(name, None)
    found = module(ta.Tensor(query, requires_grad=True), ta.Tensor(keys, requires_grad=True))
    (found.context**2).sum().backward()
    assert [part.name for part in found] == ["c", "α", "e"]
    assert found.context.grad is not None
    if name != "none":
        np.testing.assert_allclose(found.scores.grad.sum(axis=-1), 0, atol=1e-14)
        assert found.weights.grad is not None


@every
def test_an_attention_keeps_nothing_between_calls(name: str) -> None:
    module = make(name)
    before = {key: id(value) for key, value in vars(module).items()}
    query, keys = inputs(name, None)
    first = module(query, keys)
    module(query + 1, keys[:, :2])
    assert {key: id(value) for key, value in vars(module).items()} == before
    np.testing.assert_array_equal(module(query, keys).weights.data, first.weights.data)


WRONG: dict[str, tuple[Any, ...]] = {
    "query width": ((2, 5), (2, 3, 6), {}, "query has 5 features, expected 4"),
    "key width": ((2, 4), (2, 3, 5), {}, "key has 5 features, expected 6"),
    "query axes": ((4,), (2, 3, 6), {}, r"query has shape \(4,\), expected \(batch, features\)"),
    "key axes": ((2, 4), (3, 6), {}, r"keys have shape \(3, 6\), expected \(batch, steps, features\)"),
    "no steps": ((2, 4), (2, 0, 6), {}, r"keys have shape \(2, 0, 6\), .* at least one step"),
    "batch": ((3, 4), (2, 3, 6), {}, r"query \(3, 4\), keys \(2, 3, 6\) and values \(2, 3, 6\) differ"),
    "steps": (
        (2, 4),
        (2, 3, 6),
        {"values": np.ones((2, 4, 2))},
        r"values \(2, 4, 2\) differ in their batch or steps",
    ),
    "value axes": ((2, 4), (2, 3, 6), {"values": np.ones((2, 3))}, r"values have shape \(2, 3\)"),
    "mask": (
        (2, 4),
        (2, 3, 6),
        {"mask": np.ones((2, 4), bool)},
        r"mask has shape \(2, 4\), expected \(2, 3\)$",
    ),
    "mask of lengths": (
        (2, 4),
        (2, 3, 6),
        {"mask": np.array([1, 1], bool)},
        r"mask has shape \(2,\), expected \(2, 3\)",
    ),
    "mask of many": (
        (2, 5, 4),
        (2, 3, 6),
        {"mask": np.ones((2, 4, 3), bool)},
        r"mask has shape \(2, 4, 3\), expected \(2, 3\) or \(2, 5, 3\)",
    ),
    "projected steps": (
        (2, 4),
        (2, 3, 6),
        {"projected": np.ones((2, 4, 5))},
        r"projected keys have shape \(2, 4, 5\)",
    ),
    "projected width": (
        (2, 4),
        (2, 3, 6),
        {"projected": np.ones((2, 3, 6))},
        "projected key has 6 features, expected 5",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_inputs_are_named(case: str) -> None:
    query, keys, others, message = WRONG[case]
    with pytest.raises(ValueError, match=f"AdditiveAttention: .*{message}"):
        make("additive")(np.ones(query), np.ones(keys), **others)


def test_a_mask_of_other_numbers_is_an_error() -> None:
    with pytest.raises(TypeError, match="mask: expected booleans"):
        make("additive")(*inputs("additive", None), mask=np.full((2, 3), -1e9))


class Scored(Attention):
    def __init__(self, score: Any) -> None:
        self.scored = score

    def score(self, query: Any, projected: Any) -> Any:
        return self.scored(query, projected)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("wrong", "shape"),
    [
        (lambda e: e[..., None], r"\(2, 5, 1\)"),
        (lambda e: e[:, None], r"\(2, 1, 5\)"),  # which has a product with the values
        (lambda e: e[:1], r"\(1, 5\)"),  # and this
        (lambda e: e.sum(), r"\(\)"),
        (lambda e: None, r"\(\)"),
    ],
)
def test_a_score_of_ones_own_of_a_wrong_shape_is_an_error(wrong: Any, shape: str, masked: bool) -> None:
    rng = np.random.default_rng(0)
    query, keys = rng.standard_normal((2, 3)), rng.standard_normal((2, 5, 3))
    mask = np.arange(5) < np.array([[5], [3]]) if masked else None
    dot = DotAttention().score
    same = Scored(dot)(query, keys, mask=mask)
    assert np.array_equal(same.weights.data, DotAttention()(query, keys, mask=mask).weights.data)
    with pytest.raises(ValueError, match=rf"Scored: the score returned shape {shape}, expected \(2, 5\)"):
        Scored(lambda q, p: wrong(dot(q, p)))(query, keys, mask=mask)


def test_a_score_of_ones_own_may_be_an_array() -> None:
    """As one that does not train; searches need its weights as they need others'."""
    arrays = Scored(lambda query, projected: DotAttention().score(query, projected).data)
    model = ta.nn.Seq2Seq(7, 7, 3, 4, encoder_hidden_size=2, rng=np.random.default_rng(0))
    model.decoder.attention = arrays
    found = model.greedy([[4, 5]], max_length=3)
    model.decoder.attention = DotAttention()
    assert np.array_equal(found.tokens, model.greedy([[4, 5]], max_length=3).tokens)
    assert isinstance(arrays(np.ones((1, 2)), np.ones((1, 3, 2))).scores, Tensor)


def test_dot_products_of_unequal_widths_say_what_to_do() -> None:
    with pytest.raises(
        ValueError, match=r"DotAttention: query has 4 features and key 6, expected the same; .*General"
    ):
        DotAttention()(np.ones((2, 4)), np.ones((2, 3, 6)))


def test_the_bahdanau_name() -> None:
    assert ta.nn.BahdanauAttention is AdditiveAttention
