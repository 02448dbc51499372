"""The site of the documentation, read from the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.browser
DOCS = Path(__file__).parents[2] / "docs"


def test_a_page_on_the_disk_has_a_worker_for_its_search(browser: Any, tmp_path: Path) -> None:
    """What is sent arrives in order, also what is sent before the worker has started."""
    (tmp_path / "iframe-worker.js").write_text((DOCS / "iframe-worker.js").read_text("utf-8"), "utf-8")
    (tmp_path / "worker.js").write_text("addEventListener('message', (e) => postMessage([e.data, -e.data]))")
    page_file = tmp_path / "page.html"
    page_file.write_text("<script src='iframe-worker.js'></script><body></body>")
    page = browser.new_page()
    page.goto(page_file.as_uri())
    answers = page.evaluate("""() => new Promise((done) => {
        const answers = [], worker = new Worker(new URL("worker.js", location));
        worker.addEventListener("message", (e) => answers.push(e.data) === 2 && done(answers));
        worker.postMessage(1);
        worker.postMessage(2);
    })""")
    page.close()
    assert answers == [[1, -1], [2, -2]]
