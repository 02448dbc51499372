"""The recurrent cells: the published numbers, the equations one number at a time, wrong uses."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import tinygrad_attn as ta
from tests.nn.support import arrays, cell_step
from tinygrad_attn.nn import GRUCell, LSTMCell, RNNCell

RNG = np.random.default_rng
CELLS: dict[str, Any] = {
    "rnn": RNNCell,
    "gru": GRUCell,
    "reset_before_gru": lambda *sizes, **kw: GRUCell(*sizes, reset_after=False, **kw),
    "lstm": LSTMCell,
}
every = pytest.mark.parametrize("kind", CELLS)


def make(kind: str, inputs: int = 3, hidden: int = 4, dtype: Any = np.float64) -> Any:
    return CELLS[kind](inputs, hidden, dtype=dtype, rng=RNG(0))


def state_of(kind: str, batch: int = 2, hidden: int = 4, dtype: Any = np.float64) -> Any:
    rng = RNG(5)
    parts = [rng.standard_normal((batch, hidden)).astype(dtype) for _ in range(2)]
    return (parts[0], parts[1]) if kind == "lstm" else parts[0]


def parts_of(state: Any) -> tuple[Any, ...]:
    return state if isinstance(state, tuple) else (state,)


# The published numbers


def test_gru_with_the_numbers_of_pytorch_and_of_the_paper() -> None:
    for reset_after, expected in ((True, [0.495166, -0.078342]), (False, None)):
        cell = GRUCell(1, 2, reset_after, dtype=np.float64)
        cell.load_state_dict(
            {
                "weight_ih": np.array([[0.1], [0.2], [0.3], [0.4], [0.5], [0.6]]),
                "weight_hh": np.array(
                    [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6], [0.7, 0.8], [0.9, 1.0], [1.1, 1.2]]
                ),
                "bias_ih": np.array([0.01, 0.02, 0.03, 0.04, 0.05, 0.06]),
                "bias_hh": np.array([0.06, 0.05, 0.04, 0.03, 0.02, 0.01]),
            }
        )
        new = cell(np.array([[1.0]]), np.array([[0.5, -0.5]])).data[0]
        if expected is not None:
            np.testing.assert_allclose(new, expected, atol=5e-7)
        else:
            # The published [0.494202, -0.080844] has z as PyTorch does; the paper's z admits the candidate.
            z = 1 / (1 + np.exp(-(np.array([0.3 + 0.03 + 0.04 - 0.05, 0.4 + 0.04 + 0.03 - 0.05]))))
            candidate = (new - (1 - z) * [0.5, -0.5]) / z
            np.testing.assert_allclose(
                (1 - z) * candidate + z * [0.5, -0.5], [0.494202, -0.080844], atol=5e-7
            )


def test_lstm_with_the_numbers_of_pytorch() -> None:
    cell = LSTMCell(1, 1, dtype=np.float64)
    cell.load_state_dict(
        {
            "weight_ih": np.array([[1.0], [2.0], [3.0], [4.0]]),
            "weight_hh": np.array([[0.1], [0.2], [0.3], [0.4]]),
            "bias_ih": np.array([0.0, 1.0, 0.0, 0.0]),
            "bias_hh": np.zeros(4),
        }
    )
    h, c = cell(np.array([[0.5]]), (np.array([[0.2]]), np.array([[-0.3]])))
    assert h.item() == pytest.approx(0.265958, abs=5e-7)
    assert c.item() == pytest.approx(0.308624, abs=5e-7)


@every
@pytest.mark.parametrize(("batch", "inputs", "hidden"), [(2, 3, 4), (1, 1, 1), (3, 1, 2), (1, 4, 1)])
@pytest.mark.parametrize("explicit", [False, True])
def test_each_cell_against_its_equations(
    kind: str, batch: int, inputs: int, hidden: int, explicit: bool
) -> None:
    cell, state, x = (
        make(kind, inputs, hidden),
        state_of(kind, batch, hidden),
        RNG(1).standard_normal((batch, inputs)),
    )
    with ta.explicit() if explicit else ta.scope("plain"):
        found = parts_of(cell(x, state))
    for b in range(batch):
        single = tuple(part[b] for part in state) if kind == "lstm" else state[b]
        expected = cell_step(kind, arrays(cell), x[b], single)
        for part, right in zip(found, expected if kind == "lstm" else (expected,), strict=True):
            assert part.shape == (batch, hidden)
            np.testing.assert_allclose(part.data[b], right, rtol=1e-12, atol=1e-14)


@every
def test_gradients_by_complex_steps(kind: str) -> None:
    cell, state = make(kind), state_of(kind)
    x = RNG(1).standard_normal((2, 3))
    if kind == "lstm":
        assert ta.gradcheck(lambda x, h, c: cell(x, (h, c)), (x, *state), order=2)
        assert ta.gradcheck(cell, (x, None))
    else:
        assert ta.gradcheck(cell, (x, state), order=2)


@every
def test_without_a_state_the_cell_starts_from_zeros(kind: str) -> None:
    cell, x = make(kind), RNG(1).standard_normal((2, 3))
    zeros = np.zeros((2, 4))
    for a, b in zip(
        parts_of(cell(x)), parts_of(cell(x, (zeros, zeros) if kind == "lstm" else zeros)), strict=True
    ):
        np.testing.assert_array_equal(a.data, b.data)


@every
def test_cells_are_pure(kind: str) -> None:
    cell, state, x = make(kind), state_of(kind), RNG(1).standard_normal((2, 3))
    before = [x.copy(), *(part.copy() for part in parts_of(state))]
    first, second = parts_of(cell(x, state)), parts_of(cell(x, state))
    sum((part * part).sum() for part in first).backward()
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a.data, b.data)
    for a, b in zip(before, [x, *parts_of(state)], strict=True):
        np.testing.assert_array_equal(a, b)


@every
@pytest.mark.parametrize("form", ["list", "integers", "integer tensor", "other precision", "empty batch"])
def test_inputs_of_any_kind_of_number(kind: str, form: str) -> None:
    cell = make(kind, dtype=np.float32)
    numbers = np.array([[1, -2, 3], [0, 1, 2]])
    x: Any = {
        "list": numbers.tolist(),
        "integers": numbers,
        "integer tensor": ta.Tensor(numbers),
        "other precision": numbers.astype(np.float64),
        "empty batch": np.zeros((0, 3), np.float32),
    }[form]
    state = state_of(kind, 0 if form == "empty batch" else 2, dtype=np.float32)
    new = parts_of(cell(x, state))
    assert new[0].dtype == (np.float64 if form == "other precision" else np.float32)
    sum(part.sum() for part in new).backward()
    assert all(p.grad is not None and p.grad.dtype == np.float32 for p in cell.parameters())
    if form != "empty batch":
        expected = parts_of(cell(numbers.astype(np.float32), state))
        for a, b in zip(new, expected, strict=True):
            np.testing.assert_allclose(a.data, b.data, rtol=1e-5, atol=1e-6)


@every
def test_states_that_saturate_give_no_warning(kind: str) -> None:
    cell = make(kind, dtype=np.float32)
    x = ta.Tensor(np.array([[1e4, -1e4, 1e4]], np.float32), requires_grad=True)
    parts = parts_of(cell(x))
    sum(part.sum() for part in parts).backward()
    assert all(np.isfinite(part.data).all() for part in parts)
    assert np.isfinite(x.grad).all() and all(np.isfinite(p.grad).all() for p in cell.parameters())


@every
def test_frozen_weights_get_no_gradient_and_pass_it_on(kind: str) -> None:
    cell = make(kind)
    expected = ta.Tensor(RNG(1).standard_normal((2, 3)), requires_grad=True)
    sum(part.sum() for part in parts_of(cell(expected))).backward()
    cell.zero_grad()
    for parameter in cell.parameters():
        parameter.requires_grad = False
    x = ta.Tensor(expected.data, requires_grad=True)
    sum(part.sum() for part in parts_of(cell(x))).backward()
    assert all(p.grad is None for p in cell.parameters())
    np.testing.assert_allclose(x.grad, expected.grad, rtol=1e-13)


@every
@pytest.mark.parametrize("frozen", range(4))
def test_one_frozen_weight_leaves_the_others_gradients(kind: str, frozen: int) -> None:
    x, cell, whole = RNG(1).standard_normal((2, 3)), make(kind), make(kind)
    cell.weights()[frozen].requires_grad = False
    for module in (cell, whole):
        sum((part * part).sum() for part in parts_of(module(x))).backward()
    for i, (a, b) in enumerate(zip(cell.weights(), whole.weights(), strict=True)):
        if i == frozen:
            assert a.grad is None
        else:
            np.testing.assert_allclose(a.grad, b.grad, rtol=1e-13)


WRONG = [
    (np.ones((2, 5)), None, ValueError, "input has 5 features, expected 3"),
    (np.ones(3), None, ValueError, r"input has shape \(3,\), expected \(batch, 3\)"),
    (np.ones((1, 2, 3)), None, ValueError, r"input has shape \(1, 2, 3\), expected \(batch, 3\)"),
]


@every
@pytest.mark.parametrize(("x", "state", "error", "message"), WRONG)
def test_wrong_inputs_are_named(kind: str, x: Any, state: Any, error: type[Exception], message: str) -> None:
    cell = make(kind)
    with pytest.raises(error, match=f"{type(cell).__name__}: {message}"):
        cell(x, state)


@every
@pytest.mark.parametrize("shape", [(2, 5), (3, 4), (4,), (1, 4)])
def test_states_of_a_wrong_shape_are_named(kind: str, shape: tuple[int, ...]) -> None:
    cell, state = make(kind), np.ones(shape)
    message = (
        rf"{type(cell).__name__}: state has shape \({', ?'.join(map(str, shape))},?\), expected \(2, 4\)"
    )
    with pytest.raises(ValueError, match=message):
        cell(np.ones((2, 3)), (np.ones((2, 4)), state) if kind == "lstm" else state)


def test_a_state_of_the_other_kind_is_named() -> None:
    h = ta.Tensor(np.ones((2, 4)))
    with pytest.raises(TypeError, match=r"LSTMCell: state is a Tensor, expected the pair \(h, c\)"):
        make("lstm")(np.ones((2, 3)), h)  # two rows: they would unpack as a pair
    with pytest.raises(TypeError, match=r"GRUCell: state is a tuple, expected one tensor \(batch, 4\)"):
        make("gru")(np.ones((2, 3)), (h, h))


@every
def test_parameters_are_pytorchs(kind: str) -> None:
    cell = make(kind)
    gates = {"rnn": 1, "lstm": 4}.get(kind, 3)
    assert {name: p.shape for name, p in cell.named_parameters()} == {
        "weight_ih": (gates * 4, 3),
        "weight_hh": (gates * 4, 4),
        "bias_ih": (gates * 4,),
        "bias_hh": (gates * 4,),
    }


class Own(ta.nn.Cell):
    """A cell without the usual weights."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        self.sizes = input_size, hidden_size
        rng = np.random.default_rng(0)
        self.mixed = ta.nn.Linear(input_size + hidden_size, hidden_size, rng=rng, dtype=np.float64)

    input_size = property(lambda self: self.sizes[0])
    hidden_size = property(lambda self: self.sizes[1])

    def zero_state(self, batch: int) -> Any:
        return ta.Tensor(np.zeros((batch, self.hidden_size)))

    def forward(self, x: Any, state: Any = None) -> Any:
        return ta.tanh(
            self.mixed(ta.concatenate([x, self.zero_state(len(x)) if state is None else state], -1))
        )


