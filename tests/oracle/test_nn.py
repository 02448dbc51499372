"""Modules and optimisers against PyTorch in float64, with the same weights: values and every gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinygrad_attn as ta
from tests.nn.support import MODELS, largest_error, make_batch
from tinygrad_attn.tokens import PAD

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra `oracle`)")

pytestmark = pytest.mark.oracle
RNG = np.random.default_rng
TOLERANCE = 1e-10  # relative to the largest entry
CELLS: dict[str, Any] = {"rnn": ta.nn.RNNCell, "gru": ta.nn.GRUCell, "lstm": ta.nn.LSTMCell}
both = pytest.mark.parametrize("explicit", [False, True], ids=["kernel", "definition"])


def mode(explicit: bool) -> Any:
    return ta.explicit() if explicit else ta.scope("plain")


def leaf(array: np.ndarray) -> Any:
    return torch.tensor(array, dtype=torch.float64, requires_grad=True)


def twin_of(cell: Any) -> Any:
    """PyTorch's cell, loaded from our state by its names."""
    kind = {"RNNCell": torch.nn.RNNCell, "GRUCell": torch.nn.GRUCell, "LSTMCell": torch.nn.LSTMCell}
    twin = kind[type(cell).__name__](cell.weight_ih.shape[1], cell.hidden_size, dtype=torch.float64)
    twin.load_state_dict({name: torch.tensor(array) for name, array in cell.state_dict().items()})
    return twin


def parts_of(state: Any) -> tuple[Any, ...]:
    return state if isinstance(state, tuple) else (state,)


