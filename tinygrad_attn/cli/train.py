"""`tinygrad-attn train`."""

from __future__ import annotations

import argparse
import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from tinygrad_attn.cli.drawing import draw
from tinygrad_attn.cli.parser import OK, say
from tinygrad_attn.data import TASKS, Dataset, Pairs, Task, files_of, from_description
from tinygrad_attn.train import (
    ConfigError,
    ModelConfig,
    Predictor,
    Result,
    RunFolder,
    TrainingConfig,
    default_settings,
)
from tinygrad_attn.train import resume as resume_run
from tinygrad_attn.train import train as train_run
from tinygrad_attn.train.config import describe_settings
from tinygrad_attn.train.figures import example_of_length

_DESCRIPTION = """\
Train a model: on the toy tasks copy or reverse (digits, lengths 1 to 10), or on a file of pairs, UTF-8 text
with one source<TAB>target a line. Everything about the run is kept in one folder.

  tinygrad-attn train reverse
  tinygrad-attn train copy --attention scaled --query current --cell lstm --out runs/luong
  tinygrad-attn train words.tsv --minutes 10 --out runs/words
  tinygrad-attn train --resume --out runs/words          go on after Ctrl-C or a crash, bit for bit
"""

_EXAMPLE_LENGTHS = 4, 7, 10
_PAIRS = "a file of pairs"


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "train", help="train a model and keep it in a run folder", description=_DESCRIPTION
    )
    parser.set_defaults(run=run)
    parser.add_argument("task", nargs="?", metavar="TASK", help="copy, reverse, or a file of pairs")
    parser.add_argument("--out", metavar="FOLDER", help="the run folder (default: runs/TASK)")
    parser.add_argument("--resume", action="store_true", help="go on with the run in the folder")
    parser.add_argument("--overwrite", action="store_true", help="replace the run in the folder")
    parser.add_argument("--quiet", action="store_true", help="no bar, no figures at the end")
    parser.add_argument("--progress", action="store_true", help="show the bar where it goes to no terminal")
    data = parser.add_argument_group("pairs from a file")
    for side in ("source", "target"):
        data.add_argument(
            f"--{side}-split",
            choices=("characters", "spaces"),
            help=f"how {side}s are split (default: at spaces if any {side} has one, else into characters)",
        )
    data.add_argument(
        "--dev", metavar="FILE", help="pairs to choose the best weights by (default: 2 %% of all)"
    )
    data.add_argument("--test", metavar="FILE", help="pairs for the final figures (default: 10 %% of all)")
    _add_settings(parser.add_argument_group("the model"), ModelConfig)
    _add_settings(parser.add_argument_group("training"), TrainingConfig)


def run(arguments: argparse.Namespace) -> int:
    """Train, and print what came out."""
    settings = {name: getattr(arguments, name) for name in _SETTINGS if getattr(arguments, name) is not None}
    shown = False if arguments.quiet else True if arguments.progress else None
    for name, expected in (("out", "the folder of a run"), ("dev", _PAIRS), ("test", _PAIRS)):
        if getattr(arguments, name) == "":
            raise ConfigError(f"--{name} is empty, expected {expected}")
    if arguments.resume:
        result = _resumed(arguments, settings, shown)
    else:
        if not arguments.task:
            raise ConfigError(f"no task is given, expected copy, reverse or {_PAIRS}")
        seed = settings.get("seed", 0)
        TrainingConfig(steps=1, seed=seed)  # a wrong seed is a wrong setting before it is wrong data
        data = _data(arguments, seed)
        model, training = _settings(data, settings)
        result = train_run(
            data,
            _folder(arguments),
            model,
            training,
            overwrite=arguments.overwrite,
            progress=shown,
            message=say,
        )
    if not arguments.quiet:
        _print_result(result)
    return OK


def _folder(arguments: argparse.Namespace) -> str:
    """The run folder: what --out says, or the usual one of the task."""
    return arguments.out or os.path.join("runs", Path(arguments.task).stem)


def _data(arguments: argparse.Namespace, seed: int) -> Dataset:
    """The data that the command line names; a mistyped task is told from a missing file."""
    options = {name: getattr(arguments, name) for name in ("source_split", "target_split", "dev", "test")}
    given = [name for name, value in options.items() if value is not None]
    if arguments.task in TASKS:
        if given:
            raise ConfigError(
                f"--{given[0].replace('_', '-')} goes with a file of pairs, not with {arguments.task}"
            )
        return Task(arguments.task, seed=seed)
    if not os.path.exists(arguments.task):
        raise ConfigError(f"{arguments.task}: no such task or file, expected copy, reverse or {_PAIRS}")
    development = options.pop("dev")
    return Pairs(arguments.task, **options, development=development, seed=seed)


