"""The state of a thread that operations look at, and the context managers that change it.

There are three switches (`no_grad`, `explicit`, and the watcher that `detect_anomaly` installs) and the
current scope. Each thread has its own; leaving a context restores what it found, also after an exception.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from tinygrad_attn.engine.primitive import Primitive
    from tinygrad_attn.engine.tensor import Tensor
    from tinygrad_attn.engine.workers import Workers


class Scope(NamedTuple):
    """A link of the chain of names an operation is recorded under; innermost first, so that entering is
    cheap."""

    outer: Scope | None
    name: str

    def path(self) -> str:
        """The names from the outermost in, joined by slashes: `decoder/step 2/attention`."""
        names = []
        link: Scope | None = self
        while link is not None:
            names.append(link.name)
            link = link.outer
        return "/".join(reversed(names))


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


@contextmanager
def changed_mode(**settings: Any) -> Iterator[None]:
    """The thread's mode with the given fields replaced, for the length of a `with` block."""
    found = thread.mode
    thread.mode = found._replace(**settings)
    try:
        yield
    finally:
        thread.mode = found


def no_grad() -> Any:
    """Nothing inside is recorded: outputs need no gradient. A context manager, also usable as a decorator."""
    return changed_mode(recording=False)


def explicit() -> Any:
    """Fused operations run as their definition, so that every primitive is recorded. A context manager."""
    return changed_mode(explicit=True)


class scope:  # noqa: N801 - a context manager, named as its use reads
    """Operations inside are recorded under `name`, within the scopes around: `with ta.scope("step 3"):
    ...`."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
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
