"""Threads that share the work of large kernels: the batch is split in shards, one for each thread.

numpy releases the interpreter lock inside its loops and products, so Python threads run them side by side.
What a kernel computes depends on the number of shards (sums of gradients are taken shard by shard, in order)
but not on which thread ran them or when: a run is reproducible for a given number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from tinygrad_attn.engine.modes import thread

SMALLEST_SHARE = 400_000
"""Multiplications in each step of a kernel's loop below which a shard is not worth a thread's while."""


class Workers:
    """A pool of `count` threads, this one included."""

    def __init__(self, count: int) -> None:
        if count < 1:
            raise ValueError(f"workers: {count} given, expected at least 1")
        self.count = count
        self._pool = ThreadPoolExecutor(count - 1) if count > 1 else None

    def run(self, tasks: Sequence[Callable[[], Any]]) -> list[Any]:
        """The results of the tasks, in order. What the other threads have not begun by then, this one
        does."""
        if self._pool is None:
            return [task() for task in tasks]
        # In copies of this thread's context, in which numpy keeps what it does about overflow and the like.
        waiting = [self._pool.submit(copy_context().run, task) for task in tasks[1:]]
        results = [tasks[0]()]
        for task, future in zip(tasks[1:], waiting, strict=True):
            results.append(task() if future.cancel() else future.result())
        return results

    def close(self) -> None:
        """Ends the threads."""
        if self._pool is not None:
            self._pool.shutdown()


class Sharded:
    """A kernel and its VJP, run on shards of the batch where there are workers and the work is large enough.

    Args:
        kernel: as for `fused`, with a VJP that takes `saved`.
        kernel_vjp: as for `fused`.
        rows: for each input whether its first axis is the batch; the gradients of the others are summed over
        shards.
        work: `work(*arrays, **static)`, the multiplications in one step of the kernel's loop.
    """

    def __init__(
        self,
        kernel: Callable[..., tuple[Any, Any]],
        kernel_vjp: Callable[..., Sequence[Any]],
        rows: Sequence[bool],
        work: Callable[..., float],
    ) -> None:
        self._kernel, self._kernel_vjp, self._rows, self._work = kernel, kernel_vjp, rows, work

    def kernel(self, *inputs: Any, **static: Any) -> tuple[Any, Any]:
        """The kernel's value; what it saved, for each shard."""
        workers = thread.mode.workers
        count = 1
        if workers is not None and workers.count > 1:
            count = min(workers.count, len(inputs[0]), int(self._work(*inputs, **static) / SMALLEST_SHARE))
        if workers is None or count < 2:
            y, saved = self._kernel(*inputs, **static)
            return y, [saved]
        parts = _parts(len(inputs[0]), count)
        results = workers.run([partial(self._kernel, *self._of(inputs, part), **static) for part in parts])
        return np.concatenate([y for y, _ in results]), [saved for _, saved in results]

    def kernel_vjp(self, g: Any, y: Any, *inputs: Any, saved: Sequence[Any], **static: Any) -> Sequence[Any]:
        """The gradients of all inputs."""
        workers = thread.mode.workers
        if len(saved) == 1:
            return self._kernel_vjp(g, y, *inputs, saved=saved[0], **static)

        def shard(part: slice, kept: Any) -> Sequence[Any]:
            return self._kernel_vjp(g[part], y[part], *self._of(inputs, part), saved=kept, **static)

        parts = _parts(len(g), len(saved))
        tasks = [partial(shard, part, kept) for part, kept in zip(parts, saved, strict=True)]
        results = [task() for task in tasks] if workers is None else workers.run(tasks)
        return [
            None if pieces[0] is None else np.concatenate(pieces) if row else _summed(pieces)
            for row, pieces in zip(self._spread(len(inputs)), zip(*results, strict=True), strict=True)
        ]

    def _spread(self, count: int) -> list[bool]:
        """`rows`, continued for the weights at the end."""
        return [*self._rows, *([False] * (count - len(self._rows)))]

    def _of(self, inputs: Sequence[Any], part: slice) -> list[Any]:
        return [
            x[part] if row and x is not None else x
            for row, x in zip(self._spread(len(inputs)), inputs, strict=True)
        ]


def _parts(length: int, count: int) -> list[slice]:
    bounds = [length * i // count for i in range(count + 1)]
    return [slice(start, stop) for start, stop in pairwise(bounds)]


def _summed(pieces: Sequence[np.ndarray]) -> np.ndarray:
    total = pieces[0]
    for piece in pieces[1:]:
        total = np.add(total, piece, out=total)
    return total
