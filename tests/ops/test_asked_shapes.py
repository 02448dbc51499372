"""The recurrent operations refuse arrays that numpy would broadcast, by the kernel and as defined alike."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn.ops.recurrent import gru_cell, lstm_cell
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
    return gru_cell(*arrays({"x": (B, E), "h": (B, H), **CELL}, **changed))


def memory_cell(**changed: tuple[int, ...]) -> Any:
    shapes = {name: (4 * H, *shape[1:]) for name, shape in CELL.items()}
    return lstm_cell(*arrays({"x": (B, E), "h": (B, H), "c": (B, H), **shapes}, **changed))


def encoder(
    x: tuple[int, ...] = (B, T, E), mask: tuple[int, ...] = (B, T), **changed: tuple[int, ...]
) -> Any:
    weights = [*arrays(CELL), *arrays(CELL, **changed)]
    return bidirectional(np.ones(x), np.ones(mask, bool), *weights, cell="gru")


def decoder(**changed: tuple[int, ...]) -> Any:
    return bahdanau_decoder(*arrays(DECODER, **changed), cell="gru")


WEIGHTS = [("w_ih", (1, E)), ("w_hh", (1, H)), ("w_hh", (H, H)), ("b_ih", (1,)), ("b_hh", (1,))]
CASES = [
    *[
        (cell, name, shape)
        for name, shape in [*WEIGHTS, ("x", (E,)), ("h", (1, H)), ("h", (B, H, 1)), ("h", ())]
    ],
    *[(memory_cell, name, shape) for name, shape in [*WEIGHTS, ("h", (1, H)), ("c", (1, H)), ("c", (H,))]],
    *[(encoder, "x", shape) for shape in [(T, E), (E,), ()]],
    *[(encoder, name, shape) for name, shape in [*WEIGHTS, ("mask", (1, T)), ("mask", (B, 1))]],
    *[(decoder, name, shape) for name, shape in [("w_ih", (1, E + V)), *WEIGHTS[1:]]],
    *[
        (decoder, name, shape)
        for name, shape in [
            ("words", (N, E)),
            ("initial", (1, H)),
            ("initial", (H,)),
            ("initial", ()),
            ("annotations", (T, V)),
            ("v_a", (A, 1)),
            ("v_a", ()),
            ("w_hh", ()),
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


@pytest.mark.parametrize(("operation", "name", "shape"), CASES)
def test_so_do_the_definitions(operation: Callable[..., Any], name: str, shape: tuple[int, ...]) -> None:
    with ta.explicit():
        operation()
        with pytest.raises(ValueError, match=f"{name} has shape"):
            operation(**{name: shape})


def test_both_directions_have_one_size() -> None:
    smaller = {"w_ih": (3, E), "w_hh": (3, 1), "b_ih": (3,), "b_hh": (3,)}
    with pytest.raises(ValueError, match=r"w_hh has shape \(3, 1\), expected \(21, 7\)"):
        encoder(**smaller)


@pytest.mark.parametrize("explicit", [False, True], ids=["kernel", "definition"])
def test_sequences_without_steps_are_refused(explicit: bool) -> None:
    with ta.explicit() if explicit else ta.scope("kernel"):
        with pytest.raises(ValueError, match="x has no steps"):
            encoder(x=(B, 0, E), mask=(B, 0))
        with pytest.raises(ValueError, match="words has no steps"):
            decoder(words=(B, 0, E))
        with pytest.raises(ValueError, match="annotations has no steps"):
            decoder(annotations=(B, 0, V))


@pytest.mark.parametrize("explicit", [False, True], ids=["kernel", "definition"])
def test_masks_are_booleans_and_numbers_are_floating(explicit: bool) -> None:
    given = arrays(DECODER)
    with ta.explicit() if explicit else ta.scope("kernel"):
        for place, name in enumerate(DECODER):
            changed = [*given]
            changed[place] = given[place].astype(np.int64)
            wanted = "booleans" if name == "mask" else "floating numbers"
            with pytest.raises(TypeError, match=f"{name} has dtype int64, expected {wanted}"):
                bahdanau_decoder(*changed, cell="gru")
        with pytest.raises(TypeError, match="mask has dtype uint8, expected booleans"):
            bidirectional(np.ones((B, T, E)), np.ones((B, T), np.uint8), *arrays(CELL) * 2, cell="gru")
        with pytest.raises(TypeError, match="x has dtype int64, expected floating numbers"):
            gru_cell(np.ones((B, E), np.int64), np.ones((B, H)), *arrays(CELL))


def test_an_attention_of_no_width_has_gradients() -> None:
    """All scores are zero, and all weights alike."""
    shapes = {**DECODER, "keys": (B, T, 0), "w_a": (0, H), "v_a": (0,)}
    del shapes["mask"]
    found = []
    for explicit in (False, True):
        leaves = {name: ta.Tensor(np.ones(shape), requires_grad=True) for name, shape in shapes.items()}
        inputs = [*leaves.values()]
        with ta.explicit() if explicit else ta.scope("kernel"):
            bahdanau_decoder(*inputs[:4], None, *inputs[4:], cell="gru").sum().backward()
        found.append([np.asarray(leaf.grad) for leaf in inputs])
    for kernel, defined in zip(*found, strict=True):
        np.testing.assert_allclose(kernel, defined, atol=1e-12)
