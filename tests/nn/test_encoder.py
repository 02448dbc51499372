"""The bidirectional encoder over padded batches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tinygrad_attn as ta
from tests.nn.support import annotations, arrays, largest_error
from tinygrad_attn.nn import BidirectionalEncoder

RNG = np.random.default_rng
KINDS = ("rnn", "gru", "reset_before_gru", "lstm")
every = pytest.mark.parametrize("kind", KINDS)
both = pytest.mark.parametrize("explicit", [False, True], ids=["kernel", "definition"])


def make(kind: str, inputs: int = 3, hidden: int = 4, dtype: Any = np.float64) -> BidirectionalEncoder:
    name, reset_after = ("gru", False) if kind == "reset_before_gru" else (kind, True)
    return BidirectionalEncoder(inputs, hidden, name, reset_after=reset_after, dtype=dtype, rng=RNG(0))


def mode(explicit: bool) -> Any:
    return ta.explicit() if explicit else ta.scope("plain")


def batch(lengths: list[int], inputs: int = 3, seed: int = 1) -> np.ndarray:
    return RNG(seed).standard_normal((len(lengths), max(lengths), inputs))


def check_against_equations(
    encoder: Any, kind: str, x: np.ndarray, lengths: list[int], encoding: Any
) -> None:
    size = encoder.forward_cell.hidden_size
    assert encoding.annotations.shape == (*x.shape[:2], 2 * size)
    for b, length in enumerate(lengths):
        expected = annotations(
            kind, arrays(encoder.forward_cell), arrays(encoder.backward_cell), x[b, :length].tolist()
        )
        found = encoding.annotations.data[b]
        np.testing.assert_allclose(found[:length], expected, rtol=1e-12, atol=1e-14)
        assert not found[length:].any()
        np.testing.assert_array_equal(encoding.forward_state.data[b], found[length - 1, :size])
        np.testing.assert_array_equal(encoding.backward_state.data[b], found[0, size:])
        assert encoding.mask[b].tolist() == [True] * length + [False] * (x.shape[1] - length)


@every
@both
@pytest.mark.parametrize("lengths", [[4, 2, 1], [1], [3], [1, 1], [2, 5, 5, 1]])
def test_annotations_against_the_equations(kind: str, explicit: bool, lengths: list[int]) -> None:
    encoder, x = make(kind), batch(lengths)
    with mode(explicit):
        check_against_equations(encoder, kind, x, lengths, encoder(x, lengths))


@every
@both
def test_width_one(kind: str, explicit: bool) -> None:
    encoder, x = make(kind, 1, 1), batch([3, 1], 1)
    with mode(explicit):
        check_against_equations(encoder, kind, x, [3, 1], encoder(x, [3, 1]))


def test_the_state_is_held_after_the_last_valid_step() -> None:
    """A tanh cell with W = U = 1, b = 0.5 over [1, pad] of length 1."""
    encoder = make("rnn", 1, 1)
    for cell in (encoder.forward_cell, encoder.backward_cell):
        cell.load_state_dict({"weight_ih": [[1.0]], "weight_hh": [[1.0]], "bias_ih": [0.5], "bias_hh": [0.0]})
    encoding = encoder(np.array([[[1.0], [0.0]]]), [1])
    assert encoding.forward_state.item() == pytest.approx(0.905148, abs=5e-7)
    assert encoding.backward_state.item() == pytest.approx(0.905148, abs=5e-7)
    assert encoding.annotations.data[0, 1].tolist() == [0, 0]


def test_the_backward_half_is_aligned_in_time() -> None:
    """The identity cell h = x + h_prev over [1, 2, 3], here tanh in its linear range."""
    small = 1e-6
    encoder = make("rnn", 1, 1)
    for cell in (encoder.forward_cell, encoder.backward_cell):
        cell.load_state_dict(
            {"weight_ih": [[small]], "weight_hh": [[1.0]], "bias_ih": [0.0], "bias_hh": [0.0]}
        )
    h = encoder(np.array([[[1.0], [2.0], [3.0]]])).annotations.data[0] / small
    np.testing.assert_allclose(h[:, 0], [1, 3, 6], rtol=1e-9)
    np.testing.assert_allclose(h[:, 1], [6, 5, 3], rtol=1e-9)


@every
def test_which_halves_depend_on_which_token(kind: str) -> None:
    """At the first position the backward half sees the last token, the forward half does not."""
    encoder, x = make(kind), batch([4])
    changed = x.copy()
    changed[0, -1] += 1
    difference = np.abs(encoder(x).annotations.data - encoder(changed).annotations.data)[0]
    assert not difference[:3, :4].any() and difference[3, :4].all() and difference[:, 4:].all()
    changed = x.copy()
    changed[0, 0] += 1
    difference = np.abs(encoder(x).annotations.data - encoder(changed).annotations.data)[0]
    assert not difference[1:, 4:].any() and difference[0, 4:].all() and difference[:, :4].all()


@every
@both
@pytest.mark.parametrize("refill", [1e3, -1e3, "random", np.nan, np.inf])
def test_what_stands_in_the_pads_changes_nothing(kind: str, explicit: bool, refill: Any) -> None:
    encoder, lengths = make(kind), [2, 4, 1, 3]
    inside = np.arange(4) < np.array(lengths)[:, None]
    x = np.where(inside[..., None], batch(lengths), 0)
    other = np.where(inside[..., None], x, RNG(9).standard_normal(x.shape) if refill == "random" else refill)
    results = []
    for values in (x, other):
        leaf = ta.Tensor(values, requires_grad=True)
        encoder.zero_grad()
        with mode(explicit):
            encoding = encoder(leaf, lengths)
        weights = RNG(3).standard_normal(encoding.annotations.shape)
        ((encoding.annotations * weights).sum() + (encoding.forward_state**2).sum()).backward()
        results.append([encoding.annotations.data, leaf.grad, *(p.grad for p in encoder.parameters())])
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not results[0][1][~inside].any() and results[0][1][inside].all()


@every
@both
def test_a_padded_batch_equals_its_sentences_one_by_one(kind: str, explicit: bool) -> None:
    encoder, lengths = make(kind), [5, 1, 3]
    x = batch(lengths)

    def run(values: np.ndarray, given: Any, weights: np.ndarray) -> tuple[Any, np.ndarray]:
        leaf = ta.Tensor(values, requires_grad=True)
        with mode(explicit):
            encoding = encoder(leaf, given)
        loss = (encoding.annotations * weights).sum() + (
            encoding.backward_state * encoding.forward_state
        ).sum()
        loss.backward()
        return encoding, leaf.grad

    weights = RNG(3).standard_normal((3, 5, 8))
    encoding, gradient = run(x, lengths, weights)
    together = [p.grad for p in encoder.parameters()]
    encoder.zero_grad()
    for b, length in enumerate(lengths):
        single, alone = run(x[b : b + 1, :length], None, weights[b : b + 1, :length])
        np.testing.assert_allclose(
            encoding.annotations.data[b, :length], single.annotations.data[0], rtol=1e-13
        )
        np.testing.assert_allclose(gradient[b, :length], alone[0], rtol=1e-11, atol=1e-13)
    for summed, parameter in zip(together, encoder.parameters(), strict=True):
        assert largest_error(summed, parameter.grad) < 1e-12


@every
def test_the_order_of_the_batch_does_not_matter(kind: str) -> None:
    encoder, lengths = make(kind), np.array([2, 5, 1, 4])
    x, order = batch(lengths.tolist()), np.array([3, 0, 2, 1])
    a, b = encoder(x, lengths), encoder(x[order], lengths[order])
    np.testing.assert_allclose(a.annotations.data[order], b.annotations.data, rtol=1e-13)
    np.testing.assert_allclose(a.forward_state.data[order], b.forward_state.data, rtol=1e-13)


@every
def test_gradients_by_complex_steps(kind: str) -> None:
    encoder, lengths = make(kind, 2, 2), np.array([3, 1])
    assert ta.gradcheck(lambda x: encoder(x, lengths), (batch([3, 1], 2),))
    assert ta.gradcheck(encoder, (batch([2, 1], 2), np.array([2, 1])), order=2)


@given(
    st.sampled_from(KINDS),
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from([np.float64, np.float32]),
)
def test_kernel_equals_definition(
    kind: str, lengths: list[int], inputs: int, hidden: int, dtype: Any
) -> None:
    encoder = make(kind, inputs, hidden, dtype)
    x = batch(lengths, inputs).astype(dtype)
    results = []
    for explicit in (False, True):
        leaf = ta.Tensor(x, requires_grad=True)
        encoder.zero_grad()
        with mode(explicit):
            encoding = encoder(leaf, lengths)
        (
            encoding.annotations * RNG(2).standard_normal(encoding.annotations.shape).astype(dtype)
        ).sum().backward()
        assert encoding.annotations.dtype == dtype
        results.append([encoding.annotations.data, leaf.grad, *(p.grad for p in encoder.parameters())])
    for a, b in zip(*results, strict=True):
        assert a.dtype == b.dtype and largest_error(a, b) < (1e-12 if dtype == np.float64 else 1e-5)


@every
@pytest.mark.parametrize("form", ["list", "integers", "integer tensor", "other precision", "empty batch"])
def test_inputs_of_any_kind_of_number(kind: str, form: str) -> None:
    encoder = make(kind, dtype=np.float32)
    numbers = np.array([[[1, -2, 3], [0, 1, 2]]])
    x: Any = {
        "list": numbers.tolist(),
        "integers": numbers,
        "integer tensor": ta.Tensor(numbers),
        "other precision": numbers.astype(np.float64),
        "empty batch": np.zeros((0, 2, 3), np.float32),
    }[form]
    encoding = encoder(x)
    encoding.annotations.sum().backward()
    assert encoding.annotations.dtype == (np.float64 if form == "other precision" else np.float32)
    assert all(p.grad is not None and p.grad.dtype == np.float32 for p in encoder.parameters())
    if form != "empty batch":
        expected = encoder(numbers.astype(np.float32)).annotations.data
        np.testing.assert_allclose(encoding.annotations.data, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "lengths", [(2, 1), np.array([2, 1], np.uint8), np.array([2, 1], np.uint64), ta.Tensor([2, 1])]
)
def test_lengths_of_any_kind_of_integer(lengths: Any) -> None:
    encoder, x = make("gru"), batch([2, 1])
    encoding = encoder(x, lengths)
    np.testing.assert_array_equal(encoding.annotations.data, encoder(x, [2, 1]).annotations.data)
    encoding.forward_state.sum().backward()


WRONG: dict[str, tuple[Any, Any, str]] = {
    "width": (np.ones((2, 3, 5)), None, "input has 5 features, expected 3"),
    "axes": (np.ones((2, 3)), None, r"input has shape \(2, 3\), expected \(batch, steps, 3\)"),
    "no steps": (np.ones((2, 0, 3)), None, r"input has shape \(2, 0, 3\), .* at least one step"),
    "length 0": (np.ones((2, 4, 3)), [4, 0], "a length is 0, expected 1 to 4"),
    "length too large": (np.ones((2, 4, 3)), [5, 1], "a length is 5, expected 1 to 4"),
    "negative length": (np.ones((2, 4, 3)), [4, -1], "a length is -1, expected 1 to 4"),
    "too few lengths": (
        np.ones((2, 4, 3)),
        [4],
        r"lengths have shape \(1,\) and dtype int64, expected 2 integers",
    ),
    "floating lengths": (np.ones((2, 4, 3)), [4.0, 1.0], r"lengths have shape \(2,\) and dtype float64"),
    "a mask": (np.ones((2, 4, 3)), np.ones((2, 4), bool), r"lengths have shape \(2, 4\) and dtype bool"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_inputs_are_named(case: str) -> None:
    x, lengths, message = WRONG[case]
    with pytest.raises(ValueError, match=f"BidirectionalEncoder: {message}"):
        make("gru")(x, lengths)


def test_scopes_and_names() -> None:
    model = SimpleNamespace(encoder=make("gru"))
    encoding = model.encoder(batch([2]))
    assert encoding.annotations.name == "h"
    encoding.annotations.sum().backward()
    assert encoding.annotations.grad is not None
