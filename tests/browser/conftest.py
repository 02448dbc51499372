"""A headless Chromium, and pages in it that tell of errors and requests."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tinygrad_attn.data import Task
from tinygrad_attn.train import ModelConfig, TrainingConfig, train

# What a browser does on its own account at its start is switched off: requests would be the page's.
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NAMES = ("chromium", "chromium-browser", "google-chrome")

Open = Callable[..., Any]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, driven by Playwright."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is not installed (extra `browser`)"
    )
    program = next((found for found in map(shutil.which, NAMES) if found), None)
    if program is None:  # `.ci/run` installs it, and counts these tests
        pytest.skip("no Chromium is installed (apt install chromium)")
    with playwright.sync_playwright() as running:
        launched = running.chromium.launch(executable_path=program, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def run(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that has learned a little."""
    path = tmp_path_factory.mktemp("runs") / "reverse"
    train(
        Task("reverse", symbols=6, max_length=6),
        path,
        ModelConfig(hidden=16, embedding=8),
        TrainingConfig(steps=60, batch=32, lr=1e-2, evaluate_every=20, log_every=10, development=100),
        message=lambda text: None,
    )
    return path


@pytest.fixture
def open_page(browser: Any) -> Iterator[Open]:
    """`open_page(path, **settings of the window)`: the page when it is ready.

    Errors on its console, exceptions in it and requests beyond the file itself are faults of the test.
    """
    contexts, faults = [], []

    def opened(path: Path, **settings: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **settings})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: faults.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: faults.append(f"exception: {error}"))
        page.on("dialog", lambda dialog: (faults.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        address = path.as_uri()
        page.on(
            "request",
            lambda request: request.url in (address, "data:,") or faults.append(f"request: {request.url}"),
        )
        page.goto(address)
        if path.suffix == ".html":  # a report says when it is ready
            page.wait_for_selector("html[data-ready=yes]", state="attached", timeout=10_000)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not faults
