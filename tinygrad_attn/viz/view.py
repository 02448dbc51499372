"""What of a record is drawn: scopes folded into boxes, steps on the way shown as part of others, a limit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from tinygrad_attn.viz.nodes import Edge, Node, Path
from tinygrad_attn.viz.record import Record
from tinygrad_attn.viz.text import is_small

# A box: the id of the node that is drawn as itself, or for several nodes ("scope" | "steps" | "parameters",
# what).
Key = str | tuple[str, Path]

MOVES = frozenset(
    [
        "astype",
        "broadcast_to",
        "concatenate",
        "expand_dims",
        "getitem",
        "identity",
        "reshape",
        "split",
        "squeeze",
        "stack",
        "swapaxes",
        "transpose",
    ]
)
"""Operations that put numbers elsewhere and change none."""

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
        step = numbered(scope[-1])
        if step and (self.merge or scope in self._folded):
            return "steps", (*scope[:-1], step[0])
        return "scope", scope


def scopes_of(record: Record) -> list[Path]:
    """All scopes of the operations, those around them included, in the order of their first operation."""
    different = dict.fromkeys(node.scope for node in record.nodes)
    return [*dict.fromkeys(scope[:k] for scope in different for k in range(1, len(scope) + 1))]


def matches(scope: Path, patterns: Sequence[str]) -> bool:
    """Whether a pattern (`*` stands for anything) gives the scope in full, or its last names."""
    joined = "/".join(scope)
    return any(joined == p or fnmatchcase(joined, p) or fnmatchcase(joined, f"*/{p}") for p in patterns)


def numbered(name: str) -> tuple[str, int] | None:
    """("step", 3) for "step 3"; None for a name without a number at its end."""
    found = _NUMBERED.fullmatch(name)
    return (found[1], int(found[2])) if found else None


def view(
    record: Record, detail: str, fold: Sequence[str], opened: Sequence[str], limit: int | None
) -> tuple[list[Node], list[Edge], list[str]]:
    """The boxes and lines of a picture of `record`, and what has to be said about them."""
    uses: dict[str, list[Edge]] = {}
    for edge in record.edges:
        uses.setdefault(edge.source, []).append(edge)
    notices: list[str] = []
    box = _boxes(record, uses, Rules(record, detail, fold, opened), detail, opened)
    count = len(set(box.values()))
    if limit is not None and count > limit:
        box, done = _within(record, uses, box, detail, fold, opened, limit)
        notices.append(f"{count:,} boxes are more than the limit of {limit}: {done}.")
    nodes, names = _drawn(record, box)
    return nodes, _lines(record, box, names), notices


def _within(
    record: Record,
    uses: dict[str, list[Edge]],
    whole: dict[str, Key],
    detail: str,
    fold: Sequence[str],
    opened: Sequence[str],
    limit: int,
) -> tuple[dict[str, Key], str]:
    """Boxes that keep to the limit, and how: steps folded, then the deepest scopes, then the earliest cut."""
    deepest = max(map(len, scopes_of(record)), default=0)
    for depth in (None, *range(deepest - 1, -1, -1)) if deepest else ():
        box = _boxes(
            record, uses, Rules(record, detail, fold, opened, merge=True, depth=depth), detail, opened
        )
        if len(set(box.values())) <= limit:
            return (
                box,
                "repeated steps are folded" if depth is None else f"scopes more than {depth} deep are folded",
            )
    latest: dict[Key, int] = {whole[record.output]: len(record.nodes)}  # by its last use
    position = {node.id: i for i, node in enumerate(record.nodes)}
    for edge in record.edges:
        key, last = whole[edge.source], position[edge.target]
        if latest.get(key, -1) < last:
            latest[key] = last
    kept = set(sorted(latest, key=lambda key: latest[key])[-max(limit - 1, 1) :])
    early: Key = ("earlier", ())
    return {
        id: key if key in kept else early for id, key in whole.items()
    }, "what was computed first is one box"


def _boxes(
    record: Record, uses: dict[str, list[Edge]], rules: Rules, detail: str, opened: Sequence[str]
) -> dict[str, Key]:
    """The box of each node, by its id."""
    box: dict[str, Key] = {}
    finer = {scope for scope in scopes_of(record) if matches(scope, opened)} | record.opened
    heads = {
        node.id: node.scope for node in record.nodes if node.operation is not None and node.name is not None
    }
    leaves = []
    looks = detail != "primitive" and (bool(heads) or any(map(rules.key, scopes_of(record))))
    for node in reversed(record.nodes):  # what uses a node comes before it
        if node.operation is None:
            leaves.append(node)
            continue
        key: Key = (rules.key(node.scope) if node.scope else None) or node.id
        if key == node.id and looks and _is_a_step_on_the_way(node, finer):
            leads_to = {box[edge.target] for edge in uses.get(node.id, ())}
            if len(leads_to) == 1:
                (only,) = leads_to
                around = only[1] if isinstance(only, tuple) else heads.get(only)
                if around is not None and (node.operation in MOVES or _one_in_the_other(node.scope, around)):
                    key = only
        box[node.id] = key
    together: dict[tuple[Key, ...], list[Node]] = {}
    by_id = {node.id: node for node in record.nodes}
    for node in reversed(leaves):
        into = [*dict.fromkeys(box[edge.target] for edge in uses.get(node.id, ()))]
        box[node.id] = node.id
        swallowed = node.name is None if node.kind == "constant" else detail == "model"
        if len(into) == 1 and isinstance(into[0], tuple) and swallowed:
            box[node.id] = into[0]
        elif (
            detail != "primitive"
            and node.kind == "leaf"
            and all(by_id[edge.target].scope for edge in uses.get(node.id, ()))
        ):
            together.setdefault(tuple(into), []).append(node)
    for users, group in together.items():
        if users and len(group) > 1 and not all(is_small(_array(node)) for node in group):
            bundle: Key = ("parameters", tuple(node.id for node in group))
            box.update((node.id, bundle) for node in group)
    return box


def _one_in_the_other(a: Path, b: Path) -> bool:
    length = min(len(a), len(b))
    return a[:length] == b[:length]


def _is_a_step_on_the_way(node: Node, finer: set[Path]) -> bool:
    """Whether the node may be shown as part of what it leads to: unnamed, and a move or in a module."""
    if node.name is not None or node.kind == "output" or not (node.scope or node.operation in MOVES):
        return False
    return not any(node.scope[:k] in finer for k in range(1, len(node.scope) + 1))


def _drawn(record: Record, box: dict[str, Key]) -> tuple[list[Node], dict[Key, str]]:
    """The nodes of the picture, and the id of each box."""
    members: dict[Key, list[Node]] = {}
    for node in record.nodes:
        members.setdefault(box[node.id], []).append(node)
    nodes: list[Node] = []
    names: dict[Key, str] = {}
    for key, inside in members.items():
        if isinstance(key, str):
            head = next(node for node in inside if node.id == key)
            nodes.append(
                head if len(inside) == 1 else replace(head, members=tuple(n for n in inside if n is not head))
            )
            names[key] = key
        else:
            names[key] = f"g{len(names) - sum(isinstance(k, str) for k in names)}"
            nodes.append(_several(names[key], key, inside, record.output))
    return nodes, names


def _several(id: str, key: tuple[str, Path], inside: list[Node], output: str) -> Node:
    what, path = key
    kind, title, count, scope = what, "/".join(path[-1:]), 1, path[:-1]
    if what == "steps":
        depth = len(path) - 1
        found = [numbered(node.scope[depth]) for node in inside if len(node.scope) > depth]
        numbers = sorted({step[1] for step in found if step and step[0] == path[-1]})
        count = len(numbers)
        title = f"{path[-1]} {numbers[0]}" + (f" … {numbers[-1]}" if count > 1 else "")
    elif what == "scope":
        kind = "module"
    elif what == "parameters":
        title, scope = ", ".join(node.name or "?" for node in inside), inside[0].scope
    else:
        title, scope = f"{len(inside):,} tensors computed earlier", ()
    return Node(id, kind, title, None, None, None, scope, members=tuple(inside), count=count)


def _lines(record: Record, box: dict[str, Key], names: dict[Key, str]) -> list[Edge]:
    """The edges of the picture: each use by an operation that is drawn, and one line between other boxes."""
    sizes: dict[Key, int] = {}
    for key in box.values():
        sizes[key] = sizes.get(key, 0) + 1
    found: dict[tuple[Key, Key, int], list[Edge]] = {}
    scopes = {node.id: node.scope for node in record.nodes}
    for number, edge in enumerate(record.edges):
        a, b = box[edge.source], box[edge.target]
        if a == b and a[0] == "steps":  # from step to step: a loop
            depth = len(a[1])
            if (
                scopes[edge.source][:depth] != scopes[edge.target][:depth]
                and len(scopes[edge.source]) >= depth
            ):
                found.setdefault((a, b, -1), []).append(edge)
        elif a != b:
            alone = isinstance(a, str) and isinstance(b, str) and sizes[b] == 1
            found.setdefault((a, b, number if alone else -1), []).append(edge)
    lines = []
    for (a, b, number), parts in found.items():
        same = number >= 0 and (parts[0].source, parts[0].target) == (names[a], names[b])
        lines.append(
            parts[0]
            if same
            else Edge(names[a], names[b], parts[0].slot if number >= 0 else None, parts=tuple(parts))
        )
    return lines


def _array(node: Node):  # type: ignore[no-untyped-def]
    assert node.value is not None
    return node.value
