"""Probes: measurements beyond the metrics that every run counts.

A probe observes every event, every packet as it is sent and, at intervals, all members. It keeps sums only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from antecede.causality import MessageId
from antecede.protocols.base import Packet, Protocol
from antecede.protocols.flat import DependencyPacket
from antecede.protocols.freescale import DownlinkPacket, Freescale
from antecede.protocols.hcg import GatewayPacket, Hcg

_LONG = 1 << 62


class Probe:
    """An observer that also sees packets and samples all members; it overrides the methods it needs. Nothing
    before `since`, in nanoseconds, is measured."""

    def __init__(self, since: int = 0) -> None:
        self.since = since

    def send(
        self, process: int, message: MessageId, time: int, control: int, paper: int, group: str | None
    ) -> None:
        """The application broadcasts a message."""

    def receive(self, process: int, link: int, message: MessageId, time: int) -> None:
        """A message arrives, possibly again."""

    def deliver(self, process: int, message: MessageId, time: int) -> None:
        """A message is delivered."""

    def transmit(self, member: Protocol, to: Sequence[int], packet: Packet, now: int) -> None:
        """`member` sends a packet to each of `to`."""

    def sample(self, members: Sequence[Protocol]) -> None:
        """Sample the state of all members; every 50 ms."""

    def figures(self) -> dict[str, float]:
        """The measurements by name."""
        return {}


class Costs(Probe):
    """Control information sent, by kind of packet, and stored, by role of member.

    `down_packets`, `down_paper_bytes` and `down_wire_bytes` are of freescale's downlink packets, each counted
    once however many peers receive it; `internal_storage` is the mean over internal peers and time.
    `down_last_paper_bytes` counts the number of the sender's previous message as one of the bits, where a
    super peer passes on a message from the external group.
    """

    def __init__(self, since: int = 0) -> None:
        super().__init__(since)
        self._sent: dict[str, list[int]] = {}
        self._stored: dict[str, list[int]] = {}
        self._with_last = 0
        self._last: dict[tuple[int, int], int] = {}
        """The number that a super peer gave to each sender's last message."""

    def transmit(self, member: Protocol, to: Sequence[int], packet: Packet, now: int) -> None:
        if now >= self.since:
            sums = self._sent.setdefault(packet.metric_prefix(), [0, 0, 0])
            sums[0] += 1
            sums[1] += member.paper_bytes(packet)
            sums[2] += member.control_bytes(packet)
        if isinstance(packet, DownlinkPacket) and isinstance(member, Freescale):
            last = self._last.get((member.me, packet.origin), 0)
            self._last[member.me, packet.origin] = packet.number
            if now >= self.since:
                self._with_last += member.paper_bytes_with_last(packet, last)

    def sample(self, members: Sequence[Protocol]) -> None:
        for member in members:
            sums = self._stored.setdefault(member.role(), [0, 0])
            sums[0] += 1
            sums[1] += member.paper_storage()

    def figures(self) -> dict[str, float]:
        figures: dict[str, float] = {}
        for name, (count, paper, wire) in self._sent.items():
            figures[f"{name}_packets"] = count
            figures[f"{name}_paper_bytes"] = paper / count
            figures[f"{name}_wire_bytes"] = wire / count
            if name == DownlinkPacket.metric_name:
                figures["down_last_paper_bytes"] = self._with_last / count
        for name, (count, stored) in self._stored.items():
            figures[f"{name}_storage"] = stored / count
        return figures


