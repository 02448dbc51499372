"""Large batches shared among worker processes, each with a copy of the model.

Every worker takes the loss of its part of the sentences, or decodes it; the parts' losses and gradients are
summed in order. What comes out depends on the number of workers, not on who did which part or when.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tinygrad_attn.engine import Tensor, fused
from tinygrad_attn.engine.backward import walk
from tinygrad_attn.engine.helper import Call, Kept, attend
from tinygrad_attn.engine.modes import changed_mode, thread
from tinygrad_attn.nn.copies import build, describe, drawing, standing_in
from tinygrad_attn.nn.layers import Dropout
from tinygrad_attn.tokens import PAD

if TYPE_CHECKING:
    from tinygrad_attn.nn.seq2seq import BatchLike, Seq2Seq

SMALLEST_SHARE = 10_000_000
"""Weights times source words below which a part of a batch is not worth another process's while."""


class Shard(NamedTuple):
    """A part of a batch, cut to its own longest source and target."""

    source: np.ndarray
    lengths: np.ndarray
    target_in: np.ndarray
    target_out: np.ndarray
    share: float
    """Its part of the target words that count."""
    seed: int | None
    """What dropout draws from; None without dropout."""


def shared_loss(model: Seq2Seq, batch: BatchLike) -> Tensor | None:
    """`model.loss(batch)`, computed in parts beside each other.

    None where it better is, or has to be, computed whole: for a graph of single operations (`ta.explicit()`),
    or where someone looks on (`ta.detect_anomaly()`).
    """
    mode = thread.mode
    if mode.workers is None or mode.workers.count < 2 or mode.explicit or mode.watcher is not None:
        return None
    parameters = list(model.parameters())
    work = np.size(batch.source) * sum(parameter.size for parameter in parameters)
    count = min(mode.workers.count, work // SMALLEST_SHARE)
    if count < 2:
        return None
    shards, description = _shards(model, batch, count), describe(model)
    if shards is None or description is None:
        return None
    loss: Tensor = _loss(*parameters, model=model, shards=shards, description=description)
    return loss


def _definition(*parameters: Any, model: Seq2Seq, shards: Sequence[Shard], description: str) -> Any:
    """Σ over the parts of the batch: the part's share of the target words times its mean loss."""
    total: Any = 0
    with standing_in(model, parameters):
        for shard in shards:
            total = total + _loss_of(model, shard) * shard.share
    return total


def _kernel(*arrays: Any, model: Seq2Seq, shards: Sequence[Shard], description: str) -> tuple[Any, Any]:
    calls = [
        _start(number, "loss", description, [*shard[:4], *arrays], {"seed": shard.seed}, keep=True)
        for number, shard in enumerate(shards)
    ]

    def here(number: int) -> tuple[list[Any], Any]:
        loss = _loss_of(model, shards[number])
        return [loss.data], loss

    results = _results(calls, here)
    total = np.zeros((), arrays[0].dtype)
    for ((value,), _), shard in zip(results, shards, strict=True):
        total = total + value * np.asarray(shard.share, total.dtype)
    return total, [kept for _, kept in results]


def _vjp(
    g: Any,
    y: Any,
    *arrays: Any,
    model: Seq2Seq,
    shards: Sequence[Shard],
    description: str,
    saved: Sequence[Any],
) -> Sequence[Any]:
    seeds = [np.asarray(g * shard.share, g.dtype) for shard in shards]
    calls = [
        kept.helper.start_back(kept, [seed]) if isinstance(kept, Kept) else None
        for kept, seed in zip(saved, seeds, strict=True)
    ]

    parameters = list(model.parameters())

    def here(number: int) -> tuple[list[Any], Any]:
        loss = saved[number]
        if isinstance(loss, Kept):  # by a helper that is gone
            with changed_mode(recording=True):
                loss = _loss_of(model, shards[number])
        return _gradients(loss, seeds[number], parameters), None

    gradients = [found for found, _ in _results(calls, here)]
    return [_summed(pieces) for pieces in zip(*gradients, strict=True)]


_loss = fused(_definition, _kernel, _vjp, name="shared_loss")


def shared_search(
    model: Seq2Seq,
    search: str,
    source: np.ndarray,
    lengths: np.ndarray | None,
    settings: Sequence[Any],
    decode: Callable[[Any, Any], Any],
    least: int,
) -> list[Any] | None:
    """What `decode(source, lengths)` gives for each part of the sentences; None where they stay together.

    Args:
        model: in evaluation mode.
        search: "greedy" or "beam_search", which `decode` stands for, and its `settings`.
        source, lengths: as for `encode`.
        decode: does a part here.
        least: sentences below which a part is not worth another process's while.
    """
    workers = thread.mode.workers
    if workers is None or workers.count < 2 or source.ndim != 2 or thread.mode.watcher is not None:
        return None
    count = min(workers.count, len(source) // least)
    if count < 2 or (lengths is not None and lengths.shape != source.shape[:1]):
        return None
    description = describe(model)
    if description is None:
        return None
    parts = [
        (source[part], None if lengths is None else lengths[part]) for part in _parts(len(source), count)
    ]
    arrays = [parameter.data for parameter in model.parameters()]
    message = {"search": search, "settings": list(settings)}
    calls = [
        _start(number, "search", description, [*part, *arrays], message) for number, part in enumerate(parts)
    ]

    def here(number: int) -> tuple[Any, None]:
        with changed_mode(workers=None):
            return decode(*parts[number]), None

    return [found for found, _ in _results(calls, here)]


def _start(
    number: int,
    what: str,
    description: str,
    arrays: Sequence[Any],
    message: dict[str, Any],
    keep: bool = False,
) -> Call | None:
    """Worker `number` begins, if it is another process, and there and ready."""
    workers = thread.mode.workers
    helper = workers.helper(number, __name__) if number and workers is not None else None
    if helper is None:
        return None
    return helper.start({"what": what, "model": description, **message}, arrays, keep=keep)


def _results(calls: Sequence[Call | None], here: Callable[[int], Any]) -> list[Any]:
    """The parts' results in order: the first, and what no helper could do, is computed here."""
    results = [here(0)]
    for number, call in enumerate(calls[1:], start=1):
        found = None if call is None else call.result()
        results.append(here(number) if found is None else found)
    return results


def _loss_of(model: Seq2Seq, shard: Shard) -> Tensor:
    with changed_mode(workers=None), drawing(model, shard.seed):
        return model.loss(shard)


def _gradients(loss: Tensor, g: Any, parameters: Sequence[Tensor]) -> list[Any]:
    """For each parameter, None where none flows to it."""
    found = walk(loss, g, wanted=[parameter for parameter in parameters if parameter.requires_grad])
    return [found.get(parameter) for parameter in parameters]


def _summed(pieces: Sequence[Any]) -> Any:
    total = None
    for piece in pieces:
        if piece is not None:
            total = piece if total is None else np.add(total, piece)
    return total


def _parts(length: int, count: int) -> list[slice]:
    bounds = [length * i // count for i in range(count + 1)]
    return [slice(start, stop) for start, stop in pairwise(bounds)]


def _shards(model: Seq2Seq, batch: BatchLike, count: int) -> list[Shard] | None:
    """The parts of the batch; None if it is unsound (the model says how) or a part has no word to learn."""
    source, target_in, target_out = map(np.asarray, (batch.source, batch.target_in, batch.target_out))
    lengths = np.count_nonzero(source != PAD, axis=-1) if batch.lengths is None else np.asarray(batch.lengths)
    if (
        source.ndim != 2
        or target_in.ndim != 2
        or target_out.shape != target_in.shape
        or not len(target_in) == len(source) == len(lengths) >= count
        or lengths.shape != (len(source),)
        or any(array.dtype.kind not in "iu" for array in (source, target_in, target_out, lengths))
        or lengths.min() < 1
        or lengths.max() > source.shape[1]
    ):
        return None
    counted = target_out != PAD
    parts = _parts(len(source), count)
    if not all(counted[part].any() for part in parts):
        return None
    seeds: list[int | None] = [None] * count
    dropping = [part for part in model.modules() if isinstance(part, Dropout) and part.training and part.p]
    if dropping:
        seeds = dropping[0].rng.integers(2**63, size=count).tolist()
    total = np.count_nonzero(counted)
    shards = []
    for part, seed in zip(parts, seeds, strict=True):
        length = int(lengths[part].max())
        words = int(np.flatnonzero(counted[part].any(axis=0))[-1]) + 1
        share = float(np.count_nonzero(counted[part]) / total)
        shards.append(
            Shard(
                source[part, :length],
                lengths[part],
                target_in[part, :words],
                target_out[part, :words],
                share,
                seed,
            )
        )
    return shards


class _Copy:
    """The model of the last call, with the parameters of the current one."""

    def __init__(self) -> None:
        self._description: str | None = None
        self._model: Any = None
        self._parameters: list[Tensor] = []

    def compute(self, message: dict[str, Any], arrays: list[Any]) -> tuple[list[Any], Any]:
        """As `attend` wants it."""
        if message["model"] != self._description:
            by_place: dict[int, Tensor] = {}
            self._model = build(json.loads(message["model"]), by_place)
            self._parameters = [by_place[place] for place in sorted(by_place)]
            self._description = message["model"]
        inputs = arrays[: len(arrays) - len(self._parameters)]
        for parameter, array in zip(self._parameters, arrays[len(inputs) :], strict=True):
            parameter.data = array
        if message["what"] == "search":
            found = getattr(self._model, message["search"])(*inputs, *message["settings"])
            return list(found), None
        source, lengths, target_in, target_out = inputs
        shard = Shard(source, lengths, target_in, target_out, 1, message["seed"])
        loss = _loss_of(self._model, shard)
        return [loss.data], (loss, self._parameters)

    @staticmethod
    def back(kept: Any, arrays: list[Any]) -> list[Any]:
        """As `attend` wants it."""
        loss, parameters = kept
        return _gradients(loss, arrays[0], parameters)


def serve(connection: int, received: int, sent: int) -> None:
    """What a helper's process runs, with the descriptors that it was handed."""
    copy = _Copy()
    attend(connection, received, sent, copy.compute, copy.back)
