"""Finds a small schedule in which each broken member fails: `python tests/membership/find_broken.py [NAME]`.

Explores every schedule within the bounds below, which gives a smallest one, and then judges random schedules,
of which the first that fails is shrunk. Writes found.json, and the table and diagrams of docs/membership.md.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
from broken_members import BROKEN, COVERED

from antecede.check.changing.describe import show_schedule
from antecede.check.changing.explore import ChangeBounds, ExploredGroup, explore
from antecede.check.changing.oracle import ChangingOracle
from antecede.check.changing.random_schedules import RandomSchedule
from antecede.check.changing.shrink import replay, shrink
from antecede.check.changing.world import ChangingWorld, ScheduleEvent, as_violation
from antecede.membership.catalog import ChangingVcube
from antecede.membership.member import ChangingMember

FOUND = Path(__file__).parent / "found.json"
PAGE = Path(__file__).parents[2] / "docs" / "membership.md"
IMAGES = PAGE.parent / "images" / "membership"
DRAWN = ("SnapshotTooLate", "OwesNothing", "LeavesAtOnce", "AcceptsFromTheRemoved", "NoQuorum")
"""The schedules that the page shows."""
BEGIN, END = (f"<!-- {word}: tests/membership/find_broken.py -->" for word in ("begin", "end"))
SEED = 1
MOST_STATES = 40_000
MOST_RUNS = 600
"""The number of schedules as `verify` draws them, and of those with more changes."""
MORE_CHANGES = {
    "remove": 0.4,
    "join": 0.5,
    "leave": 0.2,
    "crash": 0.1,
    "return": 0.5,
    "cut": 0.3,
    "partition": 0.05,
    "ask": 0.2,
}

Variant = type[ChangingMember] | type[ChangingWorld]
VARIANTS: dict[str, Variant] = {each.__name__: each for each in BROKEN}
COVERED_VARIANTS: dict[str, Variant] = {each.__name__: each for each in COVERED}

_ONE = {"total": 1}
BOUNDS: dict[str, list[ChangeBounds]] = {
    "SnapshotTooLate": [ChangeBounds(2, joins=1, **_ONE)],
    "OwesNothing": [ChangeBounds(2, joins=1, **_ONE)],
    "LeavesAtOnce": [ChangeBounds(2, joins=1, leaves=2, **_ONE)],
    "FlushesOnce": [ChangeBounds(4, removals=2, **_ONE)],
    "AcceptsFromTheRemoved": [ChangeBounds(3, removals=1, **_ONE)],
    "NoQuorum": [ChangeBounds(2, removals=2, total=0)],
    "QuorumOfNewcomers": [ChangeBounds(2, joins=1, removals=2, total=0)],
    "EndsTooEarly": [ChangeBounds(3, removals=1, total=2)],
    "ReturnsWithNothing": [ChangeBounds(3, removals=1, **_ONE)],
    "WelcomeWithoutRemovals": [ChangeBounds(3, joins=1, removals=1, total=0)],
}
"""Bounds of the exhaustive search for a variant, unless only random schedules are tried."""


class Found(msgspec.Struct, omit_defaults=True):
    """How a broken member was found, or how many schedules were tried."""

    name: str
    states: int = 0
    bounds: ChangeBounds | None = None
    """Those of the exploration that found it."""
    runs: int = 0
    seed: int = SEED
    by_hand: bool = False
    """Whether its schedule was written by hand, and shrunk."""
    is_mutated: bool = False
    """Whether `mutate_found.py` found its schedule."""
    more_changes: bool = False
    """Whether it was found in schedules with more changes than `verify` draws."""
    founders: int = 0
    size: int = 0
    violation: str = ""
    schedule: list[ScheduleEvent] = []


def kinds(variant: Variant) -> tuple[type[ChangingMember], type[ChangingWorld]]:
    """The protocol to run and its world."""
    if issubclass(variant, ChangingWorld):
        return ChangingVcube, variant  # members that forward messages of others need it most
    return variant, ChangingWorld


def find(name: str) -> Found:
    kind, world = kinds(VARIANTS[name])
    found = Found(name)
    for bounds in BOUNDS.get(name, []):
        *_, progress = explore(ExploredGroup(kind, bounds), MOST_STATES)
        found.states += progress.states
        if progress.found is not None:
            schedule, _ = progress.found
            found.bounds, found.founders, found.size = bounds, bounds.peers, bounds.size
            found.violation, found.schedule = (
                judge(kind, world, bounds.peers, bounds.size, schedule),
                schedule,
            )
            return found
    for run in range(2 * MOST_RUNS):
        found.runs += 1
        drawn = RandomSchedule(kind, f"{SEED}:{run % MOST_RUNS}", world=world)
        if run >= MOST_RUNS:
            found.more_changes = True
            drawn.weights |= MORE_CHANGES
        founders, size = drawn.world.founders, len(drawn.world.members)
        with contextlib.suppress(Exception):  # a member that raises; the schedule up to there is what counts
            if not ChangingOracle(drawn.run()).violations():
                continue
        small = shrink(kind, founders, size, drawn.world.schedule, world, drawn.drawn)
        violation = judge(kind, world, founders, size, small)
        if violation:
            found.founders, found.size, found.violation, found.schedule = founders, size, violation, small
            return found
    return found


def judge(
    kind: type[ChangingMember],
    world: type[ChangingWorld],
    founders: int,
    size: int,
    schedule: list[ScheduleEvent],
) -> str:
    """What is wrong at the end of a schedule; empty if nothing is."""
    try:
        violations = ChangingOracle(replay(kind, founders, size, schedule, world)).violations()
    except Exception as error:  # whatever a member raises is its fault
        return f"raises {type(error).__name__}: {error}"
    return violations[0] if violations else ""


def read() -> dict[str, Found]:
    entries = msgspec.json.decode(FOUND.read_bytes(), type=list[Found]) if FOUND.exists() else []
    return {each.name: each for each in entries}


def table(entries: dict[str, Found]) -> str:
    return "\n".join(_rows(entries))


def _rows(entries: dict[str, Found]) -> Iterator[str]:
    yield "| what is left out | found by | steps | fails by |"
    yield "|---|---|---:|---|"
    for name, variant in VARIANTS.items():
        if name not in entries:
            continue
        found = entries[name]
        clause = " ".join((variant.__doc__ or "").split())
        if found.schedule:
            yield f"| {clause} `{name}` | {_how(found)} | {len(found.schedule)} | {found.violation} |"
        else:
            tried = f"{found.states:,} states and " if found.states else ""
            yield f"| {clause} `{name}` | not in {tried}{found.runs:,} runs | – | – |"


def _how(found: Found) -> str:
    if found.bounds is not None:
        return f"`check`, {found.states:,} states"
    if found.by_hand:
        return "a schedule written by hand, shrunk"
    if found.is_mutated:
        return "a mutation of a known schedule"
    seed = f" of seed {found.seed}" if found.seed != SEED else ""
    runs = "1 run" if found.runs == 1 else f"{found.runs:,} runs"
    return f"{runs}{seed}" + (", the last with more changes" if found.more_changes else "")


def drawings(entries: dict[str, Found]) -> Iterator[tuple[str, str]]:
    """The name and the SVG of every diagram."""
    for name in DRAWN:
        if name in entries and entries[name].schedule:
            found = entries[name]
            kind, _ = kinds(VARIANTS[name])
            violation = as_violation(found.violation)
            _, svg = show_schedule(kind, found.founders, found.size, found.schedule, violation)
            yield name, svg + "\n"


def write(entries: dict[str, Found]) -> None:
    ordered = [entries[name] for name in VARIANTS if name in entries]
    lines = ",\n".join(msgspec.json.encode(each).decode() for each in ordered)
    FOUND.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table(entries)}\n{END}{after}", encoding="utf-8")
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name, svg in drawings(entries):
        (IMAGES / f"{name}.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    results = read()
    for chosen in sys.argv[1:] or [
        name
        for name in VARIANTS
        if name not in results or not (results[name].by_hand or results[name].is_mutated)
    ]:
        results[chosen] = find(chosen)
        sys.stdout.write(f"{chosen}: {len(results[chosen].schedule)} steps, {results[chosen].violation}\n")
        sys.stdout.flush()
        write(results)
