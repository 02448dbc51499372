"""The state of a thread that operations look at, and the context managers that change it.

There are three switches (`no_grad`, `explicit`, and the watcher that `detect_anomaly` installs), the current
scope, and the processes that help. Each thread has its own; leaving a context restores what it found, also
after an exception.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ContextDecorator
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from tinygrad_attn.engine.primitive import Primitive
    from tinygrad_attn.engine.tensor import Tensor
    from tinygrad_attn.engine.workers import Workers


Function = TypeVar("Function", bound=Callable[..., Any])


class Scope(NamedTuple):
    """A link of the chain of names an operation is recorded under; innermost first, so that entering is
    cheap."""

    outer: Scope | None
    name: str

    def names(self) -> list[str]:
        """The names from the outermost in."""
        names = []
        link: Scope | None = self
        while link is not None:
            names.append(link.name)
            link = link.outer
        return names[::-1]

    def path(self) -> str:
        """The names from the outermost in, joined by slashes: `decoder/step 2/attention`."""
        return "/".join(self.names())


class Watcher(Protocol):
    """What looks on while operations run, such as the search for the first NaN."""

    def forward(
        self, output: Tensor, primitive: Primitive, arrays: Sequence[Any], static: Mapping[str, Any]
    ) -> None:
        """`primitive` computed `output` from `arrays` and settings; the scope is `thread.mode.scope`."""

    def backward(self, output: Tensor, slot: int, upstream: Any, gradient: Any) -> None:
        """From `upstream`, the gradient of `output`, that of its operation's input number `slot` was
        computed."""


class Mode(NamedTuple):
    """What a thread's operations do besides computing their value."""

    recording: bool = True  # outputs remember their inputs, so that gradients can be taken
    explicit: bool = False  # fused operations run their definition, one primitive at a time
    watcher: Watcher | None = None
    scope: Scope | None = None
    workers: Workers | None = None  # processes that share large batches


class _Thread(threading.local):
    mode = Mode()


thread = _Thread()


class changed_mode(ContextDecorator):  # noqa: N801 - a context manager, named as its use reads
    """The thread's mode with the given fields replaced, for the length of a `with` block.

    One object may be entered again, also inside itself, and decorates functions.
    """

    def __init__(self, **settings: Any) -> None:
        self._settings = settings
        self._found: list[Mode] = []

    def __enter__(self) -> None:
        self._found.append(thread.mode)
        thread.mode = thread.mode._replace(**self._settings)

    def __exit__(self, *exception: object) -> None:
        thread.mode = self._found.pop()

    def __call__(self, function: Function) -> Function:
        """The function, with every call of it in the mode.

        Raises:
            TypeError: for generator and `async` functions.
        """
        if isgeneratorfunction(function) or iscoroutinefunction(function) or isasyncgenfunction(function):
            name = getattr(function, "__name__", function)  # a partial one has none
            raise TypeError(f"{name} runs after its call, outside the mode; use a `with` block inside it")
        return super().__call__(function)

    def _recreate_cm(self) -> changed_mode:  # a call of a decorated function, maybe in another thread
        return changed_mode(**self._settings)


def no_grad(function: Callable[..., Any] | None = None) -> Any:
    """Nothing inside is recorded, so outputs need no gradient. A context manager and a decorator, with or
    without parentheses.
    """
    return _mode_or_decorated(changed_mode(recording=False), function)


def explicit(function: Callable[..., Any] | None = None) -> Any:
    """Fused operations run as their definition, so that every primitive is recorded. A context manager and a
    decorator, with or without parentheses.
    """
    return _mode_or_decorated(changed_mode(explicit=True), function)


def _mode_or_decorated(mode: changed_mode, function: Callable[..., Any] | None) -> Any:
    return mode if function is None else mode(function)


class scope:  # noqa: N801 - a context manager, named as its use reads
    """Operations inside are recorded under `name`, within the scopes around: `with ta.scope("step 3"):
    ...`."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"scope: the name is a {type(name).__name__}, expected a str")
        self.name = name

    def __enter__(self) -> None:
        found = thread.mode
        thread.mode = Mode(
            found.recording, found.explicit, found.watcher, Scope(found.scope, self.name), found.workers
        )

    def __exit__(self, *exception: object) -> None:
        # What was found is the link outside, so that one scope object can be entered again inside itself.
        inside = thread.mode
        assert inside.scope is not None
        thread.mode = Mode(
            inside.recording, inside.explicit, inside.watcher, inside.scope.outer, inside.workers
        )
