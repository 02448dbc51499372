"""The scripts beside the package say in one line which extra they lack, or what is wrong with a command."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn.bench.operations import CHAINS

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


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (
            "benchmarks/peers.py step autograd",
            "step is there for torch, torch-compile, jax; not for autograd",
        ),
        ("benchmarks/peers.py decode torch-compile", "decode is there for torch, jax; not for torch-compile"),
        ("benchmarks/peers.py ops jax", "ops is there for torch, autograd, mygrad, numpy; not for jax"),
        ("benchmarks/peers.py step torch --threads 0", "argument --threads: '0' is not"),
        ("benchmarks/compare.py step --peers torch mygrad", "not for mygrad"),
        ("benchmarks/compare.py step --rounds 0", "argument --rounds: '0' is not"),
        ("benchmarks/compare.py step --seconds nan", "argument --seconds: 'nan' is not"),
        ("benchmarks/compare.py step --json lacking/file", "argument --json: lacking/file: No such file"),
        ("benchmarks/ideas.py --rounds -1", "argument --rounds: '-1' is not"),
        ("benchmarks/growth.py --measure --seconds 0", "argument --seconds: '0' is not"),
    ],
)
def test_a_wrong_command_is_refused_before_anything_is_measured(
    script: str, expected: str, tmp_path: Path
) -> None:
    path, *arguments = script.split()
    command = [sys.executable, str(ROOT / path), *arguments]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 2
    assert run.stdout == ""
    assert expected in run.stderr.splitlines()[-1]


def test_the_operations_by_hand_compute_what_ours_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    rng = np.random.default_rng(0)
    x, weight, g = (rng.standard_normal((32, 32)).astype(np.float32) for _ in range(3))
    by_hand = importlib.import_module("peers").by_hand(weight)
    assert set(by_hand) == set(CHAINS) - {"getitem"}
    for name, (forward, back) in by_hand.items():
        tensor = ta.Tensor(x, requires_grad=True)
        y = CHAINS[name](tensor, ta.Tensor(weight))
        y.backward(g)
        np.testing.assert_allclose(forward(x), y.data, rtol=1e-5, atol=1e-6, err_msg=name)
        np.testing.assert_allclose(back(g, y.data), tensor.grad, rtol=1e-5, atol=1e-5, err_msg=name)
