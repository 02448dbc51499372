"""What makes the numbers, tables, listings and figures of the pages when the site is built.

A page is a Jinja template over the functions that `functions` returns. What can be computed is in no page.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import statistics
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import jinja2
from latex2mathml.converter import convert

import tinygrad_attn as ta
from tinygrad_attn.worked import NUMBERS, RUNNING, VECTOR, walk
from tinygrad_attn.worked import number as worked_number
from tinygrad_attn.worked.text import text

DOCS = Path(__file__).parent
# mkdocs loads this file by its path, so its neighbour is found only from here on.
sys.path.insert(0, str(DOCS))
build_figures = importlib.import_module("build_figures")


def number(key: str, index: int | None = None) -> str:
    """A worked number, computed, with the digits that the texts print; `index` counts from 1."""
    rounded = worked_number(key).rounded()
    return ", ".join(rounded) if index is None else rounded[index - 1]


def numbers_table() -> str:
    """All worked numbers: as printed in the texts, and as computed."""
    rows = ["| | | in the texts | computed |", "|---|---|---|---|"]
    for found in NUMBERS:
        same = found.printed == found.rounded()
        computed = ", ".join(found.rounded())
        rows.append(
            f"| {found.what} | {found.formula.replace('|', chr(92) + '|')} | {', '.join(found.printed)} "
            f"| {computed if same else f'**{computed}**'} |"
        )
    return "\n".join(rows)


def walkthrough(part: str = "", end: str = "", *, vector: bool = False) -> str:
    """What `tinygrad-attn walkthrough` prints, or the part of it from one heading to another."""
    lines = text(walk(VECTOR if vector else RUNNING), "", width=76).splitlines()
    headings = [i for i, line in enumerate(lines) if line and not line.startswith(" ")]
    first = next((i for i in headings if lines[i].startswith(part)), 0) if part else 0
    last = next((i for i in headings if lines[i].startswith(end)), len(lines)) if end else len(lines)
    return block("\n".join(lines[first:last]).strip("\n"))


def block(content: str, language: str = "text") -> str:
    """A listing."""
    return f"```{language}\n{content}\n```"


def source(name: str) -> str:
    """The definition of a function, class or method, `module:qualified.name`, as it stands in the package."""
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return block(textwrap.dedent(inspect.getsource(found)).rstrip(), "python")


def output(file: str, *arguments: str) -> str:
    """What a script prints, run now."""
    return block(_printed(str(DOCS.parent / file), *arguments))


def evaluate(code: str) -> str:
    """Code with, below it, what it prints."""
    ready = "import numpy as np\nimport tinygrad_attn as ta\n"
    return f"{block(code, 'python')}\n\n{block(_printed('-c', ready + code))}"


def _printed(*arguments: str) -> str:
    """What Python prints; RuntimeError, with its message, if it fails or warns."""
    environment = {**os.environ, "PYTHONPATH": str(DOCS.parent), "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-W", "error", *arguments]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout.rstrip()


def summary(name: str) -> str:
    """What an experiment found, as a list; lines that are set in belong to the one before."""
    lines = build_figures.example(name).summary(build_figures.found(name)).splitlines()
    return "\n".join(f"{'    ' * line.startswith(' ')}- {line.strip()}" for line in lines)


def figure(name: str, alternative: str) -> str:
    """The figure of an experiment."""
    return f"![{alternative}](images/{name}.svg)"


def combinations_table() -> str:
    """For every score, query and cell that was run: exact match, steps to 99 %, how much of the weight lies
    on the true position, how often the largest does, milliseconds per step."""
    content = json.loads((DOCS / "data" / "combinations.json").read_text(encoding="utf-8"))
    seconds = content.get("seconds_per_step", {})
    rows = [
        "| score | query | cell | copy | steps | reverse | steps | weight | largest | ms |",
        "|---|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, runs in content["runs"].items():
        cells = [*name.split()]
        for task in ("copy", "reverse"):
            run = runs.get(task)
            if run is None:
                cells += ["", ""]
                continue
            goal = run["steps_to_goal"]
            cells += [f"{run['exact_match']:.1%}", f"{goal:,}" if goal else f"over {run['budget']:,}"]
        for key in ("alignment_weight", "alignment_accuracy"):
            cells.append(
                "\u00a0/\u00a0".join(f"{runs[task][key]:.0%}" for task in ("copy", "reverse") if task in runs)
            )
        cells.append(f"{seconds[name] * 1e3:.1f}" if name in seconds else "")
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def combinations_settings() -> dict[str, Any]:
    """The settings of these runs."""
    content: dict[str, Any] = json.loads((DOCS / "data" / "combinations.json").read_text(encoding="utf-8"))
    budgets = sorted({run["budget"] for runs in content["runs"].values() for run in runs.values()})
    return {**content["training"], "budgets": " or ".join(f"{steps:,}" for steps in budgets)}


PEERS = {"torch": "PyTorch", "jax": "JAX", "torch-compile": "PyTorch compiled", "numpy": "numpy by hand"}


def compare_table() -> str:
    """The times of a training step beside those of others, as `benchmarks/compare.py --json` kept them."""
    rows = []
    for size in "SML":
        rounds = _compared(f"step-{size}")["rounds"]
        rows.append((size, [{name: one[name][0]["median_ms"] for name in one} for one in rounds]))
    return _ratios("size", rows, "ms")


def compiled_ratio() -> str:
    """Our time at size S over that of PyTorch's compiled step, within a round."""
    return f"{_ratio_to('torch-compile', 'compiled'):.2f}"


