"""The decoder: one step and the unrolled sequence, both queries, every cell, input feeding, maxout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tests.nn.support import arrays, cell_step, largest_error
from tinygrad_attn.nn import AttentionDecoder, BidirectionalEncoder, DecoderState, Encoding

RNG = np.random.default_rng
E, H, V, WORDS, B, T, N = 3, 4, 6, 7, 2, 5, 3

VARIANTS: dict[str, dict[str, Any]] = {
    "bahdanau": {},
    "bahdanau lstm": {"cell": "lstm"},
    "bahdanau rnn": {"cell": "rnn"},
    "the paper's": {"reset_after": False, "output": "maxout"},
    "luong": {"query": "current"},
    "luong input feeding": {"query": "current", "input_feeding": True},
    "luong lstm input feeding": {"query": "current", "input_feeding": True, "cell": "lstm"},
    "luong rnn": {"query": "current", "cell": "rnn"},
}
ATTENTIONS = ("additive", "concat", "general", "none")
every = pytest.mark.parametrize("variant", VARIANTS)
both = pytest.mark.parametrize("explicit", [False, True], ids=["kernel", "definition"])


def mode(explicit: bool) -> Any:
    return ta.explicit() if explicit else ta.scope("plain")


def make(
    variant: str = "bahdanau", attention: str = "additive", dtype: Any = np.float64, **others: Any
) -> Any:
    from tinygrad_attn.nn.attention import make_attention

    rng = RNG(0)
    options: dict[str, Any] = {"dtype": dtype, "rng": rng}
    family = make_attention(attention, H, V, 5, **options)
    return AttentionDecoder(E, H, V, WORDS, family, **VARIANTS[variant], **others, **options)


def encoding(lengths: Any = (5, 2), dtype: Any = np.float64, grad: bool = False) -> Encoding:
    rng = RNG(1)
    mask = np.arange(T) < np.array(lengths)[:, None]
    values = np.where(mask[..., None], rng.standard_normal((B, T, V)), 0).astype(dtype)
    states = [rng.standard_normal((B, V // 2)).astype(dtype) for _ in range(2)]
    return Encoding(*(ta.Tensor(x, requires_grad=grad) for x in (values, *states)), mask)


def words(dtype: Any = np.float64) -> np.ndarray:
    return RNG(2).standard_normal((B, N, E)).astype(dtype)


def stepwise(decoder: Any, embedded: Any, source: Encoding) -> list[Any]:
    memory, state = decoder.memory(source), decoder.initial_state(source)
    steps = []
    for i in range(embedded.shape[1]):
        steps.append(decoder.step(embedded[:, i], state, memory))
        state = steps[-1].state
    return steps


@every
@pytest.mark.parametrize("attention", ATTENTIONS)
@both
def test_steps_equal_the_unrolled_sequence(variant: str, attention: str, explicit: bool) -> None:
    decoder, results = make(variant, attention), []
    for whole in (True, False):
        source, embedded = encoding(grad=True), ta.Tensor(words(), requires_grad=True)
        decoder.zero_grad()
        with mode(explicit):
            if whole:
                unrolled = decoder.unroll(embedded, source)
                logits, steps = unrolled.logits, unrolled.steps
            else:
                steps = stepwise(decoder, embedded, source)
                logits = ta.stack([step.logits for step in steps], axis=1)
        (logits * RNG(3).standard_normal((B, N, WORDS))).sum().backward()
        results.append(
            [
                logits.data,
                *(part.data for step in steps for part in (step.s, step.context, step.weights, step.scores)),
                embedded.grad,
                source.annotations.grad,
                source.backward_state.grad,
                *(p.grad for p in decoder.parameters() if not (attention == "none" and p.grad is None)),
            ]
        )
    for a, b in zip(*results, strict=True):
        assert largest_error(a, b) < 1e-12


@every
@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_logits_alone_equal_those_of_the_unrolled_sequence(
    variant: str, attention: str, dtype: Any
) -> None:
    decoder, results = make(variant, attention, dtype), []
    for fast in (False, True):
        source, embedded = encoding(dtype=dtype, grad=True), ta.Tensor(words(dtype), requires_grad=True)
        decoder.zero_grad()
        logits = decoder.logits(embedded, source) if fast else decoder.unroll(embedded, source).logits
        assert logits.dtype == dtype and logits.name == "logits"
        (logits * RNG(3).standard_normal((B, N, WORDS)).astype(dtype)).sum().backward()
        results.append(
            [
                logits.data,
                embedded.grad,
                source.annotations.grad,
                source.backward_state.grad,
                *(p.grad for p in decoder.parameters() if p.grad is not None),
            ]
        )
    for a, b in zip(*results, strict=True):
        assert largest_error(a, b) < (1e-12 if dtype == np.float64 else 2e-5)


def test_subclasses_run_as_they_are_written() -> None:
    class Sharp(ta.nn.AdditiveAttention):
        def score(self, query: Any, projected: Any) -> Any:
            return 10 * super().score(query, projected)

    class Doubled(ta.nn.GRUCell):
        def forward(self, x: Any, state: Any = None) -> Any:
            return 2 * super().forward(x, state)

    for change in ("attention", "cell"):
        decoder = make()
        if change == "attention":
            decoder.attention = Sharp(H, V, 5, dtype=np.float64, rng=RNG(0))
        else:
            decoder.cell = Doubled(E + V, H, dtype=np.float64, rng=RNG(0))
        source = encoding()
        np.testing.assert_allclose(
            decoder.logits(words(), source).data, decoder.unroll(words(), source).logits.data, rtol=1e-12
        )


class Louder(ta.nn.AttentionDecoder):
    """Its step is its own."""

    def step(self, token_embedding: Any, state: Any, memory: Any) -> Any:
        taken = super().step(token_embedding, state, memory)
        assert taken.logits is not None
        return taken._replace(logits=3 * taken.logits)


@every
@pytest.mark.parametrize("how", ["class", "attribute"])
def test_a_step_of_ones_own_counts_in_the_unrolled_sequence_and_the_loss(variant: str, how: str) -> None:
    decoder = make(variant)
    source, plain = encoding(), make(variant).unroll(words(), encoding()).logits.data
    if how == "class":
        decoder.__class__ = Louder
    else:
        usual = decoder.step
        decoder.step = lambda *inputs: usual(*inputs)._replace(logits=3 * usual(*inputs).logits)
    for logits in (decoder.unroll(words(), source).logits, decoder.logits(words(), source)):
        np.testing.assert_allclose(logits.data, 3 * plain, rtol=1e-12)
    assert len(decoder.unroll(words(), source).steps) == N


def test_a_step_without_logits_is_an_error() -> None:
    decoder = make()
    usual = decoder.step
    decoder.step = lambda *inputs: usual(*inputs)._replace(logits=None)
    with pytest.raises(ValueError, match="its step gives no logits"):
        decoder.unroll(words(), encoding())


def linear(layer: Any, x: np.ndarray) -> np.ndarray:
    return layer.weight.data @ x + layer.bias.data


@every
def test_against_the_equations(variant: str) -> None:
    """Every quantity of two steps, sentence by sentence, from the equations of Bahdanau and of Luong."""
    decoder, source, embedded = make(variant), encoding(), words()
    unrolled = decoder.unroll(embedded, source)
    attention, kind = decoder.attention, decoder.cell.kind
    for b in range(B):
        h = source.annotations.data[b][source.mask[b]]
        s = np.tanh(linear(decoder.initial, source.backward_state.data[b]))
        np.testing.assert_allclose(unrolled.initial.s.data[b], s, rtol=1e-13)
        memory, attentional = np.zeros(H), np.zeros(H)

        def attend(query: np.ndarray, h: np.ndarray = h) -> tuple[np.ndarray, np.ndarray]:
            e = np.tanh(attention.W_a.data @ query + h @ attention.U_a.data.T) @ attention.v_a.data
            alpha = np.exp(e) / np.exp(e).sum()
            return alpha, alpha @ h

        for i in range(N):
            word = embedded[b, i]
            previous = decoder.query == "previous"
            if previous:
                alpha, c = attend(s)
                entering = np.concatenate([word, c])
            else:
                entering = np.concatenate([word, attentional]) if decoder.input_feeding else word
            state = (s, memory) if kind == "lstm" else s
            new = cell_step(kind, arrays(decoder.cell), entering.tolist(), state)
            s, memory = map(np.array, new) if kind == "lstm" else (np.array(new), memory)
            if previous:
                read = np.concatenate([s, c, word])
                if decoder.deep is not None:
                    deep = linear(decoder.deep, read)
                    read = np.maximum(deep[0::2], deep[1::2])
            else:
                alpha, c = attend(s)
                read = attentional = np.tanh(linear(decoder.combine, np.concatenate([c, s])))
            step = unrolled.steps[i]
            np.testing.assert_allclose(step.s.data[b], s, rtol=1e-12)
            np.testing.assert_allclose(step.context.data[b], c, rtol=1e-12)
            np.testing.assert_allclose(step.weights.data[b, : len(h)], alpha, rtol=1e-12)
            assert not step.weights.data[b, len(h) :].any()
            np.testing.assert_allclose(
                unrolled.logits.data[b, i], linear(decoder.output, read), rtol=1e-11, atol=1e-13
            )


# Which state asks


@every
def test_the_first_step_looks_at_the_source(variant: str) -> None:
    """With s_0 fixed, other annotations change the first logits; the first weights are a distribution."""
    decoder, source = make(variant), encoding()
    state = decoder.initial_state(source)
    first = decoder.step(words()[:, 0], state, source)
    np.testing.assert_allclose(first.weights.data.sum(axis=1), 1, rtol=1e-14)
    changed = source._replace(annotations=source.annotations * 2)
    assert np.abs(decoder.step(words()[:, 0], state, changed).logits.data - first.logits.data).max() > 1e-3


@every
def test_which_state_asks(variant: str) -> None:
    """Bahdanau's weights depend on s_{t-1}, not on the token fed at t; Luong's on s_t, so on that token."""
    decoder, source = make(variant), encoding()
    state = decoder.initial_state(source)
    first, other = (decoder.step(x, state, source) for x in (words()[:, 0], words()[:, 1]))
    same = np.array_equal(first.weights.data, other.weights.data)
    assert same == (decoder.query == "previous")
    assert not np.array_equal(first.logits.data, other.logits.data)
    moved = decoder.step(words()[:, 0], first.state, source)
    assert not np.array_equal(moved.weights.data, first.weights.data)


# States


def test_the_initial_state_is_read_from_the_backward_state_at_the_first_position() -> None:
    """s_0 = tanh(W_s · ←h_1), Bahdanau A.2.2, by way of a real encoder."""
    rng = RNG(0)
    encoder = BidirectionalEncoder(E, V // 2, dtype=np.float64, rng=rng)
    decoder, source = make(), encoder(rng.standard_normal((B, T, E)), [5, 2])
    expected = np.tanh(
        source.annotations.data[:, 0, V // 2 :] @ decoder.initial.weight.data.T + decoder.initial.bias.data
    )
    np.testing.assert_allclose(decoder.initial_state(source).s.data, expected, rtol=1e-13)


def test_a_bare_state_will_do() -> None:
    for variant in ("bahdanau", "bahdanau lstm", "luong"):
        decoder, source = make(variant), encoding()
        state = decoder.initial_state(source)
        a, b = (decoder.step(words()[:, 0], given, source) for given in (state, state.cell))
        np.testing.assert_array_equal(a.logits.data, b.logits.data)


def test_input_feeding_needs_the_attentional_state() -> None:
    decoder, source = make("luong input feeding"), encoding()
    bare = DecoderState(decoder.initial_state(source).s)
    with pytest.raises(ValueError, match="lacks the attentional state; begin with initial_state"):
        decoder.step(words()[:, 0], bare, source)


def test_without_padding_no_mask_is_needed() -> None:
    decoder, source = make(), encoding((5, 5))
    a, b = (decoder.unroll(words(), given).logits.data for given in (source, source._replace(mask=None)))
    np.testing.assert_array_equal(a, b)


# Derivatives


@every
@pytest.mark.parametrize("attention", ["additive", "general"])
def test_gradients_by_complex_steps(variant: str, attention: str) -> None:
    decoder, source = make(variant, attention), encoding()

    def logits(embedded: Any, annotations: Any, backward_state: Any) -> Any:
        given = Encoding(annotations, source.forward_state, backward_state, source.mask)
        return decoder.logits(embedded, given)

    inputs = (words(), source.annotations.data, source.backward_state.data)
    assert ta.gradcheck(logits, inputs)


def test_second_derivatives() -> None:
    for variant in ("bahdanau", "luong lstm input feeding"):
        decoder, source = make(variant), encoding()
        assert ta.gradcheck(lambda x, d=decoder, s=source: d.logits(x, s), (words()[:, :2],), order=2)


@every
def test_padded_annotations_get_no_gradient(variant: str) -> None:
    decoder, source = make(variant), encoding(grad=True)
    (decoder.logits(words(), source) ** 2).sum().backward()
    assert not source.annotations.grad[~source.mask].any()
    assert source.annotations.grad[source.mask].all()


def test_dropout_draws_the_same_for_the_logits_and_the_unrolled_sequence() -> None:
    for variant in VARIANTS:
        results = []
        for fast in (False, True):
            decoder, source = make(variant, dropout=0.5), encoding()
            results.append(
                decoder.logits(words(), source) if fast else decoder.unroll(words(), source).logits
            )
        np.testing.assert_allclose(results[0].data, results[1].data, rtol=1e-11, atol=1e-13)
        assert not np.allclose(results[0].data, decoder.eval().logits(words(), source).data)


# Scopes and wrong uses


def test_scopes() -> None:
    model = ta.nn.Seq2Seq(7, 7, 3, 4, rng=RNG(0))
    output = model(np.array([[4, 5]]), None, np.array([[1, 4]]))
    assert output.annotations._scope.path() == "encoder"
    assert output.steps[1].weights._scope.path() == "decoder/step 2/attention"
    assert output.steps[1].s._scope.path() == "decoder/step 2/cell"
    assert output.logits._scope.path() == "decoder/output"
    assert output.initial.s._scope.path() == "decoder"


WRONG: dict[str, tuple[Any, str]] = {
    "width": (lambda d, s: d.unroll(np.ones((B, N, 5)), s), "an embedded word has 5 features, expected 3"),
    "width of a step": (
        lambda d, s: d.step(np.ones((B, 5)), d.initial_state(s), s),
        "an embedded word has 5 features",
    ),
    "axes": (
        lambda d, s: d.unroll(np.ones((B, E)), s),
        r"embedded words have shape \(2, 3\), expected \(batch, steps",
    ),
    "axes of a step": (
        lambda d, s: d.step(words(), d.initial_state(s), s),
        r"shape \(2, 3, 3\), expected \(batch, feat",
    ),
    "no steps": (lambda d, s: d.logits(np.ones((B, 0, E)), s), "with at least one step"),
    "batch": (
        lambda d, s: d.logits(np.ones((3, N, E)), s),
        "there are 3 rows of words, expected 2 as in the source",
    ),
    "batch of a step": (
        lambda d, s: d.step(np.ones((1, E)), d.initial_state(s), s),
        "there are 1 rows of words",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_inputs_are_named(case: str) -> None:
    call, message = WRONG[case]
    with pytest.raises(ValueError, match=f"AttentionDecoder: .*{message}"):
        call(make(), encoding())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"query": "next"}, "query: 'next' is not one of previous, current"),
        ({"output": "softmax"}, "output: 'softmax' is not one of linear, maxout"),
        ({"input_feeding": True}, "input_feeding needs query='current'"),
        ({"query": "current", "output": "maxout"}, "output='maxout' needs query='previous'"),
        ({"cell": "qrnn"}, "cell: 'qrnn' is not one of gru, lstm, rnn"),
        ({"dropout": 1.5}, "Dropout: probability 1.5"),
    ],
)
def test_wrong_settings_are_named(options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AttentionDecoder(E, H, V, WORDS, ta.nn.AdditiveAttention(H, V, 5), **options)
