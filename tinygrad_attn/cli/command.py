"""The command as a whole: which commands there are, and what their errors become."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence

from tinygrad_attn import __version__
from tinygrad_attn.cli import bench, check, flow, graph, heatmap, predict, report, train, walkthrough
from tinygrad_attn.cli.parser import CHECK_FAILED, INTERRUPTED, OK, WRONG_USE, Parser, discard, say
from tinygrad_attn.errors import UserError

_DESCRIPTION = """\
Train small encoder-decoder models with attention, and see where they look.

  tinygrad-attn train reverse --out runs/reverse      learn to reverse digits, in half a minute
  tinygrad-attn predict runs/reverse "1 2 3"          use what was trained
  tinygrad-attn train words.tsv --minutes 10          learn from pairs, source<TAB>target a line
"""

_EPILOG = """\
Results go to standard output, progress and messages to standard error. Exit codes: 0 fine, 1 a check failed,
2 wrong use or input, 130 interrupted.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with `argv`, by default that of the process; the exit code."""
    if argv is None:  # a process of its own, whose pictures are files: no window, whatever is set up for one
        os.environ["MPLBACKEND"] = "agg"
    _open_closed_streams()
    _never_fail_to_encode()
    code: int = OK
    try:
        arguments = _parser().parse_args(argv)
        code = arguments.run(arguments)
        sys.stdout.flush()
        return code
    except SystemExit as error:  # argparse's way to end, after --help too
        return error.code if isinstance(error.code, int) else WRONG_USE
    except FloatingPointError as error:
        say(f"error: {error}")
        return CHECK_FAILED
    except UserError as error:
        say(f"error: {error}")
        return WRONG_USE
    except BrokenPipeError:  # whoever read the output has seen enough, as `head` does
        discard(sys.stdout)
        return code
    except OSError as error:
        where = "" if error.filename is None else f"{os.fsdecode(error.filename) or repr('')}: "
        say(f"error: {where}{error.strerror or error}")
        return WRONG_USE
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "tinygrad_attn":
            raise
        name = error.name.split(".")[0]
        say(f"error: {name} is not installed; python -m pip install {name}")
        return WRONG_USE
    except MemoryError:
        say("error: not enough memory; choose smaller sizes")
        return WRONG_USE
    except KeyboardInterrupt as error:
        say(str(error) or "interrupted")
        return INTERRUPTED


def _parser() -> Parser:
    """The parser of all commands."""
    parser = Parser(prog="tinygrad-attn", description=_DESCRIPTION, epilog=_EPILOG)
    parser.add_argument("--version", action="version", version=f"tinygrad-attn {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    for module in (train, predict, check, graph, flow, heatmap, report, walkthrough, bench):
        module.add_parser(commands)
    return parser


def _never_fail_to_encode() -> None:
    """A character that the terminal does not have is written as an escape, and not an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # and not one that tests or notebooks put there
            with contextlib.suppress(ValueError):  # it is closed, or detached
                stream.reconfigure(errors="backslashreplace")


def _open_closed_streams() -> None:
    """Of a process that was started without its standard streams, empty ones."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - open to the end
