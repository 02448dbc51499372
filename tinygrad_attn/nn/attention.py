"""The attention family: a score e_j for each position, α = softmax(e), the context c = Σ_j α_j v_j.

Modules keep nothing between calls: keys are projected once per sentence by the caller and passed in.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tinygrad_attn.engine import Tensor
from tinygrad_attn.engine.tensor import expose, leaf, value_of
from tinygrad_attn.nn import init
from tinygrad_attn.nn.checks import check_mask, check_sizes, check_width, numbers
from tinygrad_attn.nn.module import Module, scoped
from tinygrad_attn.ops import getitem, softmax
from tinygrad_attn.ops.attention import additive_scores, dot_scores, weighted_sum
from tinygrad_attn.ops.linear import linear


class Attended(NamedTuple):
    """What was retrieved, and how. With N queries each array has an axis N after the batch."""

    context: Tensor  # (B, V): c = Σ_j α_j v_j
    weights: Tensor  # (B, T): α = softmax(e), exactly zero where masked
    scores: Tensor  # (B, T): e


class Attention(Module):
    """What the family shares; each member has its own `project` and `score`."""

    @scoped
    def project(self, keys: Any) -> Any:
        """What the score needs of the keys (B, T, K), computed once per sentence: (B, T, P)."""
        return numbers(keys)

    def score(self, query: Any, projected: Any) -> Tensor:
        """e (B, T) or (B, N, T), for a query (B, Q) or (B, N, Q) and what `project` returned."""
        raise TypeError(f"{type(self).__name__} defines no score")

    def forward(
        self, query: Any, keys: Any, values: Any = None, mask: Any = None, projected: Any = None
    ) -> Attended:
        """Scores every key against the query and returns the weighted sum of the values.

        Args:
            query: (B, Q), or (B, N, Q) for many at once.
            keys: (B, T, K).
            values: (B, T, V); the keys themselves if None, as in the papers.
            mask: boolean (B, T), or (B, N, T) for many queries; True takes part. None for all. A row in which
                nothing takes part gets weights and a context of zeros.
            projected: `project(keys)`, if it is at hand.

        Raises:
            ValueError: if widths, batch sizes or numbers of steps do not fit.
            TypeError: if the mask holds other than booleans, or zeros and ones.
        """
        query, keys, values, mask = self._checked(query, keys, values, mask)
        if projected is None:
            projected = self.project(keys)
        elif projected.shape[:2] != keys.shape[:2]:
            raise ValueError(
                f"{self._title()}: projected keys have shape {projected.shape}, expected {keys.shape[:2]} "
                "first, as the keys"
            )
        scores = self.score(query, projected)
        shape, expected = np.shape(value_of(scores)), (*query.shape[:-1], keys.shape[1])
        if shape != expected:  # which might broadcast, to weights that are not of this query
            raise ValueError(f"{self._title()}: the score returned shape {shape}, expected {expected}")
        scores = expose(_tensor(scores, query), "e")
        weights = expose(softmax(scores, mask=mask), "α")
        return Attended(expose(weighted_sum(weights, values), "c"), weights, scores)

    def _checked(
        self, query: Any, keys: Any, values: Any, mask: Any
    ) -> tuple[Any, Any, Any, np.ndarray | None]:
        """The arguments as tensors and mask, filled in. A mask that excludes nothing is None."""
        title, like = self._title(), next(self.parameters(), None)
        query, keys = _tensor(query, like), _tensor(keys, like)
        values = keys if values is None else _tensor(values, like)
        if query.ndim not in (2, 3):
            raise ValueError(
                f"{title}: query has shape {query.shape}, expected (batch, features) or "
                "(batch, queries, features)"
            )
        for name, x in (("keys have", keys), ("values have", values)):
            if x.ndim != 3 or not x.shape[1]:
                raise ValueError(
                    f"{title}: {name} shape {x.shape}, expected (batch, steps, features) with at least one "
                    "step"
                )
        if not query.shape[0] == keys.shape[0] == values.shape[0] or keys.shape[1] != values.shape[1]:
            raise ValueError(
                f"{title}: query {query.shape}, keys {keys.shape} and values {values.shape} differ in their "
                "batch or steps"
            )
        if mask is not None:
            mask = check_mask(title, mask, (*query.shape[:-1], keys.shape[1]))
            mask = None if mask.all() else mask
        return query, keys, values, mask


class AdditiveAttention(Attention):
    """e_j = v_aᵀ tanh(W_a s + U_a h_j). Bahdanau et al. 2015, A.1.2.

    Parameters: `W_a` (attention, query), `U_a` (attention, key), `v_a` (attention,), no biases;
        U(±1/√fan_in).
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
        check_sizes(
            "AdditiveAttention", query_size=query_size, key_size=key_size, attention_size=attention_size
        )
        rng = init.generator(rng)
        self.W_a = init.uniform((attention_size, query_size), query_size, rng, dtype)
        self.U_a = init.uniform((attention_size, key_size), key_size, rng, dtype)
        self.v_a = init.uniform((attention_size,), attention_size, rng, dtype)

    @scoped
    def project(self, keys: Any) -> Tensor:
        """U_a h_j for every position: (B, T, K) to (B, T, A)."""
        keys = numbers(keys, self.U_a)
        check_width(f"{self._title()}: key", keys, self.U_a.shape[1])
        return linear(keys, self.U_a)

    def score(self, query: Any, projected: Any) -> Tensor:
        """v_aᵀ tanh(W_a s + U_a h_j)."""
        check_width(f"{self._title()}: query", query, self.W_a.shape[1])
        check_width(f"{self._title()}: projected key", projected, len(self.v_a))
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
        check_sizes(
            "ConcatAttention", query_size=query_size, key_size=key_size, attention_size=attention_size
        )
        rng = init.generator(rng)
        self.query_size = query_size
        self.W_a = init.uniform((attention_size, query_size + key_size), query_size + key_size, rng, dtype)
        self.v_a = init.uniform((attention_size,), attention_size, rng, dtype)

    @scoped
    def project(self, keys: Any) -> Tensor:
        """The keys' share of W_a [s; h_j]: (B, T, K) to (B, T, A)."""
        keys = numbers(keys, self.W_a)
        check_width(f"{self._title()}: key", keys, self.W_a.shape[1] - self.query_size)
        return linear(keys, getitem(self.W_a, (slice(None), slice(self.query_size, None))))

    def score(self, query: Any, projected: Any) -> Tensor:
        """v_aᵀ tanh(W_a [s; h_j]), with the product taken in two parts."""
        check_width(f"{self._title()}: query", query, self.query_size)
        check_width(f"{self._title()}: projected key", projected, len(self.v_a))
        w = getitem(self.W_a, (slice(None), slice(self.query_size)))
        return additive_scores(query, w, projected, self.v_a)


