"""Every worked number of the two texts that the package follows: as printed there, and as computed here.

The texts round on the way, and slip in some exponentials, so that a printed number may differ from the exact
one by more than half a unit of its last digit; `units` says how much, and the tests hold it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tinygrad_attn.engine import Tensor, grad
from tinygrad_attn.ops import concatenate, exp, log, matmul, softmax, sum, tanh
from tinygrad_attn.worked.example import RUNNING, VECTOR
from tinygrad_attn.worked.walk import Step, walk

SHIFT = 5.0
"""What the texts add to every score, to no effect."""
P = (0.8, 0.6)
"""The probabilities of the two words of a target sentence."""
DIRECTIONS = (0.4, 0.7)
"""The forward and the backward state at one source word."""


@dataclass(frozen=True)
class Number:
    """One or several numbers of the texts.

    Attributes:
        key: what tests and pages call it.
        what: what it is, for a reader.
        formula: how it comes about.
        printed: as the texts print it.
        compute: the same by the package, in full precision.
        units: how far the printed number may be off, in units of its last digit.
    """

    key: str
    what: str
    formula: str
    printed: tuple[str, ...]
    compute: Callable[[], Any]
    units: float = 0.5

    def values(self) -> np.ndarray:
        """The computed numbers, (n,)."""
        return np.asarray(self.compute(), np.float64).reshape(-1)

    def rounded(self) -> tuple[str, ...]:
        """The computed numbers with as many digits as the printed ones."""
        return tuple(
            f"{value:.{len(text.partition('.')[2])}f}"
            for value, text in zip(self.values(), self.printed, strict=True)
        )


@cache
def _steps() -> tuple[Step, Step, Step]:
    """The step of the running example, and the two of the one in two dimensions."""
    (running,), (first, second) = walk(RUNNING).steps, walk(VECTOR).steps
    return running, first, second


def _step() -> Step:
    return _steps()[0]


def _h() -> np.ndarray:
    return np.array(RUNNING.h)[:, 0]


def _mixed(*weights: float) -> Any:
    return matmul(np.array(weights), _h())


def _sums() -> np.ndarray:
    """s + h_j, the arguments of tanh."""
    return RUNNING.s[0][0] + _h()


def _slopes_of_the_context() -> np.ndarray:
    """∂c/∂α, by differentiating c = Σ_j α_j h_j."""
    alpha = Tensor(_step().alpha, requires_grad=True)
    (found,) = grad(matmul(alpha, _h()), (alpha,))
    return found.data


def _terms_of_the_rewritten_context() -> np.ndarray:
    """(h_1 - h_3) α_1 and (h_2 - h_3) α_2."""
    h = _h()
    return np.array((h[:2] - h[2]) * _step().alpha[:2])


NUMBERS: tuple[Number, ...] = (
    Number("h", "annotations of the running example", "h", ("0.2", "0.9", "0.1"), _h, 0),
    Number("s", "the decoder's state", "s", ("0.5",), lambda: RUNNING.s[0], 0),
    Number("fixed", "context without attention", "h₃", ("0.1",), lambda: _h()[-1], 0),
    Number(
        "one",
        "context if all weight is on the second word",
        "0·h₁ + 1·h₂ + 0·h₃",
        ("0.9",),
        lambda: _mixed(0, 1, 0),
        1e-9,
    ),
    Number(
        "half",
        "context if it is split between the first two",
        "½·h₁ + ½·h₂ + 0·h₃",
        ("0.55",),
        lambda: _mixed(0.5, 0.5, 0),
        1e-9,
    ),
    Number("halves", "its terms", "½·h₁, ½·h₂", ("0.1", "0.45"), lambda: 0.5 * _h()[:2], 1e-9),
    Number(
        "uniform",
        "context if the weights are equal",
        "⅓·(h₁ + h₂ + h₃)",
        ("0.4",),
        lambda: _mixed(1 / 3, 1 / 3, 1 / 3),
        1e-9,
    ),
    Number("sum of h", "the sum in it", "h₁ + h₂ + h₃", ("1.2",), lambda: sum(_h()), 1e-9),
    Number("sums", "arguments of tanh", "s + hⱼ", ("0.7", "1.4", "0.6"), _sums, 1e-9),
    Number(
        "up",
        "for tanh by its definition",
        "exp(s + hⱼ)",
        ("2.0138", "4.0552", "1.8221"),
        lambda: exp(_sums()),
    ),
    Number(
        "down", "and the other one", "exp(−(s + hⱼ))", ("0.4966", "0.2466", "0.5488"), lambda: exp(-_sums())
    ),
    Number(
        "difference",
        "numerators of tanh",
        "exp(x) − exp(−x)",
        ("1.5172", "3.8086", "1.2733"),
        lambda: exp(_sums()) - exp(-_sums()),
        1,
    ),
    Number(
        "total",
        "denominators of tanh",
        "exp(x) + exp(−x)",
        ("2.5104", "4.3018", "2.3709"),
        lambda: exp(_sums()) + exp(-_sums()),
        1,
    ),
    Number("e", "scores", "eⱼ = tanh(s + hⱼ)", ("0.6044", "0.8854", "0.5370"), lambda: _step().e),
    Number(
        "exp e",
        "exponentials of the scores",
        "exp(eⱼ)",
        ("1.8302", "2.4235", "1.7108"),
        lambda: _step().exp_e,
        4,
    ),
    Number("Z", "their sum", "Z = Σ exp(eⱼ)", ("5.9645",), lambda: sum(_step().exp_e), 4),
    Number("alpha", "weights", "αⱼ = exp(eⱼ) / Z", ("0.3069", "0.4063", "0.2868"), lambda: _step().alpha, 1),
    Number("sum of alpha", "their sum", "Σ αⱼ", ("1.0000",), lambda: sum(_step().alpha)),
    Number(
        "ratio",
        "ratio of the two largest weights",
        "α₂ / α₁",
        ("1.324",),
        lambda: _step().alpha[1] / _step().alpha[0],
    ),
    Number(
        "gap", "difference of their scores", "e₂ − e₁", ("0.2810",), lambda: _step().e[1] - _step().e[0], 1
    ),
    Number(
        "exp gap", "its exponential", "exp(e₂ − e₁)", ("1.324",), lambda: exp(_step().e[1] - _step().e[0])
    ),
    Number(
        "shifted e",
        "scores with 5 added",
        "eⱼ + 5",
        ("5.6044", "5.8854", "5.5370"),
        lambda: _step().e + SHIFT,
    ),
    Number(
        "exp shifted e",
        "their exponentials",
        "exp(eⱼ + 5)",
        ("271.60", "359.58", "253.89"),
        lambda: exp(_step().e + SHIFT),
        15,
    ),
    Number("shifted Z", "their sum", "Σ exp(eⱼ + 5)", ("885.07",), lambda: sum(exp(_step().e + SHIFT)), 20),
    Number(
        "shifted alpha",
        "weights from them",
        "softmax(e + 5)",
        ("0.3069", "0.4063", "0.2868"),
        lambda: softmax(_step().e + SHIFT),
        1,
    ),
    Number(
        "terms", "terms of the context", "αⱼ·hⱼ", ("0.0614", "0.3657", "0.0287"), lambda: _step().alpha * _h()
    ),
    Number("c", "context", "c = Σ αⱼ·hⱼ", ("0.4558",), lambda: _step().c),
    Number(
        "coefficients",
        "the context rewritten: its coefficients",
        "h₃, h₁ − h₃, h₂ − h₃",
        ("0.1", "0.1", "0.8"),
        lambda: [_h()[2], *(_h()[:2] - _h()[2])],
        1e-9,
    ),
    Number(
        "rewritten terms",
        "its terms",
        "0.1·α₁, 0.8·α₂",
        ("0.03069", "0.32504"),
        _terms_of_the_rewritten_context,
        5,
    ),
    Number(
        "rewritten c",
        "and their sum",
        "0.1 + 0.1·α₁ + 0.8·α₂",
        ("0.45573",),
        lambda: _h()[2] + sum(_terms_of_the_rewritten_context()),
        4,
    ),
    Number(
        "slopes",
        "how the context changes with each weight",
        "∂c/∂αⱼ = hⱼ",
        ("0.2", "0.9", "0.1"),
        _slopes_of_the_context,
        1e-9,
    ),
    Number(
        "directions",
        "an annotation joins both directions",
        "[→h; ←h]",
        ("0.4", "0.7"),
        lambda: concatenate([np.array([x]) for x in DIRECTIONS]),
        0,
    ),
    Number("p", "probabilities of two target words", "p(y₁), p(y₂ | y₁)", ("0.8", "0.6"), lambda: P, 0),
    Number("product", "of the sentence", "p(y₁)·p(y₂ | y₁)", ("0.48",), lambda: P[0] * P[1], 1e-9),
    Number("log p", "their logarithms", "log p", ("-0.22314", "-0.51083"), lambda: log(np.array(P))),
    Number(
        "sum of log p",
        "log-likelihood of the sentence",
        "Σ log p",
        ("-0.73397",),
        lambda: sum(log(np.array(P))),
    ),
    Number(
        "tanh 2",
        "in two dimensions: tanh where state and annotation meet",
        "tanh(1 + 1)",
        ("0.9640",),
        lambda: tanh(np.array(2.0)),
    ),
    Number("tanh 1", "and where they do not", "tanh(1 + 0)", ("0.7616",), lambda: tanh(np.array(1.0))),
    Number(
        "vector e 1",
        "scores of the first step",
        "v·tanh(s₀ + hⱼ)",
        ("0.9640", "1.5232"),
        lambda: _steps()[1].e,
    ),
    Number(
        "vector e 2",
        "scores of the second step",
        "v·tanh(s₁ + hⱼ)",
        ("1.5232", "0.9640"),
        lambda: _steps()[2].e,
    ),
    Number(
        "vector alpha 1",
        "weights of the first step",
        "softmax(e₁)",
        ("0.3637", "0.6363"),
        lambda: _steps()[1].alpha,
    ),
    Number(
        "vector alpha 2",
        "weights of the second step",
        "softmax(e₂)",
        ("0.6363", "0.3637"),
        lambda: _steps()[2].alpha,
    ),
)
"""In the order of the texts."""


def number(key: str) -> Number:
    """The number called `key`. Raises KeyError if there is none."""
    for found in NUMBERS:
        if found.key == key:
            return found
    raise KeyError(f"no number is called {key!r}; there are {', '.join(found.key for found in NUMBERS)}")
