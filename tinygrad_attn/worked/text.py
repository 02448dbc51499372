"""A walk as text: for each quantity its equation, the numbers put in, and the result."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np

from tinygrad_attn.worked.example import Example
from tinygrad_attn.worked.walk import Step, Walk

_DIGITS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
_SPACE = "\u00a0"  # keeps a vector on one line where lines are broken
_BOLD, _STRONG, _PLAIN = "\x1b[1m", "\x1b[36m", "\x1b[0m"


class Page:
    """Lines no longer than a width, with headings and results set off by colour if there is any."""

    def __init__(self, width: int, colour: bool) -> None:
        self.width, self.colour = max(width, 24), colour
        self.lines: list[str] = []

    def heading(self, text: str) -> None:
        """A line of its own between empty ones."""
        if self.lines:
            self.lines.append("")
        for line in _wrapped(text, self.width):
            self.lines.append(f"{_BOLD}{line}{_PLAIN}" if self.colour else line)

    def say(self, text: str, indent: str = "  ") -> None:
        """A paragraph."""
        self.lines += _wrapped(text, self.width, indent, indent)

    def result(self, name: str, *sides: str) -> None:
        """`name = side = side`, with the last of them as the result."""
        lines = _wrapped(" = ".join([name, *sides]), self.width, "    ", "      ")
        last = sides[-1].replace(_SPACE, " ")
        if self.colour and lines[-1].endswith(last):
            lines[-1] = f"{lines[-1].removesuffix(last)}{_STRONG}{last}{_PLAIN}"
        self.lines += lines


def _wrapped(text: str, width: int, first: str = "", others: str = "") -> list[str]:
    lines = textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_SPACE, " ") for line in lines]


def text(walk: Walk, title: str, *, width: int = 80, colour: bool = False) -> str:
    """The walk in lines of at most `width` columns (but no less than 24), where a number is not longer."""
    page, example = Page(width, colour), walk.example
    page.heading(title)
    _put_in(page, example)
    for i, step in enumerate(walk.steps):
        state = f"s{_index(i)}" if len(walk.steps) > 1 else "s"
        if len(walk.steps) > 1:
            page.heading(f"Target word {i + 1}, with the state {state} = {_given(step.s)}")
        _forward(page, example, step, state)
        _backward(page, example, step, state)
    if len(walk.steps) > 1:
        _all_steps(page, walk)
    return "\n".join(page.lines)


def _put_in(page: Page, example: Example) -> None:
    for j, row in enumerate(example.h):
        page.result(f"h{_index(j + 1)}", _given(row))
    for i, row in enumerate(example.s):
        page.result(f"s{_index(i)}" if len(example.s) > 1 else "s", _given(row))
    if not example.plain:
        for name, array in example.weights().items():
            page.result(name, _matrix(array))
    elif example.score == "additive":
        page.say(
            "W_a = U_a = I, v_a = ones" if len(example.weights()["v_a"]) > 1 else "W_a = U_a = v_a = 1",
            "    ",
        )
    elif example.score == "general":
        page.say("W_a = I" if len(example.s[0]) > 1 else "W_a = 1", "    ")
    page.say("Numbers are rounded only where they are shown.")


def _forward(page: Page, example: Example, step: Step, s: str) -> None:
    page.heading("Scores: how well each source word fits the state")
    page.say(_SCORES[example.score].format(s=s))
    for j in range(len(step.e)):
        page.result(f"e{_index(j + 1)}", *_score(example, step, j), _number(step.e[j]))
    page.heading("Weights: the scores as shares of one")
    page.say("α_j = exp(e_j) / Z,  Z = Σ_k exp(e_k)")
    for j, e in enumerate(step.e):
        page.result(f"exp(e{_index(j + 1)})", f"exp({_number(e)})", _number(step.exp_e[j]))
    page.result("Z", _sum(step.exp_e), _number(step.exp_e.sum()))
    for j, x in enumerate(step.exp_e):
        page.result(
            f"α{_index(j + 1)}", f"{_number(x)} / {_number(step.exp_e.sum())}", _number(step.alpha[j])
        )
    page.heading("Context: the annotations, mixed by the weights")
    page.say("c = Σ_j α_j h_j")
    terms = [f"{_number(a)}·{_given(h, True)}" for a, h in zip(step.alpha, example.h, strict=True)]
    page.result("c", " + ".join(terms), _array(step.c))
    page.heading("Loss: how surprising the target word is")
    page.say("logits = " + ("c, one for each word" if len(step.c) > 1 else "(c, 0), for two words"))
    page.say("p = softmax(logits),  loss = -log p(target)")
    page.result("logits", _array(step.logits))
    page.result("p", _array(step.p))
    page.result("loss", f"-log {_number(step.p[step.target - 1])}", _number(step.loss))


def _backward(page: Page, example: Example, step: Step, s: str) -> None:
    target = np.eye(len(step.p))[step.target - 1]
    page.heading("Back from the loss to the context")
    page.say("∂loss/∂logits = p - (1 at the target)")
    page.result("∂loss/∂logits", f"{_array(step.p)} - {_given(target)}", _array(step.d_logits))
    page.say("∂loss/∂c = " + ("∂loss/∂logits" if len(step.c) > 1 else "the first of these"))
    page.result("∂loss/∂c", _array(step.d_c))
    page.heading("To the weights: each meets the annotation that it weighs")
    page.say("∂loss/∂α_j = ∂loss/∂c · h_j")
    for j, h in enumerate(example.h):
        page.result(
            f"∂loss/∂α{_index(j + 1)}", f"{_array(step.d_c)}·{_given(h, True)}", _number(step.d_alpha[j])
        )
    page.heading("To the scores: what one gains, the others lose")
    page.say("∂loss/∂e_j = α_j (∂loss/∂α_j - m),  m = Σ_k α_k ∂loss/∂α_k")
    mean = step.alpha @ step.d_alpha
    page.result(
        "m",
        " + ".join(f"{_number(a)}·{_signed(d)}" for a, d in zip(step.alpha, step.d_alpha, strict=True)),
        _number(mean),
    )
    for j, a in enumerate(step.alpha):
        inner = f"{_number(step.d_alpha[j])} - {_signed(mean)}"
        page.result(f"∂loss/∂e{_index(j + 1)}", f"{_number(a)}·({inner})", _number(step.d_e[j]))
    _to_state(page, example, step, s)
    _to_annotations(page, example, step, s)


def _to_state(page: Page, example: Example, step: Step, s: str) -> None:
    page.heading(f"To the state {s}: it asked in every score")
    page.say(f"∂loss/∂{s} = Σ_j ∂loss/∂e_j · ∂e_j/∂{s},  ∂e_j/∂{s} = {_together(_SLOPES[example.score][0])}")
    for j, slope in enumerate(step.slope_s):
        page.result(f"∂e{_index(j + 1)}/∂{s}", *_slope(example, step, j), _array(slope))
    page.result(
        f"∂loss/∂{s}",
        " + ".join(
            f"{_signed(d) if j else _number(d)}·{_array(slope, True)}"
            for j, (d, slope) in enumerate(zip(step.d_e, step.slope_s, strict=True))
        ),
        _array(step.d_s),
    )


def _to_annotations(page: Page, example: Example, step: Step, s: str) -> None:
    page.heading("To the annotations: as a value, through c")
    page.say("∂loss/∂h_j (value) = α_j ∂loss/∂c")
    for j, a in enumerate(step.alpha):
        page.result(
            f"h{_index(j + 1)} value", f"{_number(a)}·{_array(step.d_c, True)}", _array(step.d_h_value[j])
        )
    page.heading("To the annotations: as a key, through the scores")
    slope = _together(_SLOPES[example.score][1].format(s=s))
    page.say(f"∂loss/∂h_j (key) = ∂loss/∂e_j · ∂e_j/∂h_j,  ∂e_j/∂h_j = {slope}")
    for j, d in enumerate(step.d_e):
        page.result(
            f"h{_index(j + 1)} key",
            f"{_number(d)}·{_array(step.slope_h[j], True)}",
            _array(step.d_h_key[j]),
        )
    page.heading("To the annotations: both ways together")
    for j in range(len(step.alpha)):
        page.result(
            f"∂loss/∂h{_index(j + 1)}",
            f"{_array(step.d_h_value[j])} + {_array(step.d_h_key[j], True)}",
            _array(step.d_h[j]),
        )


def _all_steps(page: Page, walk: Walk) -> None:
    page.heading("All target words together")
    for i, step in enumerate(walk.steps):
        largest = int(np.argmax(step.alpha))
        page.result(
            f"largest weight with s{_index(i)}", f"α{_index(largest + 1)}", _number(step.alpha[largest])
        )
    losses = [step.loss for step in walk.steps]
    page.result("loss", _sum(losses), _number(walk.loss))
    page.say("An annotation is read at every step, and what the steps say to it adds up.")
    for j in range(len(walk.d_h)):
        page.result(
            f"∂loss/∂h{_index(j + 1)}",
            " + ".join(_array(step.d_h[j], within=i > 0) for i, step in enumerate(walk.steps)),
            _array(walk.d_h[j]),
        )


_SCORES = {
    "additive": "e_j = v_a · tanh(W_a {s} + U_a h_j)",
    "dot": "e_j = {s} · h_j",
    "scaled": "e_j = {s} · h_j / √d",
    "general": "e_j = {s} · W_a h_j",
}
_SLOPES = {
    "additive": ("W_aᵀ (v_a ∘ (1 - tanh²))", "U_aᵀ (v_a ∘ (1 - tanh²))"),
    "dot": ("h_j", "{s}"),
    "scaled": ("h_j / √d", "{s} / √d"),
    "general": ("W_a h_j", "W_aᵀ {s}"),
}


def _together(formula: str) -> str:
    """What a line is not broken within."""
    return formula.replace(" ", _SPACE)


@np.errstate(invalid="ignore")  # see matrix_product
def _score(example: Example, step: Step, j: int) -> list[str]:
    """The sides between the name of a score and its value."""
    s, h, weights = step.s, np.array(example.h[j]), example.weights()
    if example.score == "additive":
        query, key, v = weights["W_a"] @ s, weights["U_a"] @ h, weights["v_a"]
        front = "" if len(v) == 1 and v[0] == 1 else f"{_given(v)}·"
        sides = [f"{front}tanh({_given(query)} + {_given(key, True)})"]
        return [*sides, f"{front}{_array(np.tanh(query + key), True)}"] if front else sides
    if example.score == "general" and not example.plain:
        return [f"{_given(s)}·{_given(weights['W_a'] @ h, True)}"]
    product = f"{_given(s)}·{_given(h, True)}"
    return [f"{product} / √{len(s)}" if example.score == "scaled" else product]


def _slope(example: Example, step: Step, j: int) -> list[str]:
    """The sides between ∂e_j/∂s and its value; none where there is nothing to be put in."""
    if example.score == "additive" and example.plain:
        return [f"1 - {_array(np.tanh(step.s + example.h[j]), True)}²"]
    return [f"{_given(example.h[j])} / √{len(step.s)}"] if example.score == "scaled" else []


def _index(number: int) -> str:
    return str(number).translate(_DIGITS)


def _number(x: Any) -> str:
    """A computed number: four places, or four digits where these would hide it."""
    x = float(x)
    if x == 0:
        return "0"
    return f"{x:.4f}" if 1e-3 <= abs(x) < 1e6 else f"{x:.3e}"


def _signed(x: Any) -> str:
    return f"({_number(x)})" if x < 0 else _number(x)


def _sum(values: Any) -> str:
    return " + ".join(_number(x) for x in values)


def _array(values: Any, within: bool = False) -> str:
    """A computed vector in brackets, or its one number; `within` a formula a negative one is in brackets."""
    if len(values) == 1:
        return _signed(values[0]) if within else _number(values[0])
    return f"({f',{_SPACE}'.join(_number(x) for x in values)})"


def _given(values: Any, within: bool = False) -> str:
    """The same for numbers as they were put in."""
    if len(values) == 1:
        return f"({values[0]:g})" if within and values[0] < 0 else f"{values[0]:g}"
    return f"({f',{_SPACE}'.join(f'{x:g}' for x in values)})"


def _matrix(array: np.ndarray) -> str:
    if array.ndim == 1 or array.shape[1] == 1 == array.shape[0]:
        return _given(array.reshape(-1))
    return f"[{f';{_SPACE}'.join(_given(row) for row in array)}]"
