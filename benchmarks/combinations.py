"""Every combination of score, query and cell on the copy and the reverse task: docs/data/combinations.json.

    python benchmarks/combinations.py                    train what the file lacks (all: half an hour)
    python benchmarks/combinations.py --score dot        a part of it; the rest another time
    python benchmarks/combinations.py --times            measure the time per step of all, in turn

A run is `tinygrad-attn train TASK --attention SCORE --query QUERY --cell CELL` with the settings below.
It ends when all development sequences are right at two evaluations in a row, or with its budget of steps.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tinygrad_attn.data import Task
from tinygrad_attn.files import write_atomically
from tinygrad_attn.optim import Adam, clip_grad_norm
from tinygrad_attn.train import ModelConfig, TrainingConfig, train, workers

SCORES = ("additive", "dot", "scaled", "general", "concat", "none")
QUERIES = ("previous", "current")
CELLS = ("gru", "lstm", "rnn")
TASKS = ("copy", "reverse")
GOAL = 0.99
TRAINING = TrainingConfig(steps=2000, lr=3e-3, evaluate_every=100, log_every=100)
SLOW = {"scaled": 4000}
"""Steps for the scaled product, whose scores of states between -1 and 1 are small and grow slowly."""
PATH = Path(__file__).parents[1] / "docs" / "data" / "combinations.json"


def name(score: str, query: str, cell: str) -> str:
    return f"{score} {query} {cell}"


def budget(score: str) -> int:
    """The most steps of a run."""
    return SLOW.get(score, TRAINING.steps or 0)


def trained(task: str, model: ModelConfig) -> dict[str, Any]:
    """The figures of one run."""
    training = replace(TRAINING, steps=budget(model.attention))
    with tempfile.TemporaryDirectory() as folder:
        result = train(Task(task, seed=TRAINING.seed), folder, model, training, progress=False)
        evaluations = [row for row in result.folder.rows() if row["event"] == "evaluation"]
    reached = (row["step"] for row in evaluations if row["exact_match"] >= GOAL)
    keys = ("exact_match", "alignment_weight", "alignment_accuracy", "step")
    return {
        **{key: result.test[key] for key in keys},
        "steps_to_goal": next(reached, None),
        "budget": training.steps,
    }


def time_per_step(rounds: int = 9, steps: int = 6) -> dict[str, float]:
    """Seconds for a step of 64 sequences of length 10: the median of rounds that go through all in turn."""
    data, learners = Task("reverse"), {}
    batch = next(batch for i in itertools.count() if (batch := data.train_batch(i, 64)).source.shape[1] == 10)
    size = len(data.source_vocabulary)
    for score, query, cell in itertools.product(SCORES, QUERIES, CELLS):
        model = ModelConfig(score, query, cell).build(size, size, np.random.default_rng(0))
        learners[name(score, query, cell)] = model, Adam(model.named_parameters(), lr=TRAINING.lr)
    found: dict[str, list[float]] = {key: [] for key in learners}
    with workers(1):
        for number in range(rounds + 1):
            for key, (model, optimiser) in learners.items():
                start = time.perf_counter()
                for _ in range(steps):
                    optimiser.zero_grad()
                    model.loss(batch).backward()
                    clip_grad_norm(model.parameters(), TRAINING.clip)
                    optimiser.step()
                if number:  # the first round warms up
                    found[key].append((time.perf_counter() - start) / steps)
    return {key: statistics.median(values) for key, values in found.items()}


def read() -> dict[str, Any]:
    if PATH.exists():
        content: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))
        return content
    return {"training": {"lr": TRAINING.lr, "batch": TRAINING.batch}, "runs": {}}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", action="store_true", help="measure the time per step, train nothing")
    for option, choices in (("score", SCORES), ("query", QUERIES), ("cell", CELLS), ("task", TASKS)):
        parser.add_argument(f"--{option}", choices=choices, nargs="+", default=choices)
    parser.add_argument("--again", action="store_true", help="also what the file has already")
    arguments = parser.parse_args()
    content = read()
    PATH.parent.mkdir(parents=True, exist_ok=True)
    if arguments.times:
        content["seconds_per_step"] = time_per_step()
        write_atomically(PATH, json.dumps(content, indent=1) + "\n")
        return
    for cell, score, query, task in itertools.product(
        arguments.cell, arguments.score, arguments.query, arguments.task
    ):
        runs = content["runs"].setdefault(name(score, query, cell), {})
        if task in runs and runs[task]["budget"] == budget(score) and not arguments.again:
            continue
        start = time.perf_counter()
        runs[task] = trained(task, ModelConfig(score, query, cell))
        write_atomically(PATH, json.dumps(content, indent=1) + "\n")
        print(name(score, query, cell), task, runs[task], f"{time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
