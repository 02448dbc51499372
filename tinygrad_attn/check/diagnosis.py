"""What is likely to be wrong with a gradient that differs from its numeric value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tinygrad_attn.check.compare import Comparison

_ALIKE = 1e-6


def causes(comparison: Comparison, which: int, wrong: Sequence[int]) -> tuple[str, dict[int, str]]:
    """The likely cause for a whole gradient, and those for its `wrong` entries; empty if unknown."""
    analytic, numeric = comparison.analytic[which], comparison.numeric[which]
    single = {place: _of_entry(comparison, which, place) for place in wrong}
    bad = int(np.count_nonzero(~np.isfinite(analytic)))
    if bad:
        return f"{bad} of {analytic.size} entries of the gradient are not finite", single
    if not np.isfinite(numeric).all():
        return "the function has no finite derivative here", single
    return _of_whole(comparison, which, wrong), single


def _of_entry(comparison: Comparison, which: int, place: int) -> str:
    found = comparison.slopes.get((which, place))
    if found is None:
        return ""
    if found.jump and comparison.order == 1:
        return "the value jumps here, so there is no derivative"
    if found.bent and math.isfinite(comparison.analytic[which][place]):
        return "outside the one-sided derivatives"
    if comparison.found.method == "central" and not found.settled and not np.isfinite(found.error):
        return "no finite values beside this point"
    if comparison.found.method == "central" and not found.settled:
        return (
            f"central differences do not converge (± {found.error:.1e}): a noisy or discontinuous function?"
        )
    return ""


def _of_whole(comparison: Comparison, which: int, wrong: Sequence[int]) -> str:
    analytic, numeric = comparison.analytic[which], comparison.numeric[which]
    shape = comparison.objective.arrays[which].shape
    off = float(np.abs(analytic - numeric).max())
    if not analytic.any():
        if comparison.order == 2:
            return "zero: the second derivative is cut off (a rule that works on .data instead of tensors?)"
        return "zero: a rule that returns zeros or nothing, or a value detached on the way (.data, .detach())"
    if not numeric.any() and comparison.order == 1:
        return "should be zero everywhere: a straight-through rule?"
    if _alike(analytic, -numeric, off):
        return "the sign is wrong: minus the right value everywhere"
    factor = float(analytic @ numeric / (numeric @ numeric)) if numeric.any() else 0.0
    small = off <= _ALIKE * float(np.abs(numeric).max())
    alone = np.count_nonzero(numeric) == 1  # so that any small error looks like a factor
    if factor and not (small and alone) and _alike(analytic, factor * numeric, off):
        return f"{_times(factor)} the right value everywhere{_length_hint(comparison, which, factor)}"
    if analytic.size == int(np.prod(shape, dtype=np.int64)):
        rearranged = _rearranged(analytic.reshape(shape), numeric.reshape(shape), off)
        if rearranged:
            return rearranged
    for other, name in enumerate(comparison.objective.names):
        if other == which or comparison.objective.arrays[other].shape != shape:
            continue
        if _alike(analytic, comparison.numeric[other], off) and _alike(
            comparison.analytic[other], numeric, off
        ):
            return f"exchanged with the gradient of {name}"
    if comparison.objective.ignores_upstream(which):
        return "does not depend on the upstream gradient: a rule that leaves out its factor g?"
    if comparison.order == 2:
        return "the second derivative differs: a rule that treats an input, its output or g as a constant?"
    few = len(wrong) < analytic.size
    how = _how(analytic[list(wrong)], numeric[list(wrong)]) if few else ""
    found = [f"{_where(comparison, which, wrong)}{how}; the others agree"] if few else []
    if small and not how:
        digits = -math.ceil(math.log10(off / float(np.abs(numeric).max())))
        found.append(f"right to {digits} digits: rounding within a rule, or a part of it in float32?")
    return "; ".join(found)


def _where(comparison: Comparison, which: int, wrong: Sequence[int]) -> str:
    """How many of the entries looked at are wrong; and if those fill some indices of an axis, which."""
    shape, picked = comparison.objective.arrays[which].shape, comparison.picked[which]
    counted = f"{len(wrong)} of the {len(picked)} entries looked at differ"
    for axis, along in enumerate(np.unravel_index(picked, shape)):
        at = np.unique(along[list(wrong)])
        if len(shape) > 1 and len(at) < shape[axis] and np.isin(along, at).sum() == len(wrong):
            return f"{counted}, those at {_listed(at)} of axis {axis}"
    return counted


def _how(analytic: np.ndarray, numeric: np.ndarray) -> str:
    """What the entries that differ have in common."""
    if not numeric.any():
        return ", and should be zero"
    if not analytic.any():
        return ", and are zero"
    off = float(np.abs(analytic - numeric).max())
    if _alike(analytic, -numeric, off):
        return ", and have the wrong sign"
    factor = float(analytic @ numeric / (numeric @ numeric))
    if len(numeric) > 1 and _alike(analytic, factor * numeric, off):
        return f", and are {_times(factor)} the right values"
    return ""


def _times(factor: float) -> str:
    if abs(factor - 1) > 1e-9:
        return f"{factor:.10g} times"
    return f"(1 {'+' if factor > 1 else '-'} {abs(factor - 1):.2g}) times"


def _listed(indices: np.ndarray) -> str:
    if len(indices) == 1:
        return f"index {indices[0]}"
    first, last = indices[0], indices[-1]
    if len(indices) == last - first + 1:
        return f"the indices {first} to {last}"
    return f"the indices {', '.join(map(str, indices[:5]))}{', …' if len(indices) > 5 else ''}"


def _rearranged(analytic: np.ndarray, numeric: np.ndarray, off: float) -> str:
    if analytic.ndim >= 2:
        if analytic.shape[-1] == analytic.shape[-2] and _alike(np.swapaxes(analytic, -1, -2), numeric, off):
            return "transposed: the right values with the last two axes exchanged"
        if analytic.ndim == 2 and _alike(analytic.reshape(analytic.shape[::-1]).T, numeric, off):
            return "transposed: the right values in the order of the transposed matrix"
    for axis in range(analytic.ndim):
        if analytic.shape[axis] > 1 and _alike(np.flip(analytic, axis), numeric, off):
            return f"reversed along axis {axis}"
    return ""


def _length_hint(comparison: Comparison, which: int, factor: float) -> str:
    names, arrays = comparison.objective.names, comparison.objective.arrays
    for other in (which, *(other for other in range(len(names)) if other != which)):
        of = "" if other == which else f" of {names[other]}"
        for axis, size in enumerate(arrays[other].shape):  # a factor of two has too many other reasons
            if size > 2 and math.isclose(factor, size):
                return f" ({size} is the length of axis {axis}{of}: a sum for a mean?)"
            if size > 2 and math.isclose(factor, 1 / size):
                return f" ({size} is the length of axis {axis}{of}: a mean for a sum?)"
    return ""


def _alike(a: np.ndarray, b: np.ndarray, off: float) -> bool:
    """Whether they differ by much less than the `off` that is to be explained."""
    return bool(np.abs(a - b).max(initial=0.0) <= min(_ALIKE * np.abs(b).max(initial=0.0), 1e-2 * off))
