"""Workspaces: the arrays that a kernel writes, kept from one call to the next.

Fresh arrays of many megabytes cost as much as what is computed in them: the system hands them out page by
page, and zeroes each. A kernel borrows a workspace of the right shape and saves the loan; when the graph lets
go of it, after the backward pass or with the loss, the workspace is free for the next call.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Any, Protocol

import numpy as np

MOST_FREE_BYTES = 256 * 2**20
"""What workspaces that nobody uses may hold together; beyond, the longest unused go."""


class Workspace(Protocol):
    """A set of arrays."""

    @property
    def nbytes(self) -> int:
        """How much memory they take."""


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
        self._free: list[tuple[tuple[Any, ...], Workspace]] = []  # the longest unused first
        self._lock = RLock()  # a loan may end, in the garbage collector, while this thread holds the lock

    def borrow(self, kind: Callable[..., Any], *shape: Any) -> Loan:
        """A workspace `kind(*shape)`, made now unless one is free; it holds what is left of earlier use."""
        key = (kind, *shape)
        with self._lock:
            for position in range(len(self._free) - 1, -1, -1):
                if self._free[position][0] == key:
                    return Loan(self, key, self._free.pop(position)[1])
        return Loan(self, key, kind(*shape))

    def give_back(self, key: tuple[Any, ...], space: Workspace) -> None:
        """The workspace is free again."""
        with self._lock:
            self._free.append((key, space))
            held = sum(free.nbytes for _, free in self._free)
            while held > self._most_bytes and len(self._free) > 1:
                held -= self._free.pop(0)[1].nbytes

    def clear(self) -> None:
        """Lets go of the workspaces that are free."""
        with self._lock:
            self._free.clear()


pool = Pool(MOST_FREE_BYTES)


def bytes_of(*arrays: np.ndarray | None) -> int:
    """How much memory the arrays take together."""
    return sum(array.nbytes for array in arrays if array is not None)
