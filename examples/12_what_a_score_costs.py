"""The cost of a score: additive against dot product, time and memory, both passes.

The additive score computes a tanh for every pair of query and key and every entry of its hidden layer; the
dot product is one matrix product. Sixteen sentences, sixteen queries each, keys projected beforehand,
float32.

    python examples/12_what_a_score_costs.py --figure cost.svg
"""

import argparse
import json
import time
import tracemalloc

import numpy as np

import tinygrad_attn as ta
from tinygrad_attn.viz.picture import new_picture, settings

BATCH, QUERIES = 16, 16
STEPS, WIDTHS = (16, 32, 64, 128, 256), (16, 32, 64, 128, 256)
USUAL_STEPS, USUAL_WIDTH = 64, 64
COLOURS = {"additive": "#c2410c", "dot": "#1d4ed8"}
PASSES = ("forward", "forward and backward")


def one_case(score, steps, width, repeats):
    """Seconds and peak bytes of either pass: the quickest of the repeats."""
    rng = np.random.default_rng(0)
    attention = (
        ta.nn.AdditiveAttention(width, width, width, rng=rng) if score == "additive" else ta.nn.DotAttention()
    )
    query, keys = (
        ta.Tensor(rng.standard_normal((BATCH, count, width)).astype(np.float32), requires_grad=True)
        for count in (QUERIES, steps)
    )
    projected = attention.project(keys)
    if isinstance(projected, ta.Tensor):
        projected = ta.Tensor(projected.data, requires_grad=True)

    def forward():
        return attention(query, keys, projected=projected).context

    def both():
        forward().sum().backward()

    found = {}
    for name, run in zip(PASSES, (forward, both), strict=True):
        seconds = []
        for _ in range(repeats):
            start = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - start)
        tracemalloc.start()
        run()
        found[name] = {"seconds": min(seconds), "bytes": tracemalloc.get_traced_memory()[1]}
        tracemalloc.stop()
    return found


def measure(repeats=15):
    """Time and memory over the number of source steps T and over the width."""
    found = {"steps": STEPS, "widths": WIDTHS, "by_steps": {}, "by_width": {}}
    for score in COLOURS:
        found["by_steps"][score] = [one_case(score, steps, USUAL_WIDTH, repeats) for steps in STEPS]
        found["by_width"][score] = [one_case(score, USUAL_STEPS, width, repeats) for width in WIDTHS]
    return found


def figure(found):
    """Milliseconds and megabytes over T and over the width."""
    with settings():
        picture = new_picture(8.0, 5.4)
        panels = picture.subplots(2, 2)
        for column, (key, over, label) in enumerate(
            (
                ("by_steps", "steps", f"source steps T (width {USUAL_WIDTH})"),
                ("by_width", "widths", f"width (T = {USUAL_STEPS})"),
            )
        ):
            for row, (unit, scale, title) in enumerate(
                (("seconds", 1e3, "milliseconds"), ("bytes", 1e-6, "megabytes"))
            ):
                axes = panels[row][column]
                for score, colour in COLOURS.items():
                    for name, style in zip(PASSES, ("o--", "o-"), strict=True):
                        values = [case[name][unit] * scale for case in found[key][score]]
                        axes.plot(
                            found[over], values, style, markersize=3, color=colour, label=f"{score}, {name}"
                        )
                axes.set_xscale("log", base=2)
                axes.set_yscale("log")
                axes.set(xlabel=label, ylabel=title)
                axes.spines[["top", "right"]].set_visible(False)
        lines, labels = panels[0][0].get_legend_handles_labels()
        picture.legend(lines, labels, loc="outside upper center", ncols=2, frameon=False, fontsize=9)
    return picture


def summary(found):
    """What was found, in words, every number computed."""
    lines = []
    for key, over, what in (("by_steps", "steps", "T"), ("by_width", "widths", "width")):
        additive, dot = (found[key][score][-1][PASSES[1]] for score in ("additive", "dot"))
        lines.append(
            f"at {what} = {found[over][-1]}, forward and backward: "
            f"additive {additive['seconds'] * 1e3:.1f} ms and {additive['bytes'] / 1e6:.1f} MB, "
            f"dot {dot['seconds'] * 1e3:.1f} ms and {dot['bytes'] / 1e6:.1f} MB: "
            f"{additive['seconds'] / dot['seconds']:.0f} times the time, "
            f"{additive['bytes'] / dot['bytes']:.0f} times the memory"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--figure", metavar="FILE", help="draw into this SVG, PNG or PDF")
    parser.add_argument("--json", metavar="FILE", help="write the measurements")
    options = parser.parse_args()
    if options.repeats < 1:
        parser.error("--repeats is at least 1")
    found = measure(options.repeats)
    print(summary(found))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            file.write(json.dumps(found, indent=1) + "\n")
    if options.figure:
        figure(found).save(options.figure)
