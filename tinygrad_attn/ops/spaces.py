"""Workspaces: the arrays that a kernel writes, kept from one call to the next.

Fresh arrays of many megabytes cost as much as what is computed in them: the system hands them out page by
page, and zeroes each. A kernel borrows a workspace of the right shape and saves the loan; when the graph lets
go of it, after the backward pass or with the loss, the workspace is free for the next call.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import RLock
from typing import Any, Protocol

import numpy as np

MOST_FREE_BYTES = 256 * 2**20
"""What workspaces that nobody uses may hold together; beyond, the longest unused go."""


class Workspace(Protocol):
    """A set of arrays, and what is prepared to be done with them."""

    @property
    def nbytes(self) -> int:
        """About how much memory it takes."""


class Loan:
    """A workspace in use; it is given back when nothing refers to the loan any more."""

    __slots__ = ("_key", "_pool", "space")

    def __init__(self, pool: Pool, key: tuple[Any, ...], space: Any) -> None:
        self._pool, self._key, self.space = pool, key, space

    def __del__(self) -> None:
        self._pool.give_back(self._key, self.space)


class Pool:
    """The workspaces that are free."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._free: dict[tuple[Any, ...], list[Workspace]] = {}  # by kind and shape, the longest unused first
        self._held = 0
        self.renew_lock()

    def borrow(self, kind: Callable[..., Any], *shape: Any) -> Loan:
        """A workspace `kind(*shape)`, made now unless one is free; it holds what is left of earlier use."""
        key = (kind, *shape)
        with self._lock:
            free = self._free.pop(key, None)
            space = free.pop() if free else None
            if free:
                self._free.setdefault(key, []).extend(free)
            if space is not None:
                self._held -= space.nbytes
        return Loan(self, key, kind(*shape) if space is None else space)

    def give_back(self, key: tuple[Any, ...], space: Workspace) -> None:
        """The workspace is free again."""
        with self._lock:
            free = self._free.pop(key, [])
            free.append(space)
            self._free[key] = free
            self._held += space.nbytes
            while self._held > self._most_bytes and (len(self._free) > 1 or len(free) > 1):
                oldest = next(iter(self._free))
                self._held -= self._free[oldest].pop(0).nbytes
                if not self._free[oldest]:
                    del self._free[oldest]

    def __len__(self) -> int:
        """How many workspaces are free."""
        return sum(map(len, self._free.values()))

    def clear(self) -> None:
        """Lets go of the workspaces that are free."""
        with self._lock:
            self._free.clear()
            self._held = 0

    def renew_lock(self) -> None:
        """A new lock, for a forked process: the one it was copied from may be held by a thread it lacks."""
        self._lock = RLock()  # a loan may end, in the garbage collector, while this thread holds the lock


pool = Pool(MOST_FREE_BYTES)

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.renew_lock)


def bytes_of(*arrays: np.ndarray | None) -> int:
    """How much memory the arrays take together."""
    return sum(array.nbytes for array in arrays if array is not None)
