"""The scripts beside the package say in one line which extra they lack."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("script", "module", "extra"),
    [
        ("benchmarks/compare.py step --peers jax torch-compile", "torch", "peers"),
        ("benchmarks/growth.py --measure", "jax", "peers"),
        ("benchmarks/peers.py ops mygrad", "mygrad", "peers"),
        ("docs/screenshot.py page.html page.png", "playwright", "browser"),
        ("examples/pytorch_twin.py run", "torch", "oracle"),
    ],
)
def test_a_missing_extra_is_one_line_that_names_it(
    script: str, module: str, extra: str, tmp_path: Path
) -> None:
    path, *arguments = script.split()
    path = str(ROOT / path)
    program = (
        "import runpy, sys\n"
        f"sys.modules[{module!r}] = None\n"  # as if it were not installed
        f"sys.path.insert(0, {str(Path(path).parent)!r})\n"
        f"sys.argv = {[path, *arguments]!r}\n"
        f"runpy.run_path({path!r}, run_name='__main__')\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 1
    assert run.stdout == ""
    (line,) = run.stderr.splitlines()
    assert module in line and f"python -m pip install '.[{extra}]'" in line
