"""20,000 random logs through files, audited as users do, compared with brute force: logs_in_files.json.

The generator and the brute force are those of the tests (`tests/audit/file_probe.py`): CSV, JSON lines and
Parquet, one or several files, partitions, quoting, byte-order marks, encodings, bad rows, rows to skip, ids
and times in every form, with and without an index, one run or several. Every count must be equal, and so must
every fault that is listed, its consequences, and the rows that were read and skipped.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "audit"))

from file_probe import compare

_PART = 100


def _compare_part(first: int) -> Counter[str]:
    seen = Counter[str]()
    for seed in range(first, first + _PART):
        with tempfile.TemporaryDirectory() as folder:
            seen.update(compare(seed, Path(folder)))
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--logs", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=1_000_000, metavar="SEED", help="not those of the tests")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    begin, done, seen = time.perf_counter(), 0, Counter[str]()
    with get_context("spawn").Pool(options.workers) as pool:
        parts = range(options.first, options.first + options.logs, _PART)
        for found in pool.imap_unordered(_compare_part, parts):
            seen.update(found)
            done += _PART
            if done % 1000 == 0 or done == options.logs:
                result = {
                    "logs": done,
                    "first_seed": options.first,
                    "different": 0,
                    "seconds": round(time.perf_counter() - begin),
                    "logs_with": dict(seen.most_common()),
                }
                (Path(__file__).parent / "logs_in_files.json").write_text(json.dumps(result, indent=2) + "\n")
                print(f"{done:,} equal", flush=True)


if __name__ == "__main__":
    main()
