"""The world: members, a network between them, and time.

It hands packets to members when the network says, sends when the workload says, carries out what
members ask for and then takes their deliveries, one at a time. What happens at the same instant
happens in a fixed order (hops, arrivals, wakes, links, sends; then by peer and link), so a run is a function
of its inputs and of nothing else. Each member reads its own clock, which may be ahead of the world's.
About 1 µs of queue a packet copy besides the protocol's own work.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from antecede.causality import MessageId
from antecede.protocols.base import Effects, LocalError, Packet
from antecede.protocols.base import Protocol as Member
from antecede.sim.network import Arrival, Network
from antecede.sim.probes import Probe
from antecede.sim.workload import Workload
from antecede.units import SECOND

_HOP, _ARRIVAL, _WAKE, _LINK, _SEND, _SAMPLE = range(6)


DRAIN = 60 * SECOND
"""How long timers ring after the last message."""


class LinkChange(NamedTuple):
    """A link that opens or closes; what is under way on a link that closes is lost."""

    time: int
    one: int
    other: int
    opens: bool


class Observer(Protocol):
    """Sees everything that happens, in the order in which it happens."""

    def send(
        self, process: int, message: MessageId, time: int, control: int, paper: int, group: str | None
    ) -> None: ...
    def receive(self, process: int, link: int, message: MessageId, time: int) -> None: ...
    def deliver(self, process: int, message: MessageId, time: int) -> None: ...


class World:
    """One run. `until` ends the sending, not the run: what is under way still arrives.

    Timers ring until `drain` after that, so that a member with a heartbeat does not live for ever.
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
        ahead: Sequence[int] = (),
        as_paper: bool = False,
        probes: Sequence[Probe] = (),
        samples: Sequence[int] = (),
        links: Sequence[LinkChange] = (),
    ) -> None:
        self.members = members
        self.now = 0
        self.packets = 0
        self.control_bytes = 0
        """Of all packets sent, to each destination, whatever they were for."""
        self.network = network
        self._workload = workload
        self._observers = [*observers, *probes]
        self._until = until
        self._last_wake = until + drain
        self._messages_left = most_messages if most_messages is not None else -1
        self._payload = payload
        self._sent = [0] * len(members)
        self._broadcasts = [0] * len(members)
        everywhere: dict[str | None, Sequence[int]] = {None: range(len(members))}
        self._groups = [
            [name for name, those in (groups or everywhere).items() if peer in those and peer not in silent]
            for peer in range(len(members))
        ]
        self._as_paper = as_paper
        self._probes = probes
        self._ahead = ahead or [0] * len(members)
        self._measured: tuple[Packet | None, int] = (None, 0)
        self._queue: list[tuple[int, int, int, int, int, Any]] = []
        for time in samples:
            heapq.heappush(self._queue, (time, _SAMPLE, 0, 0, 0, None))
        for change in links:
            event = (change.time, _LINK, change.one, change.other, 0, change.opens)
            heapq.heappush(self._queue, event)
        for peer in range(len(members)) if senders is None else senders:
            self._plan_send(peer, 0)

    def run(self) -> None:
        """Until nothing is left to happen."""
        while self.step():
            pass

    def step(self) -> bool:
        """The next thing that happens and all that follows from it at once; False if nothing does."""
        if not self._queue:
            return False
        self.now, kind, peer, source, _, packet = heapq.heappop(self._queue)
        if kind == _HOP:
            packet, transit = packet
            self._expect(source, packet, self.network.forward(transit, self.now))
            return True
        if kind == _SAMPLE:
            for probe in self._probes:
                probe.sample(self.members)
            return True
        if kind == _ARRIVAL:
            for message in packet.message_ids():
                for observer in self._observers:
                    observer.receive(peer, source, message, self.now)
            self._carry_out(peer, self.members[peer].receive(source, packet, self._clock(peer)))
        elif kind == _WAKE:
            clock = self._clock(peer)
            effects = self.members[peer].wake(clock)
            if effects.wake_at is not None and effects.wake_at <= clock:
                raise LocalError(f"woken at {clock}, it asks for {effects.wake_at}: time stands still")
            self._carry_out(peer, effects)
        elif kind == _LINK:
            self._change_link(peer, source, opens=packet)
        else:
            self._broadcast(peer)
            self._sent[peer] += 1
            self._plan_send(peer, self.now)
        self._take_deliveries(peer)
        return True

    def _clock(self, peer: int) -> int:
        return self.now + self._ahead[peer]

    def _change_link(self, one: int, other: int, opens: bool) -> None:
        ends = {one, other}
        if not opens:
            self._queue = [e for e in self._queue if e[1] != _ARRIVAL or {e[2], e[3]} != ends]
            heapq.heapify(self._queue)
        for here, there in ((one, other), (other, one)):
            member, clock = self.members[here], self._clock(here)
            change = member.link_opened if opens else member.link_closed
            self._carry_out(here, change(there, clock))
            self._take_deliveries(here)

    def _plan_send(self, peer: int, previous: int) -> None:
        time = self._workload.next_send(peer, self._sent[peer], previous)
        if time < self._until:
            heapq.heappush(self._queue, (time, _SEND, peer, 0, 0, None))

    def _broadcast(self, peer: int) -> None:
        mine = self._groups[peer]
        if self._messages_left == 0 or not mine:
            return
        self._messages_left -= 1
        group = self._workload.group(peer, self._broadcasts[peer], mine)
        self._broadcasts[peer] += 1
        member = self.members[peer]
        effects = member.broadcast(self._payload, self._clock(peer), group)
        if effects.message is not None:
            own = [send.packet for send in effects.sends if effects.message in send.packet.message_ids()]
            control = self._control(member, own[0]) if own else 0
            paper = member.paper_bytes(own[0]) if own else 0
            for observer in self._observers:
                observer.send(peer, effects.message, self.now, control, paper, group)
        self._carry_out(peer, effects)

    def _carry_out(self, peer: int, effects: Effects) -> None:
        for send in effects.sends:
            self.transmit(peer, send.to, send.packet)
        if effects.wake_at is not None:
            time = max(effects.wake_at - self._ahead[peer], self.now)
            if time <= self._last_wake:
                heapq.heappush(self._queue, (time, _WAKE, peer, 0, 0, None))

    def transmit(self, source: int, to: Sequence[int], packet: Packet) -> None:
        """Hand a packet to the network."""
        if not all(0 <= peer < len(self.members) for peer in to):
            raise LocalError(f"peer {source} sends to {to}, but peers are 0 to {len(self.members) - 1}")
        control = self._control(self.members[source], packet)
        for probe in self._probes:
            probe.transmit(self.members[source], to, packet, self.now)
        weight = self.members[source].paper_bytes(packet) if self._as_paper else control
        size = packet.payload_bytes() + weight
        self._expect(source, packet, self.network.transmit(source, to, size, self.now))
        self.packets += len(to)
        self.control_bytes += control * len(to)

    def _expect(self, source: int, packet: Packet, arrivals: Sequence[Arrival]) -> None:
        for time, peer, number, transit in arrivals:
            if transit is None:
                heapq.heappush(self._queue, (time, _ARRIVAL, peer, source, number, packet))
            else:
                heapq.heappush(self._queue, (time, _HOP, peer, source, number, (packet, transit)))

    def _control(self, member: Member, packet: Packet) -> int:
        """Control bytes of a packet; the last one is remembered, because it is asked for twice."""
        if self._measured[0] is not packet:
            self._measured = (packet, member.control_bytes(packet))
        return self._measured[1]

    def _take_deliveries(self, peer: int) -> None:
        member = self.members[peer]
        while (delivery := member.deliver(self._clock(peer))) is not None:
            for observer in self._observers:
                observer.deliver(peer, delivery.message, self.now)
            if self.now < self._until and self._workload.replies(peer, delivery.message):
                self._broadcast(peer)
