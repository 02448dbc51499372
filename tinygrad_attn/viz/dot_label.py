"""The boxes of a picture as HTML-like labels of DOT, with everything escaped, and the colours of sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tinygrad_attn.viz.nodes import Node
from tinygrad_attn.viz.text import (
    array_lines,
    is_small,
    name_lines,
    norm,
    number,
    one_line,
    shape_text,
    strange_entries,
)

FONT = "Helvetica,Arial,DejaVu Sans,sans-serif"
COLOURS = {
    "leaf": ("#ffe2a8", "leaf, collects a gradient"),
    "parameters": ("#ffe2a8", "several leaves"),
    "constant": ("#e4e7eb", "constant"),
    "operation": ("#dbe8f7", "operation"),
    "fused": ("#b7d2f1", "fused operation"),
    "output": ("#f6c1cb", "output"),
    "module": ("#d9d0f0", "module or scope, folded"),
    "steps": ("#d9d0f0", "steps, folded"),
    "earlier": ("#eeeeee", "not drawn"),
}
SHADES = ("#fff8ef", "#feecd2", "#fddcae", "#fdc583", "#fca95a")  # of the gradient, a factor of ten each
INK, FAINT, LINE, FLOW, QUIET, ALARM = "#1f2933", "#66727f", "#9aa5b1", "#b4540a", "#ddb892", "#c81e1e"
_ROWS = 6  # named tensors that the box of a module lists


@dataclass(frozen=True)
class Scale:
    """Sizes of gradients, as root mean squares, against the largest in the picture."""

    largest: float

    def shade(self, gradients: Sequence[np.ndarray]) -> str:
        """The colour for the largest of the gradients."""
        size = _largest(gradients)
        if not math.isfinite(size):
            return "#f9c6c6"
        if size == 0 or self.largest == 0:
            return "#ffffff"
        return SHADES[max(0, len(SHADES) - 1 - int(self._decades_below(size) + 1e-9))]

    def width(self, gradients: Sequence[np.ndarray]) -> float:
        """The width of a line along which the gradients flow."""
        size = _largest(gradients)
        if not math.isfinite(size):
            return 3.0
        if size == 0 or self.largest == 0:
            return 0.6
        return round(max(0.8, 4.4 - 0.9 * max(self._decades_below(size), 0.0)), 2)

    def _decades_below(self, size: float) -> float:
        """How many factors of ten the size is below the largest; their quotient may be out of range."""
        return math.log10(self.largest) - math.log10(size)


def _largest(gradients: Sequence[np.ndarray]) -> float:
    """The largest root mean square, 0 without gradients; NaN if one is."""
    return float(np.max([rms(g) for g in gradients], initial=0.0))


def rms(gradient: np.ndarray) -> float:
    """The root mean square of the entries."""
    return norm(gradient) / math.sqrt(gradient.size) if gradient.size else 0.0


def node_label(node: Node, scale: Scale, mark: str) -> str:
    """The attributes of a node. `mark` is what gradients are gradients of: "∂loss"."""
    colour = COLOURS[node.kind][0]
    of_value, of_gradient = _is_strange(node.value), _is_strange(node.gradient)
    rows = [_heading(node, colour)]
    if node.value is not None:
        rows.append(_row("value", array_lines(node.value), "#ffffff", of_value))
        if node.gradient is not None:
            rows.append(_row(mark, array_lines(node.gradient), scale.shade([node.gradient]), of_gradient))
        elif node.kind != "constant":
            rows.append(_row(mark, ["–"], "#ffffff", False))
    else:
        rows += _inner_rows(node, scale, mark)
    border = f'color="{ALARM}" border="2"' if of_value or of_gradient else f'color="{LINE}" border="1"'
    look = f'{border} cellborder="0" cellspacing="0" cellpadding="3" bgcolor="#ffffff"'
    table = f"<table {look}>{''.join(rows)}</table>"
    return f'id="{node.id}" label=<{table}>'


def _is_strange(array: np.ndarray | None) -> bool:
    return array is not None and strange_entries(array) is not None


def _heading(node: Node, colour: str) -> str:
    name = "<br/>".join(_with_room(name_lines(node.name))) if node.name else ""
    parts = [f"<b>{name}</b>"] if name else []
    shape = f'<font color="{FAINT}" point-size="9">({shape_text(node.shape)})</font>' if node.shape else ""
    if name and shape:
        parts.append(shape)
    if node.operation is not None:
        on_the_way = [inner.operation or "" for inner in node.members if inner.operation is not None]
        made = escape(one_line(node.operation)) + (f" {escape(node.settings)}" if node.settings else "")
        if on_the_way:
            made = f"{escape(_short(on_the_way))} → {made}"
        parts.append(f'<font color="#3e4c59" point-size="9">{made}{_room(made)}</font>')
    elif node.value is None:
        contents = _contents(node)
        parts.append(f'<font color="#3e4c59" point-size="9">{escape(contents)}{_room(contents)}</font>')
    elif not name:
        parts.append(f'<font color="#3e4c59" point-size="9">{node.kind}</font>')
    if shape and not name:
        parts.append(shape)
    return f'<tr><td colspan="2" bgcolor="{colour}" align="left" balign="left">{"  ".join(parts)}</td></tr>'


def _short(names: list[str]) -> str:
    different = [*dict.fromkeys(names)]
    return ", ".join(different[:3]) + (", …" if len(different) > 3 else "")


def _contents(node: Node) -> str:
    if node.kind == "parameters":
        size = sum(inner.value.size for inner in node.members if inner.value is not None)
        return f"{len(node.members)} leaves, {size:,} numbers"
    operations = sum(inner.operation is not None for inner in node.members)
    leaves = sum(inner.kind == "leaf" for inner in node.members)
    parts = [f"× {node.count:,}"] if node.count > 1 else []
    parts.append(f"{operations:,} operation{'s' * (operations != 1)}")
    if leaves:
        parts.append(f"{leaves:,} lea{'ves' if leaves > 1 else 'f'}")
    return ", ".join(parts)


def _inner_rows(node: Node, scale: Scale, mark: str) -> list[str]:
    """For the first few named results within a box: how many, their shape, and their gradients' norms."""
    named = _named(node)
    rows = []
    for name, found in named[:_ROWS]:
        gradients = [inner.gradient for inner in found if inner.gradient is not None]
        times = f" × {len(found):,}" if len(found) > 1 else ""
        shape = shape_text(found[-1].shape or ())
        label = f"{escape(one_line(name))}{times}"
        about = f"‖{mark}‖ {norms_text(gradients)}" if gradients else f"{mark} –"
        strange = any(_is_strange(inner.value) or _is_strange(inner.gradient) for inner in found)
        rows.append(
            _row(
                label,
                [f"{shape}  {about}" if shape else about],
                scale.shade(gradients),
                strange,
                literal=True,
            )
        )
    if len(named) > _ROWS:
        rows.append(_row("…", [f"{len(named) - _ROWS} more names"], "#ffffff", False))
    return rows


