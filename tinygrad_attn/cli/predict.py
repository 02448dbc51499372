"""`tinygrad-attn predict`."""

from __future__ import annotations

import argparse
import codecs
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from tinygrad_attn.cli.drawing import MOST_LINES, draw
from tinygrad_attn.cli.parser import OK, as_text, say
from tinygrad_attn.data import TextFormat
from tinygrad_attn.errors import DataError
from tinygrad_attn.train import ConfigError, Prediction, load_run
from tinygrad_attn.viz.token_names import shortened

_DESCRIPTION = """\
Print what a trained model makes of each input, one line for each. Without a text, lines are read from
standard input as they come. An empty line stays empty. Symbols that the model does not know are read as
<unk>, and named on standard error.

  tinygrad-attn predict runs/reverse "1 2 3 4"
  tinygrad-attn predict runs/words --beam 5 <words.txt
  tinygrad-attn predict runs/words attention --alignment
  tinygrad-attn predict runs/words attention --json --alignment
"""

MOST_CANDIDATES, MOST_SYMBOLS = 10_000, 1_000_000


def add_parser(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("predict", help="use a trained model", description=_DESCRIPTION)
    parser.set_defaults(run=run)
    parser.add_argument("folder", metavar="FOLDER", help="the run folder")
    parser.add_argument(
        "text",
        nargs="*",
        type=as_text,
        default=[],  # without one, argparse would call it required
        metavar="TEXT",
        help="an input (default: lines from standard input)",
    )
    parser.add_argument(
        "--beam", type=int, default=1, metavar="N", help="width of the beam search (default: 1)"
    )
    parser.add_argument(
        "--max-length", type=int, metavar="N", help="most output symbols (default: 100, or 3 times the input)"
    )
    parser.add_argument(
        "--alignment",
        action="store_true",
        help=f"draw where each output symbol looked (the first {MOST_LINES})",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object for each input")


def run(arguments: argparse.Namespace) -> int:
    """Predict input by input, each printed before the next is read."""
    for name, most in (("beam", MOST_CANDIDATES), ("max_length", MOST_SYMBOLS)):
        value = getattr(arguments, name)
        if value is not None and not 1 <= value <= most:
            raise ConfigError(f"--{name.replace('_', '-')} is {value}, expected from 1 to {most}")
    predictor, text_format = load_run(arguments.folder)
    for number, text in enumerate(_given(arguments.text) if arguments.text else _lines(), 1):
        found = None
        if text.strip(" "):
            source = text_format.split_source(text)
            found = predictor.predict(source, beam=arguments.beam, max_length=arguments.max_length)
            _tell(found, number)
        if arguments.json:
            print(json.dumps(_as_json(text, found, text_format, arguments.alignment), ensure_ascii=False))
        elif found is None:
            print()
        else:
            print(text_format.join_target(found.tokens))
            if arguments.alignment and found.tokens:
                print(draw(found))
        sys.stdout.flush()
    return OK


def _given(texts: Sequence[str]) -> Iterator[str]:
    """The texts of the command line; DataError for several lines in one."""
    for number, text in enumerate(texts, 1):
        if "\n" in text:
            raise DataError(f"text {number} has several lines, expected one; give each as a text of its own")
        yield text


def _lines() -> Iterator[str]:
    """The lines of standard input, each as soon as it is there, without a byte order mark before the first.
    DataError for bytes that are not UTF-8."""
    for number, line in enumerate(sys.stdin.buffer, 1):
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
            if not line:
                return
        try:
            yield line.decode("utf-8").removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            raise DataError(f"standard input, line {number}: byte 0x{byte:02x} is not UTF-8") from None


def _tell(found: Prediction, number: int) -> None:
    """What the user should know of a prediction, on standard error."""
    if found.unknown:
        symbols = ", ".join(shortened(repr(symbol), 40) for symbol in found.unknown)
        say(f"input {number}: unknown to the model and read as <unk>: {symbols}")
    if not found.complete:
        say(f"input {number}: the output was cut at the longest length, see --max-length")


def _as_json(text: str, found: Prediction | None, text_format: TextFormat, weights: bool) -> dict[str, Any]:
    """What a machine gets; `weights` has a row for each of `tokens` and a column for each of `source`."""
    content: dict[str, Any] = {
        "input": text,
        "output": text_format.join_target(found.tokens) if found else "",
        "source": list(found.source) if found else [],
        "tokens": list(found.tokens) if found else [],
        "log_probability": found.log_probability if found else None,
        "unknown": list(found.unknown) if found else [],
        "complete": found.complete if found else True,
    }
    if weights:
        content["weights"] = found.weights.tolist() if found else []
    return content
