"""Check a protocol whose members come and go: explore within bounds, or judge random schedules."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec

from antecede import user_classes
from antecede.check.changing.explore import ChangeBounds, explore
from antecede.check.changing.kinds import explored_group, schedule_type
from antecede.check.changing.replay import saved_schedule, write_schedule
from antecede.check.changing.shrink import replay, shrink
from antecede.check.changing.world import as_violation
from antecede.check.schedule import ShownCounterExample
from antecede.errors import InputError
from antecede.membership.catalog import CHANGING
from antecede.membership.member import ChangingMember

_BATCH = 50
_MAX_FAILURES = 20


def find_changing(name: str) -> type[ChangingMember]:
    """The protocol with this name, or the class that `module:Class` names, for groups that change."""
    if name in CHANGING:
        return CHANGING[name]
    if ":" in name:
        found: type[ChangingMember] = user_classes.load_class(name, ChangingMember, "protocol")
        return found
    raise InputError(f"groups of {name} do not change; those of {', '.join(CHANGING)} do")


# Every schedule


class ChangingCheckReport(msgspec.Struct):
    """The outcome of `check` for one protocol whose groups change."""

    protocol: str
    bounds: ChangeBounds
    states: int = 0
    transitions: int = 0
    depth: int = 0
    ends: int = 0
    """States in which the group was at rest, and judged as a whole."""
    complete: bool = False
    process_states: int = 0
    packets: int = 0
    cpu_seconds: float = 0.0
    violation: str = ""
    counter_example: ShownCounterExample | None = None
    files: list[str] = msgspec.field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.violation


def check_changing(
    kind: type[ChangingMember],
    name: str,
    bounds: ChangeBounds,
    max_states: int,
    out: Path | None = None,
    reduce: bool = True,
) -> Iterator[ChangingCheckReport]:
    """Yields the report after each level, and at the end with the counter-example if there is one: the first
    that is found, which is one with the fewest steps."""
    began = time.process_time()
    group = explored_group(kind, bounds, reduce)
    report = ChangingCheckReport(name, bounds)
    for progress in explore(group, max_states):
        report.states, report.transitions = progress.states, progress.transitions
        report.depth, report.ends, report.complete = progress.depth, progress.ends, progress.is_complete
        report.process_states, report.packets = len(group.states), len(group.packets)
        report.cpu_seconds = time.process_time() - began
        if progress.found is not None:
            schedule, violation = progress.found
            report.violation = f"p{violation.address}: {violation.text}"
            saved = saved_schedule(name, bounds.peers, group.addresses, schedule, violation)
            report.counter_example, report.files = write_schedule(kind, saved, violation, out)
        yield report


# Random schedules


class ChangingFailure(msgspec.Struct, frozen=True):
    """A random schedule that failed."""

    run: int
    reason: str


class ChangingVerifyReport(msgspec.Struct):
    """The outcome of `verify --membership` for one protocol."""

    protocol: str
    runs: int = 0
    deliveries: int = 0
    changes: dict[str, int] = msgspec.field(default_factory=dict)
    """How many members joined, left, were removed, crashed and returned."""
    packets: int = 0
    violations: int = 0
    failed: int = 0
    failures: list[ChangingFailure] = msgspec.field(default_factory=list)

    @property
    def passed(self) -> bool:
        return self.failed == 0

    def add(self, other: ChangingVerifyReport) -> None:
        for name in ("runs", "deliveries", "packets", "violations", "failed"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for kind, count in other.changes.items():
            self.changes[kind] = self.changes.get(kind, 0) + count
        self.failures = [*self.failures, *other.failures][:_MAX_FAILURES]


_CHANGES = ("join", "leave", "remove", "crash", "return", "freeze", "cut", "move")
_OF_PHONES = {"attach": "join", "detach": "leave", "expel": "remove"}
"""Events of phones, under the names of the corresponding events of members."""


def schedule_seed(name: str, seed: int, run: int) -> str:
    """The seed of run number `run`. Each protocol has schedules of its own: protocols that send alike would
    otherwise be judged on the same ones."""
    return f"{name}:{seed}:{run}"


def verify_changing(name: str, runs: int, seed: int, first: int = 0) -> Iterator[ChangingVerifyReport]:
    """Judge a protocol on `runs` random schedules from number `first` on; yields the report after each."""
    kind = find_changing(name)
    report = ChangingVerifyReport(name)
    for run in range(first, first + runs):
        report.add(_judge(kind, name, seed, run))
        yield report


def _judge(kind: type[ChangingMember], name: str, seed: int, run: int) -> ChangingVerifyReport:
    schedule = schedule_type(kind)(kind, schedule_seed(name, seed, run))
    world = schedule.world
    try:
        schedule.run()
        violations = schedule.oracle().violations()
    except Exception as error:  # An exception from a member is a fault of the protocol.
        violations = [f"raises {type(error).__name__}: {error}"]
    kinds = [_OF_PHONES.get(event[0], event[0]) for event in world.schedule]
    return ChangingVerifyReport(
        name,
        runs=1,
        deliveries=sum(kind == "deliver" for life in world.lives for kind, _ in life.events),
        changes={kind: kinds.count(kind) for kind in _CHANGES},
        packets=world.packets,
        violations=len(violations),
        failed=int(bool(violations)),
        failures=[ChangingFailure(run, violations[0])] if violations else [],
    )


def verify_changing_parallel(jobs: int, name: str, runs: int, seed: int) -> Iterator[ChangingVerifyReport]:
    """As `verify_changing`, on `jobs` processes, with the same outcome: the report after each batch."""
    find_changing(name)
    report = ChangingVerifyReport(name)
    pool = ProcessPoolExecutor(jobs)
    try:
        parts = [
            pool.submit(_batch, name, min(_BATCH, runs - first), seed, first)
            for first in range(0, runs, _BATCH)
        ]
        for part in parts:
            report.add(part.result())
            yield report
    finally:
        pool.shutdown(cancel_futures=True)


def _batch(name: str, runs: int, seed: int, first: int) -> ChangingVerifyReport:
    report = ChangingVerifyReport(name)
    for report in verify_changing(name, runs, seed, first):  # noqa: B007
        pass
    return report


def smallest_changing_failure(
    report: ChangingVerifyReport, seed: int, out: Path | None
) -> tuple[ShownCounterExample, list[str]] | None:
    """A small schedule that fails in the same way as the first failure of a report."""
    if not report.failures:
        return None
    kind = find_changing(report.protocol)
    schedule = schedule_type(kind)(kind, schedule_seed(report.protocol, seed, report.failures[0].run))
    founders, size = schedule.world.founders, schedule.world.size
    with contextlib.suppress(Exception):  # Only the schedule up to the failure is shrunk.
        schedule.run()
    small = shrink(kind, founders, size, schedule.world.schedule, drawn=schedule.drawn)
    try:
        world = replay(kind, founders, size, small)
        violations = schedule_type(kind).of_world(world).oracle().violations()
    except Exception as error:  # See above.
        violations = [f"raises {type(error).__name__}: {error}"]
    violation = as_violation(violations[0] if violations else report.failures[0].reason)
    saved = saved_schedule(report.protocol, founders, size, small, violation)
    return write_schedule(kind, saved, violation, out)
