"""Checking a function or module of somebody's own: `tinygrad-attn check path/to/file.py::name`."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from tinygrad_attn import ops
from tinygrad_attn.check.gradcheck import gradcheck
from tinygrad_attn.check.problem import is_module
from tinygrad_attn.check.report import GradcheckReport
from tinygrad_attn.engine import Primitive
from tinygrad_attn.errors import UserError

INPUTS = "gradcheck_inputs"
_MISSING = object()
_EXPECTED = "a function, an operation or an nn module"


def check_target(target: str, **settings: Any) -> GradcheckReport:
    """`gradcheck` of what `target` names, without raising if the check fails.

    The file is imported, which runs it, as `python file.py` would but for its `__main__` part. What it is
    checked with stands beside it in the file, as `gradcheck_inputs`: a tuple of inputs, a function that
    returns one, or a mapping from names to either. A function whose arguments all have defaults needs none:
    it is checked at those, an operation at those of its forward function. A class of modules is made without
    arguments first.

    Args:
        target: `path/to/file.py::name`, where the name may have dots.
        **settings: as for `gradcheck`.

    Raises:
        UserError: in one line, if the target, the file or the inputs are at fault, or the function raises.
    """
    path, separator, name = target.rpartition("::")
    if not separator or not path or not name:
        raise UserError(
            f"{target or repr(target)}: expected path/to/file.py::name, the name of {_EXPECTED} in it"
        )
    module = _imported(Path(path))
    candidate: Any = module
    for part in name.split("."):
        candidate = _called(partial(getattr, candidate, part, _MISSING), f"{path}, {name}")
        if candidate is _MISSING:
            raise UserError(f"{path} defines no {name}{_choices(module)}")
    if not callable(candidate):
        raise UserError(f"{target} is {_kind(candidate)}, expected {_EXPECTED}")
    fn = candidate
    if isinstance(candidate, type):
        fn = _called(candidate, f"{name}() to make a module")
        if not is_module(fn):
            raise UserError(f"{target} is a class without parameters, expected {_EXPECTED}")
    inputs = _inputs(module, name, fn)
    report: GradcheckReport = _called(
        lambda: gradcheck(fn, inputs, **{**settings, "raise_exception": False}), name
    )
    return report


def _imported(path: Path) -> ModuleType:
    if not path.is_file():
        raise UserError(f"{path}: {'a folder, expected a Python file' if path.is_dir() else 'no such file'}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path}: expected a Python file")
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)  # for what it imports from beside it
    sys.modules.setdefault(path.stem, module)  # dataclasses and the like look their module up
    loader = spec.loader
    try:
        _called(lambda: loader.exec_module(module), f"importing {path}")
    finally:
        sys.path.remove(folder)
    return module


def _inputs(module: ModuleType, name: str, fn: Callable[..., Any]) -> Any:
    given = getattr(module, INPUTS, None)
    if isinstance(given, Mapping):
        given = given.get(name)
    if callable(given) and not is_module(given):
        given = _called(given, INPUTS)
    if given is not None:
        return given
    defaults = _defaults(fn)
    if defaults is None:
        raise UserError(
            f"{name} needs inputs: give its arguments defaults, or define {INPUTS} in {module.__file__}"
        )
    return defaults


def _defaults(fn: Callable[..., Any]) -> tuple[Any, ...] | None:
    """The defaults of the positional arguments; None if one has none, or it is not known which there are."""
    call = fn.forward if hasattr(fn, "forward") and (isinstance(fn, Primitive) or is_module(fn)) else fn
    try:
        parameters = list(inspect.signature(call).parameters.values())
    except (TypeError, ValueError):  # such as a function written in C
        return None
    positional = [
        parameter
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    if any(parameter.default is parameter.empty for parameter in positional):
        return None
    if not positional and any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return None
    return tuple(parameter.default for parameter in positional)


def _called(function: Callable[[], Any], what: str) -> Any:
    """What the function returns; what it raises as one line with the place in somebody's file."""
    try:
        return function()
    except UserError:
        raise
    except SystemExit as error:  # which would end this command as if nothing were wrong
        raise UserError(f"{what}: it called sys.exit({error.code!r}), expected to come to its end") from error
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        package = str(Path(__file__).resolve().parent.parent)
        places = [
            f for f in frames if not f.filename.startswith((package, "<frozen")) and f.name != "_called"
        ]
        where = f" ({places[-1].filename}:{places[-1].lineno})" if places else ""
        message = " ".join(str(error).split())
        raise UserError(f"{what}: {type(error).__name__}: {message}{where}") from error


def _kind(candidate: Any) -> str:
    """What somebody's value is, with its article."""
    if isinstance(candidate, ModuleType):
        return "an imported Python module"
    name = type(candidate).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def _choices(module: ModuleType) -> str:
    """What the file defines that could have been meant."""
    known = [(name, value) for name, value in vars(module).items() if not name.startswith("_")]
    names = []
    for name, value in known:
        with contextlib.suppress(Exception, SystemExit):  # of a value that does not like to be looked at
            if name != INPUTS and _is_of(module, value):
                names.append(name)
    return f"; it defines {', '.join(names)}" if names else ""


def _is_of(module: ModuleType, value: Any) -> bool:
    """Whether a value can be checked, and comes from the module itself as far as can be told."""
    if isinstance(value, Primitive):
        return not any(value is operation for operation in vars(ops).values())
    if isinstance(value, type) and not hasattr(value, "named_parameters"):
        return False
    return is_module(value) or (callable(value) and getattr(value, "__module__", None) == module.__name__)
