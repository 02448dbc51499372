"""A trained run loads into PyTorch by the names of its weights, and both models write the same."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import tinygrad_attn as ta
from tinygrad_attn.tokens import SPECIAL_TOKENS

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra `oracle`)")
safetensors = pytest.importorskip("safetensors.numpy")

pytestmark = pytest.mark.oracle

DIGITS = [str(digit) for digit in range(10)]


def by_hand(folder: Path, cell: str) -> ta.nn.Seq2Seq:
    """What the twin reads of a run folder, with float64 weights."""
    settings = {"attention": "additive", "query": "previous", "output_layer": "linear", "reset_after": True}
    sizes = {"cell": cell, "embedding": 3, "hidden": 4, "attention_size": 5}
    (folder / "config.json").write_text(json.dumps({"model": settings | sizes}), "utf-8")
    side = {"special": list(SPECIAL_TOKENS), "symbols": DIGITS}
    (folder / "vocab.json").write_text(json.dumps({"source": side, "target": side}), "utf-8")
    model = ta.nn.Seq2Seq(
        14, 14, 3, 4, cell=cell, attention_size=5, dtype=np.float64, rng=np.random.default_rng(0)
    )
    safetensors.save_file(model.state_dict(), folder / "model.safetensors")
    return model


@pytest.mark.parametrize("cell", ["gru", "lstm", "rnn"])
def test_a_folder_made_by_hand(example: ModuleType, tmp_path: Path, cell: str) -> None:
    model = by_hand(tmp_path, cell)
    twin = example.load_twin(tmp_path).double()
    twin.load_state_dict({name: torch.from_numpy(array) for name, array in model.state_dict().items()})
    source = np.array([[4, 5, 6, 7], [8, 9, 0, 0]])
    target_in = np.array([[1, 5, 6], [1, 7, 4]])
    with torch.no_grad():
        expected = twin(torch.from_numpy(source), torch.from_numpy(target_in)).numpy()
    found = model(source, None, target_in).logits.data
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13)


def test_another_model_is_refused(example: ModuleType, tmp_path: Path) -> None:
    by_hand(tmp_path, "gru")
    config = json.loads((tmp_path / "config.json").read_text("utf-8"))
    config["model"]["attention"] = "general"
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    with pytest.raises(SystemExit, match="has attention 'general'; the twin is written for 'additive'"):
        example.load_twin(tmp_path)


@pytest.mark.parametrize("texts", [[], ["1 2 3", "7"]])
def test_the_example_on_a_trained_run(
    example: ModuleType,
    tmp_path: Path,
    texts: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from tinygrad_attn.cli import main

    run = tmp_path / "run"
    sizes = ["--embedding", "8", "--hidden", "12", "--steps", "20", "--seed", "0"]
    assert main(["train", "reverse", *sizes, "--out", str(run)]) == 0
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["pytorch_twin.py", str(run), *texts])
    assert example.main() == 0
    printed = capsys.readouterr().out
    assert "logits" in printed and printed.endswith("the outputs agree\n")
    assert all(f"{text} → PyTorch: " in printed for text in texts)
