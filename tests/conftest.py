"""Settings for the whole suite."""

from __future__ import annotations

import signal

import pytest
from hypothesis import settings

# The same examples on every machine and every run, and no verdict that hangs on how busy the machine is.
settings.register_profile("quick", derandomize=True, deadline=None, max_examples=50)
# For a hunt: `make test ARGS=--hypothesis-profile=hunt` tries new examples every time.
settings.register_profile("hunt", deadline=None, max_examples=2000)
settings.load_profile("quick")

# A shell starts what runs in the background with Ctrl-C ignored, and whatever that starts inherits it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many wrong rules `tests/check/test_mutants.py` made that make a difference, and caught."""
    reports = terminalreporter.getreports("passed")
    counts = [
        value for report in reports for name, value in report.user_properties if name == "mutants caught"
    ]
    if counts:
        terminalreporter.write_line(f"{sum(counts)} mutants of {len(counts)} operations, all caught")
