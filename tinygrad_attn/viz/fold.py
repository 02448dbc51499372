"""Which scopes of a record are folded into a box, and into which."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from tinygrad_attn.viz.nodes import Path
from tinygrad_attn.viz.record import Record

# A box: the id of the node that is drawn as itself, or for several nodes ("scope" | "steps" | "parameters",
# what).
Key = str | tuple[str, Path]

_NUMBERED = re.compile(r"(.*?)[ _]?(\d+)", re.DOTALL)


class Rules:
    """Which scopes are folded.

    Args:
        record: whose scopes there are.
        detail: "model", "paper" or "primitive".
        fold: patterns of scopes to fold.
        opened: patterns of scopes that stay open.
        merge: whether repeated steps become one box.
        depth: how deep scopes stay open; None for no bound.
    """

    def __init__(
        self,
        record: Record,
        detail: str,
        fold: Sequence[str],
        opened: Sequence[str],
        merge: bool = False,
        depth: int | None = None,
    ) -> None:
        self.model = detail == "model"
        self.merge = merge
        self.depth = depth
        scopes = scopes_of(record)
        self._folded = {scope for scope in scopes if matches(scope, fold)}
        self._open = {
            scope[:k] for scope in scopes if matches(scope, opened) for k in range(1, len(scope) + 1)
        }
        self._above_steps = {
            scope[:k] for scope in scopes if numbered(scope[-1]) for k in range(1, len(scope))
        }
        self._runs = self._runs_of_steps(scopes)
        self._keys: dict[Path, Key | None] = {}

    def key(self, scope: Path) -> Key | None:
        """The box that operations of `scope` are folded into; None if they are drawn."""
        if scope not in self._keys:
            folded = (scope[:k] for k in range(1, len(scope) + 1) if self._is_folded(scope[:k]))
            self._keys[scope] = next((self._box(prefix) for prefix in folded), None)
        return self._keys[scope]

    def _is_folded(self, scope: Path) -> bool:
        if scope in self._open:
            return False
        if scope in self._folded or (self.merge and numbered(scope[-1])):
            return True
        if self.depth is not None and len(scope) > self.depth:
            return True
        return self.model and (bool(numbered(scope[-1])) or scope not in self._above_steps)

    def _box(self, scope: Path) -> Key:
        return ("steps", self._runs[scope]) if scope in self._runs else ("scope", scope)

    def _runs_of_steps(self, scopes: Sequence[Path]) -> dict[Path, Path]:
        """For each step that is folded, the first step of the run of folded ones that it belongs to."""
        siblings: dict[tuple[Path, str], list[tuple[int, Path]]] = {}
        for scope in scopes:
            step = numbered(scope[-1])
            if step:
                siblings.setdefault((scope[:-1], step[0]), []).append((step[1], scope))
        runs: dict[Path, Path] = {}
        for found in siblings.values():
            first: Path | None = None
            for _, scope in sorted(found):
                if scope not in self._open and (self.merge or scope in self._folded):
                    first = runs[scope] = first or scope
                else:
                    first = None
        return runs


def scopes_of(record: Record) -> list[Path]:
    """All scopes of the operations, those around them included, in the order of their first operation."""
    different = dict.fromkeys(node.scope for node in record.nodes)
    return [*dict.fromkeys(scope[:k] for scope in different for k in range(1, len(scope) + 1))]


def matches(scope: Path, patterns: Sequence[str]) -> bool:
    """Whether a pattern (`*` stands for anything) gives the scope in full, or its last names."""
    joined = "/".join(scope)
    return any(_expression(pattern).fullmatch(joined) for pattern in patterns)


@lru_cache(maxsize=64)
def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile("(.*/)?" + ".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)


def numbered(name: str) -> tuple[str, int] | None:
    """("step", 3) for "step 3"; None for a name without a number at its end."""
    found = _NUMBERED.fullmatch(name)
    return (found[1], int(found[2])) if found else None
