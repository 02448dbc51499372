"""A model while it learns: weights, optimiser, random state, and where it stands."""

from __future__ import annotations

import reprlib
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np

from tinygrad_attn import optim
from tinygrad_attn.data import Batch, Dataset
from tinygrad_attn.train.arrays import is_finite
from tinygrad_attn.train.checkpoint import Checkpoint
from tinygrad_attn.train.config import ModelConfig, TrainingConfig

_MOST = {int: 10**15, float: 1e300}
"""Of what is counted, and of what is summed."""

Kept = TypeVar("Kept", "Window", "Progress")


@dataclass
class Window:
    """Sums over the steps since the last row of training figures."""

    steps: int = 0
    tokens: int = 0
    loss: float = 0.0
    """Summed over the tokens."""
    gradient_norm: float = 0.0
    """Before clipping, summed over the steps."""
    seconds: float = 0.0

    def row(self) -> dict[str, float | int]:
        """The means, by token or by step, for a row of metrics."""
        return {
            "loss": self.loss / self.tokens,
            "gradient_norm": self.gradient_norm / self.steps,
            "tokens": self.tokens,
            "tokens_per_second": self.tokens / self.seconds,
        }


@dataclass
class Progress:
    """Where a training stands."""

    step: int = 0
    seconds: float = 0.0
    """Spent in training, up to the last checkpoint."""
    best_step: int = 0
    best_exact_match: float = -1.0
    best_loss: float = 0.0
    solved: int = 0
    """How many evaluations in a row found every development sequence right."""
    finished: bool = False
    reason: str = ""
    """Why training ended."""


class Learner:
    """All that the rest of a training depends on; what `checkpoint` gives, `restore` brings back."""

    def __init__(self, model: ModelConfig, training: TrainingConfig, data: Dataset) -> None:
        self.rng = np.random.default_rng(training.seed)
        self.model = model.build(len(data.source_vocabulary), len(data.target_vocabulary), self.rng)
        self.parameters = list(self.model.named_parameters())
        self.clip = training.clip
        kinds: dict[str, Callable[..., optim.Optimizer]] = {
            "adam": optim.Adam,
            "adamw": optim.AdamW,
            "sgd": optim.SGD,
            "adadelta": optim.Adadelta,
        }
        self.optimiser = kinds[training.optimiser](
            self.parameters, training.lr, weight_decay=training.weight_decay
        )
        self.progress, self.window = Progress(), Window()
        self.best = self.model.state_dict()

    def step(self, batch: Batch, lr: float) -> tuple[float, float]:
        """One update; (mean loss of a token, tokens per second).

        Raises NonFiniteError, with the weights as they were, if a gradient is not finite.
        """
        started = time.perf_counter()
        self.optimiser.lr = lr
        self.optimiser.zero_grad()
        try:
            with np.errstate(all="ignore"):  # the optimiser finds what is not finite, and names the parameter
                loss = self.model.loss(batch)
                loss.backward()
                mean = float(loss.item())
                del loss  # with it the graph of this step is gone before the next
                norm = optim.clip_grad_norm(self.parameters, self.clip)
                self.optimiser.step()
        except FloatingPointError as error:
            raise diverged(self.progress.step + 1, error) from None
        seconds = time.perf_counter() - started
        self.progress.step += 1
        window = self.window
        window.steps += 1
        window.tokens += batch.tokens
        window.loss += mean * batch.tokens
        window.gradient_norm += norm
        window.seconds += seconds
        return mean, batch.tokens / seconds

    def judge(self, exact_match: float, loss: float) -> bool:
        """Note the figures of an evaluation on the development set; whether the weights are the best so far.

        More right as a whole is better; of equally many, the lower loss.
        """
        progress = self.progress
        progress.solved = progress.solved + 1 if exact_match == 1 else 0
        if (exact_match, -loss) <= (progress.best_exact_match, -progress.best_loss):
            return False
        progress.best_step, progress.best_exact_match, progress.best_loss = progress.step, exact_match, loss
        self.best = self.model.state_dict()
        return True

    def checkpoint(self) -> Checkpoint:
        """Copies of everything."""
        parts = {"model": self.model.state_dict(), "best": self.best, "optimiser": {}}
        numbers = {}
        for name, entry in self.optimiser.state_dict().items():
            if isinstance(entry, np.ndarray):
                parts["optimiser"][name] = entry
            else:
                numbers[name] = entry
        arrays = {f"{part}/{name}": array for part, named in parts.items() for name, array in named.items()}
        state = {
            "progress": asdict(self.progress),
            "window": asdict(self.window),
            "random": self.rng.bit_generator.state,
            "optimiser": numbers,
        }
        return Checkpoint(self.progress.step, arrays, state)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Everything as it was; KeyError, TypeError, ValueError or OverflowError if it does not fit."""
        state: dict[str, Any] = checkpoint.state
        self.progress, self.window = _made(Progress, state["progress"]), _made(Window, state["window"])
        steps = self.progress.step
        if steps != checkpoint.step:
            raise ValueError(f"the progress is that of step {steps}")
        self.rng.bit_generator.state = state["random"]
        self.optimiser.load_state_dict({**checkpoint.part("optimiser"), **state["optimiser"]})
        counts = {"best_step": self.progress.best_step, "steps of the window": self.window.steps}
        updates = {k: n for k, n in self.optimiser.state_dict().items() if k.startswith("steps/")}
        for name, count in (counts | updates).items():
            if not 0 <= count <= steps:
                raise ValueError(f"{name} is {count}, expected from 0 to {steps}")
        self.best = checkpoint.part("best")
        for name, array in self.best.items():
            if not is_finite(array):
                raise ValueError(f"{name} holds numbers that are not finite")
        self.model.load_state_dict(self.best)  # to see that they fit
        self.model.load_state_dict(checkpoint.part("model"))


def _made(kind: type[Kept], content: Mapping[str, Any]) -> Kept:
    """The dataclass of these values. TypeError for other names, or values of another kind than the usual;
    ValueError for numbers that cannot have come about."""
    made = kind(**content)
    for name, usual in vars(kind()).items():
        if name not in content:
            raise TypeError(f"it is without {name}")
        value = content[name]
        if type(value) is not type(usual) and (type(usual), type(value)) != (float, int):
            raise TypeError(f"{name} is {value!r}")
        # Nothing is below 0 but the best share of what was not evaluated yet.
        if type(usual) in _MOST and not min(usual, 0) <= value <= _MOST[type(usual)]:
            raise ValueError(f"{name} is {reprlib.repr(value)}")
    return made


def diverged(step: int, error: FloatingPointError) -> optim.NonFiniteError:
    """The error that ends a training whose numbers are no longer finite, with what may help."""
    return optim.NonFiniteError(f"step {step}: {error}; a lower learning rate may help")
