"""The bottleneck: one summary of the source against a look at all of it, by the length of the sequence.

Models reverse digits. They have the same number of parameters, the same data and the same number of steps.
The decoder of the first reads the annotation of the last word at every step, that of the others a mixture of
all annotations, weighted by dot products, which have no parameters, plain and scaled. Several seeds, each
with other initial values and data.

    python examples/10_the_bottleneck.py --figure bottleneck.svg          (a few minutes)
"""

import argparse
import json
import time

import numpy as np

import tinygrad_attn as ta
from tinygrad_attn.data import Task
from tinygrad_attn.train import workers
from tinygrad_attn.viz.picture import new_picture, settings

LENGTHS = (1, 2, 4, 6, 8, 10, 12, 15, 20, 25, 30, 35, 40)
KINDS = {"fixed context": "none", "attention": "dot", "attention, scaled": "scaled"}
COLOURS = {"fixed context": "#6b7280", "attention": "#c2410c", "attention, scaled": "#1d4ed8"}


def train(attention, seed, steps, lr=4e-3):
    """A model trained on lengths 1 to 40, the rate falling to zero."""
    task = Task("reverse", max_length=max(LENGTHS), seed=seed)
    words = len(task.source_vocabulary)
    model = ta.nn.Seq2Seq(
        *(words, words, 16, 48, attention), encoder_hidden_size=24, rng=np.random.default_rng(seed)
    )
    optimizer = ta.optim.Adam(model.named_parameters(), lr=lr)
    with workers(1):  # one thread for each product: several would wait for one another
        for step in range(steps):
            optimizer.lr = lr * (1 - step / steps)
            optimizer.zero_grad()
            model.loss(task.train_batch(step, 32)).backward()
            ta.optim.clip_grad_norm(model.parameters(), 1.0)
            optimizer.step()
    return model


def exact_match(model, length, sequences, rng):
    """The share of new sequences of a length that come out reversed as a whole."""
    source = rng.integers(ta.UNK + 1, ta.UNK + 11, (sequences, length))
    written = model.greedy(source, None, length + 2).sequences()
    return float(np.mean([np.array_equal(a, b[::-1]) for a, b in zip(written, source, strict=True)]))


def measure(steps=1200, seeds=3, sequences=200):
    """Exact match by kind, seed and length."""
    found = {"steps": steps, "sequences": sequences, "lengths": LENGTHS, "exact_match": {}, "parameters": {}}
    start = time.perf_counter()
    for kind, attention in KINDS.items():
        rows = []
        for seed in range(seeds):
            model = train(attention, seed, steps)
            rng = np.random.default_rng([1, seed])
            rows.append([exact_match(model, length, sequences, rng) for length in LENGTHS])
        found["exact_match"][kind] = rows
        found["parameters"][kind] = sum(parameter.size for parameter in model.parameters())
    found["seconds"] = time.perf_counter() - start
    return found


def figure(found):
    """Exact match against length: the mean of the seeds, and all between the worst and the best."""
    with settings():
        picture = new_picture(6.4, 3.6)
        axes = picture.add_subplot()
        for kind, rows in found["exact_match"].items():
            axes.plot(
                found["lengths"], np.mean(rows, axis=0), "o-", markersize=3.5, color=COLOURS[kind], label=kind
            )
            axes.fill_between(
                found["lengths"],
                np.min(rows, axis=0),
                np.max(rows, axis=0),
                color=COLOURS[kind],
                alpha=0.2,
                lw=0,
            )
        axes.set(xlabel="length of the sequence", ylabel="exactly right", ylim=(-0.03, 1.03))
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    return picture


def summary(found):
    """What was found, in words, every number computed."""
    lines = []
    for kind, rows in found["exact_match"].items():
        mean = np.mean(rows, axis=0)
        below = next((n for n, share in zip(found["lengths"], mean, strict=True) if share < 0.5), None)
        where = f"under one half from length {below} on" if below else "at least one half at every length"
        shares = [
            f"{mean[i]:.0%} at length {n} ({np.min(rows, axis=0)[i]:.0%} to {np.max(rows, axis=0)[i]:.0%})"
            for i, n in enumerate(found["lengths"])
            if n in (10, 20, 40)
        ]
        seeds = f"{len(rows)} seed{'s' * (len(rows) != 1)}"
        parameters = f"{found['parameters'][kind]:,} parameters"
        lines.append(f"{kind} ({parameters}, {seeds}): {where}; {', '.join(shares)}")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sequences", type=int, default=200, help="for each length")
    parser.add_argument("--figure", metavar="FILE", help="draw into this SVG, PNG or PDF")
    parser.add_argument("--json", metavar="FILE", help="write the measurements")
    options = parser.parse_args()
    if options.steps < 0:
        parser.error("--steps is negative")
    if min(options.seeds, options.sequences) < 1:
        parser.error("--seeds and --sequences are at least 1")
    found = measure(options.steps, options.seeds, options.sequences)
    print(summary(found))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            file.write(json.dumps(found, indent=1) + "\n")
    if options.figure:
        figure(found).save(options.figure)