class Bare(ta.nn.Module):
    """The same, but for what tells an encoder of it."""

    def __init__(self, cell: Own) -> None:
        self.cell = cell

    def forward(self, x: Any, state: Any = None) -> Any:
        return self.cell(x, state)


def _with(encoder: Any, decoder: Any) -> Any:
    model = ta.nn.Seq2Seq(9, 9, 3, 4, rng=np.random.default_rng(0), dtype=np.float64)
    if encoder is not None:
        model.encoder.forward_cell, model.encoder.backward_cell = encoder, encoder
    if decoder is not None:
        model.decoder.cell = decoder
    return model


@pytest.mark.parametrize("place", ["encoder", "decoder", "decoder, bare"])
def test_cells_of_ones_own_in_a_model(place: str) -> None:
    encoder, decoder = (Own(3, 4), None) if place == "encoder" else (None, Own(11, 4))
    model = _with(encoder, Bare(Own(11, 4)) if "bare" in place else decoder)
    batch = ta.data.make_batch([([4, 5, 6], [7]), ([4], [8, 5])])
    assert ta.gradcheck(lambda model: model.loss(batch), [model], entries=3)
    found = model.beam_search(batch.source, max_length=4, beam_size=2)
    with ta.explicit():
        same = model.beam_search(batch.source, max_length=4, beam_size=2)
    assert found.tokens.tolist() == same.tokens.tolist()
    assert model.greedy(batch.source, max_length=4).tokens.shape[0] == 2


