"""`detect_anomaly`: which operation made the first NaN or infinity, forward or backward."""

from __future__ import annotations

import linecache
import os
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinygrad_attn.engine import Fused, Primitive, Product, Tensor, grad, scope
from tinygrad_attn.engine.modes import changed_mode, thread
from tinygrad_attn.engine.tensor import leaf

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# Frames in these are never what somebody wants to read, not even when a model of this package is being
# trained.
_INNER = tuple(_PACKAGE + part + os.sep for part in ("engine", "ops", "check"))

_SOME_NUMBER = 0.7310585786  # at which nothing that people write has a pole or an edge


@dataclass(frozen=True)
class Site:
    """A line of source.

    Attributes:
        file: its path.
        line: its number, from 1.
        text: what stands there; empty if the source is not at hand.
    """

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f": {self.text}" if self.text else "")


class AnomalyError(FloatingPointError):
    """An operation made a NaN or an infinity.

    Attributes:
        operation: its name.
        phase: "forward" or "backward".
        scope: where in the model, such as `decoder/step 7/attention`; empty outside any scope.
        site: the line that called the operation, or the backward pass; None if unknown.
        forward_site: for the backward pass, the line that had called the operation; None if unknown.
    """

    def __init__(
        self,
        message: str,
        operation: str,
        phase: str,
        scope: str,
        site: Site | None,
        forward_site: Site | None,
    ) -> None:
        super().__init__(message)
        self.operation = operation
        self.phase = phase
        self.scope = scope
        self.site = site
        self.forward_site = forward_site

    def __reduce__(self) -> Any:
        """For copies, and for other processes."""
        return type(self), (
            str(self),
            *(self.operation, self.phase, self.scope, self.site, self.forward_site),
        )


@contextmanager
def detect_anomaly() -> Iterator[None]:
    """Inside, the first operation that makes a NaN or an infinity out of finite numbers raises
    `AnomalyError`.

    So does one that makes a NaN out of infinities, and a rule that makes either in the backward pass. The
    error names the operation, its scope, the shapes and ranges of what it was given, and the lines of code
    that called it; in the backward pass also where a NaN that no operation made, such as one in a weight,
    came in. Fused operations of this package, and others that are at fault, are run by their definitions as
    well, so that the error names the step within. Plain numpy warnings for the same are silenced meanwhile.
    Costs a look at every value; for the search, not for training.
    """
    with changed_mode(watcher=_Finder()), np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        yield


