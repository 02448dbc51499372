"""The training loop."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tinygrad_attn.data import Dataset, Task, from_description
from tinygrad_attn.errors import CheckpointError, DataError
from tinygrad_attn.nn import Seq2Seq
from tinygrad_attn.train.config import ModelConfig, TrainingConfig, default_settings
from tinygrad_attn.train.evaluation import Evaluation, evaluate, first_sequences
from tinygrad_attn.train.figures import write_figures
from tinygrad_attn.train.folder import RunConfig, RunFolder
from tinygrad_attn.train.guard import Interruption, workers
from tinygrad_attn.train.learner import Learner, Window, diverged
from tinygrad_attn.train.observation import is_due, snapshot
from tinygrad_attn.train.progress import ProgressBar
from tinygrad_attn.train.schedule import learning_rate, progress_at

CHECKPOINT_SECONDS = 60.0
"""A checkpoint is written at every evaluation, and in between once the last one is older than this."""

Message = Callable[[str], None]


@dataclass(frozen=True)
class Result:
    """A finished run."""

    folder: RunFolder
    data: Dataset
    model: Seq2Seq
    """With the best weights."""
    test: Mapping[str, Any]
    """The row of metrics of the test set: an `Evaluation`, `train_seconds`, `best_step`."""
    reason: str
    """Why training ended."""


def train(
    data: Dataset,
    out: str | os.PathLike[str],
    model: ModelConfig | None = None,
    training: TrainingConfig | None = None,
    *,
    overwrite: bool = False,
    progress: bool | None = None,
    message: Message = print,
) -> Result:
    """Train a model on `data` and leave all of it in the folder `out`.

    Args:
        data: a `Task` or `Pairs`.
        out: the run folder, new or empty.
        model: what to train; by default what suits the data.
        training: how; by default what suits the data.
        overwrite: replace a run that is in the folder.
        progress: show a bar on standard error; None shows it on a terminal alone.
        message: called with what the user should know.

    Raises:
        CheckpointError: if the folder holds a run, or other files, or another process trains in it.
        NonFiniteError: if a gradient is not finite; the last checkpoint and the best weights stay.
        TypeError: if `data` is no data set, or `model` or `training` are no settings.
        KeyboardInterrupt: after Ctrl-C, when everything is saved; `resume` goes on, or gives the result.
    """
    if not hasattr(data, "describe"):
        raise TypeError(f"train: data is {data!r}, expected a Task, Pairs or a data set of your own")
    usual = default_settings(data)
    model, training = model or usual[0], training or usual[1]
    if not isinstance(model, ModelConfig):
        raise TypeError(f"train: model is {model!r}, expected a ModelConfig")
    if not isinstance(training, TrainingConfig):
        raise TypeError(f"train: training is {training!r}, expected a TrainingConfig")
    config = RunConfig(data.describe(), model, training)
    folder = RunFolder(out)
    run = _Run(folder, config, data, message)
    folder.make()  # last, so that nothing is replaced when something is wrong
    with folder.held():
        folder.begin(config, overwrite=overwrite)
        folder.write_vocabularies(data)
        for note in data.notes:
            message(note)
        return run.to_the_end(progress)


def resume(
    out: str | os.PathLike[str],
    *,
    data: Dataset | None = None,
    progress: bool | None = None,
    message: Message = print,
) -> Result:
    """Go on with the run in the folder `out` from its last checkpoint, bit for bit as if never interrupted.

    A run that has ended is not trained further; its result comes back. Its data set is made again from what
    the run's config.json says of it. One of your own is to be given as `data`, and one whose files have
    moved, too: config.json then notes where they are.

    Raises:
        CheckpointError: if there is no run, no checkpoint of it is whole, or another process trains it.
        DataError: if a file of its data is gone or has changed, or `data` describes itself in another way.
    """
    folder = RunFolder(out)
    config = folder.config()
    if data is None:
        data = from_description(config.data)
    found = replace(config, data=json.loads(json.dumps(data.describe())))
    if found.identity() != config.identity():
        raise DataError(f"{folder.path}: the run was on the data {config.data}, not on {found.data}")
    run = _Run(folder, found, data, message)
    with folder.held():
        run.restore()
        if found != config:  # files have moved
            folder.write_config(found)
        return run.to_the_end(progress)


class _Run:
    """One run while it is trained."""

    def __init__(self, folder: RunFolder, config: RunConfig, data: Dataset, message: Message) -> None:
        self.folder, self.settings, self.data, self.message = folder, config.training, data, message
        self.learner = Learner(config.model, config.training, data)
        self.checkpoints = folder.checkpoints(config)
        self.task = data.name if isinstance(data, Task) else None
        self.development = first_sequences(data.development, config.training.development)
        self.rows: list[dict[str, Any]] = []
        self.snapshots: list[dict[str, Any]] = []
        self.clock = _Clock(0.0)
        self.saved_at = 0.0

    def restore(self) -> None:
        """Set everything to the last checkpoint; without one, training starts at the beginning."""
        self.folder.sweep()
        self.folder.write_vocabularies(self.data)  # a process may have been killed before it did
        checkpoint = self.checkpoints.load(self.message)
        if checkpoint is None:
            self.message(f"{self.folder.path}: no checkpoint yet, starting at the beginning")
            return
        try:
            self.learner.restore(checkpoint)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise CheckpointError(
                f"{self.folder.path / 'checkpoint'}: the checkpoint of step {checkpoint.step} "
                f"does not fit the run ({error})"
            ) from error
        progress = self.learner.progress
        if progress.best_step:
            self.folder.write_weights(self.learner.best, progress.best_step)
        # Rows that were written after the checkpoint will be written again.
        self.rows = [row for row in self.folder.rows() if row["step"] <= progress.step]
        self.snapshots = [kept for kept in self.folder.snapshots() if kept["step"] <= progress.step]
        self._tell_what_was_lost()
        if progress.finished:
            self.message(f"{self.folder.path}: training has ended, there is nothing to go on with")
        else:
            self.message(f"{self.folder.path}: going on after step {progress.step}")

    def _tell_what_was_lost(self) -> None:
        """Rows are written before the checkpoint of their step, so they are there unless somebody removed
        them; the figures and the page of the run will be without them."""
        step, events = self.learner.progress.step, [row["event"] for row in self.rows]
        lost = []
        if (
            events.count("train") < step // self.settings.log_every
            or events.count("evaluation") < step // self.settings.evaluate_every
        ):
            lost.append("metrics.jsonl")
        if not self.snapshots:
            lost.append("snapshots.jsonl")
        if lost:
            lack = f"{' and '.join(lost)} {'lack' if lost[1:] else 'lacks'}"
            self.message(f"{self.folder.path}: {lack} some of what was kept up to step {step}")

    def to_the_end(self, shown: bool | None) -> Result:
        """Train what is left, then test the best weights."""
        learner = self.learner
        with workers(self.settings.workers), Interruption() as interruption:
            if not learner.progress.finished:
                self._train(interruption, shown)
            learner.model.load_state_dict(learner.best)
            test = self._tested(interruption)
        if interruption.requested:  # so late that there was nothing left to save
            command = self.folder.command_to_resume()
            raise KeyboardInterrupt(f"interrupted, but the run is complete; its result: {command}")
        return Result(self.folder, self.data, learner.model, test, learner.progress.reason)

    def _train(self, interruption: Interruption, shown: bool | None) -> None:
        settings, learner = self.settings, self.learner
        progress = learner.progress
        self.clock = _Clock(progress.seconds)
        self.saved_at = self.clock.seconds()
        bar = ProgressBar(self.data.name, shown)
        if progress.step == 0:
            self.snapshots = [snapshot(learner.model, self.data, 0)]
        try:
            while not progress.finished:
                # The rate is that of the middle of the step: a warm-up does not begin with a rate of 0.
                used = progress_at(settings, progress.step + 0.5, self.clock.seconds())
                batch = self.data.train_batch(progress.step, settings.batch)
                loss, speed = learner.step(batch, learning_rate(settings, used))
                used = progress_at(settings, progress.step, self.clock.seconds())
                bar.update(used, self.clock.seconds(), progress.step, loss, speed)
                self._after_step(used >= 1, bar)
                if interruption.requested and not progress.finished:
                    self._save()
                    self._stop()
        finally:
            bar.close()

    def _after_step(self, ended: bool, bar: ProgressBar) -> None:
        """What is due after a step: a row of figures, an evaluation, a checkpoint, the end."""
        settings, progress = self.settings, self.learner.progress
        if is_due(progress.step):
            self.snapshots.append(snapshot(self.learner.model, self.data, progress.step))
        if ended or progress.step % settings.log_every == 0:
            self._note("train", self.learner.window.row(), lr=self.learner.optimiser.lr)
            self.learner.window = Window()
        if ended or progress.step % settings.evaluate_every == 0:
            bar.note = f"{self._evaluate().exact_match:.1%} right"
            if ended:
                progress.finished, progress.reason = True, "the budget is used up"
            elif progress.solved >= 2 and settings.stop_when_solved:
                progress.finished = True
                progress.reason = "every development sequence was right, twice in a row"
            self._save()
        elif self.clock.seconds() - self.saved_at > CHECKPOINT_SECONDS:
            self._save()

    def _evaluate(self) -> Evaluation:
        """Evaluate on the development set, and keep the weights if they are the best so far."""
        learner = self.learner
        try:
            with np.errstate(all="ignore"):
                found = evaluate(learner.model, self.development, task=self.task)
            if not math.isfinite(found.loss):
                raise FloatingPointError(f"the loss on the development set is {found.loss}")
        except FloatingPointError as error:
            raise diverged(learner.progress.step, error) from None
        best = learner.judge(found.exact_match, found.loss)
        if best:
            self.folder.write_weights(learner.best, learner.progress.step)
        self._note("evaluation", found.row(), best=best)
        return found

    def _tested(self, interruption: Interruption) -> dict[str, Any]:
        """The row of the test set, made now unless it is there already."""
        if self.rows and self.rows[-1]["event"] == "test":
            return self.rows[-1]

        def stop_if_requested() -> None:
            if interruption.requested:
                self._stop()

        progress, started = self.learner.progress, time.perf_counter()
        found = evaluate(self.learner.model, self.data.test, task=self.task, after_batch=stop_if_requested)
        times = {"train_seconds": progress.seconds, "test_seconds": time.perf_counter() - started}
        self.rows.append(
            {"event": "test", "step": progress.step, "best_step": progress.best_step, **found.row(), **times}
        )
        write_figures(self.folder, self.data, self.learner.model, self.rows, self.snapshots, self.message)
        self.folder.write_rows(self.rows)  # last: with the row of the test the run is complete
        return self.rows[-1]

    def _note(self, event: str, figures: Mapping[str, Any], **others: Any) -> None:
        """Add a row of metrics; it is written with the next checkpoint."""
        step, seconds = self.learner.progress.step, self.clock.seconds()
        self.rows.append({"event": event, "step": step, **figures, **others, "seconds": seconds})

    def _save(self) -> None:
        """Write the metrics and snapshots, then a checkpoint, so that no checkpoint is ahead of them."""
        self.saved_at = self.learner.progress.seconds = self.clock.seconds()
        self.folder.write_rows(self.rows)
        self.folder.write_snapshots(self.snapshots)
        self.checkpoints.save(self.learner.checkpoint())

    def _stop(self) -> None:
        """End for Ctrl-C, when everything is saved."""
        raise KeyboardInterrupt(
            f"interrupted, saved after step {self.learner.progress.step}; "
            f"go on with: {self.folder.command_to_resume()}"
        )


class _Clock:
    """The time spent in training, that of earlier processes included."""

    def __init__(self, before: float) -> None:
        self._started = time.perf_counter() - before

    def seconds(self) -> float:
        """Up to now."""
        return time.perf_counter() - self._started
