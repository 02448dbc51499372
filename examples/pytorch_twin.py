"""A trained run in PyTorch: the weights load by their names, and both models write the same.

    python examples/pytorch_twin.py RUN [TEXT ...]

Needs PyTorch (`python -m pip install '.[oracle]'`). The twin is Bahdanau's model (additive attention, query
previous, linear output) with any of the three cells, in PyTorch's own modules. Its part names are ours, so
`load_state_dict` takes `model.safetensors` as it is.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

try:
    import torch
    from safetensors.torch import load_file
    from torch import Tensor, nn
except ModuleNotFoundError:
    sys.exit("torch is not installed; python -m pip install '.[oracle]'")

from tinygrad_attn import BOS, EOS, PAD, no_grad
from tinygrad_attn.errors import UserError
from tinygrad_attn.train.prediction import load_run

CELLS: dict[str, Any] = {"gru": nn.GRUCell, "lstm": nn.LSTMCell, "rnn": nn.RNNCell}


class AdditiveAttention(nn.Module):
    """e_j = v_aᵀ tanh(W_a s + U_a h_j), α = softmax(e), c = Σ_j α_j h_j."""

    def __init__(self, query: int, key: int, inner: int) -> None:
        super().__init__()
        self.W_a = nn.Parameter(torch.empty(inner, query))
        self.U_a = nn.Parameter(torch.empty(inner, key))
        self.v_a = nn.Parameter(torch.empty(inner))

    def forward(self, s: Tensor, h: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """s (B, H), h (B, T, V), mask (B, T): c (B, V) and α (B, T)."""
        e = torch.tanh((s @ self.W_a.T)[:, None] + h @ self.U_a.T) @ self.v_a  # (B, T)
        alpha = torch.softmax(e.masked_fill(~mask, -torch.inf), dim=1)
        return (alpha[:, None] @ h)[:, 0], alpha


class Encoder(nn.Module):
    """h_j = [→h_j ; ←h_j]; the state is held beyond each length."""

    def __init__(self, cell: str, inputs: int, hidden: int) -> None:
        super().__init__()
        self.forward_cell, self.backward_cell = (CELLS[cell](inputs, hidden) for _ in range(2))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x (B, T, E), mask (B, T): h (B, T, 2H)."""
        steps = range(x.shape[1])
        forward = self._run(self.forward_cell, x, mask, steps)
        return torch.cat([forward, self._run(self.backward_cell, x, mask, reversed(steps))], dim=2)

    def _run(self, cell: Any, x: Tensor, mask: Tensor, steps: Any) -> Tensor:
        state: Any = x.new_zeros(len(x), cell.hidden_size)
        state = (state, state) if isinstance(cell, nn.LSTMCell) else state
        found = {}
        for t in steps:
            new, here = cell(x[:, t], state), mask[:, t, None]
            if isinstance(state, tuple):
                state = tuple(torch.where(here, a, b) for a, b in zip(new, state, strict=True))
            else:
                state = torch.where(here, new, state)
            found[t] = torch.where(here, state[0] if isinstance(state, tuple) else state, 0)
        return torch.stack([found[t] for t in sorted(found)], dim=1)


