"""The workloads of `tinygrad-attn bench`, as a user of another library would write them.

    python benchmarks/peers.py step torch|torch-compile|jax --size S|M|L [--seconds 3] [--threads 2]
    python benchmarks/peers.py ops torch|autograd|mygrad|numpy
    python benchmarks/peers.py decode torch|jax --size S
    python benchmarks/peers.py memory torch|torch-compile|jax --size L

Each prints JSON lines with the keys of `tinygrad-attn bench WHAT --json`. The model is Bahdanau's:
embeddings, a bidirectional GRU, s_0 from the backward state, additive scores with the keys projected once, a
GRU decoder on [word; context], an output layer on [state; context; word]; then mean cross-entropy, clipping
to norm 1, Adam 1e-3. Among the single operations `numpy` is what is left where nothing is recorded: each
forward and then backward by hand, in as few passes as numpy takes.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from measuring import above_zero, at_least_one, need

from tinygrad_attn.bench import SIZES, Size
from tinygrad_attn.bench.decode import BEAM, SEQUENCES
from tinygrad_attn.bench.operations import CHAIN, SHAPE
from tinygrad_attn.bench.timing import time_calls
from tinygrad_attn.bench.workload import make_batch
from tinygrad_attn.tokens import BOS, EOS, PAD, UNK

CONTENDERS = {
    "step": ("torch", "torch-compile", "jax"),
    "ops": ("torch", "autograd", "mygrad", "numpy"),
    "decode": ("torch", "jax"),
    "memory": ("torch", "torch-compile", "jax"),
}
"""What is written here, and in which libraries."""


def check_contenders(parser: argparse.ArgumentParser, what: str, contenders: Iterable[str]) -> None:
    """The end, in one line, for one in which `what` is not written."""
    for contender in contenders:
        if contender not in CONTENDERS[what]:
            parser.error(f"{what} is there for {', '.join(CONTENDERS[what])}; not for {contender}")


def torch_model(size: Size) -> Any:
    """The model in PyTorch."""
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            words, hidden = size.embedding, size.hidden
            self.source = nn.Embedding(size.vocabulary, words, padding_idx=PAD)
            self.target = nn.Embedding(size.vocabulary, words, padding_idx=PAD)
            self.encoder = nn.GRU(words, hidden, bidirectional=True, batch_first=True)
            self.initial = nn.Linear(hidden, hidden)
            self.query = nn.Linear(hidden, hidden, bias=False)
            self.keys = nn.Linear(2 * hidden, hidden, bias=False)
            self.score = nn.Linear(hidden, 1, bias=False)
            self.cell = nn.GRUCell(words + 2 * hidden, hidden)
            self.output = nn.Linear(3 * hidden + words, size.vocabulary)

        def read(self, source: Any) -> tuple[Any, Any, Any]:
            h, _ = self.encoder(self.source(source))
            return h, self.keys(h), torch.tanh(self.initial(h[:, 0, size.hidden :]))

        def step(self, word: Any, s: Any, h: Any, keys: Any) -> tuple[Any, Any]:
            scores = self.score(torch.tanh(self.query(s)[:, None] + keys))[..., 0]
            context = torch.bmm(torch.softmax(scores, -1)[:, None], h)[:, 0]
            s = self.cell(torch.cat([word, context], -1), s)
            return s, self.output(torch.cat([s, context, word], -1))

        def forward(self, source: Any, target_in: Any) -> Any:
            h, keys, s = self.read(source)
            words, logits = self.target(target_in), []
            for i in range(target_in.shape[1]):
                s, at_i = self.step(words[:, i], s, h, keys)
                logits.append(at_i)
            return torch.stack(logits, 1)

    torch.manual_seed(0)
    return Model()


def torch_step(size: Size, compiled: bool) -> Callable[[], float]:
    """A training step in PyTorch, eager or compiled."""
    import torch
    from torch.nn import functional

    model = torch_model(size)
    run = torch.compile(model) if compiled else model
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    batch = make_batch(size)
    source, target_in, target_out = (
        torch.tensor(array) for array in (batch.source, batch.target_in, batch.target_out)
    )

    def take() -> float:
        optimizer.zero_grad()
        loss = functional.cross_entropy(run(source, target_in).flatten(0, 1), target_out.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return take


def jax_model(size: Size) -> tuple[Any, Callable[..., Any], Callable[..., Any]]:
    """Parameters, `read(p, source)` and `step(p, word, s, h, keys)` in JAX."""
    import jax
    from jax import numpy as jnp

    keys = iter(jax.random.split(jax.random.PRNGKey(0), 40))

    def normal(*shape: int) -> Any:
        return jax.random.normal(next(keys), shape) * 0.1

    def gru(inputs: int) -> dict[str, Any]:
        rows = 3 * size.hidden
        return {
            "w": normal(inputs, rows),
            "u": normal(size.hidden, rows),
            "b": jnp.zeros(rows),
            "c": jnp.zeros(rows),
        }

    words, hidden, vocabulary = size.embedding, size.hidden, size.vocabulary
    parameters = {
        "source": normal(vocabulary, words),
        "target": normal(vocabulary, words),
        "forward": gru(words),
        "backward": gru(words),
        "initial": normal(hidden, hidden),
        "initial_b": jnp.zeros(hidden),
        "query": normal(hidden, hidden),
        "keys": normal(2 * hidden, hidden),
        "score": normal(hidden),
        "cell": gru(words + 2 * hidden),
        "output": normal(3 * hidden + words, vocabulary),
        "output_b": jnp.zeros(vocabulary),
    }

    def cell(p: Any, from_input: Any, h: Any) -> Any:
        x_r, x_z, x_n = jnp.split(from_input, 3, -1)
        h_r, h_z, h_n = jnp.split(h @ p["u"] + p["c"], 3, -1)
        r, z = jax.nn.sigmoid(x_r + h_r), jax.nn.sigmoid(x_z + h_z)
        return (1 - z) * jnp.tanh(x_n + r * h_n) + z * h

    def direction(p: Any, embedded: Any, reverse: bool) -> Any:
        def one(h: Any, x: Any) -> tuple[Any, Any]:
            h = cell(p, x, h)
            return h, h

        inputs = jnp.swapaxes(embedded @ p["w"] + p["b"], 0, 1)
        start = jnp.zeros((embedded.shape[0], hidden))
        return jnp.swapaxes(jax.lax.scan(one, start, inputs, reverse=reverse)[1], 0, 1)

    def read(p: Any, source: Any) -> tuple[Any, Any, Any]:
        embedded = p["source"][source]
        h = jnp.concatenate(
            [direction(p["forward"], embedded, False), direction(p["backward"], embedded, True)], -1
        )
        return h, h @ p["keys"], jnp.tanh(h[:, 0, hidden:] @ p["initial"] + p["initial_b"])

    def step(p: Any, word: Any, s: Any, h: Any, projected: Any) -> tuple[Any, Any]:
        alpha = jax.nn.softmax(jnp.tanh((s @ p["query"])[:, None] + projected) @ p["score"], -1)
        context = jnp.einsum("bt,btv->bv", alpha, h)
        q = p["cell"]
        s = cell(q, jnp.concatenate([word, context], -1) @ q["w"] + q["b"], s)
        return s, jnp.concatenate([s, context, word], -1) @ p["output"] + p["output_b"]

    return parameters, read, step


def jax_step(size: Size) -> Callable[[], float]:
    """A training step in JAX, compiled as a whole."""
    import jax
    from jax import numpy as jnp

    parameters, read, step = jax_model(size)
    batch = make_batch(size)

    def loss_of(p: Any) -> Any:
        h, keys, s = read(p, batch.source)
        words = jnp.swapaxes(p["target"][batch.target_in], 0, 1)
        logits = jax.lax.scan(lambda s, word: step(p, word, s, h, keys), s, words)[1]
        log_p = jax.nn.log_softmax(jnp.swapaxes(logits, 0, 1))
        return -jnp.mean(jnp.take_along_axis(log_p, batch.target_out[..., None], -1))

    @jax.jit
    def update(p: Any, m: Any, v: Any, t: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p)
        norm = jnp.sqrt(sum(jnp.sum(a * a) for a in jax.tree.leaves(g)))
        g = jax.tree.map(lambda a: a * jnp.minimum(1.0, 1.0 / (norm + 1e-6)), g)
        m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
        v = jax.tree.map(lambda a, b: 0.999 * a + 0.001 * b * b, v, g)
        rate, spread = 1e-3 / (1 - 0.9**t), 1 - 0.999**t
        p = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v / spread) + 1e-8), p, m, v)
        return p, m, v, loss

    zeros = jax.tree.map(jnp.zeros_like, parameters)
    state = [parameters, zeros, zeros, 0.0]

    def take() -> float:
        state[3] += 1.0
        *state[:3], loss = update(*state)
        return float(loss)

    return take


def torch_decoders(size: Size) -> dict[str, Callable[[], Any]]:
    """Greedy and beam search of `SEQUENCES` sequences in PyTorch; no sequence ends early."""
    import torch

    model = torch_model(size).eval()
    source = torch.tensor(
        np.random.default_rng(1).integers(UNK + 1, size.vocabulary, (SEQUENCES, size.steps))
    )
    never = torch.tensor([PAD, BOS, EOS])

    @torch.inference_mode()
    def greedy() -> Any:
        h, keys, s = model.read(source)
        word, found = torch.full((SEQUENCES,), BOS), []
        for _ in range(size.steps):
            s, logits = model.step(model.target(word), s, h, keys)
            logits[:, never] = -torch.inf
            word = logits.argmax(-1)
            found.append(word)
        return torch.stack(found, 1)

    @torch.inference_mode()
    def beam() -> Any:
        h, keys, s = (a.repeat_interleave(BEAM, 0) for a in model.read(source))
        word = torch.full((SEQUENCES * BEAM,), BOS)
        score = torch.full((SEQUENCES, BEAM), -torch.inf)
        score[:, 0] = 0
        tokens = torch.zeros((SEQUENCES, BEAM, 0), dtype=torch.long)
        first = torch.arange(SEQUENCES)[:, None] * BEAM
        for _ in range(size.steps):
            s, logits = model.step(model.target(word), s, h, keys)
            logits[:, never] = -torch.inf
            total = score[:, :, None] + torch.log_softmax(logits, -1).view(SEQUENCES, BEAM, -1)
            score, best = total.flatten(1).topk(BEAM)
            parent, chosen = best // size.vocabulary, best % size.vocabulary
            s, word = s[(first + parent).flatten()], chosen.flatten()
            kept = tokens.gather(1, parent[:, :, None].expand(-1, -1, tokens.shape[2]))
            tokens = torch.cat([kept, chosen[:, :, None]], 2)
        return tokens[:, 0]

    return {"greedy": greedy, f"beam {BEAM}": beam}


def jax_decoders(size: Size) -> dict[str, Callable[[], Any]]:
    """Greedy and beam search of `SEQUENCES` sequences in JAX, each compiled as a whole; none ends early."""
    import jax
    from jax import numpy as jnp

    parameters, read, step = jax_model(size)
    source = np.random.default_rng(1).integers(UNK + 1, size.vocabulary, (SEQUENCES, size.steps))
    allowed = jnp.where(np.isin(np.arange(size.vocabulary), (PAD, BOS, EOS)), -jnp.inf, 0.0)

    @jax.jit
    def greedy(p: Any, source: Any) -> Any:
        h, keys, s = read(p, source)

        def one(carried: Any, _: Any) -> Any:
            s, word = carried
            s, logits = step(p, p["target"][word], s, h, keys)
            word = jnp.argmax(logits + allowed, -1)
            return (s, word), word

        return jax.lax.scan(one, (s, jnp.full(SEQUENCES, BOS)), None, size.steps)[1].T

    @jax.jit
    def beam(p: Any, source: Any) -> Any:
        h, keys, s = (jnp.repeat(a, BEAM, 0) for a in read(p, source))
        first = jnp.arange(SEQUENCES)[:, None] * BEAM

        def one(carried: Any, i: Any) -> Any:
            s, word, score, tokens = carried
            s, logits = step(p, p["target"][word], s, h, keys)
            log_p = jax.nn.log_softmax(logits + allowed).reshape(SEQUENCES, BEAM, -1)
            score, best = jax.lax.top_k((score[:, :, None] + log_p).reshape(SEQUENCES, -1), BEAM)
            parent, chosen = best // size.vocabulary, best % size.vocabulary
            tokens = jnp.take_along_axis(tokens, parent[:, :, None], 1).at[:, :, i].set(chosen)
            return (s[(first + parent).reshape(-1)], chosen.reshape(-1), score, tokens), None

        score = jnp.full((SEQUENCES, BEAM), -jnp.inf).at[:, 0].set(0)
        tokens = jnp.zeros((SEQUENCES, BEAM, size.steps), int)
        start = (s, jnp.full(SEQUENCES * BEAM, BOS), score, tokens)
        return jax.lax.scan(one, start, jnp.arange(size.steps))[0][3][:, 0]

    return {
        "greedy": lambda: greedy(parameters, source).block_until_ready(),
        f"beam {BEAM}": lambda: beam(parameters, source).block_until_ready(),
    }


def by_hand(weight: np.ndarray) -> dict[str, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]]:
    """For single operations y of x, and of x and the weight, the value and the gradient for x by (g, y)."""
    one, minus_one = np.array(1, np.float32), np.array(-1, np.float32)
    width = np.array(SHAPE[1], np.float32)

    def sigmoid(x: Any) -> Any:
        y = np.multiply(x, minus_one)
        np.exp(y, y)
        np.add(y, one, y)
        return np.divide(one, y, y)

    def sigmoid_back(g: Any, y: Any) -> Any:
        slope = np.subtract(one, y)
        np.multiply(slope, y, slope)
        return np.multiply(slope, g, slope)

    def tanh_back(g: Any, y: Any) -> Any:
        slope = np.multiply(y, y)
        np.subtract(one, slope, slope)
        return np.multiply(slope, g, slope)

    def softmax(x: Any) -> Any:
        y = np.subtract(x, np.maximum.reduce(x, axis=-1, keepdims=True))
        np.exp(y, y)
        return np.divide(y, np.add.reduce(y, axis=-1, keepdims=True), y)

    def softmax_back(g: Any, y: Any) -> Any:
        both = np.multiply(g, y)
        total = np.add.reduce(both, axis=-1, keepdims=True)
        return np.subtract(both, np.multiply(y, total), both)

    def less_mean(x: Any) -> Any:
        total = np.add.reduce(x, axis=-1, keepdims=True)
        return np.subtract(x, np.divide(total, width, total))

    return {
        "tanh": (np.tanh, tanh_back),
        "sigmoid": (sigmoid, sigmoid_back),
        "add": (lambda x: np.add(x, weight), lambda g, y: g),
        "mul": (lambda x: np.multiply(x, weight), lambda g, y: np.multiply(g, weight)),
        "matmul": (lambda x: np.matmul(x, weight), lambda g, y: np.matmul(g, weight.T)),
        "softmax": (softmax, softmax_back),
        "mean": (less_mean, lambda g, y: less_mean(g)),
    }


def chains(contender: str) -> dict[str, Callable[[], None]]:
    """For single operations, a chain of `CHAIN` of them forward and backward."""
    rng = np.random.default_rng(0)
    start = rng.standard_normal(SHAPE).astype(np.float32)
    weight = (0.1 * rng.standard_normal(SHAPE)).astype(np.float32)
    if contender == "torch":
        import torch

        w = torch.tensor(weight)
        operations: dict[str, Callable[[Any], Any]] = {
            "tanh": torch.tanh,
            "sigmoid": torch.sigmoid,
            "add": lambda x: x + w,
            "mul": lambda x: x * w,
            "matmul": lambda x: x @ w,
            "softmax": lambda x: torch.softmax(x, -1),
            "mean": lambda x: x - x.mean(-1, keepdim=True),
        }

        def run(operation: Callable[[Any], Any]) -> None:
            x = torch.tensor(start).requires_grad_()
            y = x
            for _ in range(CHAIN):
                y = operation(y)
            y.sum().backward()

    elif contender == "autograd":
        import autograd
        from autograd import numpy as anp

        operations = {
            "tanh": anp.tanh,
            "add": lambda x: x + weight,
            "mul": lambda x: x * weight,
            "matmul": lambda x: x @ weight,
        }

        def run(operation: Callable[[Any], Any]) -> None:
            def total(x: Any) -> Any:
                for _ in range(CHAIN):
                    x = operation(x)
                return anp.sum(x)

            autograd.grad(total)(start)

    elif contender == "numpy":
        operations = by_hand(weight)

        def run(operation: Any) -> None:
            forward, back = operation
            ys = [start]
            for _ in range(CHAIN):
                ys.append(forward(ys[-1]))
            g = np.ones_like(ys[-1])
            while len(ys) > 1:
                g = back(g, ys.pop())

    else:
        import mygrad

        operations = {
            "tanh": mygrad.tanh,
            "add": lambda x: x + weight,
            "mul": lambda x: x * weight,
            "matmul": lambda x: x @ weight,
        }

        def run(operation: Callable[[Any], Any]) -> None:
            x = mygrad.tensor(start)
            y = x
            for _ in range(CHAIN):
                y = operation(y)
            y.sum().backward()

    return {name: lambda operation=operation: run(operation) for name, operation in operations.items()}


def measure(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows to print."""
    contender, size = arguments.contender, SIZES[arguments.size]
    if contender.startswith("torch"):
        import torch

        torch.set_num_threads(arguments.threads)
    common = {"contender": contender, "size": arguments.size, "threads": arguments.threads}
    if arguments.what == "ops":
        rows = []
        for name, call in chains(contender).items():
            timing = time_calls(call, arguments.seconds / 7)
            per = 1e3 / CHAIN
            rows.append(
                {
                    "contender": contender,
                    "operation": name,
                    "median_us": round(timing.median_ms * per, 3),
                    "min_us": round(timing.min_ms * per, 3),
                }
            )
        return rows
    if arguments.what == "decode":
        calls = torch_decoders(size) if contender == "torch" else jax_decoders(size)
        rows = []
        for search, call in calls.items():
            timing = time_calls(call, arguments.seconds / 2, least=3)
            rows.append(
                {
                    **common,
                    "search": search,
                    "median_ms": round(timing.median_ms, 2),
                    "min_ms": round(timing.min_ms, 2),
                }
            )
        return rows
    take = jax_step(size) if contender == "jax" else torch_step(size, contender == "torch-compile")
    if arguments.what == "memory":
        for _ in range(10):
            take()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return [{**common, "process_peak_mb": round(peak * 1024 / 1e6, 1)}]
    timing = time_calls(take, arguments.seconds)
    return [
        {
            **common,
            "median_ms": round(timing.median_ms, 4),
            "min_ms": round(timing.min_ms, 4),
            "steps": timing.calls,
            "first_call_s": round(timing.first_ms / 1e3, 3),
            "second_call_s": round(timing.second_ms / 1e3, 4),
            "loss": round(take(), 4),
        }
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=CONTENDERS)
    parser.add_argument("contender")
    parser.add_argument("--size", choices=SIZES, default="S")
    parser.add_argument("--seconds", type=above_zero, default=3.0)
    parser.add_argument("--threads", type=at_least_one, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    check_contenders(parser, arguments.what, [arguments.contender])
    need([arguments.contender])
    for row in measure(arguments):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
