"""Draw the figures of the experiments into docs/images, and take the measurements that need time or a quiet
machine.

    python docs/build_figures.py              draw all; quick experiments are run, others read from docs/data
    python docs/build_figures.py --measure    run the others too (some minutes) and keep what they found

`make docs` does the first of these on its own.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from tinygrad_attn.files import write_atomically

DOCS = Path(__file__).parent
EXPERIMENTS = {
    "bottleneck": "10_the_bottleneck.py",
    "growth": "11_dot_products_grow.py",
    "cost": "12_what_a_score_costs.py",
    "soft": "13_soft_against_hard.py",
    "explanation": "14_attention_is_not_explanation.py",
}
MEASURED = ("bottleneck", "cost")
"""What takes minutes, or depends on the machine: its measurements are kept in docs/data."""


@cache
def example(name: str) -> ModuleType:
    """The experiment `name` as a module."""
    path = DOCS.parent / "examples" / EXPERIMENTS[name]
    spec = importlib.util.spec_from_file_location(f"experiment_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def found(name: str) -> Any:
    """What the experiment found: read for those in `MEASURED`, made now for the others."""
    if name in MEASURED:
        return json.loads((DOCS / "data" / f"{name}.json").read_text(encoding="utf-8"))
    return example(name).measure()


def draw(name: str) -> None:
    """Write the figure, unless it is there as it is."""
    path, text = DOCS / "images" / f"{name}.svg", example(name).figure(found(name)).svg()
    path.parent.mkdir(exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        write_atomically(path, text)


def measure(name: str) -> None:
    """Run an experiment of `MEASURED` and keep what it found."""
    content = json.dumps(example(name).measure(), indent=1) + "\n"
    write_atomically(DOCS / "data" / f"{name}.json", content)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--measure", action="store_true")
    for name in MEASURED if parser.parse_args().measure else ():
        measure(name)
    for name in EXPERIMENTS:
        draw(name)
        print(f"{name}: {example(name).summary(found(name))}")


if __name__ == "__main__":
    main()