def operations_table() -> str:
    """The same of single operations, forward and backward."""
    rounds = _compared("ops")["rounds"]
    names = [row["operation"] for row in rounds[0]["torch"]]
    return _ratios(
        "operation", [(name, _named(rounds, "operation", name, "median_us")) for name in names], "µs"
    )


def decode_table() -> str:
    """The same of decoding a thousand sequences."""
    rows = []
    for size in "SM":
        rounds = _compared(f"decode-{size}")["rounds"]
        for name in [row["search"] for row in rounds[0]["tinygrad_attn"]]:
            rows.append((f"{size}, {name}", _named(rounds, "search", name, "median_ms")))
    return _ratios("size, search", rows, "ms")


def _named(rounds: Any, key: str, name: str, figure: str) -> list[dict[str, float]]:
    """For each round every contender's figure in the row called `name`, of those that have one."""
    return [
        {who: row[figure] for who, rows in one.items() for row in rows if row[key] == name} for one in rounds
    ]


def _ratios(title: str, rows: list[tuple[str, list[dict[str, float]]]], unit: str) -> str:
    """A table: medians over the rounds of the times, and of our time over theirs within a round, with its
    range."""
    peers = [name for name in PEERS if any(name in one for _, rounds in rows for one in rounds)]
    heads = [cell for name in peers for cell in (f"{PEERS[name]}, {unit}", f"ours / {PEERS[name]}")]
    lines = [f"| {title} | ours, {unit} | {' | '.join(heads)} |", f"|---|{'--:|' * (len(heads) + 1)}"]
    for label, rounds in rows:
        cells = [label, f"{statistics.median(one['tinygrad_attn'] for one in rounds):.2f}"]
        for name in peers:
            if name not in rounds[0]:
                cells += ["", ""]
                continue
            cells.append(f"{statistics.median(one[name] for one in rounds):.2f}")
            cells.append(with_range([one["tinygrad_attn"] / one[name] for one in rounds]))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def with_range(ratios: list[float]) -> str:
    """The median, and from what to what."""
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}\u00a0to\u00a0{max(ratios):.2f})"


def ideas_table() -> str:
    """What a step takes without each idea, in multiples of what it takes, as `benchmarks/ideas.py` found."""
    lines = ["| without | S | M | L |", "|---|--:|--:|--:|"]
    for row in _compared("ideas"):
        lines.append(f"| {row['without']} | {' | '.join(f'{row[size]:.2f}' for size in 'SML')} |")
    return "\n".join(lines)


def busy_table() -> str:
    """A step with two workers over one with one, beside other processes, as `benchmarks/busy.py` found."""
    lines = ["| other busy processes | S | M | L |", "|--:|--:|--:|--:|"]
    for row in _compared("busy"):
        lines.append(f"| {row['others']} | {' | '.join(f'{row[size]:.2f}' for size in 'SML')} |")
    return "\n".join(lines)