def _named(node: Node) -> list[tuple[str, list[Node]]]:
    """The results within a box by name. In steps where nothing has one, the operations stand for it."""
    named: dict[str, list[Node]] = {}
    for inner in node.members:
        if inner.name is not None and (inner.operation is not None or node.kind == "parameters"):
            named.setdefault(inner.name, []).append(inner)
    if not named and node.kind == "steps":
        for inner in node.members:
            if inner.operation is not None:
                named.setdefault(inner.operation, []).append(inner)
    return [*named.items()]


def shown_gradients(node: Node) -> list[np.ndarray]:
    """The gradients that a node's box tells of: its own, or those of the results that it lists."""
    listed = [inner for _, found in _named(node)[:_ROWS] for inner in found]
    shown = listed if node.value is None else [node]
    return [one.gradient for one in shown if one.gradient is not None]


def norms_text(gradients: Sequence[np.ndarray]) -> str:
    """The norms of several gradients: from which to which, and how many are not finite."""
    norms = np.array([norm(g) for g in gradients])
    finite = norms[np.isfinite(norms)]
    parts = [strange_entries(norms) or ""]
    if finite.size:
        low, high = number(finite.min()), number(finite.max())
        parts.append(low if low == high else f"{low} … {high}")
    return ", ".join(filter(None, parts))


def _row(mark: str, lines: Sequence[str], colour: str, alarm: bool, literal: bool = False) -> str:
    text = "<br/>".join(_with_room(lines))
    if alarm:
        text = f'<font color="{ALARM}"><b>{text}</b></font>'
    mark = mark if literal else escape(one_line(mark))
    mark = f'<font color="{FAINT}" point-size="9">{mark}</font>'
    return (
        f'<tr><td align="right" valign="top" bgcolor="{colour}">{mark}</td>'
        f'<td align="left" balign="left" bgcolor="{colour}">{text}</td></tr>'
    )


def _with_room(lines: Sequence[str]) -> list[str]:
    """Lines for a cell, escaped, with room after the longest."""
    longest = max(lines, key=len)
    return [escape(line) + (_room(line) if line is longest else "") for line in lines]


def _room(text: str) -> str:
    """Spaces after a text: the reader's font may be a tenth wider than the one that Graphviz measured."""
    return "&#160;" * math.ceil(len(text) / 4)


def amount_text(g: np.ndarray) -> str:
    """What a line says of the gradient along it."""
    return (
        array_lines(g)[0] if g.size <= 3 and is_small(g) else strange_entries(g) or f"norm {number(norm(g))}"
    )


def escape(text: str) -> str:
    """Text for an HTML-like label, where Graphviz puts names in the place of `\\N` and `\\G`."""
    for sign, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("\\", "\\\\")):
        text = text.replace(sign, entity)
    return text
