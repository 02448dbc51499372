"""The recurrent operations refuse arrays that numpy would broadcast, by the kernel and as defined alike."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn.ops.recurrent import gru_cell
from tinygrad_attn.ops.sequence import bidirectional
from tinygrad_attn.ops.unrolled import bahdanau_decoder

B, N, T, E, V, H, A = 2, 3, 4, 5, 6, 7, 8

CELL = {"w_ih": (3 * H, E), "w_hh": (3 * H, H), "b_ih": (3 * H,), "b_hh": (3 * H,)}
DECODER = {
    "words": (B, N, E),
    "initial": (B, H),
    "annotations": (B, T, V),
    "keys": (B, T, A),
    "mask": (B, T),
    "w_a": (A, H),
    "v_a": (A,),
    **CELL,
    "w_ih": (3 * H, E + V),
}


def arrays(shapes: dict[str, tuple[int, ...]], **changed: tuple[int, ...]) -> list[Any]:
    return [
        np.ones(shape, bool) if name == "mask" else np.ones(shape)
        for name, shape in {**shapes, **changed}.items()
    ]


def cell(**changed: tuple[int, ...]) -> Any:
    return gru_cell(np.ones((B, E)), np.ones((B, H)), *arrays(CELL, **changed))


def encoder(mask: tuple[int, ...] = (B, T), **changed: tuple[int, ...]) -> Any:
    weights = [*arrays(CELL), *arrays(CELL, **changed)]
    return bidirectional(np.ones((B, T, E)), np.ones(mask, bool), *weights, cell="gru")


def decoder(**changed: tuple[int, ...]) -> Any:
    return bahdanau_decoder(*arrays(DECODER, **changed), cell="gru")


WEIGHTS = [("w_ih", (1, E)), ("w_hh", (1, H)), ("w_hh", (H, H)), ("b_ih", (1,)), ("b_hh", (1,))]
CASES = [
    *[(cell, name, shape) for name, shape in WEIGHTS],
    *[(encoder, name, shape) for name, shape in [*WEIGHTS, ("mask", (1, T)), ("mask", (B, 1))]],
    *[(decoder, name, shape) for name, shape in [("w_ih", (1, E + V)), *WEIGHTS[1:]]],
    *[
        (decoder, name, shape)
        for name, shape in [
            ("initial", (1, H)),
            ("annotations", (1, T, V)),
            ("keys", (1, T, A)),
            ("keys", (B, 1, A)),
            ("mask", (1, T)),
            ("mask", (B, 1)),
            ("w_a", (1, H)),
        ]
    ],
]


@pytest.mark.parametrize(("operation", "name", "shape"), CASES)
def test_kernels_refuse_what_would_be_broadcast(
    operation: Callable[..., Any], name: str, shape: tuple[int, ...]
) -> None:
    operation()
    with pytest.raises(ValueError, match=re.escape(f"{name} has shape {shape}, expected")):
        operation(**{name: shape})


@pytest.mark.parametrize(("operation", "name", "shape"), [case for case in CASES if case[0] is not cell])
def test_so_do_the_definitions(operation: Callable[..., Any], name: str, shape: tuple[int, ...]) -> None:
    with ta.explicit():
        operation()
        with pytest.raises(ValueError, match=f"{name} has shape"):
            operation(**{name: shape})


def test_both_directions_have_one_size() -> None:
    smaller = {"w_ih": (3, E), "w_hh": (3, 1), "b_ih": (3,), "b_hh": (3,)}
    with pytest.raises(ValueError, match=r"w_hh has shape \(3, 1\), expected \(21, 7\)"):
        encoder(**smaller)
