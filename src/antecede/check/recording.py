"""Records what happens to the members of a group, whoever drives them: a schedule that can be replayed.

A packet is identified by the step that sent it, not by its content. So part of a schedule can be replayed
too, with packets that carry something else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from antecede.check.events import EventKind
from antecede.protocols.base import Delivery, Effects, Packet, Protocol


class PacketKey(NamedTuple):
    """A packet, by the step that sent it."""

    step: int
    source: int
    to: int
    number: int
    """Its position among the packets that the step sent to the same process."""


class RecordedStep(NamedTuple):
    """One step of a run."""

    kind: EventKind
    process: int
    number: int
    """Which step of the whole run this is."""
    about: int = -1
    """The group of a broadcast, or the other end of a link."""
    packet: PacketKey | None = None


class Recording:
    """Records a run of members that are wrapped before it starts."""

    def __init__(self, groups: Sequence[str | None] = (None,)) -> None:
        self.steps: list[RecordedStep] = []
        self._groups = list(groups)
        self._sent: dict[tuple[int, int, bytes], list[PacketKey]] = {}
        """Keys of packets, by source, destination and content: what arrives may be a copy."""
        self._counts: Counter[tuple[int, int, int]] = Counter()
        self._link: tuple[int, int] | None = None

    def wrap(self, members: Sequence[Protocol]) -> list[Any]:
        """Wrap the members, to record what a driver asks of them."""
        return [_RecordedMember(self, member) for member in members]

    def add(self, kind: EventKind, process: int, about: int = -1, packet: PacketKey | None = None) -> None:
        self.steps.append(RecordedStep(kind, process, len(self.steps), about, packet))

    def broadcast(self, process: int, group: str | None) -> None:
        self.add(EventKind.BROADCAST, process, self._groups.index(group) if group in self._groups else 0)

    def receive(self, source: int, process: int, packet: bytes) -> None:
        """Record a receipt; a packet that arrives again is the last of those sent."""
        keys = self._sent.get((source, process, packet), [])
        if keys:
            self.add(EventKind.RECEIVE, process, packet=keys.pop(0) if len(keys) > 1 else keys[0])

    def change_link(self, kind: EventKind, process: int, other: int) -> None:
        """Both ends report it; it is one step."""
        link = min(process, other), max(process, other)
        if self._link == link:
            self._link = None
        else:
            self._link = link
            self.add(kind, link[0], link[1])

    def send(self, source: int, effects: Effects, encode: Callable[[Packet], bytes]) -> None:
        """Record a packet sent by the last step."""
        step = len(self.steps) - 1
        for send in effects.sends:
            packet = encode(send.packet)
            for to in send.to:
                key = PacketKey(step, source, to, self._counts[step, source, to])
                self._counts[step, source, to] += 1
                self._sent.setdefault((source, to, packet), []).append(key)


class _RecordedMember:
    """A member whose calls are recorded; everything else is the member's own."""

    def __init__(self, recording: Recording, member: Protocol) -> None:
        self._recording, self._member = recording, member

    def __getattr__(self, name: str) -> Any:
        return getattr(self._member, name)

    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        self._recording.broadcast(self._member.me, group)
        return self._followed(self._member.broadcast(payload, now, group))

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        self._recording.receive(link, self._member.me, self._member.encode(packet))
        return self._followed(self._member.receive(link, packet, now))

    def wake(self, now: int) -> Effects:
        self._recording.add(EventKind.WAKE, self._member.me)
        return self._followed(self._member.wake(now))

    def link_opened(self, link: int, now: int) -> Effects:
        self._recording.change_link(EventKind.OPEN, self._member.me, link)
        return self._followed(self._member.link_opened(link, now))

    def link_closed(self, link: int, now: int) -> Effects:
        self._recording.change_link(EventKind.CLOSE, self._member.me, link)
        return self._followed(self._member.link_closed(link, now))

    def deliver(self, now: int) -> Delivery | None:
        steps = self._recording.steps
        self._recording.add(EventKind.DELIVER, self._member.me)
        delivery = self._member.deliver(now)
        if delivery is None:
            steps.pop()
        return delivery

    def _followed(self, effects: Effects) -> Effects:
        self._recording.send(self._member.me, effects, self._member.encode)
        return effects
