"""A changing group on a schedule: what each event does, and what applications see of it.

A schedule is a list of events: plain tuples, which can be saved, replayed and shrunk. Links are FIFO and
reliable; when a process crashes for good, the last packets that it has sent may be lost. A removed process
returns as a new one, at an address of its own, with its former messages. An event that is not possible does
nothing, so any part of a schedule is a schedule.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from antecede.causality import MessageId
from antecede.membership.member import ChangingMember
from antecede.membership.packets import Stream
from antecede.membership.state import Phase
from antecede.protocols.base import Delivery, Effects, Packet

ScheduleEvent = tuple[str, int, int]
"""The kind of event, its address, and the other address that it concerns; -1 if none.

- broadcast, deliver, report, leave
- transmit: the next packet from the first address to the second arrives
- join: the process asks the one at the second address to be admitted
- ask: without an answer so far, it asks another member, at the next free address; the first welcome counts
- remove: the member removes the one at the second address, or stops waiting for it if one of them has left
- suspect, trust: the member suspects the one at the second address, or stops suspecting it
- crash: for good; of the packets on each of its links only the first ones still arrive, as many as given
- freeze, thaw: the process pauses, and nothing reaches it
- cut, heal: no packet travels between the two addresses
- return: the removed process asks again, at the next free address
- forward: from now on all members forward to the members they admit
"""


EVENT_KINDS = frozenset(
    [
        "attach",
        "broadcast",
        "deliver",
        "detach",
        "expel",
        "move",
        "orphan",
        "report",
        "leave",
        "transmit",
        "forward",
        "join",
        "ask",
        "remove",
        "suspect",
        "trust",
        "crash",
        "freeze",
        "thaw",
        "cut",
        "heal",
        "return",
    ]
)


class ChangingViolation(NamedTuple):
    """A violation, and where it occurred."""

    address: int
    text: str


def as_violation(text: str) -> ChangingViolation:
    """A violation as the oracle words it, which names the process before anything else.

    >>> as_violation("p3 delivers p0:1 twice")
    ChangingViolation(address=3, text='delivers p0:1 twice')
    >>> as_violation("the snapshot of p4 lacks p0:1")
    ChangingViolation(address=4, text='the snapshot of p4 lacks p0:1')
    """
    where = re.search(r"\bp(\d+)\b", text)
    if where is None:
        return ChangingViolation(-1, text)
    return ChangingViolation(int(where[1]), text[where.end() :].lstrip() if where.start() == 0 else text)


@dataclass
class IncarnationRecord:
    """What the application of one incarnation has seen."""

    address: int
    stream: Stream = -1
    snapshot: tuple[MessageId, ...] = ()
    """The messages in the snapshot that it started with."""
    events: list[tuple[Literal["send", "deliver"], MessageId]] = field(default_factory=list)
    end: str = ""
    """`left`, `removed`, `crashed`, or empty."""
    sponsor: int = -1
    """The address of the member that admitted it."""
    own: tuple[MessageId, ...] = ()
    """Messages of the snapshot that the process has sent itself, if this life continues from a given
    state."""

    @property
    def sent(self) -> tuple[MessageId, ...]:
        return (*self.own, *(message for kind, message in self.events if kind == "send"))

    @property
    def seen(self) -> tuple[MessageId, ...]:
        return (*self.snapshot, *(message for _, message in self.events))


class ChangingWorld:
    """One group; the first processes are founders, the others may join."""

    def __init__(self, kind: type[ChangingMember], founders: int, size: int) -> None:
        self.kind, self.founders, self.size = kind, founders, size
        self.members: list[ChangingMember] = list(kind.founders(founders, size))
        self.forwards = False
        """Whether members forward to the members they admit."""
        self.lives = [IncarnationRecord(each.me, each.stream) for each in self.members]
        self.links: dict[tuple[int, int], deque[Packet]] = {}
        self.crashed: set[int] = set()
        self.frozen: set[int] = set()
        self.cuts: set[frozenset[int]] = set()
        self.returned_to: dict[int, int] = {}
        """The addresses at which processes that were removed have returned."""
        self.removed: set[Stream] = set()
        """Addresses of members that are being removed."""
        self.schedule: list[ScheduleEvent] = []
        self.packets = 0
        self.payloads: dict[MessageId, bytes] = {}
        """The payload of each application message when it was first broadcast."""
        self.faults: list[str] = []
        """Faults of deliveries that are visible without comparing histories."""
        self.is_encoded = False
        """Whether packets travel encoded as bytes; otherwise as objects, which is faster."""
        self.attempts = {each.me: [each.me] for each in self.members}
        """By address: all addresses at which the same process has asked to be admitted."""

    # Which processes can act.

    def can_act(self, address: int) -> bool:
        return address not in self.crashed and address not in self.frozen

    def is_active(self, address: int) -> bool:
        return self.members[address].is_member and address not in self.crashed

    def active(self) -> list[int]:
        return [each.me for each in self.members if self.is_active(each.me) and each.me not in self.frozen]

    def reporting(self) -> list[int]:
        """The members, and those that have left and may still be needed."""
        phases = (Phase.MEMBER, Phase.LEAVING)
        return [each.me for each in self.members if each.phase in phases and self.can_act(each.me)]

    def open_links(self) -> list[tuple[int, int]]:
        """The links with a packet that may arrive."""
        links = [link for link, queue in self.links.items() if queue]
        return [link for link in links if self._is_open(link)] if self.frozen or self.cuts else links

    def _is_open(self, link: tuple[int, int]) -> bool:
        if not self.frozen and not self.cuts:
            return True
        return not self.frozen.intersection(link) and frozenset(link) not in self.cuts

    # Events

    def has_addresses(self, event: ScheduleEvent) -> bool:
        """Whether processes at these addresses exist: part of a schedule may lack the event that began
        one."""
        kind, address, other = event
        return address < len(self.members) and (kind == "crash" or other < len(self.members))

    def apply(self, event: ScheduleEvent) -> bool:
        """Let an event happen, if it is possible. Returns whether it happened."""
        kind, address, other = event
        if kind not in ("transmit", "thaw", "heal", "cut") and not self.can_act(address):
            return False
        done: bool = getattr(self, f"_{kind}")(address, other)
        if done:
            self.schedule.append(event)
        return done

    def _broadcast(self, address: int, _: int) -> bool:
        if not self.is_active(address):
            return False
        member, life = self.members[address], self.lives[address]
        payload = f"{address}:{len(life.events)}".encode()
        effects = member.broadcast(payload, 0)
        assert effects.message is not None  # noqa: S101
        self.payloads[effects.message] = payload
        life.events.append(("send", effects.message))
        self._carry_out(address, effects)
        return True

    def _deliver(self, address: int, _: int) -> bool:
        member = self.members[address]
        if not member.is_member:
            return False
        before = member.deliveries
        delivery = member.deliver(0)
        if delivery is not None:
            self._give(address, delivery)
        self._carry_out(address, member.pending_effects(0))
        return delivery is not None or member.deliveries != before

    def _give(self, address: int, delivery: Delivery) -> None:
        """The application receives a message."""
        self.lives[address].events.append(("deliver", delivery.message))
        if delivery.payload != self.payloads.get(delivery.message, delivery.payload):
            origin, seq = delivery.message
            self.faults.append(f"p{address} delivers p{origin}:{seq} with what another contains")

    def _report(self, address: int, _: int) -> bool:
        if address not in self.reporting():
            return False
        self._carry_out(address, self.members[address].report(0))
        return True

    def _leave(self, address: int, _: int) -> bool:
        member = self.members[address]
        if not member.may_leave():
            return False
        self.lives[address].end = "left"
        self._carry_out(address, member.leave(0))
        return True

    def _join(self, address: int, contact: int) -> bool:
        member = self.members[address]
        if member.phase != Phase.OUTSIDE or address == contact:
            return False
        self._carry_out(address, member.join(contact, 0))
        return True

    def _ask(self, address: int, contact: int) -> bool:
        member = self.members[address]
        if member.phase != Phase.JOINING:
            return False
        self._begin_attempt(self.attempts[address], contact).bring_back(member.backlog)
        return True

    def _begin_attempt(self, process: list[int], contact: int) -> ChangingMember:
        """A process asks to be admitted, at an address of its own."""
        fresh = self.kind.outsider(len(self.members), len(self.members) + 1)
        fresh.forwards = self.forwards
        process.append(fresh.me)
        self.attempts[fresh.me] = process
        self.members.append(fresh)
        self.lives.append(IncarnationRecord(fresh.me))
        self._carry_out(fresh.me, fresh.join(contact, 0))
        return fresh

    def _forward(self, address: int, other: int) -> bool:
        self.forwards = True
        for member in self.members:
            member.forwards = True
        return True

    def _remove(self, address: int, other: int) -> bool:
        member = self.members[address]
        stream = member.stream_at.get(other)
        if member.phase is Phase.LEAVING:  # It may know of others that it was not linked to.
            stream = next((each for each, at in member.addresses.items() if at == other), None)
        if stream is None or address == other:
            return False
        if member.is_member and stream in member.addresses:
            self.removed.add(stream)
        elif stream not in (member.progress.coming if member.is_member else member.awaiting - member.ended):
            return False
        self._carry_out(address, member.remove(stream, 0))
        return True

    def _suspect(self, address: int, other: int) -> bool:
        return self._change_suspicion(address, other, suspects=True)

    def _trust(self, address: int, other: int) -> bool:
        return self._change_suspicion(address, other, suspects=False)

    def _change_suspicion(self, address: int, other: int, suspects: bool) -> bool:
        member, stream = self.members[address], self.members[other].stream
        if not member.is_member or stream not in member.addresses or address == other:
            return False
        change = member.suspect if suspects else member.trust
        self._carry_out(address, change(stream, 0))
        return True

    def _crash(self, address: int, kept: int) -> bool:
        """Keep only this number of packets on each of its links."""
        for each in self.attempts[address]:
            self.crashed.add(each)
            if not self.lives[each].end or self.members[each].phase is Phase.LEAVING:
                self.lives[each].end = "crashed"  # Even if it has left: others still need it.
        for (source, _), queue in self.links.items():
            if source in self.crashed:
                while len(queue) > kept:
                    queue.pop()
        return True

    def _freeze(self, address: int, _: int) -> bool:
        self.frozen.add(address)
        return True

    def _thaw(self, address: int, _: int) -> bool:
        if address not in self.frozen:
            return False
        self.frozen.discard(address)
        return True

    def _cut(self, address: int, other: int) -> bool:
        self.cuts.add(frozenset((address, other)))
        return True

    def _heal(self, address: int, other: int) -> bool:
        if frozenset((address, other)) not in self.cuts:
            return False
        self.cuts.discard(frozenset((address, other)))
        return True

    def _return(self, address: int, contact: int) -> bool:
        """A process that was removed asks to be admitted again."""
        member, life = self.members[address], self.lives[address]
        if life.end != "removed" or address in self.returned_to:
            return False
        fresh = self._begin_attempt([], contact)
        fresh.bring_back(member.make_backlog())
        self.returned_to[address] = fresh.me
        return True

    def _transmit(self, source: int, to: int) -> bool:
        queue = self.links.get((source, to))
        if not queue or not self._is_open((source, to)):
            return False
        packet = queue.popleft()
        if to in self.crashed:
            return True
        member = self.members[to]
        effects = member.receive(source, packet, 0)
        self._start(member)
        self._carry_out(to, effects)
        self._admit(member)
        return True

    def _start(self, member: ChangingMember) -> None:
        """An admitted process begins with its sponsor's snapshot."""
        snapshot, life = member.take_snapshot(), self.lives[member.me]
        if snapshot is not None:
            life.stream, life.snapshot = member.stream, read_messages(snapshot)
            for address in self.attempts[member.me]:
                if address != member.me and self.members[address].phase == Phase.JOINING:
                    self._carry_out(address, self.members[address].abandon(0))

    def _admit(self, member: ChangingMember) -> None:
        """A member admits a process that has asked it, after the deliveries that are due first."""
        while member.requests:
            while member.undelivered and self._deliver(member.me, -1):
                pass
            address, seen = member.requests[0], self.lives[member.me].seen
            self.lives[address].sponsor = member.me
            self._carry_out(member.me, member.sponsor(address, write_messages(seen), 0))

    def _carry_out(self, address: int, effects: Effects) -> None:
        links = self.links
        for send in effects.sends:
            packet = self.kind.decode(self.kind.encode(send.packet)) if self.is_encoded else send.packet
            self.packets += len(send.to)
            for to in send.to:
                queue = links.get((address, to))
                if queue is None:
                    queue = links[address, to] = deque()
                queue.append(packet)
        member = self.members[address]
        if member.changes:
            member.take_changes()
        if member.phase is Phase.REMOVED and self.lives[address].end != "crashed":
            self.lives[address].end = "removed"


def write_messages(messages: tuple[MessageId, ...]) -> bytes:
    return " ".join(f"{origin}:{seq}" for origin, seq in messages).encode()


def read_messages(snapshot: bytes) -> tuple[MessageId, ...]:
    parts = (part.partition(":") for part in snapshot.decode().split())
    return tuple(MessageId(int(origin), int(seq)) for origin, _, seq in parts)
