"""The world: members, a network between them, and simulated time.

A discrete-event simulation over one heap of events. The world passes packets to members when the network
says, broadcasts when the workload says, carries out members' effects and then collects their deliveries.
Events at the same instant have a fixed order (hops, arrivals, wakes, link changes, sends, samples; then by
peer and link), so a run is a function of its inputs alone. Each member reads its own clock, which may be
ahead of the world's. Besides the protocol's own work, a copy of a packet costs about 1 µs of heap operations.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from antecede.causality import MessageId
from antecede.protocols.base import Effects, LocalError, Packet
from antecede.protocols.base import Protocol as Member
from antecede.protocols.own_class import (
    checked_delivery,
    checked_effects,
    checked_paper_bytes,
    checked_waiting,
)
from antecede.sim.network import Arrival, Network
from antecede.sim.probes import Probe
from antecede.sim.workload import Workload
from antecede.units import SECOND

HOP, ARRIVAL, WAKE, LINK, SEND, SAMPLE, CHANGE, REPORT, TEST = range(9)
"""Kinds of events, in their order at one instant; the last three in groups that change."""

Event = tuple[int, int, int, int, int, Any]
"""Time, kind, peer, source, number on its link, content."""

DRAIN = 60 * SECOND
"""How long timers still fire after the last send."""


class LinkChange(NamedTuple):
    """A link that opens or closes; packets in flight on a link that closes are lost."""

    time: int
    one: int
    other: int
    opens: bool


class Observer(Protocol):
    """Sees every event, in the order in which it happens."""

    def send(
        self, process: int, message: MessageId, time: int, control: int, paper: int, group: str | None
    ) -> None: ...
    def receive(self, process: int, link: int, message: MessageId, time: int) -> None: ...
    def deliver(self, process: int, message: MessageId, time: int) -> None: ...


class World:
    """One run. Sending ends at `until`; packets in flight then still arrive.

    Timers fire until `drain` after that, so that a member with a heartbeat does not run for ever. With
    `isolates`, packets are encoded and decoded as on a real network, so that members share no objects.
    """

    def __init__(
        self,
        members: Sequence[Member],
        network: Network,
        workload: Workload,
        observers: Sequence[Observer],
        *,
        until: int,
        most_messages: int | None = None,
        payload: bytes = b"",
        drain: int = DRAIN,
        groups: Mapping[str, Sequence[int]] | None = None,
        senders: Iterable[int] | None = None,
        silent: Sequence[int] = (),
        clock_offsets: Sequence[int] = (),
        paper_sizes: bool = False,
        probes: Sequence[Probe] = (),
        sample_times: Sequence[int] = (),
        link_changes: Sequence[LinkChange] = (),
        isolates: bool = False,
    ) -> None:
        self.members = members
        self.now = 0
        self.packets = 0
        self.control_bytes = 0
        """Control bytes of all packets, once for each destination."""
        self.network = network
        self._workload = workload
        self._observers = [*observers, *probes]
        self._probes = probes
        self._until = until
        self._last_wake = until + drain
        self._messages_left = most_messages if most_messages is not None else -1
        self._payload = payload
        self._paper_sizes = paper_sizes
        self._isolates = isolates
        self._clock_offsets = clock_offsets or [0] * len(members)
        everywhere: dict[str | None, Sequence[int]] = {None: range(len(members))}
        self._groups = [
            [name for name, peers in (groups or everywhere).items() if peer in peers and peer not in silent]
            for peer in range(len(members))
        ]
        self._sends = [0] * len(members)
        self._broadcasts = [0] * len(members)
        """Sends and replies that became messages."""
        self._last_size: tuple[Packet | None, int] = (None, 0)
        self._handlers: tuple[Callable[[int, int, Any], None], ...] = (
            self._on_hop, self._on_arrival, self._on_wake, self._on_link, self._on_send, self._on_sample,
        )  # fmt: skip
        self._events: list[Event] = []
        """A heap."""
        for time in sample_times:
            self._schedule(time, SAMPLE)
        for change in link_changes:
            self._schedule(change.time, LINK, change.one, change.other, content=change.opens)
        for peer in range(len(members)) if senders is None else senders:
            self._schedule_send(peer, 0)

    def run(self) -> None:
        """Run until there are no more events."""
        while self.step():
            pass

    def step(self) -> bool:
        """Process the next event and its immediate consequences; False if there is none."""
        if not self._events:
            return False
        self.now, kind, peer, source, _, content = heapq.heappop(self._events)
        self._handlers[kind](peer, source, content)
        return True

    @property
    def next_time(self) -> int | None:
        """The time of the next event; None if there is none."""
        return self._events[0][0] if self._events else None

    def is_down(self, peer: int) -> bool:
        """Whether a process has crashed and is not up again."""
        return False

    def is_cut(self, one: int, other: int) -> bool:
        """Whether packets between two processes cannot arrive now."""
        return False

    def count_stuck(self) -> int:
        """The number of messages that are held."""
        return sum(len(checked_waiting(member.waiting())) for member in self.members)

    def figures(self) -> dict[str, float]:
        """Measurements of what happened besides sending and delivering."""
        return {}

    def transmit(self, source: int, to: Sequence[int], packet: Packet) -> None:
        """Pass a packet to the network."""
        if not all(0 <= peer < len(self.members) for peer in to):
            raise LocalError(f"peer {source} sends to {to}, but peers are 0 to {len(self.members) - 1}")
        member = self.members[source]
        control = self._control_bytes(member, packet)
        for probe in self._probes:
            probe.transmit(member, to, packet, self.now)
        overhead = member.paper_bytes(packet) if self._paper_sizes else control
        size = packet.payload_bytes() + overhead
        if self._isolates:
            packet = member.decode(member.encode(packet))  # What the sender changes later is not sent.
        arrivals = self.network.carry(packet.message_ids(), source, to, size, self.now)
        self._schedule_arrivals(source, packet, arrivals)
        self.packets += len(to)
        self.control_bytes += control * len(to)

    # Events.

    def _on_hop(self, peer: int, source: int, content: tuple[Packet, object]) -> None:
        packet, transit = content
        self._schedule_arrivals(source, packet, self.network.forward(transit, self.now))

    def _on_arrival(self, peer: int, source: int, packet: Packet) -> None:
        member = self.members[peer]
        if self._isolates:
            packet = member.decode(member.encode(packet))  # Several members receive it, or one twice.
        for message in packet.message_ids():
            for observer in self._observers:
                observer.receive(peer, source, message, self.now)
        self._apply(peer, checked_effects(member.receive(source, packet, self._clock(peer)), "receive"))
        self._collect_deliveries(peer)

    def _on_wake(self, peer: int, source: int, content: None) -> None:
        clock = self._clock(peer)
        effects = checked_effects(self.members[peer].wake(clock), "wake")
        if effects.wake_at is not None and effects.wake_at <= clock:
            raise LocalError(f"woken at {clock}, a member asks for {effects.wake_at}: time would stand still")
        self._apply(peer, effects)
        self._collect_deliveries(peer)

    def _on_link(self, one: int, other: int, opens: bool) -> None:
        if not opens:
            ends = {one, other}
            self._events = [e for e in self._events if e[1] != ARRIVAL or {e[2], e[3]} != ends]
            heapq.heapify(self._events)
        for here, there in ((one, other), (other, one)):
            member, clock = self.members[here], self._clock(here)
            change = member.link_opened if opens else member.link_closed
            self._apply(here, checked_effects(change(there, clock), change.__name__))
            self._collect_deliveries(here)

    def _on_send(self, peer: int, source: int, content: None) -> None:
        self._broadcast(peer)
        self._sends[peer] += 1
        self._schedule_send(peer, self.now)
        self._collect_deliveries(peer)

    def _on_sample(self, peer: int, source: int, content: None) -> None:
        for probe in self._probes:
            probe.sample(self.members)

    # Consequences of events.

    def _clock(self, peer: int) -> int:
        return self.now + self._clock_offsets[peer]

    def _broadcast(self, peer: int) -> None:
        groups = self._groups[peer]
        if self._messages_left == 0 or not groups:
            return
        self._messages_left -= 1
        group = self._workload.group(peer, self._broadcasts[peer], groups)
        self._broadcasts[peer] += 1
        member = self.members[peer]
        effects = checked_effects(member.broadcast(self._payload, self._clock(peer), group), "broadcast")
        if effects.message is not None:
            own = [send.packet for send in effects.sends if effects.message in send.packet.message_ids()]
            control = self._control_bytes(member, own[0]) if own else 0
            paper = checked_paper_bytes(member.paper_bytes(own[0])) if own else 0
            for observer in self._observers:
                observer.send(peer, effects.message, self.now, control, paper, group)
        self._apply(peer, effects)

    def _apply(self, peer: int, effects: Effects) -> None:
        for send in effects.sends:
            self.transmit(peer, send.to, send.packet)
        if effects.wake_at is not None:
            time = max(effects.wake_at - self._clock_offsets[peer], self.now)
            if time <= self._last_wake:
                self._schedule(time, WAKE, peer)

    def _collect_deliveries(self, peer: int) -> None:
        member = self.members[peer]
        while (delivery := checked_delivery(member.deliver(self._clock(peer)))) is not None:
            for observer in self._observers:
                observer.deliver(peer, delivery.message, self.now)
            if self.now < self._until and self._workload.replies(peer, delivery.message):
                self._broadcast(peer)

    def _control_bytes(self, member: Member, packet: Packet) -> int:
        """Control bytes of a packet. The last result is kept, because it is needed twice."""
        if self._last_size[0] is not packet:
            self._last_size = (packet, member.control_bytes(packet))
        return self._last_size[1]

    # The heap.

    def _schedule(self, time: int, kind: int, peer: int = 0, source: int = 0, content: Any = None) -> None:
        heapq.heappush(self._events, (time, kind, peer, source, 0, content))

    def _schedule_send(self, peer: int, previous: int) -> None:
        time = self._workload.next_send(peer, self._sends[peer], previous)
        if time < self._until:
            self._schedule(time, SEND, peer)

    def _schedule_arrivals(self, source: int, packet: Packet, arrivals: Sequence[Arrival]) -> None:
        for time, peer, number, transit in arrivals:
            if transit is None:
                heapq.heappush(self._events, (time, ARRIVAL, peer, source, number, packet))
            else:
                heapq.heappush(self._events, (time, HOP, peer, source, number, (packet, transit)))