class DotAttention(Attention):
    """e_j = s · h_j; query and key have one width. Luong et al. 2015, eq. 8, "dot"."""

    def score(self, query: Any, projected: Any) -> Tensor:
        """s · h_j."""
        self._check_equal(query, projected)
        return dot_scores(query, projected)

    def _check_equal(self, query: Any, keys: Any) -> None:
        if query.shape[-1] != keys.shape[-1]:
            raise ValueError(
                f"{self._title()}: query has {query.shape[-1]} features and key {keys.shape[-1]}, expected "
                "the same; choose equal widths, or GeneralAttention, whose matrix fits one to the other"
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
        self,
        query_size: int,
        key_size: int,
        *,
        dtype: Any = np.float32,
        rng: np.random.Generator | None = None,
    ) -> None:
        check_sizes("GeneralAttention", query_size=query_size, key_size=key_size)
        self.W_a = init.uniform((query_size, key_size), key_size, init.generator(rng), dtype)

    @scoped
    def project(self, keys: Any) -> Tensor:
        """W_a h_j for every position: (B, T, K) to (B, T, Q)."""
        keys = numbers(keys, self.W_a)
        check_width(f"{self._title()}: key", keys, self.W_a.shape[1])
        return linear(keys, self.W_a)

    def score(self, query: Any, projected: Any) -> Tensor:
        """s · (W_a h_j)."""
        check_width(f"{self._title()}: query", query, self.W_a.shape[0])
        check_width(f"{self._title()}: projected key", projected, self.W_a.shape[0])
        return dot_scores(query, projected)


class FixedContext(Attention):
    """No attention: the context is the value at the last position, whatever the query.

    The encoder-decoder of Cho et al. 2014, with the annotation h_T as the one summary of the source. The
    weights are one at the last position within the mask and zero elsewhere; the scores, which nothing
    computes, are zeros.
    """

    def forward(
        self, query: Any, keys: Any, values: Any = None, mask: Any = None, projected: Any = None
    ) -> Attended:
        """As `Attention.forward`; the query and the keys give the shapes alone."""
        query, keys, values, mask = self._checked(query, keys, values, mask)
        shape, steps = (*query.shape[:-1], keys.shape[1]), keys.shape[1]  # (B, T) or (B, N, T)
        taking_part = np.broadcast_to(True if mask is None else mask, shape)
        last = steps - 1 - np.argmax(taking_part[..., ::-1], axis=-1)
        one = (np.arange(steps) == last[..., None]) & taking_part
        alpha = expose(leaf(one.astype(values.dtype)), "α")
        context = expose(weighted_sum(alpha, values), "c")
        return Attended(context, alpha, expose(leaf(np.zeros(shape, values.dtype)), "e"))


def _tensor(x: Any, like: Tensor | None) -> Tensor:
    x = numbers(x, like)
    return x if isinstance(x, Tensor) else leaf(x)


ATTENTIONS = ("additive", "dot", "scaled", "general", "concat", "none")
"""The names that `make_attention` knows."""


def make_attention(
    name: str,
    query_size: int,
    key_size: int,
    attention_size: int,
    *,
    dtype: Any = np.float32,
    rng: np.random.Generator | None = None,
) -> Attention:
    """The attention called `name`, one of `ATTENTIONS`.

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
                f"attention '{name}': the decoder's state has {query_size} features and the annotations "
                f"{key_size}, expected the same; set encoder_hidden_size to half the hidden size, or use "
                "'general'"
            )
        return DotAttention() if name == "dot" else ScaledDotAttention()
    if name == "none":
        return FixedContext()
    raise ValueError(f"attention: '{name}' is not one of {', '.join(ATTENTIONS)}")
