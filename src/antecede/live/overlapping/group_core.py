"""One group of a process that is in several: a `ChangingCore` that shares the process's log, deliveries and
causal past."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import msgspec

from antecede.live.changing.causes import split_own
from antecede.live.changing.core import ChangingCore
from antecede.live.changing.events import JoinAsked
from antecede.live.envelope import Body, wrap
from antecede.live.events import Event
from antecede.live.headers import NOTHING, About
from antecede.live.overlapping.files import GroupFiles
from antecede.live.overlapping.queue import SeatQueue
from antecede.membership.group_packets import decode_snapshot
from antecede.membership.member import ChangingMember
from antecede.membership.multigroup import ChangingMultigroup
from antecede.membership.packets import ProgressReport, Stream, Welcome
from antecede.membership.state import Phase
from antecede.protocols.base import LocalError, Packet

if TYPE_CHECKING:
    from antecede.live.overlapping.core import NodeCore


class GroupCore(ChangingCore):
    """The process's part in one group. The `Ready`s of all cores of a process share one numbering."""

    def __init__(self, node: NodeCore, group: str) -> None:
        self.node, self.group = node, group
        polls, unblocking = node.polls, node.unblocking_number
        super().__init__(ChangingMultigroup, node.name, node.is_durable, node.delivers_own)
        node.polls, node.unblocking_number = polls, unblocking
        self.application = SeatQueue(node.application, group)
        self.files = GroupFiles(node.files, group)
        self._numbers = node.numbers
        self._next_number, self._persisted = node.next_number, node.persisted
        self.is_replaying = node.is_replaying
        self._seats: list[int] = []
        self._heard: dict[int, ProgressReport] = {}
        self._is_logged = self._has_changed = False

    # Members

    def create_founder(self, me: Stream, addresses: list[int]) -> ChangingMember:
        member = self.kind.founder(me, addresses, 0)
        cast("ChangingMultigroup", member).in_group = self.group
        return member

    def create_outsider(self, address: int) -> ChangingMember:
        return ChangingMultigroup.outsider_of(self.group, address, 0)

    def seats(self) -> Iterator[ChangingMultigroup]:
        """All memberships of this process in the group, past and present."""
        return cast("Iterator[ChangingMultigroup]", iter(list(self.members.values())))

    @property
    def is_joining(self) -> bool:
        return any(each.phase == Phase.JOINING for each in self.members.values())

    # Events

    def step(self, event: Event) -> None:
        """Handle an event of this group, which may affect the process's other groups."""
        self._is_logged = self._has_changed = False
        before = self.node.phases()
        super().step(event)
        if list(self.members) != self._seats:
            self._seats = list(self.members)
            self.node.connect()
        if self._is_logged:  # any other change of members would be missing in a replay
            self._has_changed |= self.node.refresh(cast("Any", event).time)
            self._is_logged = False
        if self._has_changed or self.node.phases() != before:
            self.node.wait_until_durable()

    @property
    def _has_own_copies(self) -> bool:
        return cast("ChangingMultigroup", self.member).held_of(self.me) > 0

    def refresh(self, now: int) -> bool:
        """Something has happened in the process; returns whether it has immediately changed anything here."""
        has_changed = False
        for member in self.seats():
            phase = member.phase
            effects = member.refresh(now)
            if member.phase == Phase.MEMBER and phase == Phase.JOINING:
                self._on_admitted(member, now)
            self._carry_out(member.me, effects)
            if member.changes or effects.sends or member.phase != phase:
                self._after(member)
                has_changed = True
        return has_changed

    def _after(self, member: ChangingMember) -> None:
        self._has_changed |= bool(member.changes)
        super()._after(member)

    def _on_join_asked(self, event: JoinAsked) -> None:
        for each in self.node.groups.values():
            if each is not self and each.is_joining:
                raise LocalError(f"a process joins one group at a time, and waits for group {each.group}")
        super()._on_join_asked(event)

    def _on_admitted(self, member: ChangingMember, now: int) -> None:
        numbers = dict(self._numbers)  # includes messages of other groups
        super()._on_admitted(member, now)
        self._numbers.update(numbers)

    def lacks_state(self, link: int, packet: Packet) -> bool:
        if isinstance(packet, Welcome):
            packet = msgspec.structs.replace(packet, snapshot=decode_snapshot(packet.snapshot).state)
        return super().lacks_state(link, packet)

    def _hear_report(self, link: int, report: ProgressReport) -> None:
        # These reports are always complete, so a replay need not know the last one.
        self.reports.hear(self._heard.get(link), report)
        self._heard[link] = report

    def drop_link(self, link: int) -> None:
        super().drop_link(link)
        self._heard.pop(link, None)

    def wrap(self, body: Body, now: int = 0, about: About = NOTHING) -> bytes:
        # Packets name messages in the group's order, not the ones that applications receive.
        known = self.member.order.delivered
        follows, causes = split_own(self.causes, self.me, known[self.me] + 1, known)
        return wrap(body, follows, causes, "", now, about)

    # Deliveries and the log, which are shared by the process

    def poll(self, now: int) -> bool:
        return self.node.poll(now)

    def poll_here(self, now: int) -> bool:
        """Poll this group's member for a delivery."""
        return super().poll(now)

    @property
    def polls(self) -> int:
        return self.node.polls

    @polls.setter
    def polls(self, polls: int) -> None:
        self.node.polls = polls

    @property
    def _unblocking_number(self) -> int:
        return self.node.unblocking_number

    @_unblocking_number.setter
    def _unblocking_number(self, number: int) -> None:
        self.node.unblocking_number = number

    def log_polls(self, now: int) -> None:
        self.node.log_polls(now)

    def resume_polls(self, polls: int) -> None:
        """The process restores this."""

    def _log(self, record: Any) -> None:
        self._is_logged = True
        self.node.log(self.group, record)
        self.time = max(self.time, record.time)
