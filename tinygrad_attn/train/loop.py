"""The training loop."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tinygrad_attn import optim
from tinygrad_attn.data import Dataset, Task, from_description
from tinygrad_attn.errors import CheckpointError
from tinygrad_attn.nn import Seq2Seq
from tinygrad_attn.train.checkpoint import Checkpoint
from tinygrad_attn.train.config import ModelConfig, TrainingConfig, default_settings
from tinygrad_attn.train.evaluation import Evaluation, evaluate, first_sequences
from tinygrad_attn.train.figures import write_figures
from tinygrad_attn.train.folder import RunConfig, RunFolder
from tinygrad_attn.train.guard import Interruption, one_blas_thread
from tinygrad_attn.train.progress import ProgressBar
from tinygrad_attn.train.schedule import learning_rate, progress_at

CHECKPOINT_SECONDS = 60.0
"""A checkpoint is written at every evaluation, and in between once the last one is older than this."""

Message = Callable[[str], None]


@dataclass
class Window:
    """Sums over the steps since the last row of training figures."""

    steps: int = 0
    tokens: int = 0
    loss: float = 0.0
    """Summed over the tokens."""
    gradient_norm: float = 0.0
    seconds: float = 0.0


@dataclass
class Progress:
    """Where a training stands; with weights, optimiser and random state, all that its future depends on."""

    step: int = 0
    seconds: float = 0.0
    best_step: int = 0
    best_exact_match: float = -1.0
    best_loss: float = 0.0
    solved: int = 0
    """How many evaluations in a row found every development sequence right."""
    finished: bool = False
    reason: str = ""
    """Why training ended."""


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
        CheckpointError: if the folder holds a run, or other files.
        NonFiniteError: if a gradient is not finite; the last checkpoint and the best weights stay.
        KeyboardInterrupt: after Ctrl-C, when everything is saved; `resume` goes on.
    """
    usual = default_settings(data)
    config = RunConfig(data.describe(), model or usual[0], training or usual[1])
    folder = RunFolder.create(out, config, overwrite=overwrite)
    return _Training(folder, config, data, message).run(progress)


def resume(
    out: str | os.PathLike[str],
    *,
    progress: bool | None = None,
    message: Message = print,
) -> Result:
    """Go on with the run in the folder `out` from its last checkpoint, bit for bit as if never interrupted.

    A run that has ended is not trained further; its result comes back.

    Raises:
        CheckpointError: if there is no run, or no checkpoint of it is whole.
        DataError: if a file of its data is gone or has changed.
    """
    folder = RunFolder(out)
    config = folder.config()
    return _Training(folder, config, from_description(config.data), message).run(progress)


