"""The settings of a run: what the model is, how it is trained; both plain numbers and words, kept as JSON."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import Field, asdict, dataclass, field, fields
from typing import Any, TypeVar

import numpy as np

from tinygrad_attn.data import Dataset, Pairs
from tinygrad_attn.errors import UserError
from tinygrad_attn.nn import Seq2Seq, initialise_as_paper
from tinygrad_attn.nn.attention import ATTENTIONS
from tinygrad_attn.nn.cells import CELLS
from tinygrad_attn.train.guard import usual_workers


class ConfigError(UserError, ValueError):
    """A setting that is impossible, or that does not go with another."""


Check = Callable[[str, Any], None]
Settings = TypeVar("Settings", "ModelConfig", "TrainingConfig")


class _OneOf:
    """The check of a setting that is one of a few words."""

    def __init__(self, *choices: str) -> None:
        self.choices = choices

    def __call__(self, name: str, value: Any) -> None:
        if value not in self.choices:
            raise ConfigError(f"{name} is {value!r}, expected one of {', '.join(self.choices)}")


def _count(least: int = 1, most: int = 10**12) -> Check:
    def check(name: str, value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            bounds = (
                f"of at most {most}" if isinstance(value, int) and value > most else f"of at least {least}"
            )
            raise ConfigError(f"{name} is {value!r}, expected an integer {bounds}")

    return check


_size = _count(1, 100_000)


def _number(low: float, high: float = math.inf, *, above: bool = False, below: bool = False) -> Check:
    def check(name: str, value: Any) -> None:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        fits = number and abs(value) <= sys.float_info.max  # NaN and endless digits are not
        if (
            not fits
            or not (low < value if above else low <= value)
            or not (value < high if below else value <= high)
        ):
            finite = "finite " if number and not fits else ""
            bounds = f"{'above' if above else 'of at least'} {low:g}"
            if high < math.inf:
                bounds += f" and {'below' if below else 'at most'} {high:g}"
            raise ConfigError(f"{name} is {value!r}, expected a {finite}number {bounds}")

    return check


def _truth(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{name} is {value!r}, expected true or false")


def _setting(default: Any, check: Check, what: str, *, optional: bool = False) -> Any:
    """A field of a settings class, with the check of its value and a sentence that says what it is."""
    return field(default=default, metadata={"check": check, "what": what, "optional": optional})


class _Checked:
    """Checks each field when made, by the check declared with it; numpy's numbers become Python's."""

    def __post_init__(self) -> None:
        for declared in _fields(type(self)):
            value = getattr(self, declared.name)
            if isinstance(value, np.generic):
                value = value.item()
                object.__setattr__(self, declared.name, value)
            if value is not None or not declared.metadata["optional"]:
                declared.metadata["check"](declared.name, value)


@dataclass(frozen=True)
class ModelConfig(_Checked):
    """What the model is; see `Seq2Seq` for what each part does. `describe_settings` lists the fields."""

    attention: str = _setting(
        "additive",
        _OneOf(*ATTENTIONS),
        "the score that compares a decoder state with an annotation",
    )
    query: str = _setting(
        "previous", _OneOf("previous", "current"), "which state asks: s_{i-1} (Bahdanau) or s_i (Luong)"
    )
    cell: str = _setting("gru", _OneOf(*CELLS), "the recurrent cell of encoder and decoder")
    embedding: int = _setting(32, _size, "width of the embeddings of both sides")
    hidden: int = _setting(64, _size, "width of the decoder's state, and of each direction of the encoder")
    attention_size: int | None = _setting(
        None,
        _size,
        "inner width of the additive and concat scores; that of the state if not given",
        optional=True,
    )
    dropout: float = _setting(0.0, _number(0, 1, below=True), "probability of dropping an entry in training")
    init: str = _setting(
        "default", _OneOf("default", "paper"), "initial values: PyTorch's, or Bahdanau's B.1"
    )
    input_feeding: bool = _setting(
        False, _truth, "feed the attentional state to the next step (query current)"
    )
    output_layer: str = _setting(
        "linear",
        _OneOf("linear", "maxout"),
        "the layer before the softmax; maxout is the paper's deep output",
    )
    reset_after: bool = _setting(
        True, _truth, "the GRU resets after its recurrent product (PyTorch), not before (paper)"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.attention in ("dot", "scaled") and self.hidden % 2:
            raise ConfigError(
                f"hidden is {self.hidden}, expected an even number: {self.attention} attention needs "
                "annotations, of two directions of half the width, as wide as the state"
            )
        if self.input_feeding and self.query != "current":
            raise ConfigError("input_feeding needs query current, which has the state that is fed")
        if self.output_layer == "maxout" and self.query != "previous":
            raise ConfigError("output_layer maxout needs query previous, whose output layer it is")
        if not self.reset_after and self.cell != "gru":
            raise ConfigError(f"reset_after false needs cell gru; {self.cell} has no reset gate")

    def build(self, source_size: int, target_size: int, rng: np.random.Generator) -> Seq2Seq:
        """The model with initial values from `rng`, which dropout draws from later.

        Dot products compare state and annotation directly, so there each direction of the encoder has half
        the width.
        """
        model = Seq2Seq(
            source_size,
            target_size,
            self.embedding,
            self.hidden,
            self.attention,
            self.cell,
            self.query,
            attention_size=self.attention_size,
            encoder_hidden_size=self.hidden // 2 if self.attention in ("dot", "scaled") else None,
            input_feeding=self.input_feeding,
            output=self.output_layer,
            reset_after=self.reset_after,
            dropout=self.dropout,
            rng=rng,
        )
        if self.init == "paper":
            initialise_as_paper(model, rng)
        return model


@dataclass(frozen=True)
class TrainingConfig(_Checked):
    """How the model is trained. `describe_settings` lists the fields.

    Training ends when the budget is used up, of steps or of minutes, whichever is given (or comes first).
    """

    steps: int | None = _setting(None, _count(), "the budget in steps", optional=True)
    minutes: float | None = _setting(None, _number(0, above=True), "the budget in minutes", optional=True)
    batch: int = _setting(64, _count(1, 1_000_000), "sequences in a batch")
    optimiser: str = _setting("adam", _OneOf("adam", "adamw", "sgd", "adadelta"), "the rule of the updates")
    lr: float = _setting(2e-3, _number(0, above=True), "the highest learning rate")
    schedule: str = _setting(
        "cosine", _OneOf("constant", "linear", "cosine"), "how the learning rate falls over the budget"
    )
    warmup: float = _setting(
        0.0, _number(0, 1, below=True), "share of the budget in which the learning rate rises from 0"
    )
    lr_end: float = _setting(
        0.02, _number(0, 1), "share of the learning rate that is left at the end of the budget"
    )
    clip: float = _setting(1.0, _number(0, above=True), "largest global norm of the gradient")
    weight_decay: float = _setting(
        0.0, _number(0), "pull of the weights to zero: part of the gradient, or beside it (adamw)"
    )
    seed: int = _setting(0, _count(0), "fixes initial values, data and dropout")
    workers: int = _setting(1, _count(), "processes that share a batch where the model is large enough")
    log_every: int = _setting(50, _count(), "steps between rows of training figures")
    evaluate_every: int = _setting(500, _count(), "steps between evaluations on the development set")
    development: int = _setting(1000, _count(), "sequences of the development set that are evaluated")
    stop_when_solved: bool = _setting(
        True, _truth, "stop once every development sequence is right, at two evaluations in a row"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps is None and self.minutes is None:
            raise ConfigError("neither steps nor minutes are given, expected a budget")


def describe_settings(kind: type[ModelConfig] | type[TrainingConfig]) -> dict[str, str]:
    """What each setting means, by name, with the values it may have and the usual ones."""
    usual = [next(one for one in _usual(pairs) if type(one) is kind) for pairs in (False, True)]
    found = {}
    for declared in _fields(kind):
        check, text = declared.metadata["check"], declared.metadata["what"]
        values = f": {', '.join(check.choices)}" if isinstance(check, _OneOf) else ""
        default = _default_text(*(getattr(settings, declared.name) for settings in usual))
        found[declared.name] = f"{text}{values}{default}"
    return found


def _default_text(task: Any, pairs: Any) -> str:
    """The default value of a setting in words, which may depend on the data; nothing where there is none."""
    if task == pairs:
        return "" if task is None else f" (default: {_in_words(task)})"
    defaults = [
        f"{_in_words(x)} for {data}" for x, data in ((task, "a task"), (pairs, "pairs")) if x is not None
    ]
    return f" (default: {', '.join(defaults)})"


def _in_words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def settings_from_json(kind: type[Settings], content: Any, where: str) -> Settings:
    """The settings that `dataclasses.asdict` gave; ConfigError, naming `where`, for anything else."""
    names = {declared.name for declared in _fields(kind)}
    if not isinstance(content, Mapping) or set(content) != names:
        came = f"keys {sorted(map(str, content))}" if isinstance(content, Mapping) else type(content).__name__
        raise ConfigError(f"{where}: {came}, expected the keys {sorted(names)}")
    try:
        return kind(**content)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def settings_to_json(settings: ModelConfig | TrainingConfig) -> dict[str, Any]:
    """A plain dictionary for `json`; `settings_from_json` is its inverse."""
    return asdict(settings)


def default_settings(data: Dataset) -> tuple[ModelConfig, TrainingConfig]:
    """Settings that suit the data: a toy task in half a minute, pairs of real words in ten."""
    return _usual(isinstance(data, Pairs))


def _usual(pairs: bool) -> tuple[ModelConfig, TrainingConfig]:
    if pairs:
        return (
            ModelConfig(embedding=64, hidden=160, attention_size=128),
            TrainingConfig(
                minutes=9.7, lr=2.5e-3, evaluate_every=1000, log_every=100, workers=usual_workers()
            ),
        )
    return ModelConfig(), TrainingConfig(steps=3000, lr=2e-3, evaluate_every=100, workers=usual_workers())


def _fields(kind: Any) -> tuple[Field[Any], ...]:
    return fields(kind)
