"""The package as a whole: what importing it costs and drags in, and which version it says it is."""

from __future__ import annotations

import importlib.metadata
import json
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tinygrad_attn

HOME = Path(__file__).parents[1]
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(tinygrad_attn.__path__, "tinygrad_attn.")
    if module.name != "tinygrad_attn.__main__"
)


def modules_loaded_by(*names: str, after: str) -> set[str]:
    """What a new interpreter that has imported `after` loads when it imports the named modules too."""
    script = (
        "import importlib, json, sys\n"
        "importlib.import_module(sys.argv[1])\n"
        "before = set(sys.modules)\n"
        "for name in sys.argv[2:]: importlib.import_module(name)\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))\n"
    )
    command = [sys.executable, "-c", script, after, *names]
    return set(json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout))


@pytest.mark.parametrize("names", [["tinygrad_attn"], MODULES], ids=["package", "every module"])
def test_import_needs_numpy_and_the_standard_library_alone(names: list[str]) -> None:
    """Matplotlib, tqdm, graphviz and their like are imported by the functions that use them."""
    # numpy.random comes first because its Cython runtime registers modules under names of its own.
    loaded = {name.partition(".")[0] for name in modules_loaded_by(*names, after="numpy.random")}
    assert loaded - sys.stdlib_module_names - {"numpy"} == {"tinygrad_attn"}


def test_import_loads_few_modules_of_others() -> None:
    """Whatever is loaded beyond numpy delays every start; counted, since seconds depend on the machine."""
    loaded = modules_loaded_by("tinygrad_attn", after="numpy")
    others = sorted(name for name in loaded if name.partition(".")[0] != "tinygrad_attn")
    assert len(others) <= 10, others


def test_names_that_are_loaded_later_are_there_like_all_others() -> None:
    assert "tinygrad_attn.check" not in modules_loaded_by("tinygrad_attn", after="numpy")
    assert all(hasattr(tinygrad_attn, name) for name in tinygrad_attn.__all__)
    assert set(tinygrad_attn.__all__) <= set(dir(tinygrad_attn))
    with pytest.raises(AttributeError, match="module 'tinygrad_attn' has no attribute 'gradchek'"):
        tinygrad_attn.gradchek  # noqa: B018 - to look it up is what is tested


def test_the_version_is_the_one_installed() -> None:
    try:
        installed = importlib.metadata.version("tinygrad-attn")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("tinygrad_attn is used from the checkout, not installed")
    assert tinygrad_attn.__version__ == installed


def floors() -> dict[str, int]:
    """The floor of each room, from the import contract."""
    contract = re.search(
        r"^layers = \[$(.*?)^\]$", (HOME / "pyproject.toml").read_text(encoding="utf-8"), re.M | re.S
    )
    assert contract is not None
    rows = [re.findall(r"\w+", line) for line in contract[1].strip().splitlines()]
    return {room: len(rows) - i for i, row in enumerate(rows) for room in row}


def test_packages_say_on_which_floor_they_are() -> None:
    for room, floor in floors().items():
        if (HOME / "tinygrad_attn" / room).is_dir():
            said = importlib.import_module(f"tinygrad_attn.{room}").__doc__
            assert said is not None and said.startswith(f"Floor {floor}: "), room


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_pages_show_the_floors_of_the_contract(page: str) -> None:
    rows = re.findall(r"^\| (\d) \| ([^|]*) \|", (HOME / page).read_text(encoding="utf-8"), re.M)
    shown = {room: int(floor) for floor, rooms in rows for room in re.findall(r"`(\w+)`", rooms)}
    assert shown == floors()
