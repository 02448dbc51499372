"""docs/own-code.md: its code runs as it stands, and prints what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "own-code.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_page_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", "\n".join(blocks("python"))]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "".join(blocks("text"))
