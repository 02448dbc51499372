"""How good a model is on a fixed set: the loss given the right prefix, and what it writes on its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from tinygrad_attn.data import TASKS, Batch, Split
from tinygrad_attn.engine import no_grad
from tinygrad_attn.nn import Seq2Seq
from tinygrad_attn.nn.module import evaluating
from tinygrad_attn.ops import cross_entropy
from tinygrad_attn.tokens import PAD
from tinygrad_attn.train.scores import nearest_reference, right_tokens, spelled

BATCH = 256
"""Sequences decoded at once; the results do not depend on it."""


@dataclass(frozen=True)
class Evaluation:
    """The figures of one evaluation.

    Sums over tokens or sequences are divided once, at the end, so that they do not depend on how the set is
    cut into batches; padding never counts.
    """

    sequences: int
    tokens: int
    """Target tokens, EOS included, of the first reference of each source."""
    loss: float
    """Mean negative log-likelihood of a token in nats, given the tokens before it."""
    token_accuracy: float
    """Share of these tokens that are the likeliest, given the tokens before them."""
    exact_match: float
    """Share of the sources whose greedy output equals a reference as a whole."""
    token_error_rate: float
    """Edit distances of greedy output and nearest reference, summed, by the summed length of the latter."""
    alignment_weight: float | None = None
    """Mean weight on the source position that an output symbol comes from, where known (toy tasks)."""
    alignment_accuracy: float | None = None
    """Share of output symbols whose largest weight lies on that position."""

    def row(self) -> dict[str, float | int]:
        """The figures that are known, for a row of metrics."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def first_sequences(split: Split, count: int) -> Split:
    """The first `count` sequences of `split`, or all of them."""
    if count >= len(split):
        return split
    return Split(
        split.name,
        split.source_vocabulary,
        split.target_vocabulary,
        split.sources[:count],
        split.references[:count],
    )


def evaluate(
    model: Seq2Seq,
    split: Split,
    *,
    task: str | None = None,
    batch_size: int = BATCH,
    after_batch: Callable[[], None] | None = None,
) -> Evaluation:
    """Evaluate `model` on all of `split`.

    Args:
        model: left, with its parts, in the mode, training or evaluation, that it is found in.
        split: what to evaluate on.
        task: the toy task that `split` belongs to, whose true alignment is known; None for any other data.
        batch_size: sequences at once.
        after_batch: called after each batch; may raise to stop.

    Raises ValueError for an unknown task.
    """
    if task is not None and task not in TASKS:
        raise ValueError(f"evaluate: task is {task!r}, expected {', '.join(TASKS)} or None")
    vocabulary = split.target_vocabulary
    # One more than any reference, for EOS, and some to see an output that is too long as such.
    longest = max(len(reference) for references in split.references for reference in references) + 10
    loss = weight = 0.0
    tokens = right = exact = errors = length = hits = aligned = 0
    with evaluating(model):
        for batch in split.batches(batch_size):
            mean, likeliest, weights = _teacher_forced(model, batch)
            loss += mean * batch.tokens
            tokens += batch.tokens
            right += right_tokens(likeliest, batch.target_out)
            if task is not None:
                on_source, largest = _on_true_source(weights, true_sources(task, batch), batch)
                weight += on_source
                hits += largest
                aligned += batch.tokens - len(batch)  # EOS comes from no position
            decoded = model.greedy(batch.source, batch.lengths, longest)
            for ids, place in zip(decoded.tokens, batch.indices, strict=True):
                distance, reference_length = nearest_reference(
                    spelled(vocabulary, ids), split.references[place]
                )
                exact += distance == 0
                errors += distance
                length += reference_length
            if after_batch is not None:
                after_batch()
    return Evaluation(
        sequences=len(split),
        tokens=tokens,
        loss=loss / tokens,
        token_accuracy=right / tokens,
        exact_match=exact / len(split),
        token_error_rate=errors / length,
        alignment_weight=weight / aligned if aligned else None,
        alignment_accuracy=hits / aligned if aligned else None,
    )


def _teacher_forced(model: Seq2Seq, batch: Batch) -> tuple[float, np.ndarray, np.ndarray]:
    """The mean loss of a token, the likeliest tokens (B, N) and α (B, N, T), given the right prefixes."""
    with no_grad():
        output = model(batch.source, batch.lengths, batch.target_in)
        loss = cross_entropy(output.logits, batch.target_out, ignore_index=PAD)
        return float(loss.item()), output.logits.data.argmax(axis=-1), output.weights.data


def true_sources(task: str, batch: Batch) -> np.ndarray:
    """The source position that each target symbol comes from (B, N - 1); of no meaning beyond a row's end."""
    steps = np.tile(np.arange(batch.source.shape[1]), (len(batch), 1))
    return TASKS[task](steps, batch.lengths)


def _on_true_source(weights: np.ndarray, truth: np.ndarray, batch: Batch) -> tuple[float, int]:
    """(summed weight on the true position, times that it is the largest) over the symbols of a batch."""
    inside = np.arange(truth.shape[1]) < batch.lengths[:, None]  # (B, N - 1)
    weights = weights[:, : truth.shape[1]]  # without the step of EOS
    on_source = np.take_along_axis(weights, truth[:, :, None], axis=2)[:, :, 0]
    largest = weights.argmax(axis=2) == truth
    return float(on_source[inside].sum(dtype=np.float64)), int(np.count_nonzero(largest & inside))
