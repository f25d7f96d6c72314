"""A real browser for tests of pages: the fixture, and what is measured in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--window-size=1200,1600",
]  # fmt: skip


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    opened = open_browser(tmp_path_factory.mktemp("browser"))
    yield opened
    opened.quit()


def find_browser() -> tuple[str, str]:
    """Chromium and its driver; skips the test where there is none."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver):
        if os.environ.get("ANTECEDE_BROWSER") == "required":
            pytest.fail("chromium and chromedriver are required here and were not found")
        pytest.skip("no chromium with chromedriver (Debian: apt-get install chromium chromium-driver)")
    return chromium, driver


def open_browser(folder: Path, home: Path | None = None) -> Chrome:
    """A browser with a new profile, and with a home of its own if it is to trust other authorities."""
    chromium, driver = find_browser()
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = chromium
    for flag in [*FLAGS, f"--user-data-dir={folder}"]:
        options.add_argument(flag)
    environment = {**os.environ, "HOME": str(home)} if home is not None else None
    return Chrome(options=options, service=Service(driver, env=environment))


BOX = """
const box = document.querySelector(arguments[0]).getBoundingClientRect();
return [box.width, box.height];
"""
COLOUR = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]];"


def size(browser: Chrome, selector: str) -> tuple[float, float]:
    width, height = browser.execute_script(BOX, selector)
    return width, height


def brightness(colour: str) -> float:
    red, green, blue = (float(part) for part in colour.strip("rgba()").split(",")[:3])
    return 0.299 * red + 0.587 * green + 0.114 * blue
