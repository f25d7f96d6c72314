"""Leaving out schedules changes no verdict, and no state in which a group can end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from antecede.causality import MessageId
from antecede.check.bounds import Bounds
from antecede.check.explore import Exploration
from antecede.check.group import CheckedGroup, CheckState, CheckViolation
from antecede.protocols.base import NO_EFFECTS, Effects, Packet, Protocol, Send
from antecede.protocols.catalog import find_protocol
from antecede.protocols.flooding import Flooding, FloodPacket

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "protocols"))
from errata_catalogue import ERRATA

RELAYED = ["vcube", "vcube-agg", "freescale", "flooding", "pc"]
SMALL = [
    Bounds(total=2),
    Bounds(total=2, duplicates=1),
    Bounds(total=2, losses=1),
    Bounds(peers=2, messages=2),
]
End = tuple[tuple[tuple[bytes, int], ...], tuple[int, ...]]


def explore_ends(
    kind: type[Protocol], bounds: Bounds, order: bool
) -> tuple[set[End], int, CheckViolation | None]:
    """The final states of a group: its processes, and the causal past of every message."""
    group = CheckedGroup(kind, bounds)
    exploration = Exploration(group, order, symmetry=False)
    seen, level = {group.initial}, [group.initial]
    ends: set[End] = set()
    while level:
        following: list[CheckState] = []
        for state in level:
            events = exploration.events(state)
            if not events:
                if (wrong := group.judge_end(state)) is not None:
                    return ends, len(seen), wrong
                own = (group.processes.states[number] for number in state.processes)
                ends.add((tuple((each.saved, each.delivered) for each in own), state.pasts))
            for event in events:
                after = group.apply(state, event)
                if isinstance(after, CheckViolation):
                    return ends, len(seen), after
                if after not in seen:
                    seen.add(after)
                    following.append(after)
        level = following
    return ends, len(seen), None


@pytest.mark.parametrize("bounds", SMALL, ids=["", "duplicate", "loss", "two"])
@pytest.mark.parametrize("name", ["mbcp", "multigroup", *RELAYED])
def test_reductions_preserve_the_final_states_of_a_group(name: str, bounds: Bounds) -> None:
    reduced, few, wrong = explore_ends(find_protocol(name), bounds, order=True)
    all_of_them, many, also_wrong = explore_ends(find_protocol(name), bounds, order=False)
    assert (wrong is None) == (also_wrong is None)
    assert few < many
    if wrong is None:
        assert reduced == all_of_them


@pytest.mark.parametrize("name", ["vcube-agg", "freescale"])
def test_reductions_preserve_the_final_states_of_a_group_with_a_crash(name: str) -> None:
    bounds = Bounds(total=2, crashes=1)
    reduced, _, wrong = explore_ends(find_protocol(name), bounds, order=True)
    assert wrong is None
    assert reduced == explore_ends(find_protocol(name), bounds, order=False)[0]


def test_a_lost_packet_does_not_consume_the_crash_of_another_process() -> None:
    """A process that can only crash must not keep the others from being explored."""
    bounds = Bounds(peers=3, total=2, losses=1, crashes=1)
    reduced, _, wrong = explore_ends(find_protocol("mbcp"), bounds, order=True)
    assert wrong is None
    assert reduced == explore_ends(find_protocol("mbcp"), bounds, order=False)[0]


@pytest.mark.parametrize(
    "erratum",
    [each for each in ERRATA if each.page in ("vcube", "freescale", "flooding", "multigroup")],
    ids=lambda erratum: erratum.name,
)
def test_printed_errors_give_the_same_verdict(erratum: Any) -> None:
    for bounds in erratum.bounds:
        verdicts = set()
        for reduced in (True, False):
            *_, progress = Exploration(CheckedGroup(erratum.kind, bounds), reduced, reduced).run(6_000)
            if progress.violation is None and not progress.is_complete:
                return  # too large for a test
            verdicts.add(progress.violation is None)
        assert len(verdicts) == 1


class FloodingThatSaysItIsSilent(Flooding):
    def may_forward(self, message: MessageId) -> tuple[int, ...] | None:
        return ()


class FloodingThatWakesUp(Flooding):
    """Its second message makes it look at copies again, which it declares to ignore."""

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        effects = super().receive(link, packet, now)
        if effects is NO_EFFECTS and isinstance(packet, FloodPacket) and len(self.received) > 1:
            self.ready.reverse()
            return Effects((Send(self.neighbours, packet),))
        return effects


class FloodingLastInFirstOut(Flooding):
    def deliver(self, now: int) -> Any:
        self.ready.reverse()
        delivery = super().deliver(now)
        self.ready.reverse()
        return delivery


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (FloodingThatSaysItIsSilent, "`may_forward` excludes"),
        (FloodingThatWakesUp, "may_forward|ignores_copies"),
        (FloodingLastInFirstOut, "delivers_as_received|happened before"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_wrong_protocol_declarations_are_detected(kind: type[Protocol], words: str) -> None:
    exploration = Exploration(CheckedGroup(kind, Bounds()))
    *_, progress = exploration.run(100_000)
    assert progress.violation is not None
    assert any(word in progress.violation.text for word in words.split("|"))
