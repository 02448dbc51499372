"""The attention family: a score e_j for each position, α = softmax(e), the context c = Σ_j α_j v_j.

Modules keep nothing between calls: keys are projected once per sentence by the caller and passed in.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tinygrad_attn.engine import Tensor
from tinygrad_attn.engine.tensor import expose
from tinygrad_attn.nn import init
from tinygrad_attn.nn.layers import check_width
from tinygrad_attn.nn.module import Module
from tinygrad_attn.ops import getitem, softmax
from tinygrad_attn.ops.attention import additive_scores, dot_scores, weighted_sum
from tinygrad_attn.ops.linear import linear
from tinygrad_attn.ops.softmax import as_mask


class Attended(NamedTuple):
    """What was retrieved, and how. With N queries each array has an axis N after the batch."""

    context: Tensor  # (B, V): c = Σ_j α_j v_j
    weights: Tensor  # (B, T): α = softmax(e), exactly zero where masked
    scores: Tensor  # (B, T): e


class Attention(Module):
    """What the family shares; each member has its own `project` and `score`."""

    def project(self, keys: Any) -> Any:
        """What the score needs of the keys (B, T, K), computed once per sentence."""
        return keys

    def score(self, query: Any, projected: Any) -> Tensor:
        """e (B, T) or (B, N, T), for a query (B, Q) or (B, N, Q)."""
        raise TypeError(f"{type(self).__name__} defines no score")

    def forward(self, query: Any, keys: Any, values: Any = None, mask: Any = None, projected: Any = None) -> Attended:
        """Scores every key against the query and returns the weighted sum of the values.

        Args:
            query: (B, Q), or (B, N, Q) for many at once.
            keys: (B, T, K).
            values: (B, T, V); the keys themselves if None, as in the papers.
            mask: boolean (B, T), True takes part; None for all.
            projected: `project(keys)`, if it is at hand.

        Raises:
            ValueError: if widths or batch sizes do not fit.
        """
        query, keys, values, mask = _checked(type(self).__name__, query, keys, values, mask)
        projected = self.project(keys) if projected is None else projected
        scores = expose(self.score(query, projected), "e")
        weights = expose(softmax(scores, mask=mask), "α")
        return Attended(expose(weighted_sum(weights, values), "c"), weights, scores)


class AdditiveAttention(Attention):
    """e_j = v_aᵀ tanh(W_a s + U_a h_j). Bahdanau et al. 2015, A.1.2.

    Parameters: `W_a` (attention, query), `U_a` (attention, key), `v_a` (attention,), no biases; U(±1/√fan_in).
    """

    def __init__(
        self,
        query_size: int,
        key_size: int,
        attention_size: int,
        *,
        dtype: Any = np.float32,
        rng: np.random.Generator | None = None,
    ) -> None:
        rng = init.generator(rng)
        self.W_a = init.uniform((attention_size, query_size), query_size, rng, dtype)
        self.U_a = init.uniform((attention_size, key_size), key_size, rng, dtype)
        self.v_a = init.uniform((attention_size,), attention_size, rng, dtype)

    def project(self, keys: Any) -> Tensor:
        """U_a h_j for every position: (B, T, K) to (B, T, A)."""
        check_width("AdditiveAttention: key", keys, self.U_a.shape[1])
        return linear(keys, self.U_a)

    def score(self, query: Any, projected: Any) -> Tensor:
        """v_aᵀ tanh(W_a s + U_a h_j)."""
        check_width("AdditiveAttention: query", query, self.W_a.shape[1])
        check_width("AdditiveAttention: projected keys", projected, len(self.v_a))
        return additive_scores(query, self.W_a, projected, self.v_a)


BahdanauAttention = AdditiveAttention


class ConcatAttention(Attention):
    """e_j = v_aᵀ tanh(W_a [s; h_j]). Luong et al. 2015, eq. 8, "concat".

    Parameters: `W_a` (attention, query + key), `v_a` (attention,).
    """

    def __init__(
        self,
        query_size: int,
        key_size: int,
        attention_size: int,
        *,
        dtype: Any = np.float32,
        rng: np.random.Generator | None = None,
    ) -> None:
        rng = init.generator(rng)
        self.query_size = query_size
        self.W_a = init.uniform((attention_size, query_size + key_size), query_size + key_size, rng, dtype)
        self.v_a = init.uniform((attention_size,), attention_size, rng, dtype)

    def project(self, keys: Any) -> Tensor:
        """The keys' share of W_a [s; h_j]: (B, T, K) to (B, T, A)."""
        check_width("ConcatAttention: key", keys, self.W_a.shape[1] - self.query_size)
        return linear(keys, getitem(self.W_a, (slice(None), slice(self.query_size, None))))

    def score(self, query: Any, projected: Any) -> Tensor:
        """v_aᵀ tanh(W_a [s; h_j]), with the product taken in two parts."""
        check_width("ConcatAttention: query", query, self.query_size)
        check_width("ConcatAttention: projected keys", projected, len(self.v_a))
        return additive_scores(query, getitem(self.W_a, (slice(None), slice(self.query_size))), projected, self.v_a)


class DotAttention(Attention):
    """e_j = s · h_j; query and key have one width. Luong et al. 2015, eq. 8, "dot"."""

    def score(self, query: Any, projected: Any) -> Tensor:
        """s · h_j."""
        self._check_equal(query, projected)
        return dot_scores(query, projected)

    def _check_equal(self, query: Any, keys: Any) -> None:
        if query.shape[-1] != keys.shape[-1]:
            raise ValueError(
                f"{type(self).__name__}: query has {query.shape[-1]} features and key {keys.shape[-1]}, expected the "
                "same; choose equal widths, or GeneralAttention, whose matrix fits one to the other"
            )


