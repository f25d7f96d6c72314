"""What else can be measured in a run, besides what is always counted.

A probe sees every packet as it is sent and, now and then, all members. It keeps sums only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from antecede.causality import MessageId
from antecede.protocols.base import Packet, Protocol
from antecede.protocols.flat import DependencyPacket
from antecede.protocols.hcg import GatewayPacket, Hcg

_LONG = 1 << 62


class Probe:
    """Told of everything, as an observer is, and of packets and moments besides; nothing before `since`, in
    nanoseconds, is to be measured. A probe answers to what it wants to know of."""

    def __init__(self, since: int = 0) -> None:
        self.since = since

    def send(
        self, process: int, message: MessageId, time: int, control: int, paper: int, group: str | None
    ) -> None:
        """An application sends."""

    def receive(self, process: int, link: int, message: MessageId, time: int) -> None:
        """A message arrives, perhaps once more."""

    def deliver(self, process: int, message: MessageId, time: int) -> None:
        """A message is delivered."""

    def transmit(self, member: Protocol, to: Sequence[int], packet: Packet, now: int) -> None:
        """`member` sends a packet to each of `to`."""

    def sample(self, members: Sequence[Protocol]) -> None:
        """Look at all members as they are at this moment; every 50 ms."""

    def figures(self) -> dict[str, float]:
        """What was found, by name."""
        return {}


class Costs(Probe):
    """Control information sent, by kind of packet, and kept, by kind of member.

    `down_packets`, `down_paper_bytes` and `down_wire_bytes` are of packets called Down, each counted once
    however many get it; `internal_storage` is what internal peers keep, on average over peers and time.
    """

    def __init__(self, since: int = 0) -> None:
        super().__init__(since)
        self._sent: dict[str, list[int]] = {}
        self._kept: dict[str, list[int]] = {}

    def transmit(self, member: Protocol, to: Sequence[int], packet: Packet, now: int) -> None:
        if now >= self.since:
            sums = self._sent.setdefault(packet.metric_prefix(), [0, 0, 0])
            sums[0] += 1
            sums[1] += member.paper_bytes(packet)
            sums[2] += member.control_bytes(packet)

    def sample(self, members: Sequence[Protocol]) -> None:
        for member in members:
            sums = self._kept.setdefault(member.role(), [0, 0])
            sums[0] += 1
            sums[1] += member.paper_storage()

    def figures(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for name, (count, paper, wire) in self._sent.items():
            found[f"{name}_packets"] = count
            found[f"{name}_paper_bytes"] = paper / count
            found[f"{name}_wire_bytes"] = wire / count
        for name, (count, kept) in self._kept.items():
            found[f"{name}_storage"] = kept / count
        return found


class Queues(Probe):
    """How many messages are held, waiting for their causes.

    `delivery_queue_mean` is the average over members and over the time until the last arrival;
    `delivery_queue_most` is the longest that one member's queue was for any time at all. A member's own
    messages that come back to it, and what was delivered before, do not wait.
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
        """A member's queue, about to change."""
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


class Named(Probe):
    """What packets between gateways name, of the messages that have the same number at another peer.

    `p1_after_p2` is the share of peer 1's messages that name peer 2's of the same number, and
    `p1_after_p2_least_ns` how much later than it such a message was sent, at least.
    """

    def __init__(self, since: int = 0) -> None:
        super().__init__(since)
        self._sent: dict[int, tuple[MessageId, int]] = {}
        self._last: dict[int, tuple[MessageId, int, int]] = {}
        """Each peer's last message: the subgroup and the number that its gateway gave it."""
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
        found: dict[str, float] = {}
        for (one, other), (count, least) in self._pairs.items():
            found[f"p{one}_after_p{other}"] = count / self._passed[one]
            if least < _LONG:
                found[f"p{one}_after_p{other}_least_ns"] = least
        return found