class HoldBackQueues(Probe):
    """Lengths of the hold-back queues, in messages.

    `delivery_queue_mean` is the mean over members and over the time until the last arrival;
    `delivery_queue_most` is the greatest length of one member's queue for any time above zero. A member's own
    messages that come back, and those delivered before, are not in the queue.
    """

    def __init__(self, since: int = 0) -> None:
        super().__init__(since)
        self._members = 1
        self._held: dict[int, dict[MessageId, int]] = {}
        self._changed: dict[int, int] = {}
        self._delivered: dict[tuple[int, int], int] = {}
        self._most = self._waited = self._end = 0

    def transmit(self, member: Protocol, to: Sequence[int], packet: Packet, now: int) -> None:
        self._members = member.size

    def receive(self, process: int, link: int, message: MessageId, time: int) -> None:
        self._end = time
        known = self._delivered.get((process, message.origin), 0)
        if message.origin != process and message.seq > known:
            self._queue(process, time).setdefault(message, time)

    def deliver(self, process: int, message: MessageId, time: int) -> None:
        self._delivered[process, message.origin] = message.seq
        arrived = self._queue(process, time).pop(message, time)
        self._waited += self._counted(arrived, time)

    def _queue(self, process: int, time: int) -> dict[MessageId, int]:
        """A member's queue, which is about to change; its length until now is recorded."""
        held = self._held.setdefault(process, {})
        if time > max(self._changed.get(process, 0), self.since):
            self._most = max(self._most, len(held))
        self._changed[process] = time
        return held

    def _counted(self, start: int, end: int) -> int:
        return max(0, end - max(start, self.since))

    def figures(self) -> dict[str, float]:
        left = [arrived for held in self._held.values() for arrived in held.values()]
        waited = self._waited + sum(self._counted(arrived, self._end) for arrived in left)
        time = self._members * self._counted(0, self._end)
        return {
            "delivery_queue_mean": waited / time if time else 0.0,
            "delivery_queue_most": self._most,
        }


class NamedPairs(Probe):
    """Which pairs of messages with the same sequence number gateways order: the packet of one then names the
    other as a cause.

    `p1_after_p2` is the share of peer 1's messages that name peer 2's message with the same number;
    `p1_after_p2_least_ns` is the shortest time between the sends of such a pair.
    """

    def __init__(self, since: int = 0) -> None:
        super().__init__(since)
        self._sent: dict[int, tuple[MessageId, int]] = {}
        self._last: dict[int, tuple[MessageId, int, int]] = {}
        """Each peer's last message, with its subgroup and the number that the gateway assigned."""
        self._passed: dict[int, int] = {}
        self._pairs: dict[tuple[int, int], list[int]] = {}

    def send(
        self, process: int, message: MessageId, time: int, control: int, paper: int, group: str | None
    ) -> None:
        self._sent[process] = message, time

    def transmit(self, member: Protocol, to: Sequence[int], packet: Packet, now: int) -> None:
        if not isinstance(packet, GatewayPacket) or not isinstance(member, Hcg):
            return
        origin = packet.origin
        if now >= self.since:
            self._passed[origin] = self._passed.get(origin, 0) + 1
            for other, (message, subgroup, number) in self._last.items():
                if other != origin and message.seq == packet.seq:
                    named = number <= packet.counts[subgroup] or (subgroup, number) in packet.beyond
                    self._count(packet, message, named)
        self._last[origin] = MessageId(origin, packet.seq), member.gateways.index(member.me), packet.number

    def _count(self, packet: GatewayPacket, other: MessageId, named: bool) -> None:
        sums = self._pairs.setdefault((packet.origin, other.origin), [0, _LONG])
        if named:
            sums[0] += 1
            (message, time), (earlier, before) = self._sent[packet.origin], self._sent[other.origin]
            if (message.seq, earlier) == (packet.seq, other):
                sums[1] = min(sums[1], time - before)

    def figures(self) -> dict[str, float]:
        figures: dict[str, float] = {}
        for (one, other), (count, least) in self._pairs.items():
            figures[f"p{one}_after_p{other}"] = count / self._passed[one]
            if least < _LONG:
                figures[f"p{one}_after_p{other}_least_ns"] = least
        return figures


