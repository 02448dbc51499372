"""The quick steps of a search: what the decoder's own give, and only where it is known what these compute."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tests.nn.support import MODELS, make_batch
from tests.nn.test_search import LENGTHS, make, sentences
from tinygrad_attn.nn import AdditiveAttention, AttentionDecoder, Linear, Module, Seq2Seq, search
from tinygrad_attn.nn.search import Decoded
from tinygrad_attn.nn.stepping import ModuleSteps, PlainSteps, stepping


def kind_of_steps(model: Seq2Seq) -> type:
    """What a search with this model is made of."""
    encoding = make().encode(sentences(), LENGTHS)
    given = make().decoder.memory(encoding), make().decoder.initial_state(encoding)
    return type(stepping(model)(*given))


def both_ways(
    model: Seq2Seq, find: Callable[[Seq2Seq], Decoded], monkeypatch: pytest.MonkeyPatch
) -> tuple[Decoded, Decoded]:
    assert kind_of_steps(model) is PlainSteps
    quick = find(model)
    with monkeypatch.context() as patched:
        patched.setattr(search, "stepping", lambda model: lambda *given: ModuleSteps(model, *given))
        return quick, find(model)


@pytest.mark.parametrize("beam", [1, 2, 5])
@pytest.mark.parametrize("padded", [True, False], ids=["padded", "all of one length"])
@pytest.mark.parametrize("cell", ["rnn", "gru", "reset before", "lstm"])
def test_both_ways_find_the_same(cell: str, padded: bool, beam: int, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"cell": "gru", "reset_after": False} if cell == "reset before" else {"cell": cell}
    lengths = LENGTHS if padded else np.full(40, 5)
    source, varied = sentences(lengths=lengths), 0
    for seed in range(5):
        model = make(**settings, encoder_hidden_size=3, seed=seed)
        for parameter in model.parameters():
            parameter.data *= 2.5
        quick, slow = both_ways(
            model, lambda model: model.beam_search(source, lengths, 12, beam, 0.5), monkeypatch
        )
        varied += len(set(quick.lengths.tolist())) > 1  # sentences have left the others
        assert np.array_equal(quick.tokens, slow.tokens)
        np.testing.assert_allclose(quick.log_probabilities, slow.log_probabilities, rtol=1e-10)
        np.testing.assert_allclose(quick.weights, slow.weights, rtol=1e-9, atol=1e-12)
    assert varied


def test_without_a_bias_and_with_an_output_of_fewer_words(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make()
    model.decoder.output = Linear(model.decoder.output.weight.shape[1], 7, bias=False, dtype=np.float64)
    quick, slow = both_ways(model, lambda model: model.greedy(sentences(), LENGTHS, 6), monkeypatch)
    assert np.array_equal(quick.tokens, slow.tokens)


@pytest.mark.parametrize("scale", [30.0, 1e3, 1e6])
def test_queries_and_keys_beyond_the_reach_of_exponentials(
    scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make()
    attention: Any = model.decoder.attention
    attention.U_a.data[0] *= scale
    attention.W_a.data[1] *= scale
    quick, slow = both_ways(model, lambda model: model.beam_search(sentences(), LENGTHS, 8, 3), monkeypatch)
    assert np.array_equal(quick.tokens, slow.tokens)
    np.testing.assert_allclose(quick.weights, slow.weights, rtol=1e-9, atol=1e-12)


def test_a_source_without_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing takes part, so weights and context are zeros."""
    source = np.array([[3, 4], [0, 0]])
    quick, slow = both_ways(make(), lambda model: model.beam_search(source, [2, 1], 6, 3), monkeypatch)
    assert np.array_equal(quick.tokens, slow.tokens)


class Louder(AdditiveAttention):
    def score(self, query: Any, projected: Any) -> Any:
        return super().score(query, projected) * 2


class Other(AttentionDecoder):
    pass


def with_louder_attention() -> Seq2Seq:
    model = make()
    model.decoder.attention = Louder(4, 8, 5, dtype=np.float64)
    return model


def with_another_decoder() -> Seq2Seq:
    model = make()
    model.decoder.__class__ = Other
    return model


def with_a_step_of_its_own() -> Seq2Seq:
    model = make()
    step = model.decoder.step
    model.decoder.step = lambda *given: step(*given)
    return model


def with_an_embedding_of_its_own() -> Seq2Seq:
    model = make()
    forward = model.target_embedding.forward
    model.target_embedding.forward = lambda ids: forward(ids)
    return model


class Wrapped(Module):
    """Computes what its part does, and has none of the part's attributes."""

    def __init__(self, part: Module) -> None:
        self.part = part

    def forward(self, x: Any) -> Any:
        return self.part(x)


WRAPPABLE = ("decoder.output", "decoder.initial", "target_embedding", "source_embedding")


def with_wrapped(place: str) -> Seq2Seq:
    model = make()
    holder, name = (model.decoder, place[8:]) if place.startswith("decoder.") else (model, place)
    setattr(holder, name, Wrapped(getattr(holder, name)))
    return model


def with_mixed_precision() -> Seq2Seq:
    model = make()
    model.decoder.output = Linear(model.decoder.output.weight.shape[1], 8)
    return model


def with_too_few_embeddings() -> Seq2Seq:
    model = make()
    model.decoder.output = Linear(model.decoder.output.weight.shape[1], 9, dtype=np.float64)
    return model


def with_a_first_state_that_does_not_fit() -> Seq2Seq:
    model = make()
    model.decoder.initial = Linear(4, 1, dtype=np.float64)
    return model


@pytest.mark.parametrize(
    "changed",
    [
        with_a_first_state_that_does_not_fit,
        with_louder_attention,
        with_another_decoder,
        with_a_step_of_its_own,
        with_an_embedding_of_its_own,
        with_mixed_precision,
        with_too_few_embeddings,
        *(partial(with_wrapped, place) for place in WRAPPABLE[:3]),
    ],
)
def test_what_is_not_known_takes_its_own_steps(changed: Callable[[], Seq2Seq]) -> None:
    assert kind_of_steps(make()) is PlainSteps
    assert kind_of_steps(changed()) is ModuleSteps


@pytest.mark.parametrize("place", WRAPPABLE)
def test_layers_of_ones_own(place: str) -> None:
    model, plain, batch = with_wrapped(place), make(), make_batch([4, 1, 3], [2, 5, 1])
    assert model.loss(batch).item() == pytest.approx(plain.loss(batch).item(), rel=1e-12)
    found, expected = (m.beam_search(sentences(), LENGTHS, 5, 3) for m in (model, plain))
    assert np.array_equal(found.tokens, expected.tokens)
    np.testing.assert_allclose(found.log_probabilities, expected.log_probabilities, rtol=1e-10)


def test_parts_that_do_not_fit_are_named() -> None:
    with pytest.raises(ValueError, match="'attention': query has 1 features, expected 4"):
        with_a_first_state_that_does_not_fit().greedy(sentences(), LENGTHS, 5)


@pytest.mark.parametrize("variant", [name for name in MODELS if name not in ("bahdanau", "bahdanau lstm")])
def test_other_decoders_take_their_own_steps(variant: str) -> None:
    assert kind_of_steps(make(variant)) is ModuleSteps


def test_where_someone_looks_on_the_decoder_takes_its_own_steps() -> None:
    with ta.explicit():
        assert kind_of_steps(make()) is ModuleSteps
    with ta.detect_anomaly():
        assert kind_of_steps(make()) is ModuleSteps