def calls_table() -> str:
    """How many calls of numpy's functions a step makes, and how much of it they and the products among them
    take, as `benchmarks/calls.py` found; and what that is of the others' steps, as in `compare_table`."""
    rows = _compared("calls")
    table = [
        "| | S | M | L |",
        "|---|--:|--:|--:|",
        "| calls in a step | " + " | ".join(f"{row['calls']:,}" for row in rows) + " |",
    ]
    for name, words in (("share", "all calls"), ("products", "matrix products alone")):
        table.append(f"| {words}, of our step | " + " | ".join(f"{row[name]:.0%}" for row in rows) + " |")
        for peer in ("torch", "jax"):
            cells = [f"{row[name] * _ratio_to(peer, row['size']):.2f}" for row in rows]
            table.append(f"| {words}, of {PEERS[peer]}'s step | " + " | ".join(cells) + " |")
    return "\n".join(table)


def _ratio_to(peer: str, what: str) -> float:
    """The median over the rounds of our step's time over another's, in the comparison of a size."""
    rounds = _compared(f"step-{what}")["rounds"]
    times = [[one[name][0]["median_ms"] for name in ("tinygrad_attn", peer)] for one in rounds]
    return statistics.median(ours / theirs for ours, theirs in times)


def compare_machine() -> str:
    """Where these times were taken."""
    return str(_compared("step-S")["machine"])


def _compared(name: str) -> Any:
    return json.loads((DOCS / "data" / f"{name}.json").read_text(encoding="utf-8"))


def draw_graph() -> None:
    """The running example as a computation graph, with values and gradients."""
    h = ta.Tensor([x for (x,) in RUNNING.h], requires_grad=True, name="h")
    s = ta.Tensor(RUNNING.s[0][0], requires_grad=True, name="s")
    e = ta.tanh(s + h)
    alpha = ta.softmax(e)
    c = (alpha * h).sum()
    loss = ta.cross_entropy(ta.stack([c, ta.Tensor(0.0)]), 0)
    for tensor, name in ((e, "e"), (alpha, "α"), (c, "c"), (loss, "loss")):
        tensor.name = name
        tensor.retain_grad()
    loss.backward()
    drawn = str(ta.viz.graph(loss).svg())
    path = DOCS / "images" / "running-example.svg"
    if not path.exists() or path.read_text(encoding="utf-8") != drawn:
        path.write_text(drawn, encoding="utf-8")


def typeset(markdown: str) -> str:
    """TeX between dollar signs as MathML, which browsers show without scripts; code is left as it is."""
    parts = re.split(r"(^```.*?^```$|`[^`\n]+`)", markdown, flags=re.DOTALL | re.MULTILINE)
    for i in range(0, len(parts), 2):
        shown = re.sub(r"\$\$(.+?)\$\$", lambda found: _math(found[1], "block"), parts[i], flags=re.DOTALL)
        parts[i] = re.sub(r"\$([^$\n]+)\$", _inline, shown)
    return "".join(parts)


def _inline(found: re.Match[str]) -> str:
    """A formula within a line. In a span: Markdown ends the paragraph at a line that begins with <math>."""
    return f"<span>{_math(found[1], 'inline')}</span>"


def _math(tex: str, display: str) -> str:
    """MathML, with a thin space between a function's name and an argument without parentheses."""
    found = convert(" ".join(tex.split()), display=display)
    return re.sub(r"(?<!<msub>)(<mi>[a-z]{2,}</mi>)(?=<(?:mi|msub)>)", r'\1<mspace width="0.17em"/>', found)


def functions() -> dict[str, Any]:
    """What pages can call."""
    names = (number, numbers_table, walkthrough, source, output, evaluate, summary, figure)
    return {
        **{
            function.__name__: function
            for function in (
                *names,
                combinations_table,
                combinations_settings,
                compare_table,
                compare_machine,
                compiled_ratio,
                operations_table,
                decode_table,
                ideas_table,
                busy_table,
                calls_table,
            )
        },
        "found": build_figures.found,
        "ta": ta,
    }


def on_pre_build(config: Any) -> None:
    """Draw the figures."""
    for name in build_figures.EXPERIMENTS:
        build_figures.draw(name)
    draw_graph()


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """A page with everything computed."""
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    try:
        return typeset(environment.from_string(markdown).render(functions()))
    except Exception as error:
        raise RuntimeError(f"{page.file.src_uri}: {error}") from error
