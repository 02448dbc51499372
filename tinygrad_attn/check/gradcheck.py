"""`gradcheck`: whether the gradients of a function are right, and if not, where and by how much."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import numpy as np

from tinygrad_attn.check.blame import lower_precision, writing_rules, wrong_rules
from tinygrad_attn.check.compare import Comparison, Found, Settings
from tinygrad_attn.check.objective import MULTIPLE, BackwardError, FirstOrder, Objective, SecondOrder
from tinygrad_attn.check.problem import Problem, some
from tinygrad_attn.check.report import Entry, GradcheckError, GradcheckReport, Row
from tinygrad_attn.engine import Tensor
from tinygrad_attn.engine.modes import changed_mode

_WORST = 10
_ALIKE, _ROUNDING = 1e-6, 1e-9
"""By how much the values of a kernel may be off those of its definition, relative to the largest entry of the
output, and to that of the inputs."""


def gradcheck(
    fn: Callable[..., Any],
    inputs: Any,
    *,
    method: Literal["complex", "central"] = "complex",
    order: int = 1,
    rtol: float | None = None,
    atol: float | None = None,
    entries: int | None = None,
    rng: np.random.Generator | int | None = None,
    raise_exception: bool = True,
) -> GradcheckReport:
    """Checks the gradients of `fn` by reverse mode against its values.

    The outputs are weighted by random upstream gradients, and each entry of each input is moved in turn.
    Everything runs on float64 copies: the caller's arrays, gradients and modes are afterwards as they were,
    to the bit.

    Args:
        fn: takes `inputs`; gives a Tensor of any shape or several (in tuples, lists, mappings, dataclasses).
            A module or a method of one has its parameters checked too.
        inputs: one or a sequence. Floating tensors and arrays are differentiated by, whether or not they
            require a gradient, and so are all parameters of modules, by name; everything else is handed on as
            it is.
        method: "complex" takes the imaginary part at a step of 1e-30 into the complex plane, exact to
            rounding; "central" takes central differences, extrapolated to a vanishing step. A function that
            cannot be continued to complex numbers is checked by central differences all the same, and the
            report says so.
        order: 2 checks the gradient of the gradient as well: `create_graph` against steps through the
            backward pass, by the inputs and by the upstream gradients.
        rtol: the error allowed, relative to the largest entry of the gradient checked; 1e-12 for complex
            steps and 1e-7 for central differences if None.
        atol: the absolute error allowed in any case.
        entries: look at this many entries of each input at most, a random sample, and along one direction
            through all.
        rng: for the upstream gradients and samples; seed 0 if None, so that a check repeats exactly.
        raise_exception: whether a failed check raises.

    Raises:
        GradcheckError: (an AssertionError) if the check fails; its `report` is what would have been returned.
        ValueError, TypeError: if there is nothing to check, or an argument makes no sense. What `fn` itself
            raises on real numbers passes through.
    """
    if method not in ("complex", "central"):
        raise ValueError(f'gradcheck: method is {method!r}, expected "complex" or "central"')
    if order not in (1, 2):
        raise ValueError(f"gradcheck: order is {order!r}, expected 1 or 2")
    if entries is not None and entries < 1:
        raise ValueError(f"gradcheck: entries is {entries}, expected at least 1, or None for all")
    rng = rng if isinstance(rng, np.random.Generator) else np.random.default_rng(0 if rng is None else rng)
    settings = Settings(method, rtol, 0.0 if atol is None else atol, entries, rng)
    problem = Problem(fn, inputs)
    with problem.borrowed():
        report = _checked(problem, order, settings)
    if raise_exception and not report:
        raise GradcheckError(report)
    return report


def _checked(problem: Problem, order: int, settings: Settings) -> GradcheckReport:
    variables, outputs = problem.run(problem.arrays)
    notes = list(problem.notes)
    problems = _faults_of(problem, variables, outputs)
    if problems:
        rows = _unchecked_rows(problem, range(1, order + 1), settings)
        return GradcheckReport(problem.name, settings.method, tuple(rows), (), tuple(problems), tuple(notes))
    if not any(output.requires_grad for output in outputs):
        notes.append("no output depends on any input, as far as the rules see")
    notes += lower_precision(outputs)
    upstream = [_random(output.shape, settings.rng) for output in outputs]
    problems = _faults_of_repeating(problem, upstream)
    found = _by_order(problem, order, upstream, settings)
    found[0].problems += problems
    # A kink, too, hides much.
    if problems or found[0].bent or not all(row.verdict == "ok" for row in found[0].rows):
        at_fault = wrong_rules(outputs, settings.rng)
        found[0].problems += at_fault
        if found[0].plain and not (at_fault or problems):
            notes.append(
                "no rule on the way was found to be wrong by itself: does a value leave the graph, by .data, "
                ".detach() or numpy?"
            )
    found[0].problems += writing_rules(outputs, settings.rng)
    return _together(problem, found, notes)


def _by_order(
    problem: Problem, order: int, upstream: Sequence[np.ndarray], settings: Settings
) -> list[Found]:
    """What the comparison of each order finds, up to one whose backward pass raises."""
    objectives: list[Callable[[], Objective]] = [lambda: FirstOrder(problem, upstream)]
    if order == 2:
        direction = [_random(array.shape, settings.rng) for array in problem.arrays]
        objectives.append(lambda: SecondOrder(problem, upstream, direction))
    found: list[Found] = []
    for which, objective in enumerate(objectives, 1):
        try:
            found.append(Comparison(objective(), which, settings).run())
        except BackwardError as error:
            rows = _unchecked_rows(problem, range(which, order + 1), settings)
            raised = [f"order {which}: the backward pass raises {error}"]
            found.append(Found(settings.method, rows=rows, problems=raised))
            break
    return found


def _faults_of(problem: Problem, variables: list[Tensor], outputs: list[Tensor]) -> list[str]:
    """What makes a check pointless: outputs not finite or not the same every time, inputs written to."""
    faults = [
        f"{np.count_nonzero(~np.isfinite(output.data))} of the {output.size} entries of output {i} are not "
        "finite, so there is no derivative"
        for i, output in enumerate(outputs)
        if not np.isfinite(output.data).all()
    ]
    faults += [
        f"output {i} is complex, expected real numbers, as the inputs are"
        for i, output in enumerate(outputs)
        if output.dtype.kind == "c"
    ]
    faults += [
        f"{problem.name} writes to its input {variable.name} in place"
        for variable, tensor in zip(problem.variables, variables, strict=True)
        if not np.array_equal(tensor.data, variable.array, equal_nan=True)
    ]
    faults += [
        f"{problem.name} uses {name} itself, and not the copy that it is called with, so how it depends "
        "on it cannot be seen: take it from the arguments, or give a module that has it"
        for name in problem.passed_over(variables, outputs)
    ]
    # Before a module's parameters are set anew, since an output may be a view of one.
    before = [output.data.copy() for output in outputs]
    again = [output.data for output in problem.run(problem.arrays)[1]]
    same = len(before) == len(again) and all(map(_same, before, again))
    if not same:
        faults.append(
            f"{problem.name} is not deterministic: two calls with the same inputs gave different outputs"
        )
    elif not faults:
        faults += _faults_of_kernels(problem, before)
    return faults


def _faults_of_kernels(problem: Problem, values: list[np.ndarray]) -> list[str]:
    """Where fused operations do not compute what their definitions say."""
    with changed_mode(explicit=True):
        by_definition = [output.data for output in problem.run(problem.arrays)[1]]
    shapes = [[array.shape for array in arrays] for arrays in (values, by_definition)]
    disagree = "a kernel and its definition disagree"
    if shapes[0] != shapes[1]:
        return [f"{disagree}: outputs have shapes {shapes[0]}, and {shapes[1]} under ta.explicit()"]
    # Where an output is the small difference of large numbers, rounding may be all that is in it.
    rounding = _ROUNDING * max([1.0, *(float(np.abs(array).max(initial=0)) for array in problem.arrays)])
    errors = [float(np.abs(a - b).max(initial=0)) for a, b in zip(values, by_definition, strict=True)]
    return [
        f"{disagree}: output {i} differs by up to {error:.3g} under ta.explicit()"
        for i, (error, b) in enumerate(zip(errors, by_definition, strict=True))
        if not (np.isfinite(error) and error <= _ALIKE * np.abs(b).max(initial=0) + rounding)
    ]


def _faults_of_repeating(problem: Problem, upstream: Sequence[np.ndarray]) -> list[str]:
    """Where backward passes through one graph differ: a second one, one for a single variable, one with other
    upstream gradients, a late one."""
    try:
        first, *rest = FirstOrder(problem, upstream).gradient_again()
    except BackwardError:  # told by the check itself
        return []
    problems: list[str] = []
    told = (
        ("two backward passes through one graph", "writes to what its kernel saved, or has a state"),
        ("backward passes for all variables and for one", "errs where not all gradients are needed"),
        (
            f"backward passes with upstream gradients and {MULTIPLE:g} times those, divided again,",
            "is not linear in its upstream gradient, such as one that clips it",
        ),
        (
            "backward passes before and after another call of the function",
            "takes values from where the latest call left them, such as an attribute",
        ),
    )
    for others, (what, guess) in zip(rest, told, strict=True):
        differ = [
            variable.name
            for variable, a, b in zip(problem.variables, first, others, strict=True)
            if not np.allclose(a, b, rtol=1e-9, atol=1e-9 * np.abs(a).max(initial=0), equal_nan=True)
        ]
        if differ and not problems:
            problems.append(f"{what} gave different gradients for {some(differ)}: a rule that {guess}?")
    return problems


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and np.array_equal(a, b, equal_nan=True)


def _random(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Weights of either sign, none of them small."""
    return np.asarray(rng.uniform(0.5, 1.5, shape) * rng.choice([-1.0, 1.0], shape))


def _unchecked_rows(problem: Problem, orders: Iterable[int], settings: Settings) -> list[Row]:
    tolerance = settings.tolerance(settings.method)
    return [
        Row(
            variable.name,
            variable.array.shape,
            order,
            checked=0,
            size=variable.array.size,
            error=0.0,
            relative_error=0.0,
            tolerance=tolerance,
            verdict="not checked",
        )
        for order in orders
        for variable in problem.variables
    ]


def _together(problem: Problem, found: list[Found], notes: list[str]) -> GradcheckReport:
    worst: list[Entry] = [entry for part in found for entry in part.entries]
    worst.sort(key=lambda entry: (entry.passed, entry.verdict == "ok", -entry.relative_error))
    return GradcheckReport(
        problem.name,
        "complex" if all(part.method == "complex" for part in found) else "central",
        tuple(row for part in found for row in part.rows),
        tuple(worst[:_WORST]),
        tuple(problem for part in found for problem in part.problems),
        tuple(notes + [note for part in found for note in part.notes]),
    )
