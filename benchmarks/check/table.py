"""The table of docs/check.md: every protocol in every schedule of several small groups.

    ./dev python benchmarks/check/table.py              # two hours; continues where it was stopped
    ./dev python benchmarks/check/table.py --write      # only the table, from what there is

Each cell is explored in a process of its own, with a bound on its states, and kept in results.json. Some are
explored once more without reductions, for what those save.
"""

from __future__ import annotations

import argparse
import json
import resource
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import msgspec

from antecede.check.bounds import Bounds
from antecede.check.run import check
from antecede.protocols.catalog import PROTOCOLS, find_protocol

RESULTS = Path(__file__).with_name("results.json")
PAGE = Path(__file__).parent.parent.parent / "docs" / "check.md"
BEGIN, END = "<!-- begin: benchmarks/check/table.py -->\n", "<!-- end: benchmarks/check/table.py -->\n"
GROUPS = {
    "3 peers, 1 message each": Bounds(),
    "3 peers, 1 message each, a duplicate": Bounds(duplicates=1),
    "3 peers, 1 message each, a crash": Bounds(crashes=1),
    "4 peers, 1 message each": Bounds(peers=4),
    "3 peers, 2 messages each": Bounds(messages=2),
}
FLAT = ["timestamp", "timestamp-diff", "mbcp", "depseq"]
UNREDUCED = [
    *((protocol, "3 peers, 1 message each") for protocol in FLAT),
    *((protocol, "4 peers, 1 message each") for protocol in ("mbcp", "timestamp")),
    *(
        (protocol, group)
        for group in GROUPS
        for protocol in PROTOCOLS
        if protocol not in (*FLAT, "hcg", "basic")
    ),
]
"""Time matters for `hcg` and `basic`, so no reductions apply to them anyway."""

Cell = tuple[str, str, bool]
"""A protocol, a group, and whether reductions are used."""


def key(cell: Cell) -> str:
    protocol, group, reduced = cell
    return f"{protocol}, {group}" + ("" if reduced else ", all schedules")


def explore(cell: Cell, max_states: int) -> dict[str, Any]:
    protocol, group, reduced = cell
    kind = find_protocol(protocol)
    for report in check(kind, protocol, GROUPS[group], max_states, reduced, reduced):  # noqa: B007
        pass
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    kept = ("states", "transitions", "depth", "ends", "process_states", "complete", "violation", "reductions")
    found = {name: value for name, value in msgspec.to_builtins(report).items() if name in kept}
    return found | {"cpu_seconds": round(report.cpu_seconds, 1), "gigabytes": round(memory, 2)}


def read() -> dict[str, dict[str, Any]]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def write_page(results: dict[str, dict[str, Any]]) -> None:
    head, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(head + BEGIN + "\n".join([*table(results), "", *totals(results)]) + "\n" + END + tail)


def table(results: dict[str, dict[str, Any]]) -> list[str]:
    """States and verdicts, a row for each protocol; without reductions where there is nothing else yet."""
    rows = ["| protocol | " + " | ".join(GROUPS) + " |", "|---" + "|---:" * len(GROUPS) + "|"]
    for protocol in PROTOCOLS:
        both = (
            [results.get(key((protocol, group, reduced))) for reduced in (True, False)] for group in GROUPS
        )
        cells = [text(reduced or unreduced) for reduced, unreduced in both]
        rows.append(f"| `{protocol}` | " + " | ".join(cells) + " |")
    return rows


def text(found: dict[str, Any] | None) -> str:
    if found is None:
        return ""
    states = f"{found['states']:,}"
    if found["violation"]:
        return f"**fails** {states}"
    return states if found["complete"] else f"{states} *so far*, {found['depth']} steps"


def totals(results: dict[str, dict[str, Any]]) -> list[str]:
    reduced = {name: each for name, each in results.items() if not name.endswith("all schedules")}
    unreduced = {name: each for name, each in results.items() if name not in reduced}
    wrong = sum(bool(each["violation"]) for each in results.values())
    both = [(each, reduced.get(name.removesuffix(", all schedules"))) for name, each in unreduced.items()]
    saved = [
        all_of_them["states"] / some["states"]
        for all_of_them, some in both
        if some and some["complete"] and all_of_them["complete"]
    ]
    return [
        f"{count(results)} in all, {wrong} violations. *so far*: the bound on states was reached. "
        f"{count(reduced)} are in the table.",
        f"{count(unreduced)} were explored without reductions, for {len(unreduced)} of the cells: "
        f"{min(saved):.1f} to {max(saved):.0f} times as many where both are complete.",
    ]


def count(results: dict[str, dict[str, Any]]) -> str:
    states = sum(each["states"] for each in results.values())
    seconds = sum(each["cpu_seconds"] for each in results.values())
    return f"{states:,} states ({states / max(seconds, 1):,.0f} a CPU second)"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--max-states", type=int, default=10_000_000)
    parser.add_argument("--only", default="", help="cells whose names have this in them")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    results = read()
    cells = [(protocol, group, True) for group in GROUPS for protocol in PROTOCOLS]
    cells += [(protocol, group, False) for protocol, group in UNREDUCED]

    def is_open(cell: Cell) -> bool:
        found = results.get(key(cell))
        if options.only not in key(cell):
            return False
        return found is None or (not found["complete"] and found["states"] < options.max_states)

    if not options.write:
        with ProcessPoolExecutor(options.jobs, max_tasks_per_child=1) as pool:
            explored = {
                pool.submit(explore, cell, options.max_states): cell for cell in cells if is_open(cell)
            }
            for done in as_completed(explored):
                name = key(explored[done])
                results[name] = done.result()
                print(f"{name}: {text(results[name])}", flush=True)
                RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    write_page(results)


if __name__ == "__main__":
    main()
