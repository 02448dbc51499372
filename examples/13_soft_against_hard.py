"""Why the weights are soft: the argmax gives no gradient.

The running example with h = (0.2, 0.9, 0.1), where the first score is moved past the others. With softmax the
context follows smoothly; with argmax it stays where it is and then jumps. Difference quotients of the jump
say nothing: they are zero, or they grow with one over the step. And gradient descent on the scores, towards
the context 0.2, works only where there is a gradient.

    python examples/13_soft_against_hard.py --figure soft.svg
"""

import argparse

import numpy as np

import tinygrad_attn as ta
from tinygrad_attn.viz.picture import new_picture, settings
from tinygrad_attn.worked import RUNNING, walk

H = np.array(RUNNING.h)[:, 0]
E = walk(RUNNING).steps[0].e
TEMPERATURES = (1.0, 0.3, 0.1, 0.03)
DESCENT, RATE, WANTED = 400, 1.0, H[0]


def soft(e, temperature=1.0):
    """The context by softmax."""
    return (ta.softmax(e / temperature) * H).sum(axis=-1)


def hard(e):
    """The context by argmax: the annotation with the highest score."""
    return ta.Tensor(H[np.argmax(e.data, axis=-1)])


def moved(x):
    """The scores with the first replaced by each of `x`."""
    e = np.tile(E, (*np.shape(x), 1))
    e[..., 0] = x
    return ta.Tensor(e)


def quotient(function, x, step):
    """The central difference quotient of the context with the first score at `x`."""
    return ((function(moved(x + step)) - function(moved(x - step))) / (2 * step)).item()


def descent(context, requires):
    """How far the context is from the wanted one, step by step of gradient descent on the scores."""
    e, apart = ta.Tensor(E, requires_grad=True), []
    for _ in range(DESCENT):
        loss = (context(e) - WANTED) ** 2
        apart.append(float(np.sqrt(loss.item())))
        if requires:
            (gradient,) = ta.grad(loss, e)
            e = ta.Tensor(e.data - RATE * gradient.data, requires_grad=True)
        else:
            assert not loss.requires_grad  # nothing leads from an index back to the scores
    return apart


def measure():
    """Contexts and slopes over the first score, quotients at the jump, and two descents."""
    x = np.linspace(-2, 4, 601)
    found = {"x": x, "hard": hard(moved(x)).data, "soft": {}, "slope": {}}
    for temperature in TEMPERATURES:
        e = ta.Tensor(moved(x).data, requires_grad=True)
        context = soft(e, temperature)
        (gradient,) = ta.grad(context.sum(), e)
        found["soft"][temperature] = context.data
        found["slope"][temperature] = gradient.data[:, 0]
    tie = float(np.max(E[1:]))  # where the first score overtakes the best of the others
    found["steps"] = 10.0 ** -np.arange(1, 6)
    for name, function in (("hard", hard), ("soft", soft)):
        found[f"{name} quotients"] = [quotient(function, tie, step) for step in found["steps"]]
        found[f"{name} aside"] = quotient(function, E[0], 1e-3)
        found[f"{name} descent"] = descent(function, name == "soft")
    return found


def figure(found):
    """The context, its slope and the descent."""
    shades = ("#7c2d12", "#c2410c", "#ea7a3f", "#f0a070")
    with settings():
        picture = new_picture(8.4, 3.0)
        left, middle, right = picture.subplots(1, 3)
        for temperature, colour in zip(TEMPERATURES, shades, strict=True):
            left.plot(found["x"], found["soft"][temperature], color=colour)
            label = f"softmax(e / {temperature:g})"
            middle.plot(found["x"], found["slope"][temperature], color=colour, label=label)
        left.plot(found["x"], found["hard"], color="#111827", linestyle="--")
        middle.plot(found["x"], np.zeros_like(found["x"]), color="#111827", linestyle="--", label="argmax")
        left.set(xlabel="first score", title="context c")
        middle.set(xlabel="first score", title="∂c/∂e₁")
        right.plot(found["soft descent"], color=shades[0])
        right.plot(found["hard descent"], color="#111827", linestyle="--")
        right.set(xlabel="steps of gradient descent", title=f"distance from c = {WANTED:g}", ylim=(0, None))
        for axes in (left, middle, right):
            axes.title.set_fontsize(10)
            axes.spines[["top", "right"]].set_visible(False)
        middle.legend(loc="lower right", frameon=False, fontsize=8, labelspacing=0.2, handlelength=1.2)
    return picture


def summary(found):
    """What was found, in words, every number computed."""
    return "\n".join(
        [
            f"away from a tie: ∂c/∂e₁ = {found['soft aside']:.4f} soft, {found['hard aside']:g} hard",
            "at the tie, difference quotients for steps " + ", ".join(f"{d:g}" for d in found["steps"]) + ":",
            "  soft " + ", ".join(f"{q:.4f}" for q in found["soft quotients"]),
            "  hard " + ", ".join(f"{q:,.1f}" for q in found["hard quotients"]),
            f"{DESCENT} steps of gradient descent towards c = {WANTED:g}: "
            f"soft from {found['soft descent'][0]:.4f} to {found['soft descent'][-1]:.4f} away, "
            f"hard from {found['hard descent'][0]:.4f} to {found['hard descent'][-1]:.4f}",
        ]
    )


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
