"""Every example runs, without warnings, and prints something."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("[0-9]*.py"))
ARGUMENTS = {
    "04_train_from_scratch.py": ["--steps", "30"],
    "10_the_bottleneck.py": ["--steps", "2", "--seeds", "1", "--sequences", "2", "--figure", "found.svg"],
    "11_dot_products_grow.py": ["--figure", "found.pdf"],
    "12_what_a_score_costs.py": ["--repeats", "1", "--figure", "found.png"],
    "13_soft_against_hard.py": ["--figure", "found.svg"],
    "14_attention_is_not_explanation.py": ["--steps", "20", "--figure", "found.svg"],
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_runs(path: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(path), *ARGUMENTS.get(path.name, [])]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip()
    assert [file.stem for file in tmp_path.iterdir()] == ["found"] * ("--figure" in command)


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("04_train_from_scratch", "--steps", "-1"),
        ("10_the_bottleneck", "--steps", "-1"),
        ("10_the_bottleneck", "--seeds", "0"),
        ("10_the_bottleneck", "--sequences", "0"),
        ("12_what_a_score_costs", "--repeats", "0"),
        ("14_attention_is_not_explanation", "--steps", "-1"),
    ],
)
def test_measuring_nothing_is_refused(name: str, option: str, value: str) -> None:
    path = EXAMPLES[0].with_name(f"{name}.py")
    run = subprocess.run(
        [sys.executable, str(path), option, value], capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 2 and option in run.stderr.splitlines()[-1], run.stderr


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_training_keeps_products_on_one_thread(path: Path) -> None:
    """Several threads wait for one another: on a busy machine a training took five times as long."""
    text = path.read_text(encoding="utf-8")
    assert "ta.optim." not in text or "with workers(1):" in text
