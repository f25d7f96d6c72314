"""Check a protocol: explore every schedule within bounds and, if one fails, find the smallest that does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from antecede.check.bounds import Bounds, counted
from antecede.check.counterexample import CounterExample, find_smallest
from antecede.check.draw import draw
from antecede.check.explore import Exploration, ExplorationProgress
from antecede.check.group import CheckedGroup, CheckViolation
from antecede.check.replay import save_schedule
from antecede.check.schedule import ShownCounterExample, carried, columns, listed, show_steps
from antecede.errors import InputError
from antecede.protocols.base import Protocol
from antecede.protocols.catalog import PROTOCOLS, as_file_name

_MAX_SEARCHED = 300_000
"""States searched for a violation of causal order once a declared claim is broken: about 10 seconds."""

_WITHOUT_SYMMETRY = ((3, 1), (2, 2))
"""Members, and messages of each: groups of at most these are explored without the symmetry reduction, if the
class is not in the catalogue."""

_FALSE_SYMMETRY = (
    "The protocol declares symmetric = True, which is false: only schedules that this declaration leaves out "
    "fail."
)


class CheckReport(msgspec.Struct):
    """The outcome of `check` for one protocol."""

    protocol: str
    bounds: Bounds
    states: int = 0
    transitions: int = 0
    depth: int = 0
    ends: int = 0
    """States in which nothing more could happen."""
    complete: bool = False
    reductions: list[str] = msgspec.field(default_factory=list)
    assumes_symmetry: bool = False
    """Whether the verdict relies on `symmetric = True`, tested in smaller groups only."""
    process_states: int = 0
    """Distinct states of single processes, each computed once."""
    packets: int = 0
    cpu_seconds: float = 0.0
    violation: str = ""
    counter_example: ShownCounterExample | None = None
    files: list[str] = msgspec.field(default_factory=list)
    """The files that were written."""

    @property
    def passed(self) -> bool:
        return not self.violation


def check(
    kind: type[Protocol],
    name: str,
    bounds: Bounds,
    max_states: int,
    order: bool = True,
    symmetry: bool = True,
    out: Path | None = None,
    master: str | None = None,
) -> Iterator[CheckReport]:
    """Yields the report after each level, and once more with the counter-example if there is one, which is
    written to the folder `out` too: its schedule and its diagram. With a `master`, levels are Spark jobs
    there, and `out` has what was explored, to continue from."""
    began = time.process_time()
    group = CheckedGroup(kind, bounds)
    exploration = Exploration(group, order, symmetry)
    explored = bounds
    is_doubted = exploration.uses_symmetry and kind not in PROTOCOLS.values()
    unreduced = _without_symmetry(bounds) if is_doubted else []
    if bounds in unreduced:
        symmetry, unreduced = False, []
        exploration = Exploration(group, order, symmetry)
    report = CheckReport(name, bounds, reductions=exploration.reductions, assumes_symmetry=bool(unreduced))
    for smaller in unreduced:
        violation = _first_violation(Exploration(CheckedGroup(kind, smaller), order, False), max_states)
        if violation is not None:
            symmetry, explored, report.violation = False, smaller, _in_words(violation)
            yield report
            break
    steps = iter(()) if report.violation else _explore(exploration, name, max_states, out, master)
    for progress in steps:
        report.states, report.transitions = progress.states, progress.transitions
        report.depth, report.ends, report.complete = progress.depth, progress.ends, progress.is_complete
        report.process_states, report.packets = len(group.processes.states), len(group.processes.packets)
        report.cpu_seconds = time.process_time() - began
        if progress.violation is not None:
            report.violation = _in_words(progress.violation)
        yield report
    if not report.passed:
        found, searched = _find_worst(kind, explored, max_states, symmetry)
        if found is not None:
            report.violation = _in_words(found.violation)
            report.counter_example = show(found, searched)
            if is_doubted and not symmetry and _is_hidden_by_symmetry(kind, explored, order):
                report.counter_example.why.append(_FALSE_SYMMETRY)
            report.cpu_seconds = time.process_time() - began
            yield report
            if out is not None:
                report.files = [str(path) for path in write(found, name, out)]
                yield report


def _in_words(violation: CheckViolation) -> str:
    return f"p{violation.process}: {violation.text}"


def _without_symmetry(bounds: Bounds) -> list[Bounds]:
    """The groups within bounds that are explored without relying on `symmetric = True`. No single step can
    show that this is false, as it can for the other declarations."""
    sizes = {
        (min(bounds.peers, peers), min(bounds.messages, messages)) for peers, messages in _WITHOUT_SYMMETRY
    }
    return [
        msgspec.structs.replace(bounds, peers=peers, messages=messages) for peers, messages in sorted(sizes)
    ]


def _first_violation(exploration: Exploration, max_states: int) -> CheckViolation | None:
    for progress in exploration.run(max_states):
        if progress.violation is not None:
            return progress.violation
    return None


def _is_hidden_by_symmetry(kind: type[Protocol], bounds: Bounds, order: bool) -> bool:
    """Whether a group that fails holds in all the schedules that the symmetry reduction leaves."""
    exploration = Exploration(CheckedGroup(kind, bounds), order)
    violation = _first_violation(exploration, _MAX_SEARCHED)
    return violation is None and exploration.progress.is_complete


def _find_worst(
    kind: type[Protocol], bounds: Bounds, max_states: int, symmetry: bool
) -> tuple[CounterExample | None, int]:
    """The smallest counter-example in which a message is lost or delivered in the wrong order, if there is
    one; otherwise the smallest one in which the protocol only breaks a claim of its own, and the number of
    states searched for the former."""
    found = find_smallest(kind, bounds, max_states, symmetry=symmetry)
    if found is None or not found.violation.claim:
        return found, 0
    without_claims = msgspec.structs.replace(bounds, claims=False)
    exploration = Exploration(CheckedGroup(kind, without_claims), symmetry=symmetry)
    if _first_violation(exploration, min(max_states, _MAX_SEARCHED)) is not None:
        return find_smallest(kind, without_claims, max_states, symmetry=symmetry) or found, 0
    return found, exploration.progress.states


def _explore(
    exploration: Exploration, name: str, max_states: int, out: Path | None, master: str | None
) -> Iterator[ExplorationProgress]:
    if master is None:
        return exploration.run(max_states)
    if out is None:
        raise InputError("--master needs --out: a folder that the cluster can reach, for what is explored")
    from antecede.check.on_spark import ExplorationPlan, explore_on_spark

    group = exploration.group
    plan = ExplorationPlan(name, group.bounds, exploration.uses_order, exploration.uses_symmetry)
    return explore_on_spark(plan, out / f"{as_file_name(name)}.exploration", max_states, master)


def show(found: CounterExample, explored: int = 0) -> ShownCounterExample:
    """A counter-example in words. If it only breaks a claim, no other violation was found in `explored`
    states."""
    claim = []
    if found.violation.claim:
        claim.append(f"Every delivery is in causal order, but {found.violation.claim}.")
    if explored:
        claim.append(f"No violation of causal order was found in {explored:,} states.")
    return ShownCounterExample(
        found.group.size,
        found.messages,
        f"p{found.violation.process}",
        found.violation.text,
        [*carried(found), *claim],
        show_steps(found),
    )


def describe(protocol: str, found: ShownCounterExample) -> list[str]:
    """A counter-example as text for a terminal."""
    messages, processes = counted(found.messages, "message"), counted(found.peers, "process")
    return [
        f"{protocol} fails with {messages} at {processes}:",
        *(listed(found.steps) if found.is_listed else columns(found.steps, found.peers)),
        f"{found.process}: {found.violation}",
        *found.why,
    ]


def write(found: CounterExample, protocol: str, out: Path) -> list[Path]:
    """Write its schedule, for replay, and its diagram. Returns the files."""
    out.mkdir(parents=True, exist_ok=True)
    name = as_file_name(protocol)
    schedule, diagram = out / f"{name}.json", out / f"{name}.svg"
    save_schedule(found, protocol, schedule)
    diagram.write_text(draw(found) + "\n", encoding="utf-8")
    return [schedule, diagram]
