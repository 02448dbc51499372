"""A batch shared among processes: the same numbers, whoever computes them and whatever happens to them."""

from __future__ import annotations

import gc
import os
import select
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tests.nn.support import MODELS, largest_error, make_batch
from tinygrad_attn import optim
from tinygrad_attn.engine import workers as crews
from tinygrad_attn.engine.helper import POSSIBLE, Helper
from tinygrad_attn.engine.modes import changed_mode
from tinygrad_attn.engine.workers import Pace, Workers
from tinygrad_attn.nn import Linear, Seq2Seq, sharing

pytestmark = pytest.mark.skipif(not POSSIBLE, reason="no helpers on this system")

Gradients = dict[str, Any]
BATCH = make_batch([5, 1, 3, 4, 2, 5, 2], [3, 1, 2, 4, 1, 2, 3])


def make(variant: str = "bahdanau", dtype: Any = np.float64, **options: Any) -> Seq2Seq:
    settings: dict[str, Any] = {**MODELS[variant], **options}
    return Seq2Seq(9, 8, 3, 4, dtype=dtype, rng=np.random.default_rng(0), **settings)


def await_ready(crew: Workers) -> Workers:
    for number in range(1, crew.count):
        helper = crew.helper(number, sharing.__name__)
        assert helper is not None and select.select([helper._connection], [], [], 60)[0]
    return crew


@pytest.fixture(scope="module")
def helpers() -> Iterator[Workers]:
    """Two that are ready; for tests that leave them so."""
    crew = await_ready(Workers(3))
    yield crew
    crew.close()


@pytest.fixture
def crew() -> Iterator[Workers]:
    """With one that is ready, to be ill-treated."""
    crew = await_ready(Workers(2))
    yield crew
    crew.close()


def process_of(crew: Workers) -> int:
    helper = crew.helper(1, sharing.__name__)
    assert helper is not None
    return int(helper.close.peek()[2][0].pid)


def kill(crew: Workers) -> None:
    os.kill(process_of(crew), signal.SIGKILL)