class Remembering(Own):
    """The same with a running mean of its states beside, and a first mean that is learnt."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.first = ta.Tensor(np.linspace(-1, 1, hidden_size), requires_grad=True)

    def zero_state(self, batch: int) -> Any:
        return super().zero_state(batch), ta.broadcast_to(self.first, (batch, self.hidden_size))

    def forward(self, x: Any, state: Any = None) -> Any:
        h, mean = self.zero_state(len(x)) if state is None else state
        mean = 0.75 * mean + 0.25 * h
        return super().forward(x, mean), mean


class Named(NamedTuple):
    h: Any
    mean: Any


class RememberingByName(Remembering):
    """The same, whose state has names for its parts."""

    def zero_state(self, batch: int) -> Any:
        return Named(*super().zero_state(batch))

    def forward(self, x: Any, state: Any = None) -> Any:
        return Named(*super().forward(x, state and (state.h, state.mean)))


@pytest.mark.parametrize("query", ["previous", "current"])
@pytest.mark.parametrize("cell", [Remembering, RememberingByName])
def test_cells_with_a_state_of_several_parts(query: str, cell: type[Remembering]) -> None:
    model = ta.nn.Seq2Seq(9, 9, 3, 4, query=query, rng=np.random.default_rng(0), dtype=np.float64)
    model.encoder.backward_cell, model.decoder.cell = (
        cell(plain.input_size, 4) for plain in (model.encoder.backward_cell, model.decoder.cell)
    )
    batch = ta.data.make_batch([([4, 5, 6], [7]), ([4], [8, 5])])
    assert ta.gradcheck(lambda model: model.loss(batch), [model], entries=3)
    model.loss(batch).backward()
    assert model.decoder.cell.first.grad.any()
    encoding = model.encode(batch.source)
    assert (
        model.decoder.initial_state(encoding).cell[1].data[1].tolist()
        == model.decoder.cell.first.data.tolist()
    )
    found = model.beam_search(batch.source, max_length=4, beam_size=3)
    whole = np.insert(found.tokens, 0, 1, axis=1)
    logits = model(batch.source, None, whole[:, :-1]).logits.data.copy()
    logits[..., :2] = -np.inf
    scores = np.take_along_axis(ta.log_softmax(logits, axis=-1), found.tokens[..., None], -1)[..., 0]
    totals = np.where(found.tokens > 0, scores, 0).sum(axis=1)
    np.testing.assert_allclose(totals, found.log_probabilities, rtol=1e-12)


def test_an_encoder_needs_cells() -> None:
    model = _with(None, None)
    model.encoder.backward_cell = Bare(Own(3, 4))
    with pytest.raises(TypeError, match=r"backward_cell is a Bare, expected a ta\.nn\.Cell"):
        model.encode(np.array([[4, 5]]))