class Decoder(nn.Module):
    """c_i = attention(s_{i-1}), s_i = cell([E y_{i-1}; c_i], s_{i-1}), logits from [s_i; c_i; E y_{i-1}]."""

    def __init__(self, cell: str, embedding: int, hidden: int, inner: int, words: int) -> None:
        super().__init__()
        memory = 2 * hidden
        self.initial = nn.Linear(hidden, hidden)
        self.attention = AdditiveAttention(hidden, memory, inner)
        self.cell = CELLS[cell](embedding + memory, hidden)
        self.output = nn.Linear(hidden + memory + embedding, words)

    def start(self, h: Tensor) -> Any:
        """s_0 = tanh(W_s ←h_1 + b)."""
        s = torch.tanh(self.initial(h[:, 0, h.shape[2] // 2 :]))
        return (s, torch.zeros_like(s)) if isinstance(self.cell, nn.LSTMCell) else s

    def step(self, word: Tensor, state: Any, h: Tensor, mask: Tensor) -> tuple[Tensor, Any]:
        """word (B, E): logits (B, words) and the new state."""
        c, _ = self.attention(state[0] if isinstance(state, tuple) else state, h, mask)
        state = self.cell(torch.cat([word, c], dim=1), state)
        s = state[0] if isinstance(state, tuple) else state
        return self.output(torch.cat([s, c, word], dim=1)), state


class Twin(nn.Module):
    """The whole model."""

    def __init__(self, source: int, target: int, settings: dict[str, Any]) -> None:
        super().__init__()
        cell, embedding, hidden = settings["cell"], settings["embedding"], settings["hidden"]
        self.source_embedding = nn.Embedding(source, embedding, padding_idx=PAD)
        self.target_embedding = nn.Embedding(target, embedding, padding_idx=PAD)
        self.encoder = Encoder(cell, embedding, hidden)
        self.decoder = Decoder(cell, embedding, hidden, settings["attention_size"] or hidden, target)

    def forward(self, source: Tensor, target_in: Tensor) -> Tensor:
        """Teacher forcing: logits (B, N, target)."""
        mask = source != PAD
        h = self.encoder(self.source_embedding(source), mask)
        state, logits = self.decoder.start(h), []
        for word in self.target_embedding(target_in).unbind(dim=1):
            logit, state = self.decoder.step(word, state, h, mask)
            logits.append(logit)
        return torch.stack(logits, dim=1)

    def greedy(self, source: Tensor, max_length: int) -> list[int]:
        """The likeliest word at each step, for one source; without EOS."""
        words = [BOS]
        while len(words) <= max_length and words[-1] != EOS:
            logits = self(source, torch.tensor([words]))[0, -1]
            logits[[PAD, BOS]] = -torch.inf
            words.append(int(logits.argmax()))
        return [word for word in words[1:] if word != EOS]


def load_twin(folder: Path) -> Twin:
    """The PyTorch twin of the model in a run folder, from its three files alone."""
    settings = json.loads((folder / "config.json").read_text("utf-8"))["model"]
    expected = {"attention": "additive", "query": "previous", "output_layer": "linear", "reset_after": True}
    for name, value in expected.items():
        if settings[name] != value:
            sys.exit(
                f"pytorch_twin: {folder} has {name} {settings[name]!r}; the twin is written for {value!r}"
            )
    vocabulary = json.loads((folder / "vocab.json").read_text("utf-8"))
    sizes = (
        len(vocabulary[side]["special"]) + len(vocabulary[side]["symbols"]) for side in ("source", "target")
    )
    twin = Twin(*sizes, settings)
    twin.load_state_dict(load_file(folder / "model.safetensors"))
    return twin.eval()


def main() -> int:
    """Compares the two models; 1 if they disagree."""
    parser = argparse.ArgumentParser(description="Load a trained run into PyTorch and compare the outputs.")
    parser.add_argument("run", type=Path, help="a run folder of `tinygrad-attn train`")
    parser.add_argument("texts", nargs="*", help="what to translate; random symbols if left out")
    arguments = parser.parse_args()

    try:
        predictor, text = load_run(arguments.run)
    except UserError as error:  # no run there, or a damaged one
        parser.error(str(error))
    model, source_side, target_side = (
        predictor.model,
        predictor.source_vocabulary,
        predictor.target_vocabulary,
    )
    twin = load_twin(arguments.run)
    rng = np.random.default_rng(0)
    sources = [text.split_source(line) for line in arguments.texts] or [
        tuple(source_side.decode(rng.integers(4, len(source_side), length))) for length in (2, 5, 8)
    ]

    # Teacher forcing, over a padded batch.
    batch = np.zeros((len(sources), max(map(len, sources))), np.int64)
    for row, source in zip(batch, sources, strict=True):
        row[: len(source)] = source_side.encode(source)
    target_in = np.concatenate(
        [np.full((len(batch), 1), BOS), rng.integers(3, len(target_side), (len(batch), 6))], axis=1
    )
    with torch.no_grad(), no_grad():
        theirs = twin(torch.from_numpy(batch), torch.from_numpy(target_in)).numpy()
        ours = model(batch, None, target_in).logits.data
    difference = float(np.abs(theirs - ours).max() / np.abs(ours).max())
    print(f"logits {ours.shape}: largest difference {difference:.1e} of the largest logit")

    # Free running.
    agree = difference < 1e-4
    for source in sources:
        with torch.no_grad():
            words = twin.greedy(torch.from_numpy(source_side.encode(source)[None]), 100)
        written, expected = target_side.decode(words), list(predictor.predict(source, max_length=100).tokens)
        agree &= list(written) == expected
        print(f"{' '.join(source)} → PyTorch: {' '.join(written)} | tinygrad_attn: {' '.join(expected)}")
    print("the outputs agree" if agree else "THE OUTPUTS DISAGREE")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