class ImmediateDependencies(Probe):
    """Numbers of immediate dependencies, for protocols whose messages name exactly those.

    The sender's own previous message is never named. It is an immediate dependency unless a message delivered
    since depends on it. `immediate_mean` and `immediate_most` include it, `named_mean` does not.
    `worst_share` is the share of messages with as many immediate dependencies as there are peers,
    `named_all_share` the share of those that name a message of every other peer.
    """

    def __init__(self, since: int = 0) -> None:
        super().__init__(since)
        self._sent: dict[int, int] = {}
        self._covered: set[int] = set()
        """Peers that have delivered a message that depends on their own last one."""
        self._clocks: dict[MessageId, tuple[dict[int, int], list[int]]] = {}
        """For each message in flight: what its sender had delivered, and how many peers still lack it."""
        self._delivered: dict[int, dict[int, int]] = {}
        self._messages = self._named = self._immediate = self._most = self._worst = self._all = 0

    def transmit(self, member: Protocol, to: Sequence[int], packet: Packet, now: int) -> None:
        if not isinstance(packet, DependencyPacket):
            return
        me = packet.origin
        if now >= self.since:
            named = len(packet.causes)
            immediate = named + (packet.seq > 1 and me not in self._covered)
            self._messages += 1
            self._named += named
            self._immediate += immediate
            self._most = max(self._most, immediate)
            self._worst += immediate == member.size
            self._all += named == member.size - 1
        self._covered.discard(me)
        self._sent[me] = packet.seq
        self._clocks[MessageId(me, packet.seq)] = self._delivered.get(me, {}).copy(), [len(to)]

    def deliver(self, process: int, message: MessageId, time: int) -> None:
        if message not in self._clocks:
            return
        clock, left = self._clocks[message]
        if process in self._sent and clock.get(process, 0) == self._sent[process]:
            self._covered.add(process)
        self._delivered.setdefault(process, {})[message.origin] = message.seq
        left[0] -= 1
        if not left[0]:
            del self._clocks[message]

    def figures(self) -> dict[str, float]:
        messages = max(1, self._messages)
        return {
            "immediate_mean": self._immediate / messages,
            "immediate_most": self._most,
            "named_mean": self._named / messages,
            "worst_share": self._worst / messages,
            "named_all_share": self._all / messages,
        }


