"""What the commands share: a parser whose errors are one line, and how messages are said."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from typing import Any, NoReturn, TextIO

OK, CHECK_FAILED, WRONG_USE, INTERRUPTED = 0, 1, 2, 130
"""The exit codes."""


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, takes no abbreviations and keeps the layout of texts."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            **settings,
        )
        self._mixing = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As in ArgumentParser, but options may stand anywhere among the others, in every Python; what a
        command does not know is its own error, and so is "--" as an option's value."""
        if self._mixing or self._subparsers is not None:
            return super().parse_known_args(args, namespace)
        for option in args:
            if option == "--":
                break
            if option.startswith("--") and option.endswith("=--"):  # a value that some Pythons lose
                self.error(f"argument {option[:-3]}: expected one argument")
        # What is called next calls this method again. Behind "--" nothing is mixed, and some Pythons lose it.
        self._mixing = True
        parse = super().parse_known_args if args[:1] == ["--"] else self.parse_known_intermixed_args
        try:
            known, unknown = parse(args, namespace)
        finally:
            self._mixing = False
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return known, unknown

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and exit with code 2."""
        say(f"error: {message} (see {self.prog} --help)")
        sys.exit(WRONG_USE)


def as_text(argument: str) -> str:
    """A text of the command line, for argparse's `type`: UTF-8, as everywhere, whatever the locale.

    Where the locale has no character for some bytes, Python hands them over as halves of surrogate pairs.
    What is no UTF-8 either stays as it is, for whoever reads the text to refuse.
    """
    if any("\udc80" <= character <= "\udcff" for character in argument):
        with contextlib.suppress(UnicodeError):
            return os.fsencode(argument).decode("utf-8")
    return argument


def say(message: str) -> None:
    """A message to the user, on standard error: one line, that commands no terminal, whatever is in it."""
    line = " ".join(message.splitlines())
    shown = "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in line)
    try:
        print(shown, file=sys.stderr, flush=True)
    except (OSError, ValueError):  # nobody listens, which is no reason to stop
        discard(sys.stderr)


def show(result: object) -> None:
    """A result, on standard output, after which there is more to do; who reads it may have seen enough."""
    try:
        print(result, flush=True)
    except (BrokenPipeError, ValueError):
        discard(sys.stdout)


def discard(stream: TextIO) -> None:
    """What is still in the stream's buffer goes nowhere, so that Python does not complain when it ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
