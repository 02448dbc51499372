from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.train.small import small_model, small_task
from tinygrad_attn.data import Split, Task, Vocabulary
from tinygrad_attn.engine import Tensor
from tinygrad_attn.tokens import EOS
from tinygrad_attn.train import evaluate
from tinygrad_attn.train.evaluation import first_sequences, true_sources

LETTERS = Vocabulary(tuple("abcdefgh"))


class Scripted:
    """Stands for a model: given losses for each token, given outputs, uniform weights."""

    def __init__(self, loss_by_length: dict[int, float], outputs: dict[int, list[str]]) -> None:
        self.loss_by_length, self.outputs = loss_by_length, outputs
        self.training = True

    def modules(self) -> list[Scripted]:
        return [self]

    def __call__(self, source: np.ndarray, lengths: np.ndarray, target_in: np.ndarray) -> Any:
        size = len(LETTERS)
        logits = np.zeros((*target_in.shape, size))
        for row, length in enumerate(lengths):
            # The target is the source, then EOS: give exactly this a probability of exp(-loss).
            for step, target in enumerate([*source[row, :length], EOS]):
                p = math.exp(-self.loss_by_length[int(length)])
                logits[row, step, target] = math.log(p / (1 - p) * (size - 1))
        weights = np.full((*target_in.shape, source.shape[1]), 1 / source.shape[1])
        return SimpleNamespace(logits=Tensor(logits), weights=Tensor(weights))

    def greedy(self, source: np.ndarray, lengths: np.ndarray, longest: int) -> Any:
        tokens = np.zeros((len(source), longest), np.int64)
        for row, length in enumerate(lengths):
            ids = [*LETTERS.encode(self.outputs[int(length)]), EOS]
            tokens[row, : len(ids)] = ids
        return SimpleNamespace(tokens=tokens)


def a_split(*references: tuple[str, ...]) -> Split:
    """Sources that are their first reference."""
    tokens = tuple(tuple(tuple(reference) for reference in several) for several in references)
    return Split("test", LETTERS, LETTERS, tuple(several[0] for several in tokens), tokens)


@pytest.mark.parametrize("batch_size", [1, 2])
def test_sums_are_divided_once_however_the_set_is_cut(batch_size: int) -> None:
    """2 tokens of loss 1 and 8 tokens of loss 3: 2.6 for a token, not 2."""
    model = Scripted({1: 1.0, 7: 3.0}, {1: ["a"], 7: list("bbcdefg")})
    found = evaluate(model, a_split(("a",), ("abcdefg",)), batch_size=batch_size)
    assert found.loss == pytest.approx(2.6, rel=1e-12)
    assert (found.tokens, found.sequences, found.exact_match) == (10, 2, 0.5)
    assert found.token_error_rate == 1 / 8  # one wrong of 1 + 7
    assert found.alignment_weight is None and "alignment_weight" not in found.row()


def test_an_output_is_right_if_it_equals_any_reference() -> None:
    model = Scripted({2: 1.0, 3: 1.0}, {2: ["h"], 3: list("abd")})
    found = evaluate(model, a_split(("ab", "h"), ("abc", "hhhh")))
    assert found.exact_match == 0.5
    assert found.token_error_rate == 1 / (1 + 3)


def test_an_unknown_task_is_named() -> None:
    model = small_model().build(8, 8, np.random.default_rng(0))
    with pytest.raises(ValueError, match="evaluate: task is 'sort', expected copy, reverse or None"):
        evaluate(model, small_task().test, task="sort")


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_left_in_its_mode(training: bool) -> None:
    task = small_task()
    model = small_model(dropout=0.5).build(8, 8, np.random.default_rng(0))
    model.train(training)
    model.encoder.training = not training  # a part of its own mind
    state = model.dropout.rng.bit_generator.state
    first, second = (evaluate(model, task.test, task=task.name) for _ in range(2))
    assert first == second
    assert all(module.training is (training is not (module is model.encoder)) for module in model.modules())
    assert model.dropout.rng.bit_generator.state == state

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(model, task.test, after_batch=stop)
    assert model.training is training


@pytest.mark.parametrize("batch_size", [1, 7])
def test_figures_do_not_depend_on_the_batch(batch_size: int) -> None:
    task = small_task()
    model = small_model().build(8, 8, np.random.default_rng(0))
    whole, cut = (
        evaluate(model, task.test, task=task.name, batch_size=size).row() for size in (100, batch_size)
    )
    assert cut == pytest.approx(whole, rel=1e-5)


@pytest.mark.parametrize("name", ["copy", "reverse"])
def test_the_true_alignment_names_the_symbol_that_the_target_has(name: str) -> None:
    batch = next(Task(name).development.batches(200))
    truth = true_sources(name, batch)
    for row, length in enumerate(batch.lengths):
        assert (batch.source[row, truth[row, :length]] == batch.target_out[row, :length]).all()


@pytest.mark.parametrize(("name", "expected"), [("copy", 1.0), ("reverse", 2 / 6)])
def test_alignment_is_measured_at_the_true_position(name: str, expected: float) -> None:
    """Weights on the diagonal are right for copy; for reverse, at the middle of odd lengths alone."""

    class Diagonal(Scripted):
        def __call__(self, source: np.ndarray, lengths: np.ndarray, target_in: np.ndarray) -> Any:
            output = super().__call__(source, lengths, target_in)
            eye = np.eye(target_in.shape[1], source.shape[1])
            return SimpleNamespace(logits=output.logits, weights=Tensor(np.stack([eye] * len(source))))

    lengths = range(1, 4)
    model = Diagonal(dict.fromkeys(lengths, 1.0), {n: list("abc"[:n]) for n in lengths})
    split = a_split(("a",), ("ab",), ("abc",))
    found = evaluate(model, split, task=name)
    assert found.alignment_weight == found.alignment_accuracy == expected


def test_first_sequences() -> None:
    split = a_split(("a",), ("ab",), ("abc",))
    assert first_sequences(split, 3) is split and first_sequences(split, 9) is split
    assert first_sequences(split, 2).sources == split.sources[:2]
