"""How fast is the explorer? Runs of 10⁴ to 10⁷ deliveries in a headless Chromium without a graphics processor.

Runs are simulated once, into the folder RUNS, and reused. Of each are measured: the CPU seconds and the size of
the preparation; then, in a new browser, the time from the start of the navigation to the first picture;
frames a second while the picture is dragged, over the whole run, at the edge between density and single
events, and among single events; and the time from a click to the causal past and future on the screen, at
random places, each of which the browser has not read before (cold) and again (warm).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent.parent.parent / "tests")]
from chromium import open_browser

from antecede.explore.page import write_folder
from antecede.explore.server import open_server
from antecede.sim.record import simulate_to
from antecede.sim.scenario import scenario

_CALL = """
const done = arguments[arguments.length - 1];
(async () => { const app = await window.explorer; %s })().then(done, (error) => done(String(error.stack)));
"""
FIRST_PICTURE = """
const drawn = () => app.view.frames > 0 && app.data.has("tile-0-0.bin") && !app.asked;
while (!drawn()) await new Promise(requestAnimationFrame);
return performance.now();
"""
PAN = """
app.view.centre(app.data.index.duration / 2, -1, SPAN); app.redraw();
await new Promise((ready) => setTimeout(ready, 1500));
const frames = [], draws = [];
const draw = app.view.draw.bind(app.view);
app.view.draw = () => { const at = performance.now(); const wanted = draw(); draws.push(performance.now() - at); return wanted; };
let before = performance.now();
for (let frame = 0; frame < 120; frame++) {
  app.view.pan(frame < 60 ? 0.004 : -0.004); app.redraw();
  await new Promise(requestAnimationFrame);
  await new Promise((ready) => setTimeout(ready, 0));
  const now = performance.now(); frames.push(now - before); before = now;
}
app.view.draw = draw;
frames.sort((a, b) => a - b); draws.sort((a, b) => a - b);
const total = frames.reduce((sum, each) => sum + each, 0);
return { fps: 120000 / total, slowest: frames[113], draw: draws[draws.length >> 1], shown: app.view.shown };
"""
CLICK = """
const times = { cold: [], warm: [] };
let seed = 7;
const random = () => (seed = (seed * 48271) % 2147483647) / 2147483647;
for (let turn = 0; turn < 20; turn++) {
  app.view.centre((0.02 + 0.96 * random()) * app.data.index.duration, -1, app.view.spanOf(3000)); app.redraw();
  await new Promise((ready) => setTimeout(ready, 250));
  const x = app.view.gutter + (0.2 + 0.6 * random()) * app.view.plotWidth, y = 40 + random() * (app.view.height - 60);
  for (const kind of ["cold", "warm"]) {
    const at = performance.now();
    await app.pick(x, y);
    await new Promise(requestAnimationFrame);
    times[kind].push(performance.now() - at);
  }
}
for (const kind of ["cold", "warm"]) times[kind].sort((a, b) => a - b);
return { cold: times.cold[10], cold_worst: times.cold[19], warm: times.warm[10], warm_worst: times.warm[19] };
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", type=Path, metavar="RUNS", help="the folder for runs and what is prepared")
    parser.add_argument("--deliveries", type=float, nargs="+", default=[1e4, 1e5, 1e6, 1e7])
    parser.add_argument("--peers", type=int, default=64)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results.json")
    asked = parser.parse_args()
    results = json.loads(asked.out.read_text()) if asked.out.exists() else []
    for deliveries in map(int, asked.deliveries):
        found = measure(asked.runs, deliveries, asked.peers)
        key = (found["peers"], found["wanted"])
        results = [each for each in results if (each["peers"], each["wanted"]) != key] + [found]
        asked.out.write_text(json.dumps(sorted(results, key=lambda each: each["wanted"]), indent=1) + "\n")
        print(json.dumps(found), flush=True)


def measure(runs: Path, deliveries: int, peers: int) -> dict[str, Any]:
    trace, folder = runs / f"trace-{peers}-{deliveries}", runs / f"explorer-{peers}-{deliveries}"
    found: dict[str, Any] = {"wanted": deliveries, "peers": peers}
    if not trace.exists():
        messages = deliveries / (peers - 1)
        seconds = messages / (peers * 10)
        setting = scenario(
            protocol="timestamp", peers=peers, seconds=max(0.2, seconds), rate=10.0, delay="exp:20ms"
        )
        simulate_to(trace, setting)
    wall, cpu = time.monotonic(), time.process_time()
    written = write_folder(trace, trace.name, None, folder)
    found["prepare_seconds"] = round(time.monotonic() - wall, 1)
    found["prepare_cpu_seconds"] = round(time.process_time() - cpu, 1)
    found["gigabytes"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2)
    found |= {"events": written.events, "deliveries": written.deliveries}
    found["index_megabytes"] = round(sum(file.stat().st_size for file in folder.rglob("*")) / 1e6, 1)
    found["trace_megabytes"] = round(sum(file.stat().st_size for file in trace.rglob("*")) / 1e6, 1)
    found["load"] = os.getloadavg()[0]
    return found | in_browser(folder)


def in_browser(folder: Path) -> dict[str, Any]:
    """What is measured in a new browser."""
    server, address = open_server(folder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = open_browser(Path(profile))
        browser.set_script_timeout(300)
        browser.set_window_size(1280, 880)

        def call(body: str) -> Any:
            answer = browser.execute_async_script(_CALL % body)
            if isinstance(answer, str):
                raise RuntimeError(answer)
            return answer

        try:
            browser.get("about:blank")
            browser.get(address)
            found = {"first_picture_ms": call(FIRST_PICTURE)}
            spans = {"whole": "1.02 * app.data.index.duration", "edge": "app.view.spanOf(150000)"}
            spans |= {"close": "app.view.spanOf(2000)"}
            for name, span in spans.items():
                found[f"pan_{name}"] = call(PAN.replace("SPAN", span))
            found["click_ms"] = call(CLICK)
            found["memory_megabytes"] = call("return performance.memory.usedJSHeapSize / 1e6;")
        finally:
            browser.quit()
            server.shutdown()
            server.server_close()
    return found


if __name__ == "__main__":
    main()
