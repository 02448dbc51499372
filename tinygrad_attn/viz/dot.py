"""The DOT text of a picture. It is the same text for the same computation, in any process.

Labels are HTML-like tables written here with everything escaped, so that any name is shown as it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from tinygrad_attn.viz.dot_label import (
    ALARM,
    COLOURS,
    FAINT,
    FLOW,
    INK,
    LINE,
    QUIET,
    SHADES,
    Scale,
    amount_text,
    escape,
    node_label,
    norms_text,
    rms,
    shown_gradients,
)
from tinygrad_attn.viz.fold import numbered
from tinygrad_attn.viz.nodes import Edge, Node, Path
from tinygrad_attn.viz.text import name_lines, visible

_FEW = 24  # boxes up to which lines carry amounts; beyond, pointing at a line shows it


def body(nodes: Sequence[Node], edges: Sequence[Edge], opened: set[Path], output: str) -> list[str]:
    """The lines of the DOT text between the braces, without the legend."""
    flows = [edge.gradients() for edge in edges]
    shown = [*flows, *map(shown_gradients, nodes)]
    sizes = [rms(g) for gradients in shown for g in gradients]
    scale = Scale(max((size for size in sizes if math.isfinite(size)), default=0.0))
    uses: dict[str, int] = {}
    for edge in edges:
        uses[edge.source] = uses.get(edge.source, 0) + 1
    lines = _clustered(nodes, opened, scale, "∂" + output if output else "∂")
    by_id = {node.id: node for node in nodes}
    amounts = len(nodes) <= _FEW
    for edge, gradients in zip(edges, flows, strict=True):
        source, target = by_id[edge.source], by_id[edge.target]
        amount = amounts and uses[edge.source] > 1 and source.value is not None
        # Lines within a scope are kept straight; weights that go everywhere stay in the background.
        weight = 4 if source.scope == target.scope and source.operation is not None else 1
        lines.append(
            _line(
                edge, gradients, scale, amount, weight, source.kind == "parameters" and uses[edge.source] > 1
            )
        )
    return lines + _in_order(nodes, edges)


def _clustered(nodes: Sequence[Node], opened: set[Path], scale: Scale, mark: str) -> list[str]:
    """The nodes, those of a scope within a frame."""
    inside: dict[Path, list[Node]] = {(): []}
    children: dict[Path, list[Path]] = {}
    for node in nodes:
        for k in range(1, len(node.scope) + 1):
            if node.scope[:k] not in inside:
                inside[node.scope[:k]] = []
                children.setdefault(node.scope[: k - 1], []).append(node.scope[:k])
        inside[node.scope].append(node)
    lines: list[str] = []
    count = 0
    stack: list[Path | None] = [()]  # None closes a frame
    depth = 1
    while stack:
        path = stack.pop()
        if path is None:
            depth -= 1
            lines.append("\t" * depth + "}\n")
            continue
        if path:
            lines.append("\t" * depth + f"subgraph cluster_{count} {{\n")
            depth += 1
            count += 1
            lines.append("\t" * depth + _frame(path, path in opened, len(path)) + "\n")
            stack.append(None)
        lines += ["\t" * depth + f"{node.id} [{node_label(node, scale, mark)}]\n" for node in inside[path]]
        stack += reversed(children.get(path, []))
    return lines


def _frame(path: Path, opened: bool, depth: int) -> str:
    title = "<br/>".join(map(escape, name_lines(path[-1])))
    if opened:
        title = f"{title}<i>, opened</i>"
        look = 'style="rounded,filled,dashed" color="#5b8dc9" fillcolor="#f3f8fe"'
    else:
        look = f'style="rounded,filled" color="#cfd6dd" fillcolor="{"#f8f9fb" if depth % 2 else "#f1f3f6"}"'
    return f'graph [label=<{title}> labelloc=t labeljust=l fontsize=11 fontcolor="{FAINT}" margin=10 {look}]'


def _line(
    edge: Edge, gradients: Sequence[np.ndarray], scale: Scale, amount: bool, weight: int, quiet: bool
) -> str:
    ends = f"\t{edge.source} -> {edge.target}"
    if not gradients:
        return f'{ends} [style=dashed color="{LINE}" weight={weight}]\n'
    flow = QUIET if quiet else FLOW
    colour = (
        ALARM
        if any(not math.isfinite(rms(g)) for g in gradients)
        else flow
        if any(map(rms, gradients))
        else LINE
    )
    text = amount_text(gradients[0]) if len(gradients) == 1 else f"norms {norms_text(gradients)}"
    label = f' edgetooltip="{text}"'
    if amount and len(gradients) == 1:
        label += f' label=<<font color="{colour}" point-size="9">&#160;&#160;{escape(text)}&#160;</font>>'
    return f'{ends} [color="{colour}" penwidth={scale.width(gradients):g} weight={weight}{label}]\n'


def _in_order(nodes: Sequence[Node], edges: Sequence[Edge]) -> list[str]:
    """Unseen lines that keep a step from being drawn above the one before it, where nothing else does."""
    first: dict[Path, str] = {}
    for node in nodes:
        for k in range(1, len(node.scope) + 1):
            if numbered(node.scope[k - 1]):
                first.setdefault(node.scope[:k], node.id)
    scopes = {node.id: node.scope for node in nodes}
    joined = set()
    for edge in edges:
        a, b = scopes[edge.source], scopes[edge.target]
        depth = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
        if depth is not None:
            joined.add((a[: depth + 1], b[: depth + 1]))
    lines = []
    by_place: dict[tuple[Path, str], list[tuple[int, Path]]] = {}
    for scope in first:
        step = numbered(scope[-1])
        assert step is not None
        by_place.setdefault((scope[:-1], step[0]), []).append((step[1], scope))
    for steps in by_place.values():
        found = [scope for _, scope in steps]  # in the order of the computation
        for a, b in pairwise(found):
            if (a, b) not in joined:
                lines.append(f"\t{first[a]} -> {first[b]} [style=invis]\n")
    return lines


def legend(nodes: Sequence[Node], title: str, notices: Sequence[str], traced: bool) -> str:
    """What the colours mean, and what the reader has to be told: a table that stands below the picture."""
    kinds = {node.kind for node in nodes}
    seen: dict[str, str] = {}
    for kind, (colour, meaning) in COLOURS.items():
        if kind in kinds:
            seen[colour] = f"{seen[colour]}; {meaning}" if colour in seen else meaning
    cells = [f'<td bgcolor="{colour}">  {escape(meaning)}  </td>' for colour, meaning in seen.items()]
    rows = [f'<tr><td align="left"><b>{escape(title)}</b></td></tr>', _strip(cells)]
    if traced:
        shades = "".join(f'<td bgcolor="{shade}" width="18"></td>' for shade in SHADES)
        rows.append(
            _strip(
                [
                    "<td>gradient, root mean square: small&#160;&#160;&#160;</td>",
                    shades,
                    "<td>large, a factor of ten each;  along a line: its width, and the amount</td>",
                ]
            )
        )
    for notice in notices:
        text = "<br/>".join(escape(line) for line in _broken(visible(notice), 100))
        rows.append(f'<tr><td align="left" balign="left"><i>{text}</i></td></tr>')
    table = f'<table border="0" cellspacing="2" cellpadding="2">{"".join(rows)}</table>'
    return f'<<font color="{INK}" point-size="10">{table}</font>>'


def _strip(cells: Sequence[str]) -> str:
    return (
        '<tr><td align="left"><table border="0" cellborder="0" cellspacing="3" cellpadding="2"><tr>'
        f"{''.join(cells)}</tr></table></td></tr>"
    )


def _broken(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return lines
