"""Attention by its three roles: queries ask, keys are asked, values are read.

The attention of the encoder-decoder is the case in which the annotations are both the keys and the values and
the decoder's state is the query; in self-attention all three are projections of one sequence. Vaswani et al.
2017, 3.2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinygrad_attn.engine import Tensor
from tinygrad_attn.engine.tensor import expose
from tinygrad_attn.nn import init
from tinygrad_attn.nn.attention import Attended, Attention, DotAttention, ScaledDotAttention, make_attention
from tinygrad_attn.nn.checks import check_mask, check_sizes, check_width, numbers
from tinygrad_attn.nn.module import Module, scoped
from tinygrad_attn.ops.linear import linear

Score = str | Attention | Callable[[Tensor, Tensor], Tensor]

_WITHOUT_WEIGHTS = {"dot": DotAttention, "scaled": ScaledDotAttention}
_WITH_WEIGHTS = {
    "additive": "AdditiveAttention",
    "concat": "ConcatAttention",
    "general": "GeneralAttention",
    "none": "FixedContext",
}


def attention(query: Any, keys: Any, values: Any, score: Score = "scaled", mask: Any = None) -> Attended:
    """Σ_j softmax_j(score(q, k_j)) v_j.

    Args:
        query: (B, Q), or (B, N, Q) for many at once.
        keys: (B, T, K).
        values: (B, T, V).
        score: "dot" or "scaled"; a module of the attention family, whose weights it then has; or a function
            of a query and the keys that returns the scores, (B, T) or (B, N, T).
        mask: boolean (B, T), or (B, N, T) for many queries; True takes part. None for all.

    Returns:
        The context (B, V) or (B, N, V), the weights and the scores.

    Raises:
        ValueError: if widths, batch sizes or numbers of steps do not fit, or the name is not known.
        TypeError: if the score is none of these, or the mask holds other than booleans, or zeros and ones.
    """
    found: Attended = _scored_by(score)(query, keys, values, mask)
    return found


def _scored_by(score: Any) -> Attention:
    if isinstance(score, Attention):
        return score
    if isinstance(score, str):
        if score in _WITH_WEIGHTS:
            raise ValueError(
                f"attention: a score by name has no weights, and '{score}' needs a module; pass "
                f"score=ta.nn.{_WITH_WEIGHTS[score]}(...)"
            )
        if score not in _WITHOUT_WEIGHTS:
            raise ValueError(
                f"attention: score '{score}' is not one of dot, scaled; for scores with weights pass a module"
            )
        return _WITHOUT_WEIGHTS[score]()
    if callable(score) and not isinstance(score, type):
        return _FunctionAttention(score)
    raise TypeError(
        f"attention: the score is {score!r}, expected 'dot', 'scaled', an attention module or a function of "
        "(query, keys)"
    )


class _FunctionAttention(Attention):
    """Scores by a function of the caller's."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.function = function

    def score(self, query: Any, projected: Any) -> Tensor:
        """What the function returns."""
        scores = self.function(query, projected)
        if not isinstance(scores, Tensor):
            raise TypeError(f"attention: the score returned a {type(scores).__name__}, expected a Tensor")
        return scores

    def _title(self) -> str:
        return "attention"


class SelfAttention(Module):
    """Every position of a sequence asks every position: q = W_q x, k = W_k x, v = W_v x.

    Parameters: `W_q` (key, input), `W_k` (key, input), `W_v` (value, input), no biases, U(±1/√input);
        those of the score are within `attention`.

    Args:
        input_size: I, the width of the sequence.
        key_size: K, the width of queries and keys; I if None.
        value_size: V, the width of values; I if None.
        score: "scaled", "dot", "general", "additive", "concat" (the inner width of the last two is K), or a
            module of the attention family for queries and keys of width K.
        causal: whether a position is kept from looking at those after it.
        dtype: of the parameters.
        rng: what initial values are drawn from.
    """

    def __init__(
        self,
        input_size: int,
        key_size: int | None = None,
        value_size: int | None = None,
        score: str | Attention = "scaled",
        causal: bool = False,
        *,
        dtype: Any = np.float32,
        rng: np.random.Generator | None = None,
    ) -> None:
        key_size = input_size if key_size is None else key_size
        value_size = input_size if value_size is None else value_size
        check_sizes("SelfAttention", input_size=input_size, key_size=key_size, value_size=value_size)
        rng = init.generator(rng)
        self.W_q = init.uniform((key_size, input_size), input_size, rng, dtype)
        self.W_k = init.uniform((key_size, input_size), input_size, rng, dtype)
        self.W_v = init.uniform((value_size, input_size), input_size, rng, dtype)
        self.attention = (
            score
            if isinstance(score, Attention)
            else make_attention(score, key_size, key_size, key_size, dtype=dtype, rng=rng)
        )
        self.causal = causal

    @scoped
    def project(self, x: Any) -> tuple[Tensor, Tensor, Tensor]:
        """q (B, T, K), k (B, T, K) and v (B, T, V) of a sequence x (B, T, I)."""
        x = numbers(x, self.W_q)
        if x.ndim != 3:
            raise ValueError(f"{self._title()}: input has shape {x.shape}, expected (batch, steps, features)")
        check_width(f"{self._title()}: input", x, self.W_q.shape[1])
        q, k, v = (linear(x, weight) for weight in (self.W_q, self.W_k, self.W_v))
        return expose(q, "q"), expose(k, "k"), expose(v, "v")

    def forward(self, x: Any, mask: Any = None) -> Attended:
        """x (B, T, I): contexts (B, T, V), weights and scores (B, T, T), a row for each asking position.

        Args:
            x: the sequence.
            mask: boolean (B, T), True at the positions that can be looked at, such as
                `encoding.mask`; or (B, T, T), for each asking position. None for all.

        Raises:
            ValueError, TypeError: if shapes do not fit, or the mask is not boolean.
        """
        q, k, v = self.project(x)
        if self.causal:
            batch, steps = k.shape[:2]
            earlier = np.tri(steps, dtype=bool)[None]  # (1, T, T): row i sees 0 to i
            whole = (batch, steps, steps)
            mask = earlier if mask is None else check_mask(self._title(), mask, whole) & earlier
        found: Attended = self.attention(q, k, v, mask=mask)
        return found