def compare(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, array in found.items():
        right = (
            expected[name].detach().numpy() if isinstance(expected[name], torch.Tensor) else expected[name]
        )
        assert largest_error(array, right) < TOLERANCE, name


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize(("batch", "inputs", "hidden"), [(3, 4, 5), (1, 1, 1), (2, 7, 3)])
@both
def test_cells(kind: str, batch: int, inputs: int, hidden: int, explicit: bool) -> None:
    cell = CELLS[kind](inputs, hidden, dtype=np.float64, rng=RNG(0))
    twin, rng = twin_of(cell), RNG(1)
    x, *state = [rng.standard_normal((batch, n)) for n in (inputs, hidden, hidden)]
    upstream = [rng.standard_normal((batch, hidden)) for _ in range(2)]
    ours = [ta.Tensor(a, requires_grad=True) for a in (x, *state)]
    theirs = [leaf(a) for a in (x, *state)]
    with mode(explicit):
        new = parts_of(cell(ours[0], (ours[1], ours[2]) if kind == "lstm" else ours[1]))
    expected = parts_of(twin(theirs[0], (theirs[1], theirs[2]) if kind == "lstm" else theirs[1]))
    sum((part * g).sum() for part, g in zip(new, upstream, strict=False)).backward()
    sum((part * torch.tensor(g)).sum() for part, g in zip(expected, upstream, strict=False)).backward()
    used = slice(None) if kind == "lstm" else slice(2)
    compare(
        {f"new {i}": part.data for i, part in enumerate(new)}
        | {f"input {i}": t.grad for i, t in enumerate(ours[used])}
        | {name: p.grad for name, p in cell.named_parameters()},
        {f"new {i}": part for i, part in enumerate(expected)}
        | {f"input {i}": t.grad for i, t in enumerate(theirs[used])}
        | {name: p.grad for name, p in twin.named_parameters()},
    )


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("lengths", [[5, 3, 1, 4], [1], [2, 2], [6]])
@both
def test_encoder_over_padded_batches(kind: str, lengths: list[int], explicit: bool) -> None:
    """Against PyTorch's bidirectional layer over packed sequences."""
    inputs, hidden, rng = 3, 4, RNG(2)
    encoder = ta.nn.BidirectionalEncoder(inputs, hidden, kind, dtype=np.float64, rng=rng)
    layer = {"rnn": torch.nn.RNN, "gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[kind]
    twin = layer(inputs, hidden, batch_first=True, bidirectional=True, dtype=torch.float64)
    names = {}
    for direction, suffix in (("forward_cell", "_l0"), ("backward_cell", "_l0_reverse")):
        for weight in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            names[f"{direction}.{weight}"] = weight + suffix
    twin.load_state_dict({names[name]: torch.tensor(array) for name, array in encoder.state_dict().items()})
    x = rng.standard_normal((len(lengths), max(lengths), inputs))
    g, g_forward, g_backward = (
        rng.standard_normal(shape) for shape in ((*x.shape[:2], 2 * hidden), *[(len(lengths), hidden)] * 2)
    )
    ours, theirs = ta.Tensor(x, requires_grad=True), leaf(x)
    with mode(explicit):
        encoding = encoder(ours, lengths)
    loss = (encoding.annotations * g).sum() + (encoding.forward_state * g_forward).sum()
    (loss + (encoding.backward_state * g_backward).sum()).backward()
    packed = torch.nn.utils.rnn.pack_padded_sequence(theirs, lengths, batch_first=True, enforce_sorted=False)
    output, last = twin(packed)
    output, _ = torch.nn.utils.rnn.pad_packed_sequence(output, batch_first=True)
    last = last[0] if kind == "lstm" else last
    loss = (output * torch.tensor(g)).sum() + (last[0] * torch.tensor(g_forward)).sum()
    (loss + (last[1] * torch.tensor(g_backward)).sum()).backward()
    compare(
        {
            "annotations": encoding.annotations.data,
            "forward": encoding.forward_state.data,
            "backward": encoding.backward_state.data,
            "x": ours.grad,
        }
        | {names[name]: p.grad for name, p in encoder.named_parameters()},
        {"annotations": output, "forward": last[0], "backward": last[1], "x": theirs.grad}
        | {name: p.grad for name, p in twin.named_parameters()},
    )


# The whole model


class TorchSeq2Seq:
    """The model of the papers in PyTorch, on leaves with our names; written from the equations."""

    def __init__(self, model: ta.nn.Seq2Seq) -> None:
        self.p = {name: leaf(array) for name, array in model.state_dict().items()}
        self.decoder, self.attention = model.decoder, type(model.decoder.attention).__name__

    def linear(self, name: str, x: Any) -> Any:
        return torch.nn.functional.linear(x, self.p[f"{name}.weight"], self.p[f"{name}.bias"])

    def cell(self, name: str, module: Any, x: Any, state: Any) -> Any:
        kind = {"RNNCell": "rnn_tanh_cell", "GRUCell": "gru_cell", "LSTMCell": "lstm_cell"}[
            type(module).__name__
        ]
        weights = [self.p[f"{name}.{weight}"] for weight in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        if kind == "gru_cell" and not module.reset_after:
            return self.papers_gru(x, state, *weights)
        return getattr(torch, kind)(x, state, *weights)

    @staticmethod
    def papers_gru(x: Any, h: Any, w: Any, u: Any, b: Any, c: Any) -> Any:
        size = h.shape[1]
        from_x = (x @ w.T + b).split(size, dim=1)
        u_r, u_z, u_n = u.split(size)
        c_r, c_z, c_n = c.split(size)
        r, z = torch.sigmoid(from_x[0] + h @ u_r.T + c_r), torch.sigmoid(from_x[1] + h @ u_z.T + c_z)
        return (1 - z) * h + z * torch.tanh(from_x[2] + (r * h) @ u_n.T + c_n)

    def zeros(self, module: Any, batch: int) -> Any:
        zero = torch.zeros(batch, module.hidden_size, dtype=torch.float64)
        return (zero, zero) if type(module).__name__ == "LSTMCell" else zero

    def encode(self, model: Any, source: Any, lengths: Any) -> Any:
        """One sentence at a time, without its padding: h (T, 2H) each."""
        for row, length in zip(source, lengths, strict=True):
            x = self.p["source_embedding.weight"][torch.tensor(row[:length])][:, None]
            halves = []
            for name, order in (
                ("forward_cell", range(length)),
                ("backward_cell", range(length - 1, -1, -1)),
            ):
                module = getattr(model.encoder, name)
                state, found = self.zeros(module, 1), {}
                for t in order:
                    state = self.cell(f"encoder.{name}", module, x[t], state)
                    found[t] = parts_of(state)[0]
                halves.append(torch.cat([found[t] for t in range(length)]))
            yield torch.cat(halves, dim=1)

    def attend(self, s: Any, h: Any) -> Any:
        """The context (1, V) and the weights (T,) for s (1, H) and h (T, V)."""
        a = "decoder.attention."
        if self.attention == "AdditiveAttention":
            e = torch.tanh(s @ self.p[a + "W_a"].T + h @ self.p[a + "U_a"].T) @ self.p[a + "v_a"]
        elif self.attention == "ConcatAttention":
            joined = torch.cat([s.expand(len(h), -1), h], dim=1)
            e = torch.tanh(joined @ self.p[a + "W_a"].T) @ self.p[a + "v_a"]
        elif self.attention == "GeneralAttention":
            e = (s @ self.p[a + "W_a"] @ h.T)[0]
        elif self.attention == "FixedContext":
            return h[-1:], None
        else:
            e = (h @ s.T)[:, 0] / (s.shape[1] ** 0.5 if self.attention == "ScaledDotAttention" else 1)
        alpha = torch.softmax(e, dim=0)
        return alpha[None] @ h, alpha

    def loss(self, model: Any, batch: Any) -> Any:
        decoder, total, count = self.decoder, 0.0, 0
        encoded = self.encode(model, batch.source, batch.lengths)
        for h, words, targets in zip(encoded, batch.target_in, batch.target_out, strict=True):
            s = torch.tanh(self.linear("decoder.initial", h[:1, h.shape[1] // 2 :]))
            state = (s, torch.zeros_like(s)) if type(decoder.cell).__name__ == "LSTMCell" else s
            attentional = torch.zeros_like(s)
            for word, target in zip(words, targets, strict=True):
                if target == PAD:
                    continue
                y = self.p["target_embedding.weight"][torch.tensor([word])]
                if decoder.query == "previous":
                    c, _ = self.attend(parts_of(state)[0], h)
                    state = self.cell("decoder.cell", decoder.cell, torch.cat([y, c], dim=1), state)
                    read = torch.cat([parts_of(state)[0], c, y], dim=1)
                    if decoder.deep is not None:
                        deep = self.linear("decoder.deep", read)
                        read = torch.maximum(deep[:, 0::2], deep[:, 1::2])
                else:
                    entering = torch.cat([y, attentional], dim=1) if decoder.input_feeding else y
                    state = self.cell("decoder.cell", decoder.cell, entering, state)
                    c, _ = self.attend(parts_of(state)[0], h)
                    read = attentional = torch.tanh(
                        self.linear("decoder.combine", torch.cat([c, parts_of(state)[0]], dim=1))
                    )
                logits = self.linear("decoder.output", read)
                total = total + torch.nn.functional.cross_entropy(
                    logits, torch.tensor([target]), reduction="sum"
                )
                count += 1
        return total / count


@pytest.mark.parametrize("name", MODELS)
@both
def test_whole_models(name: str, explicit: bool) -> None:
    options = {"embedding_size": 3, "hidden_size": 4, "attention_size": 5} | MODELS[name]
    model = ta.nn.Seq2Seq(9, 8, dtype=np.float64, rng=RNG(0), **options)
    batch = make_batch([5, 2, 3, 1], [3, 4, 1, 2])
    twin = TorchSeq2Seq(model)
    with mode(explicit):
        loss = model.loss(batch)
    loss.backward()
    expected = twin.loss(model, batch)
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=TOLERANCE)
    for parameter, p in model.named_parameters():
        if p.grad is None:
            assert twin.p[parameter].grad is None
        else:
            right = twin.p[parameter].grad.numpy()
            if parameter.endswith("embedding.weight"):
                right[PAD] = 0  # as padding_idx does
            assert largest_error(p.grad, right) < TOLERANCE, parameter


# Optimisers


OPTIMISERS: dict[str, tuple[Any, Any]] = {
    "sgd": (lambda p: ta.optim.SGD(p, 0.1), lambda p: torch.optim.SGD(p, 0.1)),
    "momentum": (lambda p: ta.optim.SGD(p, 0.05, 0.9), lambda p: torch.optim.SGD(p, 0.05, momentum=0.9)),
    "adam": (lambda p: ta.optim.Adam(p), lambda p: torch.optim.Adam(p)),
    "adam, other settings": (
        lambda p: ta.optim.Adam(p, 0.02, (0.8, 0.95), 1e-4),
        lambda p: torch.optim.Adam(p, 0.02, (0.8, 0.95), 1e-4),
    ),
    "adadelta": (lambda p: ta.optim.Adadelta(p), lambda p: torch.optim.Adadelta(p, rho=0.95)),
    "adadelta, other settings": (
        lambda p: ta.optim.Adadelta(p, 0.5, 0.9, 1e-4),
        lambda p: torch.optim.Adadelta(p, 0.5, 0.9, 1e-4),
    ),
    "adamw": (lambda p: ta.optim.AdamW(p), lambda p: torch.optim.AdamW(p)),
    "adamw, other settings": (
        lambda p: ta.optim.AdamW(p, 0.02, (0.8, 0.95), 1e-4, 0.3),
        lambda p: torch.optim.AdamW(p, 0.02, (0.8, 0.95), 1e-4, 0.3),
    ),
    "momentum and decay": (
        lambda p: ta.optim.SGD(p, 0.05, 0.9, weight_decay=0.2),
        lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, weight_decay=0.2),
    ),
    "adam and decay": (
        lambda p: ta.optim.Adam(p, weight_decay=0.2),
        lambda p: torch.optim.Adam(p, weight_decay=0.2),
    ),
    "adadelta and decay": (
        lambda p: ta.optim.Adadelta(p, weight_decay=0.2),
        lambda p: torch.optim.Adadelta(p, rho=0.95, weight_decay=0.2),
    ),
}


@pytest.mark.parametrize("name", OPTIMISERS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_optimisers_over_fifty_steps(name: str, dtype: Any) -> None:
    """Random gradients, some parameters without one in some steps, clipped by the global norm."""
    rng, shapes = RNG(0), [(3, 4), (4,), (2, 3), ()]
    arrays = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    ours = [ta.Tensor(array, requires_grad=True) for array in arrays]
    theirs = [torch.tensor(array, requires_grad=True) for array in arrays]
    optimiser, expected = (make(p) for make, p in zip(OPTIMISERS[name], (ours, theirs), strict=True))
    tolerance = 1e-12 if dtype == np.float64 else 2e-5
    for step in range(50):
        for a, b in zip(ours, theirs, strict=True):
            gradient = (rng.standard_normal(a.shape) * 10 ** rng.uniform(-2, 1)).astype(dtype)
            here = step == 0 or rng.random() < 0.8
            a.grad, b.grad = (gradient.copy(), torch.tensor(gradient)) if here else (None, None)
        norm = ta.optim.clip_grad_norm(ours, 2.0)
        assert norm == pytest.approx(
            float(torch.nn.utils.clip_grad_norm_(theirs, 2.0)), rel=max(tolerance, 1e-12)
        )
        optimiser.step()
        expected.step()
        for a, b in zip(ours, theirs, strict=True):
            assert largest_error(a.data, b.detach().numpy()) < tolerance, step
