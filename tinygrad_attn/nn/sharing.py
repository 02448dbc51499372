"""Large batches shared among worker processes, each with a copy of the model.

Every worker takes the loss of its part of the sentences, or decodes it; the parts' losses and gradients are
summed in order. What comes out depends on the number of workers, not on who did which part or when: this
process computes its part, and what no helper could do, as a helper does. Where the machine is busy with other
work, so that helpers are waited for, it computes all parts, and asks them again now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from tinygrad_attn.engine import Fused, Tensor, fused
from tinygrad_attn.engine.backward import walk
from tinygrad_attn.engine.modes import changed_mode, thread
from tinygrad_attn.engine.tensor import leaf, value_of
from tinygrad_attn.nn.copies import build, describe
from tinygrad_attn.nn.layers import Dropout
from tinygrad_attn.nn.module import Module
from tinygrad_attn.tokens import PAD

if TYPE_CHECKING:
    from tinygrad_attn.engine.helper import Call
    from tinygrad_attn.nn.seq2seq import BatchLike, Seq2Seq

SMALLEST_SHARE = 50_000_000
"""Weights times source words below which a part of a batch is not worth another process's while."""

_UNSOUND = (ValueError, TypeError, IndexError, AttributeError)
"""Errors after which a batch is computed whole, so that they are as without workers."""


class Part(NamedTuple):
    """Sentences of a batch, cut to their own longest source and target; lengths may be None in a search."""

    source: np.ndarray
    lengths: Any
    target_in: np.ndarray
    target_out: np.ndarray


class Task(NamedTuple):
    """What one worker has to do."""

    message: dict[str, Any]
    """`call`: "loss", or the name of a search with its `settings`; `model`: a description; `trained`: which
    parameters require a gradient; `seed`: what dropout draws from, None without dropout."""
    inputs: Sequence[Any]
    """The arrays of a `Part`, or what the search takes. The parameters follow them where a task is done."""


class _Kept(NamedTuple):
    """What the backward pass of a part needs, in the process that computed it."""

    loss: Tensor
    parameters: Sequence[Tensor]


def shared_loss(model: Seq2Seq, batch: BatchLike) -> Tensor | None:
    """`model.loss(batch)`, computed in parts beside each other.

    None where it better is, or has to be, computed whole: for a graph of single operations (`ta.explicit()`),
    where someone looks on (`ta.detect_anomaly()`), or if the batch is unsound.
    """
    if thread.mode.workers is None or thread.mode.workers.count < 2 or not _is_large(model, batch):
        return None
    dropping = [part for part in model.modules() if isinstance(part, Dropout) and part.training and part.p]
    rng = dropping[0].rng if dropping else None
    before: Any = None if rng is None else rng.bit_generator.state
    parameters = list(model.parameters())
    try:
        parts = _parts_of(model, batch, parameters)
        description = describe(model, parameters) if parts else None
        if description is None:
            return None
        words = [np.count_nonzero(part.target_out != PAD) for part in parts]
        seeds = [None] * len(parts) if rng is None else rng.integers(2**63, size=len(parts)).tolist()
        tasks = [
            Task({**_message("loss", description, parameters), "seed": seed}, part)
            for seed, part in zip(seeds, parts, strict=True)
        ]
        shares = [float(count / sum(words)) for count in words]
        loss: Tensor = _operation()(*parameters, tasks=tasks, shares=shares)
    except _UNSOUND:
        if rng is not None:
            rng.bit_generator.state = before
        return None
    return loss


def _definition(*parameters: Any, tasks: Sequence[Task], shares: Sequence[float]) -> Any:
    """Σ over the parts of the batch: the part's share of the target words times its mean loss."""
    total: Any = 0
    with changed_mode(workers=None):
        for (message, part), share in zip(tasks, shares, strict=True):
            model = build(message["model"], parameters, message["seed"])
            total = total + model.loss(Part(*part)) * share
    return total


def _kernel(*arrays: Any, tasks: Sequence[Task], shares: Sequence[float]) -> tuple[Any, list[Any]]:
    results = _done(tasks, arrays, keep=thread.mode.recording)
    total = np.zeros((), arrays[0].dtype)
    for ((value,), _), share in zip(results, shares, strict=True):
        total = total + value * np.asarray(share, total.dtype)
    return total, [kept for _, kept in results]


