"""Greedy decoding and beam search."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tests.nn.support import MODELS
from tinygrad_attn.nn import Seq2Seq
from tinygrad_attn.nn.search import Decoded
from tinygrad_attn.tokens import BOS, EOS, PAD

RNG = np.random.default_rng
every = pytest.mark.parametrize("variant", MODELS)
LENGTHS = np.array([5, 1, 3, 4, 2, 5])


def make(
    variant: str = "bahdanau", words: int = 8, seed: int = 0, sharpness: float = 4.0, **others: Any
) -> Seq2Seq:
    """An untrained model whose distributions are made sharp, so that searches differ from each other."""
    options = {"embedding_size": 3, "hidden_size": 4, "attention_size": 5} | MODELS[variant] | others
    model = Seq2Seq(9, words, dtype=np.float64, rng=RNG(seed), **options)
    for name, parameter in model.named_parameters():
        parameter.data *= sharpness if name.startswith("decoder.output") else 1.5
    return model


def sentences(seed: int = 1, lengths: np.ndarray = LENGTHS) -> np.ndarray:
    source = RNG(seed).integers(3, 9, (len(lengths), lengths.max()))
    return np.where(np.arange(lengths.max()) < lengths[:, None], source, PAD)


def log_probability(model: Seq2Seq, source: np.ndarray, words: list[int]) -> float:
    """log p of `words` by teacher forcing, where PAD and BOS have no probability."""
    with ta.no_grad():
        logits = model(source[None], None, [[BOS, *words[:-1]]]).logits.data[0]
    logits[:, [PAD, BOS]] = -np.inf
    logits = logits - logits.max(axis=1, keepdims=True)
    return float((logits[np.arange(len(words)), words] - np.log(np.exp(logits).sum(axis=1))).sum())


def step_by_step(model: Seq2Seq, source: np.ndarray, max_length: int) -> list[int]:
    """Greedy decoding from nothing but teacher forcing."""
    words: list[int] = []
    while len(words) < max_length and EOS not in words:
        with ta.no_grad():
            logits = model(source[None], None, [[BOS, *words]]).logits.data[0, -1]
        logits[[PAD, BOS]] = -np.inf
        words.append(int(logits.argmax()))
    return words


def written(decoded: Decoded, b: int) -> list[int]:
    return decoded.tokens[b, : decoded.lengths[b]].tolist()


def check_form(decoded: Decoded, source: np.ndarray, max_length: int) -> None:
    """What holds for the result of any search."""
    rows, longest = decoded.tokens.shape
    assert rows == len(source) and longest == decoded.lengths.max() <= max_length
    assert decoded.weights.shape == (rows, longest, source.shape[1])
    assert not np.isin(decoded.tokens, [BOS]).any()
    for b in range(rows):
        words, rest = decoded.tokens[b, : decoded.lengths[b]], decoded.tokens[b, decoded.lengths[b] :]
        assert (rest == PAD).all() and (words != PAD).all()
        assert (words[:-1] != EOS).all()
        assert words[-1] == EOS or len(words) == max_length
        weights = decoded.weights[b]
        np.testing.assert_allclose(weights[: len(words)].sum(axis=1), 1, rtol=1e-12)
        assert not weights[len(words) :].any() and not weights[:, source[b] == PAD].any()


@every
def test_greedy_takes_the_likeliest_word_at_each_step(variant: str) -> None:
    model, source = make(variant), sentences()
    decoded = model.greedy(source, LENGTHS, 7)
    check_form(decoded, source, 7)
    for b, length in enumerate(LENGTHS):
        words = written(decoded, b)
        assert words == step_by_step(model, source[b, :length], 7)
        assert decoded.log_probabilities[b] == pytest.approx(
            log_probability(model, source[b, :length], words), rel=1e-10
        )
        expected = model(source[b : b + 1, :length], None, [[BOS, *words[:-1]]]).weights.data[0]
        np.testing.assert_allclose(decoded.weights[b, : len(words), :length], expected, rtol=1e-10)


def search(model: Seq2Seq, kind: str, source: Any, lengths: Any) -> Decoded:
    if kind == "greedy":
        return model.greedy(source, lengths, 7)
    return model.beam_search(
        source, lengths, 7, beam_size=3, length_penalty=0.7 if kind == "penalty" else 0.0
    )


@every
@pytest.mark.parametrize("kind", ["greedy", "beam", "penalty"])
def test_results_do_not_depend_on_the_batch_or_its_order(variant: str, kind: str) -> None:
    model, source = make(variant), sentences()
    whole = search(model, kind, source, LENGTHS)
    order = np.array([3, 0, 5, 2, 1, 4])
    mixed = search(model, kind, source[order], LENGTHS[order])
    for place, b in enumerate(order):
        alone = search(model, kind, source[b : b + 1, : LENGTHS[b]], None)
        assert written(whole, b) == written(mixed, place) == written(alone, 0)
        np.testing.assert_allclose(whole.log_probabilities[b], mixed.log_probabilities[place], rtol=1e-12)
        np.testing.assert_allclose(whole.log_probabilities[b], alone.log_probabilities[0], rtol=1e-12)
        count = whole.lengths[b]
        np.testing.assert_allclose(
            whole.weights[b, :count, : LENGTHS[b]], alone.weights[0, :count], rtol=1e-10, atol=1e-15
        )


@every
@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_a_beam_of_one_is_greedy(variant: str, penalty: float) -> None:
    model, source = make(variant), sentences()
    for length in (1, 2, 7):
        a, b = model.greedy(source, LENGTHS, length), model.beam_search(source, LENGTHS, length, 1, penalty)
        np.testing.assert_array_equal(a.tokens, b.tokens)
        np.testing.assert_array_equal(a.lengths, b.lengths)
        np.testing.assert_allclose(a.log_probabilities, b.log_probabilities, rtol=1e-12)
        np.testing.assert_allclose(a.weights, b.weights, rtol=1e-12)


@every
@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0, 2.0])
def test_a_beam_as_wide_as_the_space_finds_the_best_of_all(variant: str, penalty: float) -> None:
    """Three words (UNK and two others) besides EOS, up to four of them: every sequence is tried."""
    limit, differs = 4, False
    model, source = make(variant, words=6, sharpness=2.0), sentences()
    decoded = model.beam_search(source, LENGTHS, limit, beam_size=3**limit, length_penalty=penalty)
    check_form(decoded, source, limit)
    for b in range(2):
        everything = [
            [*words, EOS] for count in range(limit) for words in itertools.product((3, 4, 5), repeat=count)
        ] + [list(words) for words in itertools.product((3, 4, 5), repeat=limit)]
        by_length: dict[int, list[list[int]]] = {}
        for words in everything:
            by_length.setdefault(len(words), []).append(words)
        scores: dict[tuple[int, ...], float] = {}
        for group in by_length.values():
            rows = np.repeat(source[b : b + 1, : LENGTHS[b]], len(group), axis=0)
            with ta.no_grad():
                logits = model(rows, None, [[BOS, *words[:-1]] for words in group]).logits.data
            logits[..., [PAD, BOS]] = -np.inf
            logits -= np.log(np.exp(logits).sum(axis=-1, keepdims=True))
            for words, z in zip(group, logits, strict=True):
                scores[tuple(words)] = float(z[np.arange(len(words)), words].sum())
        best = max(scores, key=lambda words: scores[words] / len(words) ** penalty)
        assert tuple(written(decoded, b)) == best
        assert decoded.log_probabilities[b] == pytest.approx(scores[best], rel=1e-10)
        differs |= written(model.greedy(source[b : b + 1], None, limit), 0) != list(best)
    if variant == "bahdanau" and penalty == 2.0:
        assert differs  # else the test would show nothing


@every
def test_beam_search_scores_what_it_returns(variant: str) -> None:
    model, source = make(variant), sentences()
    greedy, decoded = model.greedy(source, LENGTHS, 7), model.beam_search(source, LENGTHS, 7, beam_size=4)
    check_form(decoded, source, 7)
    for b, length in enumerate(LENGTHS):
        words = written(decoded, b)
        assert decoded.log_probabilities[b] == pytest.approx(
            log_probability(model, source[b, :length], words), rel=1e-10
        )
        expected = model(source[b : b + 1, :length], None, [[BOS, *words[:-1]]]).weights.data[0]
        np.testing.assert_allclose(decoded.weights[b, : len(words), :length], expected, rtol=1e-10)
    assert (decoded.log_probabilities >= greedy.log_probabilities - 1e-9).mean() > 0.8


class OneQueryAtATime(ta.nn.AdditiveAttention):
    """An attention that knows nothing of many queries at once."""

    def score(self, query: Any, projected: Any) -> Any:
        assert query.ndim == 2
        return super().score(query, projected)


class OneRowAtATime(ta.nn.AttentionDecoder):
    """A decoder whose step needs a row of the memory for each state."""

    def step(self, token_embedding: Any, state: Any, memory: Any) -> Any:
        assert len(token_embedding) == len(memory.annotations) and memory.candidates == 1
        return super().step(token_embedding, state, memory)


@pytest.mark.parametrize("query", ["previous", "current"])
def test_subclasses_run_as_they_are_written(query: str) -> None:
    source = sentences()
    expected = make(query=query).beam_search(source, LENGTHS, 7, beam_size=3)
    for what in ("attention", "decoder"):
        model = make(query=query)
        if what == "attention":
            model.decoder.attention.__class__ = OneQueryAtATime
        else:
            model.decoder.__class__ = OneRowAtATime
        found = model.beam_search(source, LENGTHS, 7, beam_size=3)
        np.testing.assert_array_equal(found.tokens, expected.tokens)
        np.testing.assert_allclose(found.log_probabilities, expected.log_probabilities, rtol=1e-12)
        np.testing.assert_allclose(found.weights, expected.weights, rtol=1e-12, atol=1e-15)


@every
@pytest.mark.parametrize("kind", ["greedy", "beam", "penalty"])
def test_sentences_can_be_decoded_in_parts(variant: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, source = make(variant), sentences()
    whole = search(model, kind, source, LENGTHS)
    for rows in (1, 4, 6, 7):
        monkeypatch.setattr("tinygrad_attn.nn.search.ROWS_AT_A_TIME", rows)
        parts = search(model, kind, source, LENGTHS)
        np.testing.assert_array_equal(parts.tokens, whole.tokens)
        np.testing.assert_array_equal(parts.lengths, whole.lengths)
        np.testing.assert_allclose(parts.log_probabilities, whole.log_probabilities, rtol=1e-12)
        np.testing.assert_allclose(parts.weights, whole.weights, rtol=1e-10, atol=1e-15)


@every
@pytest.mark.parametrize("candidates", [1, 3])
def test_a_step_for_several_candidates_is_one_for_each(variant: str, candidates: int) -> None:
    model, source = make(variant), sentences()
    encoding = model.encode(source, LENGTHS)
    memory, state = model.decoder.memory(encoding), model.decoder.initial_state(encoding)
    rows = np.repeat(np.arange(len(source)), candidates)
    words = model.target_embedding(RNG(3).integers(3, 8, len(rows)))

    def of_rows(part: Any) -> Any:
        if part is None:
            return None
        return tuple(of_rows(each) for each in part) if isinstance(part, tuple) else part[rows]

    several = type(state)(*(of_rows(part) for part in state))
    repeated = type(memory)(*(of_rows(part) for part in memory[:3]))
    together = model.decoder.step(words, several, memory._replace(candidates=candidates))
    each = model.decoder.step(words, several, repeated)
    for name in ("s", "context", "weights", "scores", "logits"):
        np.testing.assert_allclose(
            getattr(together, name).data, getattr(each, name).data, rtol=1e-10, atol=1e-14
        )
    with pytest.raises(ValueError, match=f"there are 6 rows of words, expected {6 * 4}"):
        model.decoder.step(words[:6], state, memory._replace(candidates=4))


def biased(word: int, amount: float) -> Seq2Seq:
    model = make()
    model.decoder.output.bias.data[word] += amount
    return model


@pytest.mark.parametrize("kind", ["greedy", "beam", "penalty"])
def test_pad_and_bos_are_never_written(kind: str) -> None:
    for word in (PAD, BOS):
        decoded = search(biased(word, 1e4), kind, sentences(), LENGTHS)
        check_form(decoded, sentences(), 7)
        assert np.isfinite(decoded.log_probabilities).all()


@pytest.mark.parametrize("kind", ["greedy", "beam", "penalty"])
def test_a_sentence_may_end_at_once_or_never(kind: str) -> None:
    at_once = search(biased(EOS, 1e4), kind, sentences(), LENGTHS)
    assert at_once.tokens.tolist() == [[EOS]] * 6
    assert all(words.size == 0 for words in at_once.sequences())
    never = search(biased(EOS, -1e4), kind, sentences(), LENGTHS)
    assert never.tokens.shape == (6, 7) and EOS not in never.tokens
    assert [len(words) for words in never.sequences()] == [7] * 6


def test_a_vocabulary_of_nothing_but_special_tokens() -> None:
    model = Seq2Seq(4, 3, 2, 2, rng=RNG(0))
    for decoded in (model.greedy([[3]], None, 5), model.beam_search([[3]], None, 5, 4)):
        assert decoded.tokens.tolist() == [[EOS]] and decoded.log_probabilities.tolist() == [0]


def test_an_empty_batch() -> None:
    model, nothing = make(), np.zeros((0, 3), int)
    for decoded in (model.greedy(nothing, None, 5), model.beam_search(nothing, None, 5, 2)):
        assert (
            decoded.tokens.shape == (0, 0)
            and decoded.weights.shape == (0, 0, 3)
            and decoded.sequences() == []
        )


def test_a_search_leaves_the_model_as_it_was_and_records_nothing() -> None:
    model = make(dropout=0.5)
    model.encoder.eval()
    modes = [module.training for module in model.modules()]
    state = model.dropout.rng.bit_generator.state
    first, second = model.greedy(sentences(), LENGTHS, 5), model.greedy(sentences(), LENGTHS, 5)
    np.testing.assert_array_equal(first.tokens, second.tokens)
    assert [module.training for module in model.modules()] == modes
    assert model.dropout.rng.bit_generator.state == state
    with pytest.raises(IndexError):
        model.greedy([[99]], None, 5)
    assert [module.training for module in model.modules()] == modes
    assert model(sentences(), LENGTHS, np.ones((6, 1), int)).logits.requires_grad


def test_searches_of_several_threads_leave_the_model_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(dropout=0.5)
    expected = model.greedy(sentences(), LENGTHS, 5)
    both = threading.Barrier(2, timeout=60)
    encode = model.encode

    def together(source: Any, lengths: Any) -> Any:
        both.wait()
        return encode(source, lengths)

    monkeypatch.setattr(model, "encode", together)
    with ThreadPoolExecutor(2) as threads:
        found = [threads.submit(model.greedy, sentences(), LENGTHS, 5) for _ in range(2)]
        for each in found:
            np.testing.assert_array_equal(each.result().tokens, expected.tokens)
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_logits_that_are_not_finite_are_an_error(value: float) -> None:
    model = make()
    model.decoder.output.bias.data[4] = value
    for kind in ("greedy", "beam"):
        with pytest.raises(FloatingPointError, match="logits hold NaN or infinity"):
            search(model, kind, sentences(), LENGTHS)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: m.greedy([[4]], None, 0), ValueError, "greedy: max_length is 0, expected at least 1"),
        (lambda m: m.greedy([[4]], None, 2.5), TypeError, "greedy: max_length is 2.5, expected an integer"),
        (
            lambda m: m.beam_search([[4]], None, 5, 0),
            ValueError,
            "beam_search: beam_size is 0, expected at least 1",
        ),
        (lambda m: m.beam_search([[4]], None, -1, 2), ValueError, "beam_search: max_length is -1"),
        (
            lambda m: m.beam_search([[4]], None, 5, 2, np.nan),
            ValueError,
            "beam_search: length_penalty is nan",
        ),
        (
            lambda m: m.beam_search([[4]], None, 5, 2, None),
            TypeError,
            "beam_search: length_penalty is None, expected a number",
        ),
        (
            lambda m: m.beam_search([[4]], None, 100, 2, -400.0),
            ValueError,
            "beam_search: length_penalty is -400.0, so large that 100",
        ),
        (lambda m: m.greedy([4], None, 5), ValueError, r"Seq2Seq: source has shape \(1,\)"),
    ],
)
def test_wrong_settings_are_named(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(make())


def result_or_message(search: Any) -> Decoded | str:
    try:
        result: Decoded = search(sentences(), LENGTHS, 5)
    except FloatingPointError as error:
        return str(error)
    return result


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e308])
def test_weights_that_are_not_finite_give_one_error_or_none(value: float) -> None:
    """No warning, which would be an error here: `FloatingPointError`, or, where it does no harm, a result."""
    for name, _ in make().named_parameters():
        model = make()
        dict(model.named_parameters())[name].data.flat[-1] = value
        for search in (model.greedy, model.beam_search):
            found = result_or_message(search)
            if isinstance(found, str):
                assert "so no word is the likeliest; look at the weights" in found
            else:
                assert np.isfinite(found.log_probabilities).all()


def test_no_word_that_is_possible() -> None:
    model = make()
    model.decoder.output.bias.data[2:] = -np.inf
    for search in (lambda: model.greedy([[4]], None, 5), lambda: model.beam_search([[4]], None, 5, 3)):
        with pytest.raises(FloatingPointError, match="so no word is the likeliest"):
            search()


def test_penalties_as_large_as_floats_allow() -> None:
    for penalty in (-100.0, 100.0):
        decoded = make().beam_search(sentences(), LENGTHS, 6, 3, penalty)
        assert np.isfinite(decoded.log_probabilities).all() and decoded.lengths.min() > 0
