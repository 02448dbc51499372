"""The table that `tinygrad-attn check` prints, and checking a function in somebody's file."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn.check import cases, suite
from tinygrad_attn.check.cases import Case
from tinygrad_attn.check.samples import samples
from tinygrad_attn.check.userfile import check_target
from tinygrad_attn.errors import UserError

MODELS = list(cases.model_cases(ta.nn))
# The command checks all; here the longest are one of each cell.
LONG = {case.name for case in MODELS if "Seq2Seq" in case.name and "additive" not in case.name}
TRIED = [case for case in MODELS if case.way == "kernel" or case.name not in LONG]


@pytest.mark.parametrize("case", TRIED, ids=lambda case: f"{case.name} {case.way} {case.order}")
def test_models(case: Case) -> None:
    """Every parameter entry of a small model of each kind, within 1e-12."""
    report = case.report(1)
    assert report, str(report)
    assert report.method == "complex" and report.relative_error <= 1e-12
    if case.order == 1:
        assert all(row.checked == row.size for row in report.rows)
        module = case.inputs[0]
        names = {row.name for row in report.rows}
        assert names >= {name for name, _ in module.named_parameters()}


def test_every_kind_of_module_is_among_the_models() -> None:
    names = {case.name.split(",")[0] for case in MODELS}
    exported = {name: value for name, value in vars(ta.nn).items() if isinstance(value, type)}
    for name, kind in exported.items():
        bases = (ta.nn.Cell, ta.nn.Attention)
        if kind not in bases and issubclass(kind, bases):
            assert kind.__name__ in names, name
    for name in ("BidirectionalEncoder", "Seq2Seq"):
        assert name in names


def test_every_sample_is_among_the_operations() -> None:
    operations = list(cases.operation_cases())
    assert {case.name for case in operations} == {sample.operation for sample in samples()}
    ways = {name: {case.way for case in operations if case.name == name} for name in ("tanh", "softmax")}
    assert ways == {"tanh": {"rules"}, "softmax": {"kernel", "definition"}}
    assert all(case.order == 2 for case in operations)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = [case for case in cases.operation_cases() if case.name in ("tanh", "cross_entropy")]
    monkeypatch.setattr(suite, "operation_cases", lambda seed: iter(chosen))


@pytest.mark.usefixtures("few")
def test_the_table() -> None:
    seen = []
    result = suite.run(on_line=lambda line: seen.append(line.name))
    assert result and seen == ["tanh", "cross_entropy", "cross_entropy"]
    assert [line.way for line in result.lines] == ["rules", "kernel", "definition"]
    assert all(line.cases == 4 and line.first <= 1e-12 and line.second <= 1e-12 for line in result.lines)
    text = str(result)
    assert "all passed" in text and text.count(" ok") == 3


@pytest.mark.usefixtures("few")
def test_a_failure_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ta.tanh, "vjps", [lambda g, y, x: g * (1 - y)])
    result = suite.run()
    assert not result
    assert "1 of 3 FAILED" in str(result) and "the rule of tanh for its input number 0 is wrong" in str(
        result
    )
    failed = [line for line in result.lines if not line.passed]
    assert [line.name for line in failed] == ["tanh"]


# A function of somebody's own

SOURCE = """
import numpy as np
import tinygrad_attn as ta
from beside import three

def cube(x=np.array([1.0, 2.0])):
    return x**three

def scores(s, W):
    return ta.tanh(s @ W)

square = ta.Primitive("square", lambda x: x * x, lambda g, y, x: g * x)

def wrong(x=np.array([1.0, 2.0])):
    return square(x)

def raises(x=1.0):
    raise ValueError("no\\nway")

class Scale(ta.nn.Module):
    def __init__(self, size=2):
        self.w = ta.Tensor(np.arange(1.0, size + 1), requires_grad=True)

    def forward(self, x):
        return self.w * x

three_wide = Scale(3)
swish = ta.Primitive("swish", lambda x: x / (1 + np.exp(-x)), lambda g, y, x: g)
cubed = ta.Primitive("cubed", lambda x=np.ones(2): x**3, lambda g, y, x: 3 * g * x**2)
twice = ta.fused(lambda x: x + x, lambda x: 2 * x, lambda g, y, x: (2 * g,), name="twice")
numpys = ta.Primitive("exp", np.exp, lambda g, y, x: g * y)

def several(*xs):
    return xs[0]

number = 3
values = [1.0]