def _vjp(
    g: Any,
    y: Any,
    *arrays: Any,
    tasks: Sequence[Task],
    shares: Sequence[float],
    saved: Sequence[Any],
    needs: Sequence[bool],
) -> Sequence[Any]:
    seeds = [np.asarray(g * share, g.dtype) for share in shares]
    message = {"needs": needs}

    def here(number: int) -> tuple[list[Any], None]:
        kept = saved[number]
        if not isinstance(kept, _Kept):  # it was kept by a helper that is gone, or not at all
            _, kept = _compute({**tasks[number].message, "keep": True}, [*tasks[number].inputs, *arrays])
        return _back(kept, message, [seeds[number]]), None

    calls = [
        None if kept is None or isinstance(kept, _Kept) else kept.start_back(message, [seed])
        for kept, seed in zip(saved, seeds, strict=True)
    ]
    gradients = [found for found, _ in _results(calls, here)]
    return [_summed(*pieces) for pieces in zip(*gradients, strict=True)]


@cache
def _operation() -> Fused:
    """Not among the operations that a user meets, so no name of the module's."""
    return fused(_definition, _kernel, _vjp, name="shared_loss")


def shared_search(
    model: Seq2Seq,
    search: str,
    source: np.ndarray,
    lengths: np.ndarray | None,
    settings: Sequence[Any],
    least: int,
) -> list[list[Any]] | None:
    """What the search finds for each part of the sentences; None where they stay together.

    Args:
        model: in evaluation mode.
        search: "greedy" or "beam_search", and its `settings`.
        source, lengths: as for `encode`.
        least: sentences below which a part is not worth another process's while.
    """
    parameters = list(model.parameters())
    try:
        count = _worth(parameters, source, least)
        description = describe(model, parameters) if count > 1 else None
        if description is None or (lengths is not None and len(lengths) != len(source)):
            return None
        message = {**_message(search, description, parameters), "settings": list(settings)}
        tasks = [
            Task(message, [source[part], None if lengths is None else lengths[part]])
            for part in _cut(len(source), count)
        ]
        found = _done(tasks, [parameter.data for parameter in parameters], keep=False)
    except _UNSOUND:
        return None
    return [arrays for arrays, _ in found]


_weights: WeakKeyDictionary[Module, int] = WeakKeyDictionary()
"""How many weights a model had when it was first met."""


def _is_large(model: Seq2Seq, batch: BatchLike) -> bool:
    """Whether sharing may be worth it: the quick answer, for small models whose steps are short."""
    if model not in _weights:
        _weights[model] = sum(parameter.size for parameter in model.parameters())
    words = getattr(value_of(batch.source), "size", None)  # lists are looked at more closely later
    return words is None or words * _weights[model] >= 2 * SMALLEST_SHARE


