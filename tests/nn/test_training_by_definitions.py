"""Kernels and definitions train alike: the losses over two hundred steps are the same to rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn.data import Task


def losses(dtype: Any, explicit: bool) -> np.ndarray:
    model = ta.nn.Seq2Seq(14, 14, 4, 8, dtype=dtype, rng=np.random.default_rng(0))
    optimiser = ta.optim.Adam(model.named_parameters(), lr=3e-3)
    task = Task("reverse", max_length=4, seed=1)
    found = []
    for step in range(200):
        optimiser.zero_grad()
        if explicit:
            with ta.explicit():
                loss = model.loss(task.train_batch(step, 4))
        else:
            loss = model.loss(task.train_batch(step, 4))
        loss.backward()
        ta.optim.clip_grad_norm(model.parameters(), 1.0)
        optimiser.step()
        found.append(loss.item())
    return np.array(found)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(np.float64, 1e-9), (np.float32, 1e-4)], ids=["float64", "float32"]
)
def test_losses_over_two_hundred_steps(dtype: Any, tolerance: float) -> None:
    np.testing.assert_allclose(losses(dtype, False), losses(dtype, True), rtol=tolerance)
