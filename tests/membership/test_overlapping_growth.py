"""The work of a member of overlapping groups grows with the messages that wait, not with their square."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from antecede.causality import MessageId
from antecede.membership.multigroup import ChangingMultigroup
from antecede.protocols.base import Effects

_ANA, _BO, _CLEO = range(3)


class Groups:
    """Ana, bo and cleo are in groups a and b. What is sent in b arrives at cleo when a test says so."""

    def __init__(self) -> None:
        self.a = ChangingMultigroup.founders_of({"a": [0, 1, 2]}, 6)
        self.b = ChangingMultigroup.founders_of({"b": [3, 4, 5]}, 6)
        for pair in zip(self.a, self.b, strict=True):
            ChangingMultigroup.connect(pair)
        self.late: list[Any] = []

    def broadcast(self, member: ChangingMultigroup) -> Effects:
        effects = member.broadcast(b"", 0)
        for send in effects.sends:
            for to in send.to:
                if to in (2, 5):
                    self.late.append((to, member.me, send.packet))
                else:
                    receiver = [*self.a, *self.b][to]
                    receiver.receive(member.me, send.packet, 0)
                    give(receiver)
        return effects

    def arrive(self, group: list[ChangingMultigroup]) -> list[MessageId]:
        """Everything that was sent in a group reaches cleo."""
        cleo, left, given = group[_CLEO], [], []
        for to, source, packet in self.late:
            if to == cleo.me:
                cleo.receive(source, packet, 0)
                given += give(cleo)
            else:
                left.append((to, source, packet))
        self.late = left
        return given


def give(member: ChangingMultigroup) -> list[MessageId]:
    found = []
    while (delivery := member.deliver(0)) is not None:
        found.append(delivery.message)
    return found


def work_of(call: Callable[[], object]) -> int:
    """The number of function calls, built-in ones included."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return count


def catch_up(messages: int, every: int = 0) -> tuple[int, int]:
    """A message of b is late, and all of a follow it. Cleo may broadcast meanwhile. The work of holding and
    giving them, and the size of the state when all wait."""
    groups = Groups()
    ana, bo, cleo = groups.a
    sent = [groups.broadcast(groups.b[_ANA]).message]
    late, groups.late = groups.late, []
    expected: list[MessageId] = []
    state = b""

    def run() -> None:
        nonlocal state
        for number in range(messages):
            effects = groups.broadcast((ana, bo)[number % 2])
            assert effects.message is not None
            expected.append(effects.message)
            assert groups.arrive(groups.a) == []
            if every and number % every == 0:
                for send in cleo.broadcast(b"", 0).sends:
                    for to in send.to:
                        groups.a[to].receive(cleo.me, send.packet, 0)
                        give(groups.a[to])
        state = cleo.save()
        groups.late = late
        assert groups.arrive(groups.b) == sent
        assert give(cleo) == expected

    return work_of(run), len(state)


def test_work_and_state_grow_linearly_with_held_messages() -> None:
    once, twice = catch_up(100), catch_up(200)
    assert twice[0] < 2.4 * once[0]
    assert twice[1] < 2.4 * once[1]


def test_work_and_state_grow_linearly_while_the_member_broadcasts() -> None:
    once, twice = catch_up(100, 5), catch_up(200, 5)
    assert twice[0] < 2.4 * once[0]
    assert twice[1] < 2.4 * once[1]
