"""Take the README's picture of a run's page: python docs/screenshot.py runs/demo-reverse/report.html OUT.png

Needs Playwright's Python package and Chromium (`python -m pip install '.[browser]'`, `apt install chromium`).
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

try:
    from playwright.sync_api import sync_playwright
except ModuleNotFoundError:
    sys.exit("playwright is not installed; python -m pip install '.[browser]'")

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


def main() -> None:
    page_path, picture = Path(sys.argv[1]).resolve(), sys.argv[2]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(viewport={"width": 1200, "height": 760}, color_scheme="light")
        page.goto(page_path.as_uri())
        page.get_by_role("heading", name="Gradient flow").scroll_into_view_if_needed()
        heading = page.get_by_role("heading", name="Gradient flow").bounding_box()
        assert heading is not None
        page.mouse.wheel(0, heading["y"] - 64)
        page.wait_for_timeout(300)
        page.screenshot(path=picture)
        browser.close()


if __name__ == "__main__":
    main()
