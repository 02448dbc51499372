"""`tinygrad-attn train`."""

from __future__ import annotations

import argparse
import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from tinygrad_attn.cli.drawing import draw
from tinygrad_attn.cli.parser import OK, say
from tinygrad_attn.data import TASKS, Dataset, Pairs, Task
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
    if arguments.out == "":
        raise ConfigError("--out is empty, expected the folder of a run")
    if arguments.resume:
        result = _resumed(arguments, settings, shown)
    else:
        if arguments.task is None:
            raise ConfigError("no task is given, expected copy, reverse or a file of pairs")
        seed = settings.get("seed", 0)
        TrainingConfig(steps=1, seed=seed)  # a wrong seed is a wrong setting before it is wrong data
        data = _data(arguments, seed)
        model, training = _settings(data, settings)
        for note in data.notes:
            say(note)
        out = arguments.out or os.path.join("runs", Path(data.name).stem)
        result = train_run(
            data, out, model, training, overwrite=arguments.overwrite, progress=shown, message=say
        )
    if not arguments.quiet:
        _print_result(result)
    return OK


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
        raise ConfigError(
            f"{arguments.task}: no such task or file, expected copy, reverse or a file of pairs"
        )
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
    if arguments.out is None:
        raise ConfigError("--resume needs --out with the folder of the run")
    if arguments.overwrite:
        raise ConfigError("--resume and --overwrite exclude one another")
    config = RunFolder(arguments.out).config()
    for name in ("dev", "test"):
        if getattr(arguments, name) is not None:
            raise ConfigError(f"--resume goes on with the data of the run, so leave out --{name}")
    wanted = {"task": arguments.task, **settings}
    file = config.data.get("file")
    task = config.data.get("name") if not isinstance(file, dict) else file.get("path")
    if arguments.task is not None and file is not None:
        wanted["task"] = os.path.abspath(arguments.task)
    found = {"task": task, **vars(config.model), **vars(config.training)}
    for name in ("source_split", "target_split"):
        found[name], wanted[name] = config.data.get(name), getattr(arguments, name)
    for name, value in wanted.items():
        if value is not None and value != found[name]:
            raise ConfigError(
                f"{arguments.out}: the run has {name} {found[name]}, not {value}; --resume goes on with the "
                "settings of the run, so leave them out"
            )
    return resume_run(arguments.out, progress=shown, message=say)


def _print_result(result: Result) -> None:
    """The figures of the test set, a few examples with their alignment, and where everything is."""
    row, data = result.test, result.data
    print(f"training ended after step {row['step']} in {row['train_seconds']:.1f} s: {result.reason}")
    print(
        f"test: {row['exact_match']:.2%} of {row['sequences']:,} sequences exactly right "
        f"(error rate {1 - row['exact_match']:.2%}), token error rate {row['token_error_rate']:.2%}"
    )
    if "alignment_weight" in row:
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