class _Finder:
    """The watcher behind `detect_anomaly`; it remembers where living tensors were computed."""

    def __init__(self) -> None:
        # By identity: a WeakKeyDictionary would compare tensors, entry by entry.
        self._sites: dict[int, tuple[weakref.ref[Tensor], Site]] = {}
        self._came_in: list[str] = []  # where a NaN that no operation in here made was first met
        self._site: Site | None = None  # of the fused operation whose definition is being looked at

    def forward(
        self, output: Tensor, primitive: Primitive, arrays: Sequence[Any], static: Mapping[str, Any]
    ) -> None:
        """Raises if `output` is the first that is not finite; else notes the line that called."""
        site = self._site or _calling_line()
        bad = _new_fault(output.data, arrays, lambda given: _again(primitive, given, static))
        if isinstance(primitive, Fused) and (bad or _is_ours(primitive)):
            with self._inside(site, primitive), changed_mode(recording=False):
                primitive.definition(*_as_tensors(arrays), **static)
        if bad:
            place = _scope_path(thread.mode.scope)
            message = [f"{primitive.name} made {bad}{_within(place)}, in the forward pass"]
            message += _described([(f"input {i}", array) for i, array in enumerate(arrays)])
            message += [f"  output: {_range(output.data)}", f"  called at {site or 'an unknown line'}"]
            raise AnomalyError("\n".join(message), primitive.name, "forward", place, site, None)
        if self._site is not None:
            return
        if not self._came_in and output.data.dtype.kind in "fc" and np.isnan(output.data).any():
            place = f"of {primitive.name}{_within(_scope_path(thread.mode.scope))}"
            self._came_in = [
                f"  NaN had come in with input {i} {place}: {_range(np.asarray(array))}"
                for i, array in enumerate(arrays)
                if np.asarray(array).dtype.kind in "fc" and np.isnan(array).any()
            ]
        if site is not None:
            key, sites = id(output), self._sites
            sites[key] = (weakref.ref(output, lambda _: sites.pop(key, None)), site)

    def backward(self, output: Tensor, slot: int, upstream: Any, gradient: Any) -> None:
        """Raises if the gradient is the first that is not finite."""
        upstream, gradient = _array(upstream), _array(gradient)
        primitive = output._primitive
        assert primitive is not None
        if not np.isfinite(upstream).all():
            self._raise_backward(
                output,
                f"the sum of the gradients for the output of {primitive.name} has {_fault(upstream)}",
                [("gradient", upstream)],
            )
        bad = _new_fault(
            gradient,
            [upstream, *output._arrays],
            lambda given: _again(primitive, given[1:], output._static, slot, given[0]),
        )
        if bad:
            self._look_within(output, slot, upstream)
            given = [(f"input {i}", array) for i, array in enumerate(output._arrays)]
            self._raise_backward(
                output,
                f"the rule of {primitive.name} for its input number {slot} made {bad}",
                [*given, ("output", output.data), ("upstream gradient", upstream), ("gradient", gradient)],
            )

    def _look_within(self, output: Tensor, slot: int, upstream: np.ndarray) -> None:
        """Raises for the operation within a fused one, if the definition meets the same fault."""
        primitive = output._primitive
        if not isinstance(primitive, Fused) or thread.mode.explicit:
            return
        _, made = self._sites.get(id(output), (None, None))
        with changed_mode(recording=True, scope=output._scope), self._inside(made, primitive):
            inputs = _as_tensors(output._arrays)
            inputs[slot].requires_grad = True
            grad(primitive.definition(*inputs, **output._static), inputs[slot], upstream)

    @contextmanager
    def _inside(self, site: Site | None, primitive: Fused) -> Iterator[None]:
        """Meanwhile the operations of a definition are looked at, which were called from `site` as one.

        What else the definition raises is not asked for: the kernel ran, and did not.
        """
        self._site = site or Site("an unknown file", 0, "")
        try:
            with scope(primitive.name), changed_mode(explicit=True):
                yield
        except AnomalyError:
            raise
        except Exception:
            return
        finally:
            self._site = None

    def _raise_backward(self, output: Tensor, what: str, arrays: Sequence[tuple[str, Any]]) -> None:
        assert output._primitive is not None
        place, site = _scope_path(output._scope), _calling_line()
        made = self._site or self._sites.get(id(output), (None, None))[1]
        message = [f"{what}{_within(place)}, in the backward pass", *_described(arrays), *self._came_in]
        message += [f"  forward called at {made or 'a line outside detect_anomaly'}"]
        message += [f"  backward called at {site or 'an unknown line'}"]
        raise AnomalyError("\n".join(message), output._primitive.name, "backward", place, site, made)


def _new_fault(
    value: np.ndarray, given: Sequence[Any], again: Callable[[Sequence[Any]], np.ndarray | None]
) -> str:
    """What `value` has that nothing `given` explains, as words; empty if nothing.

    Where something that was given is not finite, the value is computed `again` with numbers in its place:
    what is not finite then has another reason. With numbers for NaN alone, a NaN has come of infinities.
    """
    if value.dtype.kind not in "fc" or np.isfinite(value).all():
        return ""
    floating = [x for x in map(np.asarray, given) if x.dtype.kind in "fc"]
    has_nan = bool(np.isnan(value).any())
    if any(np.isnan(x).any() for x in floating) or (not has_nan and any(np.isinf(x).any() for x in floating)):
        for is_good in (np.isfinite, _is_no_nan):
            other = again([_replaced(x, is_good) for x in given])
            if other is not None and not is_good(other).all():
                return _fault(other)
        return ""
    return _fault(value)