class Bundles(Probe):
    """Packets as paper 004 measures them, once for each copy: messages in a packet, its size (a header of 20
    bytes, payloads, control information as the paper counts), dependencies of a message besides its sender's,
    times of reception and in the hold-back queue, and how many messages each node holds.

    A packet is *cut* if it was full and another one followed. For messages that arrive two in a packet
    (`pair_...`): their time to reception, their time held after it, and how long peers on their way delayed
    them in order to aggregate.
    """

    HEADER = 20
    CAUSES = (0, 4, 9, 14, 19, 24, 29, 34, 39, 44, 49, 54)
    SIZES = (100, 200, 300, 400)
    HOLDING = (50, 100, 150, 200, 250)
    SLICE = 50_000_000
    """Receptions are also grouped by the send time of their message, in slices of 50 ms."""

    def __init__(self, since: int = 0) -> None:
        super().__init__(since)
        self._messages_in: Counter[int] = Counter()
        self._sizes: Counter[int] = Counter()
        self._causes: Counter[int] = Counter()
        self._cut = 0
        self._last: tuple[int, Sequence[int]] | None = None
        self._sent_at: dict[MessageId, int] = {}
        self._arrived: dict[int, dict[MessageId, tuple[int, int, bool]]] = {}
        """The messages each node holds: arrival, total delay by aggregation, whether it came in a pair."""
        self._delivered: dict[tuple[int, int], int] = {}
        self._in_flight: dict[tuple[int, MessageId], tuple[int, bool]] = {}
        self._receptions: dict[int, list[int]] = {}
        self._slowest = self._deliveries = self._held = 0
        self._pairs = [0, 0, 0, 0]
        self._most_held: dict[int, int] = {}
        self._most_pending: dict[int, int] = {}
        """As `_most_held`, but with what has just arrived, before any of it is delivered."""
        self._newest: dict[int, tuple[int, int]] = {}
        self._fullest: dict[int, int] = {}

    def send(
        self, process: int, message: MessageId, time: int, control: int, paper: int, group: str | None
    ) -> None:
        if time >= self.since:
            self._sent_at[message] = time
            self._causes[max(0, paper // 4 - 1)] += 1

    def transmit(self, member: Protocol, to: Sequence[int], packet: Packet, now: int) -> None:
        if now < self.since:
            return
        carried = packet.message_ids()
        self._messages_in[len(carried)] += len(to)
        self._sizes[self.HEADER + packet.payload_bytes() + member.paper_bytes(packet)] += len(to)
        self._fullest[member.me] = max(self._fullest.get(member.me, 0), len(carried))
        self._cut += self._last == (member.me, to)
        self._last = (member.me, to)
        here = self._arrived.get(member.me, {})
        for message in carried:
            arrival, late, _ = here.get(message, (now, 0, False))
            late += now - arrival
            if late or len(carried) == 2:
                for peer in to:
                    self._in_flight[peer, message] = (late, len(carried) == 2)

    def receive(self, process: int, link: int, message: MessageId, time: int) -> None:
        self._last = None
        here = self._arrived.setdefault(process, {})
        if self._newest.get(process) != (link, time):
            # A new packet: everything that was deliverable before it has been delivered.
            self._newest[process] = (link, time)
            self._most_held[process] = max(self._most_held.get(process, 0), len(here))
        is_duplicate = message in here or self._delivered.get((process, message.origin), 0) >= message.seq
        if is_duplicate or message.origin == process or message not in self._sent_at:
            return
        late, paired = self._in_flight.pop((process, message), (0, False))
        here[message] = (time, late, paired)
        self._most_pending[process] = max(self._most_pending.get(process, 0), len(here))
        latency = time - self._sent_at[message]
        self._slowest = max(self._slowest, latency)
        sums = self._receptions.setdefault(self._sent_at[message] // self.SLICE, [0, 0])
        sums[0] += 1
        sums[1] += latency

    def deliver(self, process: int, message: MessageId, time: int) -> None:
        self._delivered[process, message.origin] = message.seq
        arrived = self._arrived.get(process, {}).pop(message, None)
        if arrived is None:
            return
        arrival, late, paired = arrived
        self._deliveries += 1
        self._held += time - arrival
        if paired:
            for place, value in enumerate((1, arrival - self._sent_at[message], time - arrival, late)):
                self._pairs[place] += value

    def figures(self) -> dict[str, float]:
        figures: dict[str, float] = {"packets_cut": self._cut}
        figures |= _histogram("packets_of", self._messages_in, range(1, 21))
        figures |= _histogram("packet_bytes", self._sizes, self.SIZES)
        figures |= _histogram("causes", self._causes, self.CAUSES)
        figures |= _histogram("nodes_holding", Counter(self._most_held.values()), self.HOLDING)
        figures |= _histogram("nodes_pending", Counter(self._most_pending.values()), self.HOLDING)
        figures |= _histogram("nodes_packing", Counter(self._fullest.values()), range(1, 21))
        figures["packets_sized"] = sum(self._sizes.values())
        figures["packets_over_1400_bytes"] = sum(n for size, n in self._sizes.items() if size > 1400)
        figures["sent_bytes"] = sum(size * n for size, n in self._sizes.items())
        figures["causes_over_12"] = sum(n for causes, n in self._causes.items() if causes > 12)
        received = sum(count for count, _ in self._receptions.values())
        latency = sum(total for _, total in self._receptions.values())
        figures["reception_mean_ns"] = latency / max(1, received)
        figures["reception_max_ns"] = self._slowest
        figures["held_mean_ns"] = self._held / max(1, self._deliveries)
        for part, (count, total) in sorted(self._receptions.items()):
            figures[f"reception_ns_sent_in_{part}"] = total / count
        pairs, *sums = self._pairs
        figures["pair_messages"] = pairs
        for name, total in zip(("reception", "held", "late"), sums, strict=True):
            figures[f"pair_{name}_mean_ns"] = total / max(1, pairs)
        return figures


def _histogram(name: str, counted: Counter[int], bounds: Sequence[int]) -> dict[str, float]:
    """Counts up to each bound and above the one before, above the last bound, and the largest value.

    >>> _histogram("x", Counter([1, 1, 2, 7]), (1, 4))
    {'x_to_1': 2, 'x_to_4': 1, 'x_over_4': 1, 'x_max': 7}
    """
    figures: dict[str, float] = {}
    below = -1
    for bound in bounds:
        figures[f"{name}_to_{bound}"] = sum(n for value, n in counted.items() if below < value <= bound)
        below = bound
    figures[f"{name}_over_{below}"] = sum(n for value, n in counted.items() if value > below)
    figures[f"{name}_max"] = max(counted, default=0)
    return figures


PROBES: dict[str, type[Probe]] = {
    "costs": Costs,
    "bundles": Bundles,
    "named": NamedPairs,
    "immediate": ImmediateDependencies,
    "queues": HoldBackQueues,
}
