"""Dot products grow with the width, and the softmax of large scores is a choice that no gradient moves.

Queries and keys have independent entries of mean 0 and variance 1, so that the score q · k has variance d.
Divided by √d its variance is 1 at every width.

    python examples/11_dot_products_grow.py --figure growth.svg
"""

import argparse

import numpy as np

import tinygrad_attn as ta
from tinygrad_attn.viz.picture import new_picture, settings

WIDTHS = (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
SCORES = {"dot": "#c2410c", "scaled": "#1d4ed8"}
QUERIES, KEYS = 200, 16


def measure():
    """By score and width: the scores' variance, the weights' entropy, the gradient that is left."""
    found = {"widths": WIDTHS, **{score: {"variance": [], "entropy": [], "gradient": []} for score in SCORES}}
    for width in WIDTHS:
        rng = np.random.default_rng(width)
        query = ta.Tensor(rng.standard_normal((QUERIES, width), np.float32), requires_grad=True)
        keys = rng.standard_normal((QUERIES, KEYS, width), np.float32)
        direction = rng.standard_normal((QUERIES, KEYS))  # a gradient that arrives at the weights
        for score in SCORES:
            attended = ta.attention(query, keys, keys, score=score)
            alpha = attended.weights.data.astype(np.float64)
            (at_scores,) = ta.grad((attended.weights * direction).sum(), attended.scores)
            of = found[score]
            of["variance"].append(float(attended.scores.data.var()))
            of["entropy"].append(float(-(alpha * np.log(np.maximum(alpha, 1e-300))).sum(axis=1).mean()))
            arrived = np.linalg.norm(direction, axis=1)
            of["gradient"].append(float((np.linalg.norm(at_scores.data, axis=1) / arrived).mean()))
    return found


def figure(found):
    """Three panels over the width."""
    titles = {
        "variance": "variance of the scores",
        "entropy": "entropy of the weights (nats)",
        "gradient": "share of the gradient that passes",
    }
    with settings():
        picture = new_picture(9.0, 2.9)
        for axes, (key, title) in zip(picture.subplots(1, 3), titles.items(), strict=True):
            for score, colour in SCORES.items():
                axes.plot(found["widths"], found[score][key], "o-", markersize=3, color=colour, label=score)
            axes.set_xscale("log", base=2)
            axes.set_xlabel("width d")
            axes.set_title(title, fontsize=10)
            axes.spines[["top", "right"]].set_visible(False)
            if key == "variance":
                axes.set_yscale("log", base=2)
                axes.legend(frameon=False)
            else:
                axes.set_ylim(bottom=0)
    return picture


def summary(found):
    """What was found, in words, every number computed."""
    lines = []
    for score in SCORES:
        first, last = ({key: found[score][key][i] for key in found[score]} for i in (0, -1))
        lines.append(
            f"{score}: from d = {WIDTHS[0]} to {WIDTHS[-1]:,} the variance of the scores goes from "
            f"{first['variance']:.1f} to {last['variance']:,.1f}, the entropy of {KEYS} weights from "
            f"{first['entropy']:.2f} to {last['entropy']:.2f} nats (at most {np.log(KEYS):.2f}), and the "
            f"share of a gradient that passes the softmax from {first['gradient']:.3f} to "
            f"{last['gradient']:.3f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--figure", metavar="FILE", help="draw into this SVG, PNG or PDF")
    options = parser.parse_args()
    found = measure()
    print(summary(found))
    if options.figure:
        figure(found).save(options.figure)