class _Training:
    """One run while it is trained."""

    def __init__(self, folder: RunFolder, config: RunConfig, data: Dataset, message: Message) -> None:
        self.folder, self.config, self.data, self.message = folder, config, data, message
        settings = config.training
        self.rng = np.random.default_rng(settings.seed)
        self.model = config.model.build(len(data.source_vocabulary), len(data.target_vocabulary), self.rng)
        self.parameters = list(self.model.named_parameters())
        self.optimiser = _optimiser(settings, self.parameters)
        self.checkpoints = folder.checkpoints(config)
        self.task = data.name if isinstance(data, Task) else None
        self.development = first_sequences(data.development, settings.development)
        self.progress, self.window = Progress(), Window()
        self.best = self.model.state_dict()
        self.rows: list[dict[str, Any]] = []
        self._base, self._started = 0.0, time.perf_counter()
        self._saved_at = self._started

    def run(self, shown: bool | None) -> Result:
        """Train to the end and test, from the last checkpoint if there is one."""
        self._restore()
        self.folder.write_vocabularies(self.data)
        with one_blas_thread(), Interruption() as interruption:
            if not self.progress.finished:
                self._train(interruption, shown)
            self.model.load_state_dict(self.best)
            return Result(
                self.folder, self.data, self.model, self._tested(interruption), self.progress.reason
            )

    def _train(self, interruption: Interruption, shown: bool | None) -> None:
        settings = self.config.training
        self._base, self._started = self.progress.seconds, time.perf_counter()
        self._saved_at = self._started
        bar = ProgressBar(self.data.name, shown)
        try:
            with np.errstate(
                all="ignore"
            ):  # what is not finite is found by the optimiser, with the parameter's name
                while not self.progress.finished:
                    loss, speed = self._step()
                    used = progress_at(settings, self.progress.step, self._seconds())
                    bar.update(used, self._seconds(), self.progress.step, loss, speed)
                    self._after_step(used, bar)
                    if interruption.requested and not self.progress.finished:
                        self._save()
                        raise KeyboardInterrupt(
                            f"interrupted, saved after step {self.progress.step}; "
                            f"go on with: tinygrad-attn train --resume --out {self.folder.path}"
                        )
        finally:
            bar.close()

    def _step(self) -> tuple[float, float]:
        """One update; (mean loss of a token, tokens per second)."""
        started = time.perf_counter()
        settings, step = self.config.training, self.progress.step
        batch = self.data.train_batch(step, settings.batch)
        # As in the middle of the step, so that a warm-up does not start with a step of rate 0.
        self.optimiser.lr = learning_rate(settings, progress_at(settings, step + 0.5, self._seconds()))
        self.optimiser.zero_grad()
        loss = self.model.loss(batch)
        loss.backward()
        mean = float(loss.item())
        del loss  # with it the graph of this step is gone before the next
        norm = optim.clip_grad_norm(self.parameters, settings.clip)
        self.optimiser.step()
        self.progress.step += 1
        seconds = time.perf_counter() - started
        window = self.window
        window.steps += 1
        window.tokens += batch.tokens
        window.loss += mean * batch.tokens
        window.gradient_norm += norm
        window.seconds += seconds
        return mean, batch.tokens / seconds

    def _after_step(self, used: float, bar: ProgressBar) -> None:
        """What is due after a step: a row of figures, an evaluation, a checkpoint, the end."""
        settings, progress = self.config.training, self.progress
        ended = used >= 1
        if ended or progress.step % settings.log_every == 0:
            self._log()
        if ended or progress.step % settings.evaluate_every == 0:
            found = self._evaluate()
            bar.note = f"{found.exact_match:.1%} right"
            if progress.solved >= 2 and settings.stop_when_solved:
                progress.finished = True
                progress.reason = "every development sequence was right, twice in a row"
            elif ended:
                progress.finished, progress.reason = True, "the budget is used up"
            self._save()
        elif time.perf_counter() - self._saved_at > CHECKPOINT_SECONDS:
            self._save()

    def _log(self) -> None:
        window = self.window
        self.rows.append(
            {
                "event": "train",
                "step": self.progress.step,
                "loss": window.loss / window.tokens,
                "lr": self.optimiser.lr,
                "gradient_norm": window.gradient_norm / window.steps,
                "tokens": window.tokens,
                "tokens_per_second": window.tokens / window.seconds,
                "seconds": self._seconds(),
            }
        )
        self.window = Window()

    def _evaluate(self) -> Evaluation:
        progress = self.progress
        found = evaluate(self.model, self.development, task=self.task)
        better = (found.exact_match, -found.loss) > (progress.best_exact_match, -progress.best_loss)
        if better:
            progress.best_step, progress.best_exact_match = progress.step, found.exact_match
            progress.best_loss = found.loss
            self.best = self.model.state_dict()
            self.folder.write_weights(self.best, progress.step)
        progress.solved = progress.solved + 1 if found.exact_match == 1 else 0
        self.rows.append(
            {
                "event": "evaluation",
                "step": progress.step,
                **found.row(),
                "best": better,
                "seconds": self._seconds(),
            }
        )
        return found

    def _tested(self, interruption: Interruption) -> dict[str, Any]:
        """The row of the test set, made now unless it is there already."""
        if self.rows and self.rows[-1]["event"] == "test":
            return self.rows[-1]
        started = time.perf_counter()
        found = evaluate(
            self.model, self.data.test, task=self.task, after_batch=interruption.raise_if_requested
        )
        row = {
            "event": "test",
            "step": self.progress.step,
            "best_step": self.progress.best_step,
            **found.row(),
            "train_seconds": self.progress.seconds,
            "test_seconds": time.perf_counter() - started,
        }
        write_figures(self.folder, self.data, self.model, self.rows)
        self.rows.append(row)
        self.folder.write_rows(self.rows)
        return row

    def _seconds(self) -> float:
        """The time spent in training, that before an interruption included."""
        return self._base + time.perf_counter() - self._started

    def _save(self) -> None:
        """Write the metrics, then a checkpoint, so that no checkpoint is ahead of them."""
        self.progress.seconds = self._seconds()
        self.folder.write_rows(self.rows)
        optimiser = self.optimiser.state_dict()
        arrays = {f"model/{name}": array for name, array in self.model.state_dict().items()}
        arrays |= {f"best/{name}": array for name, array in self.best.items()}
        arrays |= {
            f"optimiser/{name}": entry for name, entry in optimiser.items() if isinstance(entry, np.ndarray)
        }
        state = {
            **asdict(self.progress),
            "window": asdict(self.window),
            "random": self.rng.bit_generator.state,
            "optimiser": {
                name: entry for name, entry in optimiser.items() if not isinstance(entry, np.ndarray)
            },
        }
        self.checkpoints.save(Checkpoint(arrays, state))
        self._saved_at = time.perf_counter()

    def _restore(self) -> None:
        """Set everything to the last checkpoint; without one, training starts at the beginning."""
        checkpoint = self.checkpoints.load(self.message)
        if checkpoint is None:
            return
        with _foreign_state(self.folder):
            state = dict(checkpoint.state)
            self.window = Window(**state.pop("window"))
            self.rng.bit_generator.state = state.pop("random")
            numbers = state.pop("optimiser")
            self.progress = Progress(**state)
            self.optimiser.load_state_dict({**checkpoint.part("optimiser"), **numbers})
            self.best = checkpoint.part("best")
            self.model.load_state_dict(self.best)  # checks that they fit
            self.model.load_state_dict(checkpoint.part("model"))
        if self.progress.best_step:
            self.folder.write_weights(self.best, self.progress.best_step)
        self.rows = [row for row in self.folder.rows() if row["step"] <= self.progress.step]
        if not self.progress.finished:
            self.rows = [row for row in self.rows if row["event"] != "test"]
            self.message(f"{self.folder.path}: going on after step {self.progress.step}")


@contextmanager
def _foreign_state(folder: RunFolder) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{folder.path / 'checkpoint'}: the checkpoint does not fit the run ({error})"
        ) from error


def _optimiser(settings: TrainingConfig, parameters: list[tuple[str, Any]]) -> optim.Optimizer:
    kinds: dict[str, type[optim.Optimizer]] = {
        "adam": optim.Adam,
        "sgd": optim.SGD,
        "adadelta": optim.Adadelta,
    }
    return kinds[settings.optimiser](parameters, settings.lr)