def _settings(data: Dataset, given: dict[str, Any]) -> tuple[ModelConfig, TrainingConfig]:
    """What suits the data, with what the command line says instead."""
    model, training = default_settings(data)
    changes = {name: value for name, value in given.items() if name in _TRAINING}
    if "steps" in changes or "minutes" in changes:  # a budget replaces the usual one, whatever it counts
        changes = {"steps": None, "minutes": None, **changes}
    return replace(model, **{name: value for name, value in given.items() if name in _MODEL}), replace(
        training, **changes
    )


def _resumed(arguments: argparse.Namespace, settings: dict[str, Any], shown: bool | None) -> Result:
    """The run in the folder, trained to its end; ConfigError if the command line wants another one."""
    if arguments.out is None and arguments.task is None:
        raise ConfigError("--resume needs --out with the folder of the run, or the task whose run it is")
    if arguments.overwrite:
        raise ConfigError("--resume and --overwrite exclude one another")
    folder = RunFolder(_folder(arguments))
    config = folder.config()
    files = files_of(config.data)
    found = {
        "task": files.get("file", config.data.get("name")),
        **vars(config.model),
        **vars(config.training),
    }
    for name in ("source_split", "target_split"):
        found[name], settings[name] = config.data.get(name), getattr(arguments, name)
    if not files or arguments.task in TASKS:
        settings["task"] = arguments.task
    for name, value in settings.items():
        if value is not None and value != found[name]:
            raise ConfigError(
                f"{folder.path}: the run has {name} {found[name]}, not {value}; --resume goes on with the "
                "settings of the run, so leave them out"
            )
    moved = _moved(arguments, files, folder)
    return resume_run(folder.path, data=from_description(config.data, moved), progress=shown, message=say)


def _moved(arguments: argparse.Namespace, files: dict[str, str], folder: RunFolder) -> dict[str, str]:
    """Where the command line says that files of the run's data are now; ConfigError for others, and for those
    that are gone."""
    named = {"file": arguments.task if files else None, "development": arguments.dev, "test": arguments.test}
    named = {part: path for part, path in named.items() if path is not None}
    for part, option in (("development", "--dev"), ("test", "--test")):
        if part in named and part not in files:
            raise ConfigError(f"--resume goes on with the data of the run, so leave out {option}")
    for part, path in files.items():
        if part not in named and not os.path.exists(path):
            where = {"development": " with --dev FILE", "test": " with --test FILE"}.get(
                part, f": {folder.command_to_resume('FILE')}"
            )
            raise ConfigError(f"{path}: not there any more; name where the file is now{where}")
    return named


def _print_result(result: Result) -> None:
    """The figures of the test set, a few examples with their alignment, and where everything is."""
    row, data = result.test, result.data
    print(f"training ended after step {row['step']} in {row['train_seconds']:.1f} s: {result.reason}")
    print(
        f"test: {row['exact_match']:.2%} of {row['sequences']:,} sequences exactly right "
        f"(error rate {1 - row['exact_match']:.2%}), token error rate {row['token_error_rate']:.2%}"
    )
    if {"alignment_weight", "alignment_accuracy"} <= row.keys():
        print(
            f"alignment: {row['alignment_weight']:.1%} of the weight on the true source position, "
            f"which has the largest weight in {row['alignment_accuracy']:.1%} of the steps"
        )
    predictor = Predictor(result.model, data.source_vocabulary, data.target_vocabulary)
    for place in dict.fromkeys(example_of_length(data.test, length) for length in _EXAMPLE_LENGTHS):
        found = predictor.predict(data.test.sources[place])
        print(f"\n{data.join_source(found.source)} → {data.join_target(found.tokens)}")
        if found.tokens:
            print(draw(found))
    print(f"\nrun folder: {result.folder.path}")
    page = result.folder.path / "report.html"
    if page.exists():
        print(f"page to explore: {page}")


def _add_settings(group: Any, kind: type[ModelConfig] | type[TrainingConfig]) -> None:
    """An option for each setting. Its value is checked by the settings, where the other values are known."""
    meanings = describe_settings(kind)
    for declared in fields(kind):
        option = f"--{declared.name.replace('_', '-')}"
        meaning = meanings[declared.name].replace("%", "%%")
        if isinstance(declared.default, bool):
            group.add_argument(option, action=argparse.BooleanOptionalAction, help=meaning)
            continue
        number = {"int": int, "int | None": int, "float": float, "float | None": float}.get(
            str(declared.type)
        )
        group.add_argument(
            option,
            type=number or str,
            metavar="N" if number is int else "X" if number is float else "NAME",
            help=meaning,
        )


_MODEL = tuple(declared.name for declared in fields(ModelConfig))
_TRAINING = tuple(declared.name for declared in fields(TrainingConfig))
_SETTINGS = (*_MODEL, *_TRAINING)
