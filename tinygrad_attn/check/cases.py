"""What `suite` checks: the samples of operations, and a small model of each kind."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from tinygrad_attn.check.gradcheck import gradcheck
from tinygrad_attn.check.problem import behind
from tinygrad_attn.check.report import GradcheckReport
from tinygrad_attn.check.samples import samples
from tinygrad_attn.engine import Fused, Tensor, explicit

TOLERANCE = 1e-12
_B, _T = 2, 3  # batch and source steps of the models
_SIZES = {"input_size": 2, "hidden_size": 4, "query_size": 4, "key_size": 4, "attention_size": 3}
_LARGE = 60  # where the inputs of a sample have more entries, some of each input are looked at one by one,
_SAMPLED = 4  # this many, and all of them along one direction


@dataclass(frozen=True)
class Case:
    """A function to check.

    Attributes:
        name: cases of one name share a row of the table.
        way: "rules" for primitives, "kernel" and "definition" for fused operations and models.
        fn: as for `gradcheck`.
        inputs: as for `gradcheck`.
        method: as for `gradcheck`.
        order: as for `gradcheck`.
        entries: as for `gradcheck`.
    """

    name: str
    way: str
    fn: Callable[..., Any]
    inputs: list[Any]
    method: Any = "complex"
    order: int = 2
    entries: int | None = None

    def report(self, seed: int) -> GradcheckReport:
        """The check."""
        with explicit() if self.way == "definition" else nullcontext():
            return gradcheck(
                self.fn,
                self.inputs,
                method=self.method,
                order=self.order,
                rtol=TOLERANCE if self.method == "complex" else None,
                entries=self.entries,
                rng=seed,
                raise_exception=False,
            )


def operation_cases(seed: int = 0) -> Iterator[Case]:
    """The samples; those that run a kernel a second time by its definition."""
    for sample in samples():
        inputs = list(sample.inputs(np.random.default_rng(seed)))
        method = "complex" if sample.analytic else "central"
        output = sample.fn(*(Tensor(x, requires_grad=True) for x in inputs))
        runs_kernel = any(isinstance(node._primitive, Fused) for node in behind([output]))
        sampled = _SAMPLED if sum(x.size for x in inputs) > _LARGE else None
        for way in ("kernel", "definition") if runs_kernel else ("rules",):
            yield Case(sample.operation, way, sample.fn, inputs, method, entries=sampled)


def model_cases(nn: ModuleType, seed: int = 0) -> Iterator[Case]:
    """A small model for every cell, encoder, attention and kind of `Seq2Seq`, by kernels and by definitions.

    The first order is looked at in full. The second is the same by both, since it goes by the definitions: it
    is looked at once.
    """
    for case in (*_cells(nn, seed), *_encoders(nn, seed), *_attentions(nn, seed), *_whole_models(nn, seed)):
        yield replace(case, way="kernel", order=1)
        yield replace(case, way="kernel", order=2, entries=2)
        yield replace(case, way="definition", order=1)


def _cells(nn: ModuleType, seed: int) -> Iterator[Case]:
    rng = np.random.default_rng(seed)
    for name, cell in (
        ("RNNCell", _built(nn.RNNCell, rng)),
        ("GRUCell", _built(nn.GRUCell, rng)),
        ("GRUCell, reset before", _built(nn.GRUCell, rng, reset_after=False)),
        ("LSTMCell", _built(nn.LSTMCell, rng)),
    ):
        x, h, c = (
            rng.standard_normal((_B, _SIZES[size])) for size in ("input_size", "hidden_size", "hidden_size")
        )
        if isinstance(cell.zero_state(_B), tuple):
            yield Case(name, "", lambda cell, x, h, c: cell(x, (h, c)), [cell, x, h, c])
        else:
            yield Case(name, "", lambda cell, x, h: cell(x, h), [cell, x, h])


def _encoders(nn: ModuleType, seed: int) -> Iterator[Case]:
    rng = np.random.default_rng(seed)
    for kind in nn.cells.CELLS:
        encoder = _built(nn.BidirectionalEncoder, rng, cell=kind)
        x, lengths = rng.standard_normal((_B, _T, _SIZES["input_size"])), np.array([_T, _T - 1])
        yield Case(
            f"BidirectionalEncoder, {kind}",
            "",
            lambda e, x, lengths: e(x, lengths),
            [encoder, x, lengths],
        )


def _attentions(nn: ModuleType, seed: int) -> Iterator[Case]:
    rng = np.random.default_rng(seed)
    kinds = [kind for kind in vars(nn).values() if isinstance(kind, type) and issubclass(kind, nn.Attention)]
    mask = np.array([[True] * _T, [True] * (_T - 1) + [False]])
    for kind in dict.fromkeys(kinds):
        if kind is not nn.Attention:
            query, keys = rng.standard_normal((_B, 4)), rng.standard_normal((_B, _T, 4))
            values = rng.standard_normal((_B, _T, 2))
            yield Case(
                kind.__name__,
                "",
                lambda attention, query, keys, values, mask: attention(query, keys, values, mask),
                [_built(kind, rng), query, keys, values, mask],
            )


def _whole_models(nn: ModuleType, seed: int) -> Iterator[Case]:
    rng = np.random.default_rng(seed)
    batch = SimpleNamespace(  # ids from 4 on are words; 0 is padding, 1 and 2 begin and end
        source=np.array([[4, 5, 6], [6, 4, 0]]),
        lengths=np.array([_T, _T - 1]),
        target_in=np.array([[1, 5], [1, 4]]),
        target_out=np.array([[5, 2], [2, 0]]),
    )
    for attention, cell, query in (
        *((attention, "gru", "previous") for attention in nn.attention.ATTENTIONS),
        ("additive", "rnn", "previous"),
        ("additive", "lstm", "previous"),
        ("additive", "gru", "current"),
    ):
        model = nn.Seq2Seq(
            7,
            7,
            embedding_size=3,
            hidden_size=2,
            attention=attention,
            cell=cell,
            query=query,
            encoder_hidden_size=1,
            dtype=np.float64,
            rng=rng,
        )
        name = f"Seq2Seq, {attention}, {cell}, {query} state"
        yield Case(name, "", lambda model, batch: model.loss(batch), [model, batch])


def _built(kind: type, rng: np.random.Generator, **settings: Any) -> Any:
    """A module, with the sizes its constructor asks for."""
    wanted = _arguments(kind)
    sizes = {name: size for name, size in _SIZES.items() if name in wanted}
    options = {name: value for name, value in (("dtype", np.float64), ("rng", rng)) if name in wanted}
    return kind(**sizes, **options, **settings)


def _arguments(kind: type) -> Iterable[str]:
    return inspect.signature(kind).parameters
