"""The pictures of a run: how the loss fell, and where the model looks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tinygrad_attn.data import Dataset, Split
from tinygrad_attn.nn import Seq2Seq
from tinygrad_attn.train.folder import RunFolder
from tinygrad_attn.train.prediction import Predictor
from tinygrad_attn.viz.curves import curves
from tinygrad_attn.viz.heatmap import heatmap

SHOWN_LENGTH = 10
"""The example that is drawn has a source of this length, or the nearest there is."""


def write_figures(
    folder: RunFolder, data: Dataset, model: Seq2Seq, rows: Sequence[Mapping[str, Any]]
) -> None:
    """Write `loss.svg` and `alignment.svg`."""
    curves(rows).save(folder.path / "loss.svg")
    source = data.test.sources[example_of_length(data.test, SHOWN_LENGTH)]
    found = Predictor(model, data.source_vocabulary, data.target_vocabulary).predict(source)
    if found.tokens:
        heatmap(found.weights, source, found.tokens).save(folder.path / "alignment.svg")


def example_of_length(split: Split, length: int) -> int:
    """The place of the first source whose length is nearest to `length`."""
    return min(range(len(split)), key=lambda place: (abs(len(split.sources[place]) - length), place))
