"""The page as text: the template with the data, the style and the scripts in it, and a lock on the rest.

Nothing of the data can become markup: the template escapes what it writes, and the JSON is written without
any `<`. The page's policy allows this very style and these scripts, by their digests, and no request.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from tinygrad_attn.viz.report.read import RunData
from tinygrad_attn.viz.text import one_line

_SCRIPTS = ("base", "curves", "matrix", "alignments", "flow", "layout", "graph", "main")
_CURVES = (
    "event", "step", "loss", "gradient_norm", "token_accuracy", "exact_match", "alignment_weight",
    "alignment_accuracy",
)  # fmt: skip
_FIGURES = (
    ("exact_match", "right as a whole", True),
    ("token_accuracy", "tokens right", True),
    ("alignment_accuracy", "alignment right", True),
    ("loss", "nats per token", False),
)
"""What is shown of the test: key, meaning, and whether it is a share."""


def page(run: RunData) -> str:
    """The page of a run, the same text for the same data."""
    import jinja2

    style = _file("page.css")
    script = "\n".join(_file(f"{name}.js") for name in _SCRIPTS)
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src '{_digest(script)}'",
            f"style-src '{_digest(style)}'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    text = environment.from_string(_file("page.html")).render(
        policy=policy,
        style=style,
        script=script,
        data=_embedded(_data(run)),
        title=one_line(_title(run)),
        name=one_line(run.name),
        about=_about(run),
        figures=_figures(run),
        settings=_settings(run),
    )
    return str(text).encode("utf-8", "backslashreplace").decode()  # names of files may be no UTF-8


def _data(run: RunData) -> dict[str, Any]:
    return {
        "rows": [
            {key: row[key] for key in _CURVES if key in row}
            for row in run.rows
            if row.get("event") in ("train", "evaluation")
        ],
        "snapshots": list(run.snapshots),
        "examples": run.examples,
    }


def _embedded(data: Any) -> str:
    """JSON that may stand within a script element: no `<`, `>` or `&`, and nothing beyond ASCII."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _file(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _title(run: RunData) -> str:
    data = run.config.get("data") or {}
    if data.get("kind") == "task":
        return str(data.get("name"))
    file = data.get("file")
    path = file.get("path", run.name) if isinstance(file, Mapping) else run.name
    return str(path).replace("\\", "/").rsplit("/", 1)[-1]


def _about(run: RunData) -> str:
    """One sentence on what was trained."""
    model = run.config.get("model") or {}
    last = max((row["step"] for row in run.rows if "step" in row), default=0)
    attention = model.get("attention")
    kind = "no attention" if attention == "none" else f"{attention} attention"
    done = f"{last:,} steps of training" if last else "not trained yet"
    return f"An encoder-decoder of {str(model.get('cell', '')).upper()} cells with {kind}, {done}."


def _figures(run: RunData) -> list[tuple[str, str]]:
    """The figures of the test, as text, with what they mean."""
    test = next((row for row in reversed(run.rows) if row.get("event") == "test"), None)
    if test is None:
        return []
    found = [
        (f"{100 * test[key]:.4g} %" if share else f"{test[key]:.3g}", meaning)
        for key, meaning, share in _FIGURES
        if test.get(key) is not None
    ]
    return [*found, (f"{test.get('train_seconds', 0):.0f} s", "of training")]


def _settings(run: RunData) -> list[tuple[str, list[tuple[str, str]]]]:
    """The tables of settings: heading, and names with values."""
    parts: dict[str, Any] = {part: run.config.get(part) for part in ("data", "model", "training")}
    if run.examples is not None:
        parts["versions"] = run.examples.get("versions")
    return [
        (part.capitalize(), [(name, _value(value)) for name, value in named.items()])
        for part, named in parts.items()
        if isinstance(named, Mapping)
    ]


def _value(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {entry}" for key, entry in value.items())
    return str(value)