class Immediate(Probe):
    """How many messages each message immediately depends on, for protocols that name just those.

    The sender's own previous message is never named; it is one of them unless another that was delivered
    since depends on it. `immediate_mean` and `immediate_most` count it, `named_mean` does not; `worst_share`
    is the share of messages with as many as there are peers, `named_all_share` that of messages that name
    one of every other peer's.
    """

    def __init__(self, since: int = 0) -> None:
        super().__init__(since)
        self._sent: dict[int, int] = {}
        self._covered: set[int] = set()
        """Peers whose last message is before another that was delivered to them."""
        self._clocks: dict[MessageId, tuple[dict[int, int], list[int]]] = {}
        """Of each message under way, what its sender had delivered, and how many are still to get it."""
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
    """Packets as paper 004 looks at them, copies counted: how many messages are in one and how large it is (a
    header of 20 bytes, payloads, control information as the paper counts it), how many entries a message's
    clock has besides its own, how long messages take and are held, and how many each node holds.

    A packet is *cut* if another one had to follow it. Of messages that came two in a packet (`pair_...`):
    how long they took, were held after that, and had been held up in all on their way by peers that waited
    for something to send with them.
    """

    HEADER = 20
    CAUSES = (0, 4, 9, 14, 19, 24, 29, 34, 39, 44, 49, 54)
    SIZES = (100, 200, 300, 400)
    HOLDING = (50, 100, 150, 200, 250)
    SLICE = 50_000_000
    """Receptions are also told apart by when their message was sent, in slices of 50 ms."""

    def __init__(self, since: int = 0) -> None:
        super().__init__(since)
        self._messages_in: Counter[int] = Counter()
        self._sizes: Counter[int] = Counter()
        self._causes: Counter[int] = Counter()
        self._cut = 0
        self._last: tuple[int, Sequence[int]] | None = None
        self._sent_at: dict[MessageId, int] = {}
        self._arrived: dict[int, dict[MessageId, tuple[int, int, bool]]] = {}
        """What each node holds: since when, how late it was sent on in all, whether it came in a pair."""
        self._delivered: dict[tuple[int, int], int] = {}
        self._coming: dict[tuple[int, MessageId], tuple[int, bool]] = {}
        self._receptions: dict[int, list[int]] = {}
        self._slowest = self._deliveries = self._held = 0
        self._pairs = [0, 0, 0, 0]
        self._most_held: dict[int, int] = {}
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
            came, late, _ = here.get(message, (now, 0, False))
            late += now - came
            if late or len(carried) == 2:
                for peer in to:
                    self._coming[peer, message] = (late, len(carried) == 2)

    def receive(self, process: int, link: int, message: MessageId, time: int) -> None:
        self._last = None
        here = self._arrived.setdefault(process, {})
        if self._newest.get(process) != (link, time):  # what came before has been delivered if it could be
            self._newest[process] = (link, time)
            self._most_held[process] = max(self._most_held.get(process, 0), len(here))
        again = message in here or self._delivered.get((process, message.origin), 0) >= message.seq
        if again or message.origin == process or message not in self._sent_at:
            return
        late, paired = self._coming.pop((process, message), (0, False))
        here[message] = (time, late, paired)
        took = time - self._sent_at[message]
        self._slowest = max(self._slowest, took)
        sums = self._receptions.setdefault(self._sent_at[message] // self.SLICE, [0, 0])
        sums[0] += 1
        sums[1] += took

    def deliver(self, process: int, message: MessageId, time: int) -> None:
        self._delivered[process, message.origin] = message.seq
        arrived = self._arrived.get(process, {}).pop(message, None)
        if arrived is None:
            return
        came, late, paired = arrived
        self._deliveries += 1
        self._held += time - came
        if paired:
            for place, value in enumerate((1, came - self._sent_at[message], time - came, late)):
                self._pairs[place] += value

    def figures(self) -> dict[str, float]:
        found: dict[str, float] = {"packets_cut": self._cut}
        found |= _histogram("packets_of", self._messages_in, range(1, 21))
        found |= _histogram("packet_bytes", self._sizes, self.SIZES)
        found |= _histogram("causes", self._causes, self.CAUSES)
        found |= _histogram("nodes_holding", Counter(self._most_held.values()), self.HOLDING)
        found |= _histogram("nodes_packing", Counter(self._fullest.values()), range(1, 21))
        found["packets_sized"] = sum(self._sizes.values())
        found["packets_over_1400_bytes"] = sum(n for size, n in self._sizes.items() if size > 1400)
        found["sent_bytes"] = sum(size * n for size, n in self._sizes.items())
        found["causes_over_12"] = sum(n for causes, n in self._causes.items() if causes > 12)
        received = sum(count for count, _ in self._receptions.values())
        took = sum(total for _, total in self._receptions.values())
        found["reception_mean_ns"] = took / max(1, received)
        found["reception_max_ns"] = self._slowest
        found["held_mean_ns"] = self._held / max(1, self._deliveries)
        for part, (count, total) in sorted(self._receptions.items()):
            found[f"reception_ns_sent_in_{part}"] = total / count
        pairs, *sums = self._pairs
        found["pair_messages"] = pairs
        for name, total in zip(("reception", "held", "late"), sums, strict=True):
            found[f"pair_{name}_mean_ns"] = total / max(1, pairs)
        return found


def _histogram(name: str, counted: Counter[int], bounds: Sequence[int]) -> dict[str, float]:
    """How many are at most each bound and above the one before, above the last, and the largest.

    >>> _histogram("x", Counter([1, 1, 2, 7]), (1, 4))
    {'x_to_1': 2, 'x_to_4': 1, 'x_over_4': 1, 'x_max': 7}
    """
    found: dict[str, float] = {}
    below = -1
    for bound in bounds:
        found[f"{name}_to_{bound}"] = sum(n for value, n in counted.items() if below < value <= bound)
        below = bound
    found[f"{name}_over_{below}"] = sum(n for value, n in counted.items() if value > below)
    found[f"{name}_max"] = max(counted, default=0)
    return found


PROBES: dict[str, type[Probe]] = {
    "costs": Costs,
    "bundles": Bundles,
    "named": Named,
    "immediate": Immediate,
    "queues": Queues,
}
