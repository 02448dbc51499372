"""What the commands that draw a computation draw: the running example, or a trained model on an input."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from tinygrad_attn.cli.parser import as_text, say
from tinygrad_attn.data import Tokens, make_batch
from tinygrad_attn.engine import Tensor
from tinygrad_attn.errors import UserError
from tinygrad_attn.ops import cross_entropy, softmax, stack, sum, tanh
from tinygrad_attn.tokens import EOS, SPECIAL_TOKENS
from tinygrad_attn.train import load_run
from tinygrad_attn.worked import RUNNING

_T = TypeVar("_T")

ABOUT_INPUT = """\
Without a run, the example is h = (0.2, 0.9, 0.1), s_0 = 0.5, e_j = tanh(s_0 + h_j), with logits (c, 0) and
word 1 as the target. With one, it is the loss of the trained model on TEXT, whose target is what the model
itself puts out, unless --target gives another.
"""


@dataclass(frozen=True)
class Computation:
    """A loss that was computed, and the symbols it is about."""

    loss: Tensor
    source: Tokens
    target: Tokens


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what says which computation is meant."""
    parser.add_argument(
        "folder", nargs="?", metavar="FOLDER", help="a run folder (default: the running example)"
    )
    parser.add_argument("text", nargs="?", type=as_text, metavar="TEXT", help="an input of the run's model")
    parser.add_argument(
        "--target",
        type=as_text,
        metavar="TEXT",
        help="the output to compute the loss of (default: the model's own)",
    )


def computed(arguments: argparse.Namespace) -> Computation:
    """The computation that the arguments name, before any backward pass; UserError if they do not fit."""
    if arguments.folder is None:
        if arguments.target is not None:
            raise UserError("--target is for a run; the running example has its own")
        return _running_example()
    if arguments.text is None:
        raise UserError(f"an input is missing: give the run {arguments.folder} a TEXT to read")
    predictor, text_format = load_run(arguments.folder)
    source = text_format.split_source(arguments.text)
    if arguments.target is None:
        target = predictor.predict(source).tokens
    else:
        target = text_format.split_target(arguments.target)
    for side, tokens, vocabulary in (
        ("input", source, predictor.source_vocabulary),
        ("target", target, predictor.target_vocabulary),
    ):
        unknown = vocabulary.unknown(tokens)
        if unknown:
            say(f"{side}: unknown to the model and read as <unk>: {', '.join(map(repr, unknown))}")
    ids = predictor.source_vocabulary.encode(source), predictor.target_vocabulary.encode(target)
    loss = predictor.model.loss(make_batch([ids]))
    return Computation(loss, source, (*target, SPECIAL_TOKENS[EOS]))


def or_user_error(act: Callable[[], _T]) -> _T:
    """What `act` returns; an error about its arguments, which the user gave, becomes a UserError."""
    try:
        return act()
    except (ValueError, KeyError, RuntimeError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(error.args[0] if isinstance(error, KeyError) else str(error)) from None


def _running_example() -> Computation:
    h = Tensor([number for (number,) in RUNNING.h], requires_grad=True, name="h")
    s = Tensor(RUNNING.s[0][0], requires_grad=True, name="s₀")
    e = _called("e", tanh(s + h))
    alpha = _called("α", softmax(e))
    c = _called("c", sum(alpha * h))
    logits = _called("logits", stack([c, 0.0]))
    loss = _called("loss", cross_entropy(logits, np.array(RUNNING.targets[0] - 1)))
    return Computation(loss, ("h₁", "h₂", "h₃"), ("1",))


def _called(name: str, tensor: Tensor) -> Tensor:
    tensor.name = name
    return tensor