@pytest.fixture(autouse=True)
def answered(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Large or not, and whether it pays or not, batches are shared; a number for each answer of a helper."""
    monkeypatch.setattr(sharing, "SMALLEST_SHARE", 1)
    monkeypatch.setattr(Pace, "helps", lambda pace: True)
    numbers: list[int] = []
    answer = Helper.answer

    def noted(self: Helper, number: int) -> Any:
        found = answer(self, number)
        if number and found is not None:
            numbers.append(number)
        return found

    monkeypatch.setattr(Helper, "answer", noted)
    return numbers


@contextmanager
def alone(count: int) -> Iterator[None]:
    """In so many parts, all computed by this process, as on Windows."""
    with pytest.MonkeyPatch.context() as patched, changed_mode(workers=Workers(count)):
        patched.setattr(crews, "POSSIBLE", False)
        yield


@contextmanager
def among(helpers: Workers, count: int = 2) -> Iterator[None]:
    crew = Workers(count)
    crew._helpers = helpers._helpers
    with pytest.MonkeyPatch.context() as patched, changed_mode(workers=crew):
        patched.setattr(crews, "POSSIBLE", len(helpers._helpers) >= count - 1)  # no more than there are
        yield


def gradients_of(model: Seq2Seq) -> Gradients:
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def taken(model: Seq2Seq, batch: Any = BATCH) -> tuple[float, Gradients]:
    model.zero_grad()
    loss = model.loss(batch)
    loss.backward()
    return loss.item(), gradients_of(model)


def same(first: tuple[float, Gradients], second: tuple[float, Gradients]) -> bool:
    """Bit by bit."""
    assert first[1].keys() == second[1].keys()
    pairs = [(gradient, second[1][name]) for name, gradient in first[1].items()]
    return first[0] == second[0] and all(
        (a is None and b is None) or (a.dtype == b.dtype and np.array_equal(a, b)) for a, b in pairs
    )


def assert_close(found: tuple[float, Gradients], expected: tuple[float, Gradients], bound: float) -> None:
    assert found[0] == pytest.approx(expected[0], rel=bound)
    for name, gradient in expected[1].items():
        if gradient is None:
            assert found[1][name] is None
        else:
            scale = max(np.abs(other).max() for other in expected[1].values() if other is not None)
            assert np.abs(found[1][name] - gradient).max() <= bound * scale, name


@pytest.mark.parametrize("variant", MODELS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_shared_or_not_it_is_the_same(
    helpers: Workers, answered: list[int], variant: str, dtype: Any
) -> None:
    model = make(variant, dtype)
    whole = taken(model)
    for count in (2, 3, 20):
        with alone(count):
            expected = taken(model)
        assert_close(expected, whole, 1e-12 if dtype is np.float64 else 1e-5)
        answered.clear()
        with among(helpers, count):
            assert same(taken(model), expected)
            assert same(taken(model), expected)
        assert len(answered) == {2: 4, 3: 8, 20: 8}[count]  # of two helpers, forward and back, twice


def test_the_number_of_workers_tells(helpers: Workers) -> None:
    """Parts are summed in order, so a run depends on their number; it must not hang on anything else."""
    model = make(dtype=np.float32)
    with among(helpers, 2):
        two = taken(model)
    with among(helpers, 3):
        three = taken(model)
    assert not same(two, three)


def test_without_padding_and_without_lengths(helpers: Workers, answered: list[int]) -> None:
    model = make()
    for batch in (make_batch([4] * 4, [3] * 4), SimpleNamespace(**{**vars(BATCH), "lengths": None})):
        whole = taken(model, batch)
        with among(helpers):
            assert_close(taken(model, batch), whole, 1e-12)
    assert len(answered) == 4


def test_lists_and_tensors_for_a_batch(helpers: Workers, answered: list[int]) -> None:
    model = make()
    whole = taken(model)
    for kind in (np.ndarray.tolist, ta.Tensor, np.asfortranarray):
        batch = SimpleNamespace(**{name: kind(ids) for name, ids in vars(BATCH).items()})
        with among(helpers):
            assert_close(taken(model, batch), whole, 1e-12)
    assert len(answered) == 6


# Whoever computes


def test_before_a_helper_is_ready() -> None:
    model, crew = make(), Workers(2)
    with alone(2):
        expected = taken(model)
    with changed_mode(workers=crew):
        assert same(taken(model), expected)
    crew.close()


def killed_at_once(crew: Workers, model: Seq2Seq, monkeypatch: pytest.MonkeyPatch) -> tuple[float, Gradients]:
    kill(crew)
    return taken(model)


def killed_within(crew: Workers, model: Seq2Seq, monkeypatch: pytest.MonkeyPatch) -> tuple[float, Gradients]:
    start = Helper.start

    def start_and_kill(self: Helper, *arguments: Any) -> Any:
        os.kill(process_of(crew), signal.SIGSTOP)  # so that it has no answer yet
        call = start(self, *arguments)
        kill(crew)
        return call

    monkeypatch.setattr(Helper, "start", start_and_kill)
    return taken(model)


def killed_between(crew: Workers, model: Seq2Seq, monkeypatch: pytest.MonkeyPatch) -> tuple[float, Gradients]:
    model.zero_grad()
    loss = model.loss(BATCH)
    kill(crew)
    model.eval()  # what was recorded counts, not what the model is now
    loss.backward()
    return loss.item(), gradients_of(model)


def ended_between(crew: Workers, model: Seq2Seq, monkeypatch: pytest.MonkeyPatch) -> tuple[float, Gradients]:
    model.zero_grad()
    loss = model.loss(BATCH)
    crew.close()
    for parameter in model.parameters():
        parameter.data = parameter.data + 1  # another array: the graph has the one that was used
    with changed_mode(workers=None), ta.no_grad(), ta.explicit():
        loss.backward()
    return loss.item(), gradients_of(model)


@pytest.mark.parametrize(
    ("end", "answers"), [(killed_at_once, 0), (killed_within, 0), (killed_between, 1), (ended_between, 1)]
)
def test_a_helper_that_is_gone(
    crew: Workers, answered: list[int], monkeypatch: pytest.MonkeyPatch, end: Callable[..., Any], answers: int
) -> None:
    with alone(2):
        expected = taken(make(dropout=0.3))
    model = make(dropout=0.3)
    with changed_mode(workers=crew):
        assert same(end(crew, model, monkeypatch), expected)
        assert len(answered) == answers


def test_another_thread_computes_by_itself(helpers: Workers, answered: list[int]) -> None:
    model = make()
    with alone(2):
        expected = taken(model)
    results: list[Any] = []

    def work() -> None:
        with among(helpers):
            results.append(taken(model))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert same(results[0], expected) and not answered
    model.zero_grad()
    with among(helpers):
        loss = model.loss(BATCH)
        thread = threading.Thread(target=loss.backward)
        thread.start()
        thread.join()
    assert same((loss.item(), gradients_of(model)), expected) and len(answered) == 1


def test_two_graphs_at_once(helpers: Workers, answered: list[int]) -> None:
    """Models that look alike but for their sizes, walked back in one go and crosswise."""
    one, other = make(), Seq2Seq(9, 8, 3, 1, dtype=np.float64, rng=np.random.default_rng(1))
    later = make_batch([2, 3], [2, 2])
    expected = [taken(one)[1], taken(other, later)[1], taken(one, later)[1]]
    one.zero_grad(), other.zero_grad()
    with among(helpers):
        first, second, third = one.loss(BATCH), other.loss(later), one.loss(later)
        first.backward()
        (third + 2 * second).backward()
    for name, gradient in gradients_of(one).items():
        assert largest_error(gradient, expected[0][name] + expected[2][name]) < 1e-12
    for name, gradient in gradients_of(other).items():
        assert largest_error(gradient, 2 * expected[1][name]) < 1e-12
    assert len(answered) == 6


# What a loss can do


def test_dropout_draws_from_the_models_generator(helpers: Workers, answered: list[int]) -> None:
    def run() -> tuple[list[tuple[float, Gradients]], Any]:
        model = make(dropout=0.4)
        return [taken(model), taken(model)], model.dropout.rng.bit_generator.state

    with alone(2):
        expected, state = run()
    for _ in range(2):
        with among(helpers):
            found, after = run()
        assert all(map(same, found, expected)) and after == state
    assert not same(*expected) and len(answered) == 8
    with among(helpers, 3):
        assert run()[0][0][0] != expected[0][0]
    model = make(dropout=0.4).eval()
    state = model.dropout.rng.bit_generator.state
    with among(helpers):
        assert model.loss(BATCH).item() == pytest.approx(make().loss(BATCH).item(), rel=1e-12)
    assert model.dropout.rng.bit_generator.state == state


@pytest.mark.parametrize("live", [True, False])
def test_second_derivatives(helpers: Workers, live: bool) -> None:
    model = make("luong general", dropout=0.0)
    x = model.decoder.output.weight

    def run() -> list[np.ndarray]:
        (g,) = ta.grad(model.loss(BATCH), x, create_graph=True)
        first = ta.grad((g * g).sum(), [x, model.encoder.forward_cell.weight_hh])
        return [g.data, *(found.data for found in first)]

    expected = run()
    with among(helpers) if live else alone(2):
        assert all(largest_error(*pair) < 1e-10 for pair in zip(run(), expected, strict=True))


def test_second_derivatives_with_dropout_are_those_of_the_loss(helpers: Workers) -> None:
    model = make(dropout=0.4)
    with among(helpers):
        loss = model.loss(BATCH)
        state = model.dropout.rng.bit_generator.state
        first = ta.grad(loss, list(model.parameters()))
        again = ta.grad(loss, list(model.parameters()), create_graph=True)
    assert model.dropout.rng.bit_generator.state == state
    assert all(largest_error(b.data, a.data) < 1e-10 for a, b in zip(first, again, strict=True))


def test_twice_through_the_same_graph(helpers: Workers, answered: list[int]) -> None:
    model = make()
    with among(helpers):
        once = taken(model)[1]
        model.zero_grad()
        loss = model.loss(BATCH)
        loss.backward(retain_graph=True)
        loss.backward()
        with pytest.raises(RuntimeError, match="freed"):
            loss.backward()
    assert all(np.array_equal(parameter.grad, 2 * once[name]) for name, parameter in model.named_parameters())
    assert len(answered) == 5


def test_grad_asks_for_what_is_wanted(helpers: Workers, answered: list[int]) -> None:
    model = make()
    expected = taken(model)[1]
    with among(helpers):
        (found,) = ta.grad(model.loss(BATCH), model.decoder.output.bias, np.array(3.0))
    assert largest_error(found.data, 3 * expected["decoder.output.bias"]) < 1e-12 and len(answered) == 2


def test_nothing_is_recorded_under_no_grad(helpers: Workers, answered: list[int]) -> None:
    model = make()
    with among(helpers), ta.no_grad():
        loss = model.loss(BATCH)
    assert not loss.requires_grad and loss.is_leaf and loss.name == "loss" and len(answered) == 1


def test_frozen_parameters(helpers: Workers, answered: list[int]) -> None:
    model = make()
    model.source_embedding.weight.requires_grad = False
    whole = taken(model)
    assert whole[1]["source_embedding.weight"] is None
    with among(helpers):
        assert_close(taken(model), whole, 1e-12)
        for parameter in model.parameters():
            parameter.requires_grad = False
        assert not model.loss(BATCH).requires_grad
    assert len(answered) == 3


def test_one_weight_in_two_places(helpers: Workers, answered: list[int]) -> None:
    model = Seq2Seq(9, 9, 3, 4, dtype=np.float64, rng=np.random.default_rng(0))
    model.target_embedding.weight = model.source_embedding.weight
    model.encoder.backward_cell = model.encoder.forward_cell
    whole = taken(model)
    with among(helpers):
        assert_close(taken(model), whole, 1e-12)
    assert len(answered) == 2


def test_attributes_that_changed(helpers: Workers, answered: list[int]) -> None:
    model = make()
    batch = make_batch([3, 2, 3, 2], [2, 2, 2, 2])
    batch.source[:, 0] = ta.PAD  # within the lengths
    with among(helpers):
        assert not taken(model, batch)[1]["source_embedding.weight"][ta.PAD].any()
        model.source_embedding.padding_index = None
        assert taken(model, batch)[1]["source_embedding.weight"][ta.PAD].any()
    assert len(answered) == 4


class Louder(Linear):
    def forward(self, x: Any) -> ta.Tensor:
        return 2 * super().forward(x)


class Slower(Seq2Seq):
    def loss(self, batch: Any) -> ta.Tensor:
        return super().loss(batch) * 0.5


def with_louder_output() -> Seq2Seq:
    model = make(dropout=0.3)
    model.decoder.output = Louder(model.decoder.output.weight.shape[1], 8, dtype=np.float64)
    model.decoder.output.weight.data[:] = 0.1
    model.decoder.output.bias.data[:] = np.arange(8)
    return model


def with_mixed_precision() -> Seq2Seq:
    model = make(dropout=0.3)
    model.decoder.output.weight.data = model.decoder.output.weight.data.astype(np.float32)
    return model


def with_another_order() -> Seq2Seq:
    model = make(dropout=0.3)
    model.decoder.output.weight.data = np.asfortranarray(model.decoder.output.weight.data)
    return model


@pytest.mark.parametrize(
    "build",
    [
        lambda: Slower(9, 8, 3, 4, dropout=0.3, rng=np.random.default_rng(0)),
        with_louder_output,
        with_mixed_precision,
        with_another_order,
    ],
    ids=["a subclass", "a part of another class", "mixed precision", "another order"],
)
def test_what_cannot_be_shared_is_computed_whole(
    helpers: Workers, answered: list[int], build: Callable[[], Seq2Seq]
) -> None:
    expected = taken(build())
    with among(helpers):
        assert same(taken(build()), expected)
    assert not answered


def test_explicit_and_watched_losses_are_computed_whole(helpers: Workers, answered: list[int]) -> None:
    model = make()
    with among(helpers):
        for mode in (ta.explicit, ta.detect_anomaly):
            with mode():
                assert model.loss(BATCH).item() == pytest.approx(make().loss(BATCH).item(), rel=1e-12)
        assert not answered
        loss = model.loss(BATCH)
        with ta.explicit():
            loss.backward()
    with alone(2):
        assert same((loss.item(), gradients_of(model)), taken(make()))


def test_helpers_see_updated_parameters(helpers: Workers, answered: list[int]) -> None:
    def trained() -> list[float]:
        model = make(dtype=np.float32)
        optimiser = optim.Adam(list(model.parameters()), lr=0.05)
        losses = []
        for _ in range(6):
            losses.append(taken(model)[0])
            optimiser.step()
        model.load_state_dict(make(dtype=np.float32).state_dict())
        return [*losses, model.loss(BATCH).item()]

    whole = trained()
    with alone(2):
        expected = trained()
    with among(helpers):
        assert trained() == expected
    assert expected == pytest.approx(whole, rel=1e-4) and expected[0] == expected[-1] > 1.05 * expected[5]
    assert len(answered) == 13


def test_stale_graphs_are_found(helpers: Workers) -> None:
    model = make()
    with among(helpers):
        loss = model.loss(BATCH)
        model.load_state_dict(model.state_dict())
        with pytest.raises(RuntimeError, match="written to"):
            loss.backward()


# Batches


def changed(**changes: Any) -> SimpleNamespace:
    return SimpleNamespace(**{**vars(BATCH), **changes})


def at(name: str, row: int, column: int, value: int) -> SimpleNamespace:
    ids = getattr(BATCH, name).copy()
    ids[row, column] = value
    return changed(**{name: ids})


UNSOUND = {
    "a source word": at("source", 0, 0, 9),
    "a source word of another part": at("source", 6, 0, 99),
    "a negative word": at("source", 5, 1, -1),
    "a word beyond the length": at("source", 1, 4, 99),
    "a word beyond all lengths": SimpleNamespace(
        **{**vars(at("source", 6, 4, 99)), "lengths": np.array([5, 1, 3, 2, 2, 2, 2])}
    ),
    "a target word": at("target_in", 6, 1, 8),
    "a target word where none counts": at("target_in", 1, 4, 8),
    "a word to predict": at("target_out", 6, 0, 8),
    "a negative word to predict": at("target_out", 1, 4, -1),
    "floats": changed(source=BATCH.source.astype(float)),
    "floats to predict": changed(target_out=BATCH.target_out.astype(float)),
    "a length of zero": changed(lengths=np.array([5, 0, 3, 4, 2, 5, 2])),
    "a long length": changed(lengths=np.array([5, 1, 3, 4, 2, 6, 2])),
    "too few lengths": changed(lengths=np.array([5, 1])),
    "one axis": changed(source=BATCH.source[0]),
    "no axis": changed(source=np.array(4)),
    "one axis of targets": changed(target_in=BATCH.target_in[0]),
    "fewer targets": changed(target_in=BATCH.target_in[:5]),
    "shorter targets": changed(target_out=BATCH.target_out[:, :2]),
    "no steps": changed(source=BATCH.source[:, :0]),
    "no sentences": SimpleNamespace(**{name: ids[:0] for name, ids in vars(BATCH).items()}),
    "no target": changed(target_in=BATCH.target_in[:, :0], target_out=BATCH.target_out[:, :0]),
    "ragged lists": changed(source=[[4, 5], [6]]),
}


@pytest.mark.parametrize("name", UNSOUND)
def test_unsound_batches_are_refused_as_ever(helpers: Workers, name: str) -> None:
    model = make(dropout=0.2)

    def outcome() -> tuple[Any, Any, Any]:
        model.dropout.rng.bit_generator.state = np.random.default_rng(5).bit_generator.state
        try:
            found: Any = model.loss(UNSOUND[name]).item()
        except (ValueError, TypeError, IndexError) as error:
            found = type(error), str(error), error.__context__ is error.__cause__  # no other error beneath
        return found, model.dropout.rng.bit_generator.state, [part.training for part in model.modules()]

    expected = outcome()
    for within in (lambda: among(helpers), lambda: alone(3)):
        with within():
            assert outcome() == expected
    assert isinstance(expected[0], tuple) or name == "no sentences"


def test_a_part_with_no_word_to_learn(helpers: Workers, answered: list[int]) -> None:
    batch = changed(target_out=BATCH.target_out.copy())
    batch.target_out[3:] = ta.PAD
    model = make()
    whole = taken(model, batch)
    with among(helpers):
        assert same(taken(model, batch), whole)
    assert not answered


def test_an_error_here_leaves_the_helper_usable(
    helpers: Workers, answered: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make()
    with alone(2):
        expected = taken(model)

    class OddError(Exception):
        pass

    def fail(*_: Any) -> Any:
        raise OddError

    with among(helpers):
        with monkeypatch.context() as patched:
            patched.setattr(sharing, "_compute", fail)
            with pytest.raises(OddError):
                model.loss(BATCH)
        assert same(taken(model), expected)
        loss = model.loss(BATCH)
        model.zero_grad()
        with monkeypatch.context() as patched:
            patched.setattr(sharing, "_back", fail)
            with pytest.raises(OddError):
                loss.backward()
        loss.backward()
        assert same((loss.item(), gradients_of(model)), expected)


class Interrupted(BaseException):
    """As Ctrl-C."""


def test_an_interrupt_while_waiting(crew: Workers, answered: list[int]) -> None:
    model = make()
    with alone(2):
        expected = taken(model)

    def interrupt(*_: Any) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        os.kill(process_of(crew), signal.SIGSTOP)  # it will not answer
        with changed_mode(workers=crew):
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(Interrupted):
                model.loss(BATCH)
            assert same(taken(model), expected) and not answered
    finally:
        signal.signal(signal.SIGALRM, before)


# Overflow


def overflowing() -> Seq2Seq:
    """A model whose loss overflows in the second half of `BATCH` alone."""
    model = make(dtype=np.float32)
    model.source_embedding.weight.data[8] = 1e38
    model.encoder.forward_cell.weight_ih.data[:] = 30
    return model


OVERFLOWING = make_batch([3, 3, 3, 3], [2, 2, 2, 2])
OVERFLOWING.source[:] = 4
OVERFLOWING.source[3, 1] = 8


@pytest.mark.parametrize("live", [True, False])
def test_overflow_warns_here(helpers: Workers, live: bool) -> None:
    def caught(how: str) -> Any:
        model = overflowing()
        with warnings.catch_warnings(record=True) as found, np.errstate(all=how):
            warnings.simplefilter("always")
            try:
                model.loss(OVERFLOWING)
            except FloatingPointError as error:
                return str(error)
        return {(warning.category, str(warning.message)) for warning in found}

    expected = {how: caught(how) for how in ("warn", "ignore", "raise")}
    assert expected["warn"] and not expected["ignore"] and "overflow" in expected["raise"]
    with among(helpers) if live else alone(2):
        assert {how: caught(how) for how in expected} == expected


def test_overflow_that_is_ignored_is_no_reason_to_do_it_again(helpers: Workers, answered: list[int]) -> None:
    with among(helpers), np.errstate(all="ignore"):
        overflowing().loss(OVERFLOWING)
    assert len(answered) == 1


# Searches


@pytest.mark.parametrize("search", ["greedy", "beam_search"])
@pytest.mark.parametrize("given", [True, False])
def test_searches(helpers: Workers, answered: list[int], search: str, given: bool) -> None:
    model = make("luong general", dropout=0.5)
    batch = make_batch([5, 1, 3, 2] * 50, [1] * 200)
    lengths = batch.lengths if given else None
    whole = getattr(model, search)(batch.source, lengths, 6)
    for count in (2, 3):
        with among(helpers, count):
            shared = getattr(model, search)(batch.source, lengths, 6)
        with alone(count):
            again = getattr(model, search)(batch.source, lengths, 6)
        assert np.array_equal(shared.tokens, whole.tokens) and np.array_equal(shared.lengths, whole.lengths)
        assert largest_error(shared.log_probabilities, whole.log_probabilities) < 1e-12
        assert largest_error(shared.weights, whole.weights) < 1e-12
        assert all(map(np.array_equal, shared, again))
    assert len(answered) == 3 and all(part.training for part in model.modules())


@pytest.mark.parametrize("search", ["greedy", "beam_search"])
def test_parts_whose_outputs_differ_in_length(helpers: Workers, answered: list[int], search: str) -> None:
    model = Seq2Seq(9, 8, 3, 4, dtype=np.float64, rng=np.random.default_rng(32))
    for parameter in model.parameters():
        parameter.data *= 3
    source = np.repeat([4, 7], 70)[:, None] * [1, 1]
    whole = getattr(model, search)(source, None, 6)
    assert whole.lengths.tolist() == [2] * 70 + [6] * 70
    for rows in (source, source[::-1]):
        whole = getattr(model, search)(rows, None, 6)
        with among(helpers):
            shared = getattr(model, search)(rows, None, 6)
        assert np.array_equal(shared.tokens, whole.tokens) and shared.weights.shape == whole.weights.shape
        assert largest_error(shared.weights, whole.weights) < 1e-12
    assert len(answered) == 2


@pytest.mark.parametrize(
    ("source", "lengths"),
    [
        (np.full((150, 3), 9), None),
        (np.full((150, 3), 4.0), None),
        (np.zeros((150, 3), int), None),
        (np.full((150, 3), 4), np.full(149, 3)),
        (np.full((150, 3), 4), np.full(150, 4)),
        (np.full((150, 3), 4), 3),
        (np.full(150, 4), None),
    ],
)
def test_unsound_searches_are_refused_as_ever(helpers: Workers, source: Any, lengths: Any) -> None:
    def outcome() -> tuple[type[Exception], str]:
        with pytest.raises((ValueError, TypeError, IndexError)) as found:
            make().greedy(source, lengths)
        return type(found.value), str(found.value)

    expected = outcome()
    with among(helpers):
        assert outcome() == expected


def test_nan_in_a_search(helpers: Workers) -> None:
    model = make()
    model.decoder.output.bias.data[3] = np.nan
    with among(helpers), pytest.raises(FloatingPointError, match="the decoder's logits hold NaN"):
        model.greedy(np.full((150, 3), 4))


# Nothing is left behind


def test_three_hundred_steps_leak_nothing(helpers: Workers, answered: list[int]) -> None:
    model, rng = make("no attention"), np.random.default_rng(0)
    optimiser = optim.SGD(list(model.parameters()), lr=0.1)
    with among(helpers):
        taken(model)
        gc.collect()
        files = len(os.listdir("/dev/fd"))
        for _ in range(300):
            size = int(rng.integers(2, 9))
            taken(model, make_batch(rng.integers(1, 9, size).tolist(), rng.integers(1, 3, size).tolist()))
            optimiser.step()
    helper = helpers.helper(1, sharing.__name__)
    assert helper is not None and len(answered) >= 600
    assert helper._end <= 2**17  # a few thousand numbers
    assert len(os.listdir("/dev/fd")) == files


def test_small_batches_start_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    model, crew = make(), Workers(2)
    expected = taken(model)
    with changed_mode(workers=crew):
        assert same(taken(model), expected)
        model.greedy(np.full((150, 3), 4))
    assert not crew._helpers


def test_helpers_that_are_waited_for_are_left_alone_and_the_numbers_stay(
    crew: Workers, answered: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(sharing, "SMALLEST_SHARE", 1)
    answer = Helper.answer

    def slow(self: Helper, number: int) -> Any:
        time.sleep(0.1)
        answered.append(number)
        return answer(self, number)

    monkeypatch.setattr(Helper, "answer", slow)
    model = make()
    with changed_mode(workers=crew):
        first = taken(model)
        assert all(same(taken(model), first) for _ in range(4))
        count = len(answered)
        assert all(same(taken(model), first) for _ in range(5))
    assert 0 < count == len(answered)
    with alone(2):
        assert same(taken(model), first)


def test_processes_end_with_the_block() -> None:
    from tinygrad_attn.train import workers

    model = make()
    found = []
    for error in (None, ZeroDivisionError):
        with pytest.MonkeyPatch.context() as patched:
            helper = Helper

            def noted(program: str, helper: Any = helper) -> Any:
                made = helper(program)
                found.append(made.close.peek()[2][0])
                return made

            patched.setattr(crews, "Helper", noted)
            try:
                with workers(2):
                    loss = model.loss(BATCH)
                    if error:
                        raise error
            except ZeroDivisionError:
                pass
        loss.backward()
    assert len(found) == 2 and all(process.returncode is not None for process in found)
    assert not any(Path(f"/proc/{process.pid}").exists() for process in found)
