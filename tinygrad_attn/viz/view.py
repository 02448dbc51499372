"""What of a record is drawn: scopes folded into boxes, steps on the way shown as part of others, a limit."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, NamedTuple

from tinygrad_attn.viz.fold import Key, Rules, matches, numbered, scopes_of
from tinygrad_attn.viz.nodes import Edge, Node, Path, shared_scope
from tinygrad_attn.viz.record import Record
from tinygrad_attn.viz.text import is_small

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


class View(NamedTuple):
    """The boxes and lines of a picture."""

    nodes: list[Node]
    edges: list[Edge]


Boxes = dict[str, Key]  # the box of each node, by its id


def boxes(
    record: Record, detail: str, fold: Sequence[str], opened: Sequence[str], limit: int | None
) -> tuple[Boxes, Boxes, list[str]]:
    """The boxes that detail and folding ask for, those within the limit, and what has to be said of that."""
    uses: dict[str, list[Edge]] = {}
    for edge in record.edges:
        uses.setdefault(edge.source, []).append(edge)
    whole = _boxes(record, uses, Rules(record, detail, fold, opened), detail, opened)
    count = len(set(whole.values()))
    if limit is None or count <= limit:
        return whole, whole, []
    drawn, done = _within(record, uses, whole, detail, fold, opened, limit)
    return whole, drawn, [f"{count:,} boxes are more than the limit of {limit}; in the picture {done}."]


def view(record: Record, box: Boxes) -> View:
    """The boxes as nodes, and the edges between them."""
    nodes, names = _drawn(record, box)
    return View(nodes, _lines(record, box, names))


def _within(
    record: Record,
    uses: dict[str, list[Edge]],
    whole: Boxes,
    detail: str,
    fold: Sequence[str],
    opened: Sequence[str],
    limit: int,
) -> tuple[Boxes, str]:
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
) -> Boxes:
    """The box of each node, by its id."""
    box: Boxes = {}
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
    """Whether one scope is, or lies within, the other; what is outside of all scopes is no scope."""
    length = min(len(a), len(b))
    return length > 0 and a[:length] == b[:length]


def _is_a_step_on_the_way(node: Node, finer: set[Path]) -> bool:
    """Whether the node may be shown as part of what it leads to: unnamed, and a move or in a module."""
    if node.name is not None or node.kind == "output" or not (node.scope or node.operation in MOVES):
        return False
    return not any(node.scope[:k] in finer for k in range(1, len(node.scope) + 1))


def _drawn(record: Record, box: Boxes) -> tuple[list[Node], dict[Key, str]]:
    """The nodes of the picture, and the id of each box."""
    members: dict[Key, list[Node]] = {}
    for node in record.nodes:
        members.setdefault(box[node.id], []).append(node)
    nodes: list[Node] = []
    names: dict[Key, str] = {}
    numbers = itertools.count()
    frames = _frames(record, box)
    for key, inside in members.items():
        if isinstance(key, str):
            head = next(node for node in inside if node.id == key)
            rest = tuple(node for node in inside if node is not head)
            as_recorded = not rest and frames[key] == head.scope
            nodes.append(head if as_recorded else replace(head, members=rest, scope=frames[key]))
            names[key] = key
        else:
            names[key] = f"g{next(numbers)}"
            frame = reduce(shared_scope, (frames[node.id] for node in inside))
            nodes.append(_several(names[key], key, inside, frame))
    return nodes, names


def _frames(record: Record, box: Boxes) -> dict[str, Path]:
    """The scope in whose frame each node stands: a leaf not in that of a folded scope, which has none."""
    frames = {node.id: node.scope for node in record.nodes}
    leaves = {node.id for node in record.nodes if node.operation is None}
    for edge in record.edges:
        user = box[edge.target]
        if edge.source in leaves and isinstance(user, tuple):
            frames[edge.source] = frames[edge.source][: max(len(user[1]) - 1, 0)]
    return frames


def _several(id: str, key: tuple[str, Path], inside: list[Node], frame: Path) -> Node:
    what, path = key
    kind, title, count, scope = what, "/".join(path[-1:]), 1, path[:-1]
    if what == "steps":
        depth = len(path) - 1
        steps = {node.scope[depth] for node in inside if len(node.scope) > depth}
        numbers = sorted(step[1] for step in map(numbered, steps) if step)
        count = len(numbers)
        title = path[-1] + (f" … {numbers[-1]}" if count > 1 else "")
    elif what == "scope":
        kind = "module"
    elif what == "parameters":
        title, scope = ", ".join(node.name or "?" for node in inside), frame
    else:
        title, scope = f"{len(inside):,} tensors computed earlier", ()
    return Node(id, kind, title, None, None, None, scope, members=tuple(inside), count=count)


def _lines(record: Record, box: Boxes, names: dict[Key, str]) -> list[Edge]:
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


def _array(node: Node) -> Any:
    assert node.value is not None
    return node.value
