"""Initial values as in Bahdanau et al. 2015, appendix B.1."""

from __future__ import annotations

import numpy as np

from tinygrad_attn.nn import init
from tinygrad_attn.nn.layers import Embedding
from tinygrad_attn.nn.module import Module


def orthogonal(size: int, rng: np.random.Generator) -> np.ndarray:
    """A random orthogonal matrix, uniform over all: the Q of a normal matrix, R's diagonal made positive."""
    q, r = np.linalg.qr(rng.standard_normal((size, size)))
    return np.asarray(q * np.sign(np.diagonal(r)))


def initialise_as_paper(model: Module, rng: np.random.Generator) -> None:
    """Sets the parameters of `model` as Bahdanau et al. 2015, B.1 did.

    Recurrent matrices are random orthogonal (each gate its own), W_a and U_a normal with deviation 0.001, v_a
    and biases zero, everything else normal with deviation 0.01. A padding row of an embedding stays zero.
    """
    rng = init.generator(rng)
    for name, weight in model.named_parameters():
        last = name.rpartition(".")[2]
        if last == "weight_hh":
            size = weight.shape[1]
            values = np.concatenate([orthogonal(size, rng) for _ in range(weight.shape[0] // size)])
        elif last == "v_a" or last.startswith("bias"):
            values = np.zeros(weight.shape)
        else:
            values = rng.normal(0, 0.001 if last in ("W_a", "U_a") else 0.01, weight.shape)
        np.copyto(weight.data, values, casting="same_kind")
        weight.note_written()
    for module in model.modules():
        if isinstance(module, Embedding) and module.padding_index is not None:
            module.weight.data[module.padding_index] = 0
