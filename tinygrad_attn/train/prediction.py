"""What a trained model makes of an input."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tinygrad_attn.data import TextFormat, Tokens, Vocabulary, text_format
from tinygrad_attn.errors import CheckpointError, DataError
from tinygrad_attn.nn import Seq2Seq
from tinygrad_attn.train.config import ModelConfig
from tinygrad_attn.train.folder import RunFolder


@dataclass(frozen=True)
class Prediction:
    """An output and how it came about."""

    source: Tokens
    tokens: Tokens
    """The output, without the special tokens that frame it; `<unk>` may be in it."""
    log_probability: float
    """Of the output with its end, in nats."""
    weights: np.ndarray
    """α (len(tokens), len(source)): on which source symbols each output symbol looked."""
    unknown: Tokens
    """Source symbols that the vocabulary lacks."""
    complete: bool
    """Whether the model ended the output itself, and not the limit of its length."""


@dataclass(frozen=True)
class Predictor:
    """A model with its vocabularies."""

    model: Seq2Seq
    source_vocabulary: Vocabulary
    target_vocabulary: Vocabulary

    def predict(self, source: Sequence[str], *, beam: int = 1, max_length: int | None = None) -> Prediction:
        """The output for one source of at least one symbol.

        Args:
            source: symbols; unknown ones are read as `<unk>`.
            beam: candidates kept at a time; 1 is greedy.
            max_length: the most symbols of the output with its end; by default 100, or 3 times the source.
        """
        if len(source) == 0:
            raise ValueError("predict: the source is empty, expected at least one symbol")
        ids = self.source_vocabulary.encode(source)[None]
        limit = max(100, 3 * len(source)) if max_length is None else max_length
        decoded = (
            self.model.greedy(ids, None, limit)
            if beam == 1
            else self.model.beam_search(ids, None, limit, beam)
        )
        tokens = tuple(self.target_vocabulary.decode(decoded.tokens[0]))
        return Prediction(
            tuple(source),
            tokens,
            float(decoded.log_probabilities[0]),
            decoded.weights[0, : len(tokens)],
            tuple(self.source_vocabulary.unknown(source)),
            len(tokens) < int(decoded.lengths[0]),
        )


def load_run(path: str | os.PathLike[str], data: TextFormat | None = None) -> tuple[Predictor, TextFormat]:
    """The trained model of a run folder, and how its text is split and joined; needs none of the run's data.

    A run on a data set of your own needs that, or another `TextFormat`, as `data`.

    Raises CheckpointError if there is no run, it has no weights yet, or a file of it is damaged.
    """
    folder = RunFolder(path)
    config = folder.config()
    source, target = folder.vocabularies()
    weights = folder.weights()
    try:
        _check_sizes(config.model, weights)
        model = config.model.build(len(source), len(target), np.random.default_rng(0))
        model.load_state_dict(weights)
    except (KeyError, ValueError) as error:
        file = folder.path / "model.safetensors"
        raise CheckpointError(
            f"{file}: the weights do not fit config.json and vocab.json ({error})"
        ) from None
    model.eval()
    try:
        return Predictor(model, source, target), text_format(config.data) if data is None else data
    except DataError as error:
        raise CheckpointError(f"{folder.path / 'config.json'}: {error}") from None


def _check_sizes(model: ModelConfig, weights: Mapping[str, np.ndarray]) -> None:
    """Raises ValueError for a size that no weight has: before a model of that size is made."""
    sizes = {"embedding": model.embedding, "hidden": model.hidden}
    if model.attention in ("additive", "concat") and model.attention_size is not None:
        sizes["attention_size"] = model.attention_size
    known = {size for array in weights.values() for size in array.shape}
    for name, size in sizes.items():
        if size not in known:
            raise ValueError(f"no weight has the {name} of {size}")