class Plain:
    pass

gradcheck_inputs = {
    "scores": (np.ones((2, 3)), np.ones((3, 2)) / 7),
    "Scale": lambda: (np.ones(2),),
    "three_wide": (np.ones(3),),
}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text("three = 3\n", encoding="utf-8")
    path = tmp_path / "mine.py"
    path.write_text(SOURCE, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("cube", ["x"]),
        ("scores", ["s", "W"]),
        ("Scale", ["w", "x"]),
        ("three_wide", ["w", "x"]),
        ("cubed", ["input 0"]),
    ],
)
def test_a_file_of_somebody_s_own(file: Path, name: str, rows: list[str]) -> None:
    report = check_target(f"{file}::{name}", order=2)
    assert report and [row.name for row in report.rows if row.order == 1] == rows


def test_an_imported_operation_is_not_offered(tmp_path: Path) -> None:
    path = tmp_path / "imports.py"
    path.write_text("from tinygrad_attn import softmax, tanh, Tensor\nfrom tinygrad_attn.nn import Linear\n")
    with pytest.raises(UserError, match=r"imports\.py defines no x$"):
        check_target(f"{path}::x")


def test_a_wrong_function_in_a_file(file: Path) -> None:
    report = check_target(f"{file}::wrong")
    assert not report and "the rule of square" in str(report)


def test_inputs_for_the_only_function(tmp_path: Path) -> None:
    path = tmp_path / "one.py"
    path.write_text(
        "import numpy as np\n"
        "def f(a, b):\n    return a * b\n"
        "def gradcheck_inputs():\n    return np.ones(2), np.ones(2)\n",
        encoding="utf-8",
    )
    assert len(check_target(f"{path}::f").rows) == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "::nothing",
            "defines no nothing; it defines cube, scores, square, wrong, raises, Scale, three_wide, swish, "
            "cubed, twice, numpys, several$",
        ),
        ("::raises", r"raises: ValueError: no way \(.*mine.py:18\)"),
        ("::number", "is an int, expected a function, an operation or an nn module"),
        ("::values", "is a list, expected a function"),
        ("::ta", "is an imported Python module, expected a function, an operation or an nn module"),
        ("::Plain", "is a class without parameters, expected a function, an operation or an nn module"),
        (
            "::swish",
            "swish needs inputs: give its arguments defaults, or define gradcheck_inputs in .*mine.py",
        ),
        ("::twice", "twice needs inputs"),
        ("::numpys", "numpys needs inputs"),
        ("::several", "several needs inputs"),
        ("::np.exp", "np.exp needs inputs"),
        ("::Scale.forward", "needs inputs: give its arguments defaults, or define gradcheck_inputs in"),
        ("", "expected path/to/file.py::name"),
        ("::", "expected path/to/file.py::name"),
    ],
)
def test_a_wrong_target(file: Path, name: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        check_target(f"{file}{name}")
    assert "\n" not in str(caught.value)


def test_an_empty_target() -> None:
    with pytest.raises(UserError, match=r"^'': expected path/to/file.py::name"):
        check_target("")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def f(:\n", r"importing .*bad.py: SyntaxError"),
        ("x = 1 / 0\n", r"importing .*bad.py: ZeroDivisionError: division by zero \(.*bad.py:1\)"),
        ("import nothing_of_this_name\n", "ModuleNotFoundError"),
    ],
)
def test_a_file_that_cannot_be_imported(tmp_path: Path, source: str, message: str) -> None:
    path = tmp_path / "bad.py"
    path.write_text(source, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        check_target(f"{path}::f")
    with pytest.raises(UserError, match="no such file"):
        check_target(f"{tmp_path / 'none.py'}::f")
    with pytest.raises(UserError, match="a folder, expected a Python file"):
        check_target(f"{tmp_path}::f")
    (tmp_path / "text.txt").write_text("", encoding="utf-8")
    with pytest.raises(UserError, match="expected a Python file"):
        check_target(f"{tmp_path / 'text.txt'}::f")


def test_importing_leaves_nothing_behind(file: Path) -> None:
    import sys

    before = list(sys.path)
    check_target(f"{file}::cube")
    assert sys.path == before


def test_cases_are_data() -> None:
    case = dataclasses.replace(MODELS[0], order=2)
    assert isinstance(case.inputs[0], ta.nn.Module)
    inputs: Any = case.inputs[1]
    assert inputs.dtype == np.float64
