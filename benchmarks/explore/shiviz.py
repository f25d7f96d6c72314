"""How far does ShiViz get? The runs of `exploring.py`, as `antecede export shiviz` writes them, in its page.

SHIVIZ is a copy of its repository (github.com/DistributedClocks/shiviz). Measured are the time from the click
on Visualize until the diagram is there, and the CPU time of the page's main thread. A run that takes longer
than `--seconds` is given up, and larger ones are not tried.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from selenium.common.exceptions import WebDriverException
from urllib3.exceptions import HTTPError

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "tests"))
from antecede.trace.foreign.shiviz_export import REGEX, export_shiviz
from chromium import open_browser

_DRAW = """
const [pattern, done] = arguments;
document.querySelector("#parser").value = pattern;
const begin = performance.now();
$("#input").trigger("input");
$("#visualize").prop("disabled", false).trigger("click");
const wait = () => {
  const circles = document.querySelectorAll("#graph svg circle").length;
  if (circles) requestAnimationFrame(() => done([performance.now() - begin, circles]));
  else setTimeout(wait, 50);
};
wait();
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("shiviz", type=Path, metavar="SHIVIZ")
    parser.add_argument("traces", type=Path, nargs="+", metavar="TRACE", help="smaller ones first")
    parser.add_argument("--seconds", type=int, default=300)
    asked = parser.parse_args()
    for trace in asked.traces:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            exported = export_shiviz(trace, Path(folder) / "run.log")
            log = Path(exported.file)
            size = log.stat().st_size
            # ShiViz takes the first two lines of a file as its two patterns.
            log.write_text(f"{REGEX}\n\n{log.read_text()}")
            outcome = draw(asked.shiviz, log, Path(folder) / "profile", asked.seconds)
        print(
            json.dumps({"trace": trace.name, "events": exported.events, "bytes": size, **outcome}),
            flush=True,
        )
        if "milliseconds" not in outcome:
            return


def draw(shiviz: Path, log: Path, profile: Path, seconds: int) -> dict[str, float | str]:
    """Have ShiViz draw a log, in a new browser."""
    browser = open_browser(profile)
    try:
        browser.set_script_timeout(seconds)
        browser.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
        browser.get((shiviz / "index.html").resolve().as_uri())
        begun = time.monotonic()
        try:
            browser.find_element("css selector", "#file").send_keys(str(log))
            while not browser.execute_script("return document.querySelector('#input').value.length;"):
                time.sleep(0.2)
            milliseconds, circles = browser.execute_async_script(_DRAW, REGEX)
        except (WebDriverException, HTTPError) as error:
            reason = str(error).splitlines()[0][:80]
            return {"given_up_after_seconds": round(time.monotonic() - begun), "reason": reason}
        metrics = browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
        (cpu,) = [each["value"] for each in metrics if each["name"] == "TaskDuration"]
        return {"milliseconds": round(milliseconds), "cpu_ms": round(1000 * cpu), "circles": circles}
    finally:
        browser.quit()


if __name__ == "__main__":
    main()
