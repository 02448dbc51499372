"""The names of the papers: which tensors of a record are h, s, e, α and c, and of which step."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from tinygrad_attn.engine import Tensor
from tinygrad_attn.viz.record import Record

ROLES = ("h", "s", "e", "α", "c", "h̃", "logits")
_NAMED = re.compile(r"(h̃|h|s|e|α|c|logits)(\d*)")


def roles_of(record: Record, given: Mapping[str, Any]) -> dict[str, list[tuple[str, int | None]]]:
    """For each role the ids of its tensors with their numbers."""
    ids = {id(tensor): key for key, tensor in record.tensors.items()}
    by_role: dict[str, list[tuple[str, int | None]]] = {}
    for role, tensors in given.items():
        alone = isinstance(tensors, Tensor) or not isinstance(tensors, Iterable)
        several: Iterable[Any] = (tensors,) if alone else tensors
        for tensor in several:
            if not isinstance(tensor, Tensor):
                raise TypeError(f"gradient_flow: {role} holds a {type(tensor).__name__}, expected Tensors")
            if id(tensor) in ids:
                by_role.setdefault(role, []).append((ids[id(tensor)], number_in(tensor.name)))
            elif tensor.requires_grad:
                raise ValueError(
                    f"gradient_flow: {role}: {tensor._label()} is not part of what the loss was computed from"
                )
    for node in record.nodes:
        match = _NAMED.fullmatch(normal(node.name)) if node.name and node.id != record.output else None
        if match and match[1] not in given:
            by_role.setdefault(match[1], []).append((node.id, int(match[2]) if match[2] else None))
    count = max(len(by_role.get("α", ())), len(by_role.get("e", ())))
    return {role: _counted(role, by_role[role], count) for role in ROLES if role in by_role}


def _counted(role: str, found: list[tuple[str, int | None]], count: int) -> list[tuple[str, int | None]]:
    """The tensors with distinct numbers: their own, or from 1, and states from 0 if there is one more."""
    numbers = [number for _, number in found]
    if None not in numbers and len(set(numbers)) == len(numbers):
        return found
    if len(found) == 1 and role in ("h", "logits"):
        return [(found[0][0], None)]
    start = 0 if role == "s" and len(found) != count else 1
    if role == "s" and len(found) == count == 1:
        start = 0
    return [(id, start + i) for i, (id, _) in enumerate(found)]


def normal(name: str) -> str:
    """A label as it is kept: subscripts as digits, no space or underscore, α for alpha."""
    if not isinstance(name, str):
        raise TypeError(f"gradient_flow: a label is {name!r}, expected text such as 'α2'")
    plain = unicodedata.normalize("NFKC", name).replace(" ", "").replace("_", "")
    return re.sub(r"^alpha(?=\d*$)", "α", plain)


def number_in(name: str | None) -> int | None:
    """The number at the end of a name, such as a label."""
    match = re.search(r"\d+$", normal(name)) if name else None
    return int(match[0]) if match else None


def role_of(label: str) -> str:
    """The role in a label."""
    return label.rstrip("0123456789")
