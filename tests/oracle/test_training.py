"""Two hundred steps of training: the losses are those of the definitions, and of PyTorch, step by step."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn.data import Task

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra `oracle`)")
pytest.importorskip("safetensors")

pytestmark = pytest.mark.oracle

torch.set_num_threads(1)  # products this small lose by more

STEPS, BATCH, SIZES = 200, 16, (6, 12)


def make_model(cell: str, dtype: Any) -> ta.nn.Seq2Seq:
    return ta.nn.Seq2Seq(14, 14, *SIZES, cell=cell, dtype=dtype, rng=np.random.default_rng(0))


def batches() -> list[Any]:
    task = Task("reverse", seed=1)
    return [task.train_batch(step, BATCH) for step in range(STEPS)]


def losses_of(model: ta.nn.Seq2Seq, loss_of: Callable[[Any], Any]) -> np.ndarray:
    optimiser = ta.optim.Adam(model.named_parameters(), lr=3e-3)
    losses = []
    for batch in batches():
        optimiser.zero_grad()
        loss = loss_of(batch)
        loss.backward()
        ta.optim.clip_grad_norm(model.parameters(), 1.0)
        optimiser.step()
        losses.append(loss.item())
    return np.array(losses)


def losses_in_pytorch(example: ModuleType, model: ta.nn.Seq2Seq, cell: str) -> np.ndarray:
    settings = {"cell": cell, "embedding": SIZES[0], "hidden": SIZES[1], "attention_size": None}
    twin = example.Twin(14, 14, settings)
    twin = twin.double() if model.decoder.output.weight.dtype == np.float64 else twin
    twin.load_state_dict({name: torch.from_numpy(array) for name, array in model.state_dict().items()})
    optimiser = torch.optim.Adam(twin.parameters(), lr=3e-3)
    losses = []
    for batch in batches():
        optimiser.zero_grad()
        logits = twin(torch.from_numpy(batch.source), torch.from_numpy(batch.target_in))
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), torch.from_numpy(batch.target_out).flatten(), ignore_index=ta.PAD
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(twin.parameters(), 1.0)
        optimiser.step()
        losses.append(float(loss.detach()))
    return np.array(losses)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(np.float64, 1e-8), (np.float32, 1e-3)], ids=["float64", "float32"]
)
@pytest.mark.parametrize("cell", ["gru", "lstm", "rnn"])
def test_losses_over_two_hundred_steps(example: ModuleType, cell: str, dtype: Any, tolerance: float) -> None:
    model = make_model(cell, dtype)
    expected = losses_in_pytorch(example, model, cell)
    found = losses_of(model, model.loss)
    assert found[-1] < 0.9 * found[0]
    np.testing.assert_allclose(found, expected, rtol=tolerance)
