"""Whether the console shows what members report while they join, leave, are killed and removed: a longer run.

    python tests/console/watched_churn.py [--size 12] [--seconds 60] [--rate 2] [--seed 1] [--pictures FOLDER]

It prints how often the page was compared with its members, and each difference; exit code 1 if there is one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from consoles import compare, script, wait_until

from antecede.cli.console import stores_below
from antecede.console.server import console
from antecede.live.trial.churn import ChurnPlan, ChurnResult, run
from chromium import open_browser


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pictures", type=Path)
    options = parser.parse_args()
    plan = ChurnPlan(
        size=options.size, rate=options.rate, seconds=options.seconds, messages=2_000, seed=options.seed
    )
    results: list[ChurnResult] = []
    with tempfile.TemporaryDirectory(prefix="churn-") as name:
        folder = Path(name)

        def carry_out() -> None:
            results.append(asyncio.run(run(plan, folder / "run", None, lambda *_: None)))

        trial = threading.Thread(target=carry_out)
        trial.start()
        wait_until(lambda: len(stores_below(folder / "run", "*/store")) >= plan.size, "members")
        comparisons, wrong, held, most, answered = 0, list[str](), 0, 0, 0
        with console(lambda: stores_below(folder / "run", "*/store"), hides_silent=True) as address:
            browser = open_browser(folder / "browser")
            try:
                browser.get(address)
                wait_until(lambda: script(browser, "return page && page.picture;"), "a picture")
                began = time.monotonic()
                while trial.is_alive() and time.monotonic() - began < options.seconds:
                    shown, found = compare(browser, lambda: stores_below(folder / "run", "*/store"))
                    picture = shown["picture"]
                    comparisons, wrong = comparisons + 1, wrong + found
                    held, most = held + bool(picture["held"]), max(most, len(picture["changes"]))
                    answered += picture["answering"]
                    for each in found:
                        print(each, flush=True)
                    if options.pictures and comparisons % 5 == 0:
                        browser.set_window_size(1280, 1000)
                        script(browser, "page.board.show(arguments[0]);", "changes")
                        browser.save_screenshot(str(options.pictures / f"churn-{comparisons}.png"))
            finally:
                browser.quit()
        trial.join()
    (result,) = results
    document = {
        "comparisons": comparisons,
        "differences": len(wrong),
        "answering_on_average": round(answered / max(1, comparisons), 1),
        "with_held_messages": held,
        "changes_on_the_page": most,
        "steps": result.steps,
        "changes": result.changes,
        "faults_of_the_trial": result.faults,
    }
    print(json.dumps(document))
    return 1 if wrong or result.faults or not comparisons else 0


if __name__ == "__main__":
    sys.exit(main())
