"""Every example runs, without warnings, and prints something."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("[0-9]*.py"))
ARGUMENTS = {"04_train_from_scratch.py": ["--steps", "30"]}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_runs(path: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(path), *ARGUMENTS.get(path.name, [])]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip()