class ScaledDotAttention(DotAttention):
    """e_j = s · h_j / √d, with d the width of query and key. Vaswani et al. 2017, eq. 1."""

    def score(self, query: Any, projected: Any) -> Tensor:
        """s · h_j / √d."""
        self._check_equal(query, projected)
        return dot_scores(query * (query.shape[-1] ** -0.5), projected)


class GeneralAttention(Attention):
    """e_j = sᵀ W_a h_j. Luong et al. 2015, eq. 8, "general". Parameter: `W_a` (query, key)."""

    def __init__(
        self, query_size: int, key_size: int, *, dtype: Any = np.float32, rng: np.random.Generator | None = None
    ) -> None:
        self.W_a = init.uniform((query_size, key_size), key_size, init.generator(rng), dtype)

    def project(self, keys: Any) -> Tensor:
        """W_a h_j for every position: (B, T, K) to (B, T, Q)."""
        check_width("GeneralAttention: key", keys, self.W_a.shape[1])
        return linear(keys, self.W_a)

    def score(self, query: Any, projected: Any) -> Tensor:
        """s · (W_a h_j)."""
        check_width("GeneralAttention: query", query, self.W_a.shape[0])
        check_width("GeneralAttention: projected keys", projected, self.W_a.shape[0])
        return dot_scores(query, projected)


class FixedContext(Attention):
    """No attention: the context is the value at the last position, whatever the query.

    The encoder-decoder of Cho et al. 2014, with the annotation h_T as the one summary of the source. The weights are
    one at the last position within the mask and zero elsewhere; the scores, which nothing computes, are zeros.
    """

    def forward(self, query: Any, keys: Any, values: Any = None, mask: Any = None, projected: Any = None) -> Attended:
        """As `Attention.forward`; the query and the keys give the shapes alone."""
        query, keys, values, mask = _checked("FixedContext", query, keys, values, mask)
        batch, steps = keys.shape[:2]
        last = np.full(batch, steps - 1)
        if mask is not None:
            if mask.ndim == 3:
                mask = mask[:, 0]
            last = steps - 1 - np.argmax(mask[:, ::-1], axis=1)
        weights = np.zeros((batch, steps), values.dtype)
        weights[np.arange(batch), last] = 1 if mask is None else mask[np.arange(batch), last]
        if query.ndim == 3:
            weights = np.repeat(weights[:, None], query.shape[1], axis=1)
        alpha = expose(Tensor(weights), "α")
        return Attended(expose(weighted_sum(alpha, values), "c"), alpha, expose(Tensor(np.zeros_like(weights)), "e"))


def _checked(name: str, query: Any, keys: Any, values: Any, mask: Any) -> tuple[Any, Any, Any, Any]:
    """The arguments, with values and mask filled in; ValueError if they do not fit together."""
    query, keys = _tensor(query), _tensor(keys)
    values = keys if values is None else _tensor(values)
    if query.ndim not in (2, 3):
        raise ValueError(f"{name}: query has shape {query.shape}, expected (batch, features) or (batch, queries, features)")
    if keys.ndim != 3 or values.ndim != 3:
        raise ValueError(f"{name}: keys and values have shapes {keys.shape} and {values.shape}, expected (batch, steps, features)")
    if not query.shape[0] == keys.shape[0] == values.shape[0] or keys.shape[1] != values.shape[1]:
        raise ValueError(
            f"{name}: query {query.shape}, keys {keys.shape} and values {values.shape} differ in their batch or steps"
        )
    if mask is not None:
        mask = as_mask(mask)
        if mask.ndim == 2 and query.ndim == 3:
            mask = mask[:, None]
        whole = (*query.shape[:-1], keys.shape[1])
        if mask.ndim != len(whole) or any(a not in (1, b) for a, b in zip(mask.shape, whole, strict=True)):
            raise ValueError(f"{name}: mask has shape {mask.shape}, expected {(keys.shape[0], keys.shape[1])}")
        if mask.all():
            mask = None
    return query, keys, values, mask


def _tensor(x: Any) -> Any:
    return x if isinstance(x, Tensor) else Tensor(x)


def make_attention(
    name: str,
    query_size: int,
    key_size: int,
    attention_size: int,
    *,
    dtype: Any = np.float32,
    rng: np.random.Generator | None = None,
) -> Attention:
    """The attention called `name`: additive, concat, general, dot, scaled or none.

    Raises:
        ValueError: for another name, and where a dot product would meet unequal widths.
    """
    if name in ("additive", "concat"):
        kind = AdditiveAttention if name == "additive" else ConcatAttention
        return kind(query_size, key_size, attention_size, dtype=dtype, rng=rng)
    if name == "general":
        return GeneralAttention(query_size, key_size, dtype=dtype, rng=rng)
    if name in ("dot", "scaled"):
        if query_size != key_size:
            raise ValueError(
                f"attention '{name}': the decoder's state has {query_size} features and the annotations {key_size}, expected "
                f"the same; set encoder_hidden_size to half the hidden size, or use 'general'"
            )
        return DotAttention() if name == "dot" else ScaledDotAttention()
    if name == "none":
        return FixedContext()
    raise ValueError(f"attention: '{name}' is not one of additive, dot, scaled, general, concat, none")
