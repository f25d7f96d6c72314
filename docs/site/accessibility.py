"""Checks pages for accessibility with axe-core in a real Chromium: `./dev docs --axe`.

Every page is checked at the width of a phone and of a desktop, in light and dark mode. Needs Debian's
`chromium` and `chromium-driver`, and npm for axe-core (package-lock.json).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pages import ROOT

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

HERE = Path(__file__).parent
VIEWS = ((390, 844, "light"), (390, 844, "dark"), (1400, 1000, "light"), (1400, 1000, "dark"))
"""Width, height and colour scheme."""
FLAGS = ("headless", "no-sandbox", "disable-gpu", "no-first-run", "disable-background-networking")
_RUN = """
const done = arguments[arguments.length - 1];
axe.run(document, {resultTypes: ["violations"]}).then(
    found => done(found.violations.map(each =>
        [each.id, each.help, each.nodes.length, each.nodes[0].target.join(" ")])),
    error => done([["axe", String(error), 1, ""]]));
"""


def axe_script() -> str:
    """The source of axe-core, in the version of package-lock.json."""
    folder = ROOT / "build" / "axe"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(HERE / name, folder / name)
    subprocess.run(["npm", "ci", "--silent", "--no-audit", "--no-fund"], cwd=folder, check=True)  # noqa: S607
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


@contextmanager
def chromium() -> Iterator[Chrome]:
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    with tempfile.TemporaryDirectory() as profile:
        for flag in (
            "headless",
            "no-sandbox",
            "disable-gpu",
            "no-first-run",
            "disable-background-networking",
        ):
            options.add_argument(f"--{flag}")
        options.add_argument(f"--user-data-dir={profile}")
        browser = Chrome(options=options, service=Service("/usr/bin/chromedriver"))
        try:
            yield browser
        finally:
            browser.quit()


def violations(browser: Chrome, axe: str, address: str) -> dict[str, list[str]]:
    """What axe-core finds on a page, and in which views."""
    found: dict[str, list[str]] = {}
    for width, height, scheme in VIEWS:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        browser.get(address)
        browser.execute_script(axe)
        results: list[list[Any]] = browser.execute_async_script(_RUN)
        for rule, text, count, first in results:
            found.setdefault(f"{rule}: {text} ({count}, the first at {first})", []).append(
                f"{width} {scheme}"
            )
    return found


def check(addresses: list[str]) -> int:
    """Print the violations of all pages, and return how many there are."""
    axe, count = axe_script(), 0
    with chromium() as browser:
        for number, address in enumerate(addresses, 1):
            if sys.stderr.isatty():
                print(f"\r{number} of {len(addresses)} pages", end="", file=sys.stderr)
            found = violations(browser, axe, address)
            count += len(found)
            for violation, views in found.items():
                print(f"{address}: {violation}, in {', '.join(views)}")
    print(f"{count} accessibility violations on {len(addresses)} pages in {len(VIEWS)} views")
    return count
