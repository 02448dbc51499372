"""Attention is not explanation: other weights, the same output.

The context is Σ α_j h_j. As soon as there are more source words than annotations have entries, plus one for
the sum of the weights, different weights can give the same context, and so the same output, to the last
digit. First the running example, where the largest weight can be moved from the second word to the first;
then a trained model with narrow annotations, at each step of a sentence.

    python examples/14_attention_is_not_explanation.py --figure explanation.svg
"""

import argparse

import numpy as np

import tinygrad_attn as ta
from tinygrad_attn.data import Task
from tinygrad_attn.train import workers
from tinygrad_attn.viz.picture import new_picture, settings
from tinygrad_attn.worked import RUNNING, walk

LENGTH, HIDDEN, STEPS = 10, 3, 300


def directions(values):
    """What leaves Σ α_j v_j and Σ α_j as they are when it is added to the weights: a basis (n, T)."""
    rows = np.vstack([values.T, np.ones(len(values))])  # (D + 1, T)
    _, sizes, basis = np.linalg.svd(rows)
    return basis[np.sum(sizes > 1e-10 * sizes[0]) :]


def furthest(alpha, values, rng, tries=2000):
    """Weights as different from `alpha` as found that give the same context."""
    basis, best = directions(values), alpha
    for _ in range(tries):
        n = rng.standard_normal(len(basis)) @ basis
        down = n < -1e-12
        other = np.maximum(alpha + np.min(alpha[down] / -n[down]) * n, 0)  # until the first weight is zero
        if np.abs(other - alpha).sum() > np.abs(best - alpha).sum():
            best = other
    return best


def narrow_model(steps):
    """A model whose annotations have fewer entries than its sentences have words, trained a little."""
    task = Task("reverse", min_length=LENGTH, max_length=LENGTH)
    words = len(task.source_vocabulary)
    rng = np.random.default_rng(0)
    model = ta.nn.Seq2Seq(words, words, 16, 32, encoder_hidden_size=HIDDEN, dtype=np.float64, rng=rng)
    optimizer = ta.optim.Adam(model.named_parameters(), lr=5e-3)
    with workers(1):  # one thread for each product: several would wait for one another
        for step in range(steps):
            optimizer.zero_grad()
            model.loss(task.train_batch(step, 32)).backward()
            ta.optim.clip_grad_norm(model.parameters(), 1.0)
            optimizer.step()
    return model, task.train_batch(steps, 1)


def continued(model, s, word, context):
    """The logits of a step of the decoder, from the state before it, with the context given."""
    embedded, context = model.target_embedding([word]), context[None]
    s = model.decoder.cell(ta.concatenate([embedded, context], axis=-1), s)
    return model.decoder.output(ta.concatenate([s, context, embedded], axis=-1)).data[0]


def measure(steps=STEPS):
    """Pairs of weights, and how far apart their contexts and logits are."""
    rng, found = np.random.default_rng(0), {}
    h, alpha = np.array(RUNNING.h), walk(RUNNING).steps[0].alpha
    other = furthest(alpha, h, rng)
    found["running"] = {"alpha": alpha, "other": other, "contexts": (alpha @ h, other @ h)}

    model, batch = narrow_model(steps)
    output = model(batch.source, batch.lengths, batch.target_in)
    memory = output.annotations.data[0]  # (T, 2 · HIDDEN)
    before = output.initial.s
    shares, best = [], None
    for step, word in zip(output.steps, batch.target_in[0], strict=True):
        alpha = step.weights.data[0]
        other = furthest(alpha, memory, rng)
        shares.append(float(np.abs(alpha - other).sum() / 2))
        if shares[-1] == max(shares):
            logits = [continued(model, before, word, weights @ memory) for weights in (alpha, other)]
            best = {"alpha": alpha, "other": other, "logits": logits, "step": len(shares)}
        before = step.s
    found["model"] = {**best, "shares": shares, "freedom": len(directions(memory))}
    return found


def figure(found):
    """Both pairs of weights as bars."""
    with settings():
        picture = new_picture(8.0, 2.9)
        for axes, (key, title) in zip(
            picture.subplots(1, 2, width_ratios=(1, 2.4)),
            (
                ("running", "the running example"),
                ("model", f"a trained model, step {found['model']['step']}"),
            ),
            strict=True,
        ):
            for shift, name, colour in ((-0.2, "alpha", "#1d4ed8"), (0.2, "other", "#c2410c")):
                place = np.arange(1, len(found[key][name]) + 1)
                label = "the model's weights" if name == "alpha" else "others, same output"
                axes.bar(place + shift, found[key][name], 0.38, color=colour, label=label)
            axes.set_xticks(place)
            axes.set(xlabel="source word", title=title)
            axes.title.set_fontsize(10)
            axes.spines[["top", "right"]].set_visible(False)
        axes.margins(y=0.3)  # room for the legend
        axes.legend(frameon=False, fontsize=8)
    return picture


def summary(found):
    """What was found, in words, every number computed."""
    running, model = found["running"], found["model"]
    (first,), (second,) = running["contexts"]
    a, b = model["logits"]
    return "\n".join(
        [
            f"running example: weights {running['alpha'].round(4)} and {running['other'].round(4)} both give "
            f"c = {first:.4f} (difference {abs(first - second):.0e}); the largest weight lies on word "
            f"{running['alpha'].argmax() + 1} with the one and on word {running['other'].argmax() + 1} "
            "with the other",
            f"trained model, {len(model['alpha'])} words, {model['freedom']} directions in which weights can "
            f"move: over the steps {np.mean(model['shares']):.0%} of the weight can lie elsewhere, from "
            f"{min(model['shares']):.0%} to {max(model['shares']):.0%}; where it is most, the largest weight "
            f"lies on word {model['alpha'].argmax() + 1} or on word {model['other'].argmax() + 1}, and the "
            f"logits differ by {np.abs(a - b).max():.0e}, while the largest is {np.abs(a).max():.1f}",
        ]
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=STEPS, help="of training")
    parser.add_argument("--figure", metavar="FILE", help="draw into this SVG, PNG or PDF")
    options = parser.parse_args()
    if options.steps < 0:
        parser.error("--steps is negative")
    found = measure(options.steps)
    print(summary(found))
    if options.figure:
        figure(found).save(options.figure)