def _worth(parameters: Sequence[Tensor], source: np.ndarray, least: int) -> int:
    """How many workers are to share these sentences, at least `least` each."""
    mode = thread.mode
    if mode.workers is None or mode.explicit or mode.watcher is not None or source.ndim != 2:
        return 1
    arrays = [parameter.data for parameter in parameters]
    kinds = {(array.dtype.kind, array.dtype, array.flags.c_contiguous) for array in arrays}
    # In shared memory arrays lie in C order, and products of arrays in another order are rounded differently.
    if [kind[::2] for kind in kinds] != [("f", True)]:
        return 1
    work = source.size * sum(array.size for array in arrays)
    return min(mode.workers.count, work // SMALLEST_SHARE, len(source) // least)


def _parts_of(model: Seq2Seq, batch: BatchLike, parameters: Sequence[Tensor]) -> list[Part]:
    """The parts of the batch; none if it stays together, is unsound, or a part has no word to learn."""
    source, target_in, target_out = (
        np.asarray(value_of(ids)) for ids in (batch.source, batch.target_in, batch.target_out)
    )
    count = _worth(parameters, source, 1)
    if count < 2:
        return []
    if batch.lengths is None:
        lengths = np.count_nonzero(source != PAD, axis=1)
    else:
        lengths = np.asarray(value_of(batch.lengths))
    cut, counted = _cut(len(source), count), target_out != PAD
    if (
        target_in.ndim != 2
        or target_out.shape != target_in.shape
        or lengths.shape != (len(source),)
        or len(target_in) != len(source)
        or any(array.dtype.kind not in "iu" for array in (source, target_in, target_out, lengths))
        or lengths.min() < 1
        or lengths.max() > source.shape[1]
        or not _within(source, model.source_embedding.weight)  # all of it, even what will be cut off
        or not _within(target_in, model.target_embedding.weight)
        or not all(counted[rows].any() for rows in cut)
    ):
        return []
    parts = []
    for rows in cut:
        length = int(lengths[rows].max())
        words = int(np.flatnonzero(counted[rows].any(axis=0))[-1]) + 1
        parts.append(
            Part(source[rows, :length], lengths[rows], target_in[rows, :words], target_out[rows, :words])
        )
    return parts


def _within(ids: np.ndarray, table: Tensor) -> bool:
    return bool(ids.min() >= 0 and ids.max() < len(table))


def _cut(length: int, count: int) -> list[slice]:
    bounds = [length * i // count for i in range(count + 1)]
    return [slice(start, stop) for start, stop in pairwise(bounds)]


def _message(call: str, description: dict[str, Any], parameters: Sequence[Tensor]) -> dict[str, Any]:
    trained = [parameter.requires_grad for parameter in parameters]
    return {"call": call, "model": description, "trained": trained, "seed": None}


def _done(tasks: Sequence[Task], parameters: Sequence[Any], keep: bool) -> list[tuple[list[Any], Any]]:
    """For each task its arrays, and what was kept of it: the helper's call, or what `_compute` gives."""
    whole = [({**task.message, "keep": keep}, [*task.inputs, *parameters]) for task in tasks]
    workers = thread.mode.workers
    calls: list[Call | None] = [None] * len(tasks)
    if workers is not None and workers.pace.helps():
        for number, (message, arrays) in enumerate(whole[1:], 1):
            helper = workers.helper(number, __name__)
            calls[number] = None if helper is None else helper.start(message, arrays)
    return _results(calls, lambda number: _compute(*whole[number]))


def _results(calls: Sequence[Call | None], here: Callable[[int], Any]) -> list[tuple[list[Any], Any]]:
    """The parts' results in order: the first, and what no helper could do, is computed here."""
    results, computed, own, start = [], 0, 0.0, perf_counter()
    for number, call in enumerate(calls):
        found = None if call is None else call.result()
        if found is None:
            begun = thread_time()  # what else runs on the machine does not count
            results.append(here(number))
            own += thread_time() - begun
            computed += 1
        else:
            results.append((found, call))
    workers = thread.mode.workers
    if workers is not None and own > 0:
        time = (perf_counter() - start) / (own / computed * len(calls))
        workers.pace.note(time, helped=computed < len(calls))
    return results


def _compute(message: dict[str, Any], arrays: Sequence[Any]) -> tuple[list[Any], Any]:
    """What a task says, in whichever process: its arrays, and what the backward pass needs."""
    count = len(message["trained"])
    inputs, parameters = arrays[:-count], [leaf(array) for array in arrays[-count:]]
    for parameter, trained in zip(parameters, message["trained"], strict=True):
        parameter.requires_grad = trained
    model = build(message["model"], parameters, message["seed"])
    with changed_mode(workers=None, explicit=False, recording=message["keep"]):
        if message["call"] == "loss":
            loss = model.loss(Part(*inputs))
            return [loss.data], _Kept(loss, parameters) if message["keep"] else None
        return list(getattr(model, message["call"])(*inputs, *message["settings"])), None


def _back(kept: _Kept, message: dict[str, Any], arrays: Sequence[Any]) -> list[Any]:
    """The gradients of a part's loss for the parameters that need one; None for the others."""
    loss, parameters = kept
    wanted = [parameter for parameter, needed in zip(parameters, message["needs"], strict=True) if needed]
    with changed_mode(workers=None, explicit=False):
        found = walk(loss, arrays[0], wanted=wanted)
    return [found.get(parameter) for parameter in parameters]


def _summed(own: Any, *others: Any) -> Any:
    """The sum, in an array that is not in shared memory; `own`, a part's gradient from here, is used up."""
    total = own
    for piece in others:
        if piece is not None:
            total = np.array(piece) if total is None else np.add(total, piece, out=total)
    return total


def serve(connection: int, received: int, sent: int) -> None:
    """What a helper's process runs, with the descriptors that it was handed."""
    # Here alone, so that whoever has no helpers does not load what processes need.
    from tinygrad_attn.engine.helper import attend

    attend(connection, received, sent, _compute, _back)
