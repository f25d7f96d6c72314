"""How fast is the explorer? Runs of 10⁴ to 10⁷ deliveries in Chromium without a graphics processor.

Runs are simulated and prepared once, into the folder RUNS, and reused. Of each are measured: the CPU seconds
and the size of the preparation; then, in a new browser, the time from the start of the navigation to the
first picture; frames a second while the picture moves, over the whole run, with as many single events as are
ever drawn, and close; and the time from a click to the causal past and future on the screen, at places that
the browser has not read before (cold) and again (warm). Beside each is the CPU time of the page's main
thread, which does not depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "tests"))
from antecede.explore.page import is_complete, write_folder
from antecede.explore.server import open_server
from antecede.sim.record import simulate_to
from antecede.sim.scenario import scenario
from chromium import open_browser

_FRAMES = 60
_CLICKS = 15
_CALL = """
%s
const [name, given, done] = arguments;
(async () => measures[name](await window.explorer, given))().then(done, (error) => done(String(error.stack)));
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", type=Path, metavar="RUNS", help="the folder for runs and what is prepared")
    parser.add_argument("--deliveries", type=float, nargs="+", default=[1e4, 1e5, 1e6, 1e7])
    parser.add_argument("--peers", type=int, default=64)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results.json")
    asked = parser.parse_args()
    asked.runs.mkdir(parents=True, exist_ok=True)
    results = json.loads(asked.out.read_text()) if asked.out.exists() else []
    for deliveries in map(int, asked.deliveries):
        key = {"peers": asked.peers, "wanted": deliveries}
        before = [each for each in results if key.items() <= each.items()]
        folder = asked.runs / f"explorer-{asked.peers}-{deliveries}"
        prepared = (
            before[0]
            if before and is_complete(folder)
            else prepare(asked.runs, folder, deliveries, asked.peers)
        )
        found = {**prepared, **key, "load": os.getloadavg()[0], **in_browser(folder)}
        results = [each for each in results if not key.items() <= each.items()] + [found]
        asked.out.write_text(json.dumps(sorted(results, key=lambda each: each["wanted"]), indent=1) + "\n")
        print(json.dumps(found), flush=True)


def prepare(runs: Path, folder: Path, deliveries: int, peers: int) -> dict[str, Any]:
    """The cost of preparing a run, which is simulated first if it does not exist."""
    trace = runs / f"trace-{peers}-{deliveries}"
    if not trace.exists():
        seconds = max(0.2, deliveries / (peers - 1) / (peers * 10))
        setting = scenario(protocol="timestamp", peers=peers, seconds=seconds, rate=10.0, delay="exp:20ms")
        simulate_to(trace, setting)
    wall, cpu = time.monotonic(), time.process_time()
    written = write_folder(trace, trace.name, None, folder)
    return {
        "events": written.events,
        "deliveries": written.deliveries,
        "prepare_seconds": round(time.monotonic() - wall, 1),
        "prepare_cpu_seconds": round(time.process_time() - cpu, 1),
        "prepare_gigabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
        "trace_megabytes": _megabytes(trace),
        "index_megabytes": _megabytes(folder),
    }


def _megabytes(folder: Path) -> float:
    return round(sum(file.stat().st_size for file in folder.rglob("*")) / 1e6, 1)


def in_browser(folder: Path) -> dict[str, Any]:
    """The measurements in a new browser."""
    server, address = open_server(folder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = open_browser(Path(profile))
        try:
            browser.set_script_timeout(300)
            browser.set_window_size(1280, 880)
            browser.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
            browser.get(address)
            return _Page(browser).measure()
        finally:
            browser.quit()
            server.shutdown()
            server.server_close()


class _Page:
    def __init__(self, browser: Any) -> None:
        self._browser = browser
        self._script = _CALL % (Path(__file__).parent / "in_page.js").read_text(encoding="utf-8")

    def measure(self) -> dict[str, Any]:
        found: dict[str, Any] = {"first_picture_ms": round(self._call("first", None))}
        for name, events in (("whole", 0), ("most_events", 19_000), ("close", 2_000)):
            self._call("look", events)
            before = self._cpu()
            found[f"pan_{name}"] = self._call("pan", _FRAMES)
            found[f"pan_{name}"]["cpu_ms"] = round((self._cpu() - before) / _FRAMES, 1)
        cold, warm, cpu = [], [], []
        for turn in range(_CLICKS):
            self._call("goto", turn)
            before = self._cpu()
            cold.append(self._call("click", turn))
            cpu.append(self._cpu() - before)
            warm.append(self._call("click", turn))
        found["click_cold_ms"] = {"median": round(statistics.median(cold)), "worst": round(max(cold))}
        found["click_warm_ms"] = {"median": round(statistics.median(warm)), "worst": round(max(warm))}
        found["click_cpu_ms"] = {"median": round(statistics.median(cpu)), "worst": round(max(cpu))}
        return found

    def _call(self, name: str, given: Any) -> Any:
        answer = self._browser.execute_async_script(self._script, name, given)
        if isinstance(answer, str):
            raise RuntimeError(answer)
        return answer

    def _cpu(self) -> float:
        """Milliseconds of work of the page's main thread."""
        metrics = self._browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
        (seconds,) = [each["value"] for each in metrics if each["name"] == "TaskDuration"]
        return 1000 * float(seconds)


if __name__ == "__main__":
    main()
