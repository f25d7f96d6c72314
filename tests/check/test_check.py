"""`check` explores every schedule: correct protocols hold in all of them, broken ones fail in a small one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import broken_protocols
from antecede.check.bounds import Bounds
from antecede.check.counterexample import find_smallest
from antecede.check.explore import Exploration
from antecede.check.group import CheckedGroup
from antecede.check.run import CheckReport, check
from antecede.errors import InputError
from antecede.protocols.base import Protocol
from antecede.protocols.catalog import PROTOCOLS, find_protocol
from printed_protocols.mbcp import MbcpAsPrinted

TRIANGLE: dict[str, tuple[int, ...]] = {"a": (0, 1), "b": (1, 2), "c": (0, 2)}
BROKEN: list[tuple[type[Protocol], Bounds, int, str]] = [
    (broken_protocols.MbcpWithoutDependencies, Bounds(), 6, "delivers p1:1 before p0:1"),
    (broken_protocols.TimestampWithoutDependencies, Bounds(), 6, "delivers p1:1 before p0:1"),
    (broken_protocols.MbcpWithoutFifo, Bounds(messages=2), 4, "delivers p0:2 before p0:1"),
    (broken_protocols.TimestampWithoutFifo, Bounds(messages=2), 4, "delivers p0:2 before p0:1"),
    (broken_protocols.MbcpThatForgets, Bounds(), 9, "happened before"),
    (broken_protocols.MbcpThatNeverDelivers, Bounds(), 2, "never delivers p0:1"),
    (broken_protocols.MbcpThatRepeats, Bounds(duplicates=1), 5, "a second time"),
    (broken_protocols.MbcpThatRaises, Bounds(), 5, "it raises LocalError: this is too much"),
    (broken_protocols.MbcpWithWrongReasons, Bounds(), 5, "for what did not happen before it"),
    (MbcpAsPrinted, Bounds(), 11, "p2:1 names p0:1, p1:1; its immediate causes are: p1:1"),
    (broken_protocols.MbcpThatDoesNotSave, Bounds(), 6, "delivers p1:1 before p0:1"),
]


def explore(kind: type[Protocol], bounds: Bounds, order: bool = True, symmetry: bool = True) -> CheckReport:
    report = CheckReport("", bounds)
    for report in check(kind, kind.name, bounds, 3_000_000, order, symmetry):  # noqa: B007
        pass
    return report


LARGE = {"flooding", "pc", "hcg", "basic", "freescale"}
"""Here with two messages in all; `docs/check.md` has every one of them with more."""


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_schedule_of_three_peers_is_right(name: str) -> None:
    report = explore(find_protocol(name), Bounds(total=2 if name in LARGE else None))
    assert (report.passed, report.complete) == (True, True), report.violation
    assert report.ends > 1


@pytest.mark.parametrize("faults", [{"duplicates": 1}, {"crashes": 1}, {"losses": 1}])
@pytest.mark.parametrize("name", ["mbcp", "timestamp", "vcube-agg", "freescale"])
def test_every_schedule_with_a_fault_is_right(name: str, faults: dict[str, int]) -> None:
    total = 2 if name in {*LARGE, "vcube-agg"} else None
    report = explore(find_protocol(name), msgspec.structs.replace(Bounds(total=total), **faults))
    assert (report.passed, report.complete) == (True, True), report.violation


def test_every_schedule_of_overlapping_groups_passes() -> None:
    report = explore(find_protocol("multigroup"), Bounds(groups=TRIANGLE))
    assert (report.passed, report.complete) == (True, True), report.violation


def test_every_schedule_of_changing_links_passes() -> None:
    report = explore(find_protocol("pc"), Bounds(total=1, link_changes=2, layout={"overlay": "line"}))
    assert (report.passed, report.complete) == (True, True), report.violation


@pytest.mark.parametrize("name", ["hcg", "basic"])
def test_time_passes_for_a_crashed_process(name: str) -> None:
    """Retransmitted packets arrive within the delay bound, or no protocol could rely on it."""
    report = explore(find_protocol(name), Bounds(peers=2, crashes=1))
    assert (report.passed, report.complete) == (True, True), report.violation


@pytest.mark.parametrize(
    ("kind", "bounds", "steps", "why"), BROKEN, ids=lambda value: getattr(value, "name", None)
)
def test_broken_protocols_fail_in_the_smallest_schedule(
    kind: type[Protocol], bounds: Bounds, steps: int, why: str
) -> None:
    report = explore(kind, bounds)
    found = report.counter_example
    assert found is not None
    assert why in found.violation
    assert len(found.steps) == steps


@pytest.mark.parametrize(
    "kind", [find_protocol("mbcp"), *(kind for kind, *_ in BROKEN)], ids=lambda kind: kind.name
)
def test_reductions_change_no_verdict(kind: type[Protocol]) -> None:
    bounds = next((each for broken, each, _, _ in BROKEN if broken is kind), Bounds())
    bounds = msgspec.structs.replace(bounds, total=3)
    verdicts, states = set(), []
    for order, symmetry in ((True, True), (True, False), (False, False)):
        report = explore(kind, bounds, order, symmetry)
        verdicts.add(report.passed)
        states.append(report.states)
    assert len(verdicts) == 1
    if verdicts == {True}:
        assert states == sorted(states)


def test_the_state_count_of_a_small_group_matches_brute_force() -> None:
    """Two peers with a message each: a peer broadcasts (b), receives (r) and delivers (d), r before d."""
    explored = Exploration(CheckedGroup(find_protocol("mbcp"), Bounds(peers=2)), order=False, symmetry=False)
    *_, progress = explored.run(1000)
    assert (progress.states, progress.depth, progress.is_complete) == (count_two_peers(), 6, True)


Done = tuple[str, ...]


def count_two_peers() -> int:
    """By brute force over what each peer has done and whether its broadcast preceded its delivery."""
    found: set[tuple[tuple[frozenset[str], bool], ...]] = set()
    todo: list[tuple[Done, Done]] = [((), ())]
    while todo:
        state = todo.pop()
        key = tuple((frozenset(done), "d" in done and "b" in done[: done.index("d")]) for done in state)
        if key in found:
            continue
        found.add(key)
        for peer, done in enumerate(state):
            allowed = {"b": True, "r": "b" in state[1 - peer], "d": "r" in done}
            for step in allowed:
                if allowed[step] and step not in done:
                    after = (*done, step)
                    todo.append((after, state[1]) if peer == 0 else (state[0], after))
    return len(found)


def test_invalid_bounds_are_refused() -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"peers": 0}, "at least one peer"),
        ({"peers": 8, "messages": 8}, "more than 24 messages"),
    ]
    for fields, words in refused:
        with pytest.raises(InputError, match=words):
            Bounds(**fields)
    with pytest.raises(InputError, match="mbcp has one group"):
        CheckedGroup(find_protocol("mbcp"), Bounds(groups=TRIANGLE))
    with pytest.raises(InputError, match="layout: mbcp has none"):
        CheckedGroup(find_protocol("mbcp"), Bounds(layout={"overlay": "ring"}))


def test_nothing_is_found_in_a_correct_protocol() -> None:
    assert find_smallest(find_protocol("mbcp"), Bounds(peers=2), 10_000) is None