def _is_no_nan(x: np.ndarray) -> Any:
    return ~np.isnan(x)


def _replaced(given: Any, is_good: Callable[[np.ndarray], Any]) -> Any:
    """The same with some number, of no special meaning, for every entry that is not good."""
    array = np.asarray(given)
    if array.dtype.kind not in "fc" or is_good(array).all():
        return given
    return np.where(is_good(array), array, array.dtype.type(_SOME_NUMBER))


def _is_ours(primitive: Fused) -> bool:
    """Whether the definition is this package's, and so as stable as the kernel; others may be naive."""
    return str(primitive.definition.__module__).startswith("tinygrad_attn.")


def _again(
    primitive: Primitive,
    arrays: Sequence[Any],
    static: Mapping[str, Any],
    slot: int | None = None,
    upstream: Any = None,
) -> np.ndarray | None:
    """The operation's value, or its gradient for the input in a slot; None if that cannot be computed."""
    inputs = _as_tensors(arrays)
    with changed_mode(watcher=None, recording=True):
        try:
            if slot is None:
                return primitive(*inputs, **static).data
            inputs[slot].requires_grad = True
            return grad(primitive(*inputs, **static), inputs[slot], upstream)[0].data
        except Exception:  # the numbers in place of others may be none that it takes
            return None


def _as_tensors(arrays: Sequence[Any]) -> list[Any]:
    """Untracked tensors of the floating arrays, so that operations on them are seen; the rest as it is."""
    return [leaf(x) if isinstance(x, np.ndarray) and x.dtype.kind in "fc" else x for x in arrays]


def _fault(value: np.ndarray) -> str:
    nans, infinities = int(np.isnan(value).sum()), int(np.isinf(value).sum())
    parts = [f"{count} {name}" for count, name in ((nans, "NaN"), (infinities, "infinite")) if count]
    return f"{' and '.join(parts)} of {value.size} entries"


def _array(value: Any) -> np.ndarray:
    if isinstance(value, Tensor):
        return value.data
    return value.value() if isinstance(value, Product) else np.asarray(value)


def _described(arrays: Sequence[tuple[str, Any]]) -> list[str]:
    return [f"  {name}: {_range(np.asarray(array))}" for name, array in arrays if array is not None]


def _range(array: np.ndarray) -> str:
    """Shape, dtype and the range of the finite entries, with the number of others."""
    text = f"shape {array.shape}, {array.dtype}"
    if array.dtype.kind not in "fciub" or not array.size:
        return text
    values = np.real(array)
    finite = values[np.isfinite(values)]
    if finite.size:
        text += f", from {finite.min():.6g} to {finite.max():.6g}"
    return text if finite.size == array.size else f"{text}, {_fault(array)}"


def _within(scope: str) -> str:
    return f" in {scope}" if scope else ""


def _scope_path(scope: Any) -> str:
    return "" if scope is None else str(scope.path())


def _calling_line() -> Site | None:
    """The innermost line outside the package; within the command, the innermost outside `_INNER`."""
    inside: Any = None
    frame: Any = sys._getframe(1)
    while frame is not None:
        file = os.path.abspath(frame.f_code.co_filename)
        if not file.startswith(_PACKAGE):
            if not _is_machinery(file):
                break
        elif inside is None and not file.startswith(_INNER):
            inside = frame
        frame = frame.f_back
    frame = frame or inside
    if frame is None:
        return None
    file = frame.f_code.co_filename
    return Site(file, frame.f_lineno, linecache.getline(file, frame.f_lineno).strip())


def _is_machinery(file: str) -> bool:
    """Whether a frame outside the package is Python's own way of calling, not somebody's code."""
    return os.path.basename(file) in ("contextlib.py", "runpy.py") or file.startswith("<frozen")
