"""Verdicts on 20,000 small random histories, compared with brute force in every level: probe.json.

Brute force (`tests/transactions/brute_force.py`) tries every order of transactions, straight from the
definitions.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "transactions"))

from brute_force import brute_force_levels
from random_histories import random_history

from antecede.transactions import LEVELS, check


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--histories", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=1_000_000, metavar="SEED", help="not those of the tests")
    options = parser.parse_args()
    satisfied, patterns, operations = Counter[str](), Counter[str](), 0
    begin = time.perf_counter()
    for seed in range(options.first, options.first + options.histories):
        history = random_history(seed)
        verdict = check(history)
        found = {level: verdict.levels[level].ok for level in LEVELS}
        expected = brute_force_levels(history)
        if found != expected:
            raise SystemExit(f"seed {seed}: found {found}, expected {expected}")
        satisfied[" ".join(level for level in LEVELS if found[level]) or "none"] += 1
        patterns.update({level.violation.pattern for level in verdict.levels.values() if level.violation})
        operations += history.operations
        if (seed - options.first + 1) % 1000 == 0:
            print(f"{seed - options.first + 1:,} equal", flush=True)
    result = {
        "histories": options.histories,
        "first_seed": options.first,
        "different": 0,
        "operations": operations,
        "seconds": round(time.perf_counter() - begin),
        "satisfied": dict(satisfied.most_common()),
        "patterns": dict(patterns.most_common()),
    }
    (Path(__file__).parent / "probe.json").write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
