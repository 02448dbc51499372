"""What a run keeps of a few examples, for its page: where the model looks, and how the gradient flows."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Any

import numpy as np

import tinygrad_attn
from tinygrad_attn.data import Dataset, Split, Tokens, from_description, make_batch
from tinygrad_attn.engine import Tensor
from tinygrad_attn.nn import Seq2Seq
from tinygrad_attn.nn.module import evaluating
from tinygrad_attn.tokens import EOS, SPECIAL_TOKENS
from tinygrad_attn.train.folder import RunFolder
from tinygrad_attn.train.prediction import Predictor, load_run
from tinygrad_attn.viz import gradient_flow
from tinygrad_attn.viz.graph import Graph, graph
from tinygrad_attn.viz.report.data import flow_data, graph_data, plain
from tinygrad_attn.viz.token_names import shown

FORMAT = "tinygrad_attn examples 1"
_LENGTHS = (5, 9)  # of the sources whose gradient flow is kept; the first is drawn as a graph
_LONG = 20  # symbols; of sources beyond it one is kept, because what is kept grows with the square
_PREDICTIONS, _WEIGHTS = 24, 40_000  # of the test set, and at most so many weights of theirs together


def is_due(step: int) -> bool:
    """Whether a snapshot is taken after `step`: 0, 10, 20, 50, 100, 200, 500, 1000, ..."""
    return step == 0 or (step >= 10 and str(step).rstrip("0") in ("1", "2", "5"))


def snapshot(model: Seq2Seq, data: Dataset, step: int) -> dict[str, Any]:
    """The gradient flow of a few fixed examples of the development set, for a line of `snapshots.jsonl`.

    It leaves the model, its mode and its random state as they were, and no gradients.
    """
    return {"step": step, "flows": _flows(model, data)}


def examples(model: Seq2Seq, data: Dataset, step: int) -> dict[str, Any]:
    """What `examples.json` holds of the model with the weights after `step`."""
    split = data.test
    places = sorted(range(min(len(split), 1000)), key=lambda place: (len(split.sources[place]), place))
    some = [places[i] for i in np.linspace(0, len(places) - 1, min(_PREDICTIONS, len(places))).astype(int)]
    predictor = Predictor(model, data.source_vocabulary, data.target_vocabulary)
    source, target = _observed(data.development)[0]
    return {
        "format": FORMAT,
        "step": step,
        "versions": {
            "tinygrad_attn": tinygrad_attn.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
            "platform": f"{platform.system()} {platform.machine()}",
        },
        "predictions": _predictions(predictor, split, [*dict.fromkeys(some)]),
        "flows": _flows(model, data),
        "graph": graph_data(drawn(model, data), _shown(source), [*_shown(target), SPECIAL_TOKENS[EOS]]),
    }


def observe(folder: RunFolder) -> None:
    """Write `examples.json` anew, from the best weights there are.

    Raises CheckpointError if there are none yet or a file is damaged, DataError if the data are gone.
    """
    model = load_run(folder.path)[0].model
    data = from_description(folder.config().data)
    folder.write_examples(examples(model, data, folder.weights_step()))


def drawn(model: Seq2Seq, data: Dataset) -> Graph:
    """The graph of a training step on one short example of the development set."""
    loss = _passed(model, data, *_observed(data.development)[0])
    picture = graph(loss)
    model.zero_grad()
    return picture


def _flows(model: Seq2Seq, data: Dataset) -> list[dict[str, Any]]:
    found = []
    for source, target in _observed(data.development):
        flow = gradient_flow(_passed(model, data, source, target))
        found.append(flow_data(flow, _shown(source), [*_shown(target), SPECIAL_TOKENS[EOS]]))
        model.zero_grad()
    return found


def _observed(split: Split) -> list[tuple[Tokens, Tokens]]:
    """Source and first reference of a few examples, of lengths near the wanted ones."""
    places: list[int] = []
    for length in _LENGTHS:
        left = [place for place in range(len(split)) if place not in places]
        if left and not any(len(split.sources[place]) > _LONG for place in places):
            places.append(min(left, key=lambda place: (abs(len(split.sources[place]) - length), place)))
    return [(split.sources[place], split.references[place][0]) for place in places]


def _passed(model: Seq2Seq, data: Dataset, source: Tokens, target: Tokens) -> Tensor:
    """The loss on one example, gone forward and back, without dropout."""
    batch = make_batch([(data.source_vocabulary.encode(source), data.target_vocabulary.encode(target))])
    with evaluating(model), np.errstate(all="ignore"):
        model.zero_grad()
        loss = model.loss(batch)
        loss.backward()
    return loss


def _predictions(predictor: Predictor, split: Split, places: list[int]) -> list[dict[str, Any]]:
    """What the model makes of these sources, as far as there is room; of the first in any case."""
    found: list[dict[str, Any]] = []
    weights = 0
    for place in places:
        one = _prediction(predictor, split, place)
        weights += len(one["source"]) * len(one["tokens"])
        if weights <= _WEIGHTS or not found:
            found.append(one)
    return found


def _prediction(predictor: Predictor, split: Split, place: int) -> dict[str, Any]:
    found = predictor.predict(split.sources[place])
    references = split.references[place]
    return {
        "source": _shown(found.source),
        "tokens": _shown(found.tokens),
        "reference": _shown(references[0]),
        "right": found.tokens in references,
        "weights": plain(found.weights),
        "log_probability": plain(found.log_probability),
    }


def _shown(tokens: Sequence[str]) -> list[str]:
    return list(map(shown, tokens))
