"""The pictures of a run: how the loss fell, where the model looks, how the gradient flows; and its page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tinygrad_attn.data import Dataset, Split
from tinygrad_attn.files import write_atomically
from tinygrad_attn.nn import Seq2Seq
from tinygrad_attn.train.folder import RunFolder
from tinygrad_attn.train.observation import drawn, examples
from tinygrad_attn.train.prediction import Predictor
from tinygrad_attn.viz.curves import curves
from tinygrad_attn.viz.heatmap import heatmap
from tinygrad_attn.viz.report.page import page
from tinygrad_attn.viz.report.read import RunData

SHOWN_LENGTH = 10
"""The example that is drawn has a source of this length, or the nearest there is."""


def write_figures(
    folder: RunFolder,
    data: Dataset,
    model: Seq2Seq,
    rows: Sequence[Mapping[str, Any]],
    snapshots: Sequence[Mapping[str, Any]],
    message: Callable[[str], None],
) -> None:
    """Write `loss.svg`, `alignment.svg`, `graph.svg`, `examples.json` and `report.html`.

    Args:
        folder: of the run.
        data: what it was trained on.
        model: with the best weights.
        rows: the figures, with those of the test at the end.
        snapshots: what was kept of a few examples during training.
        message: told which picture cannot be drawn here, and why.
    """

    def write(name: str, draw: Callable[[], str]) -> None:
        try:
            drawing = draw()
        except Exception as error:  # matplotlib's settings, back ends and fonts may fail in any way
            first = (str(error).splitlines() or [type(error).__name__])[0]
            message(f"{folder.path / name}: not written; {first}")
        else:
            write_atomically(folder.path / name, drawing)

    write("loss.svg", lambda: curves(rows).svg())
    source = data.test.sources[example_of_length(data.test, SHOWN_LENGTH)]
    found = Predictor(model, data.source_vocabulary, data.target_vocabulary).predict(source)
    if found.tokens:
        write("alignment.svg", lambda: heatmap(found.weights, source, found.tokens).svg())
    write("graph.svg", lambda: drawn(model, data).svg())
    observed = examples(model, data, rows[-1].get("best_step", rows[-1]["step"]))
    folder.write_examples(observed)
    run = RunData(folder.path.resolve().name, folder.config().to_json(), rows, snapshots, observed)
    write("report.html", lambda: page(run))


def example_of_length(split: Split, length: int) -> int:
    """The place of the first source whose length is nearest to `length`."""
    return min(range(len(split)), key=lambda place: (abs(len(split.sources[place]) - length), place))
