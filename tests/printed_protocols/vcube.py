"""Paper 004's Algorithms 1 and 2, line by line, and with each line as printed."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from antecede.causality import MessageId
from antecede.overlay.vcube import cluster, height
from antecede.protocols.base import (
    NO_EFFECTS,
    Delivery,
    Effects,
    LinkRequirements,
    Packet,
    Protocol,
    Send,
    Waiting,
)
from antecede.protocols.flat import ClockPacket


class Set(Packet, frozen=True, array_like=True):
    messages: list[ClockPacket]

    def message_ids(self) -> tuple[MessageId, ...]:
        return tuple(message.message_ids()[0] for message in self.messages)


class Algorithm2(Protocol):
    """With the corrections: children from s = 1 on, forwarding after the `while`, delivery after the loop
    over children, all entries but the sender's in the delivery test, received sets in causal order."""

    name: ClassVar[str] = "algorithm 2"
    links: ClassVar[LinkRequirements] = LinkRequirements(fifo=False)
    packets: ClassVar[Any] = Set
    first_child: ClassVar[int] = 1
    forwards_in_while: ClassVar[bool] = False
    delivers_in_loop: ClassVar[bool] = False
    tests_all_entries: ClassVar[bool] = False
    first_condition: ClassVar[bool] = True
    takes_all_first: ClassVar[bool] = False

    clock: list[int] = msgspec.field(default_factory=list)
    most: list[int] = msgspec.field(default_factory=list)
    pending: list[ClockPacket] = msgspec.field(default_factory=list)
    ready: list[ClockPacket] = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.clock:
            self.clock, self.most = [0] * self.size, [0] * self.size

    def children(self, below: int) -> list[int]:
        """`below` clusters, counted from 1 as the paper does."""
        return [self.me ^ 1 << s - 1 for s in range(self.first_child, below + 1)]

    def children_in_tree_of(self, root: int) -> list[int]:
        return self.children(height(self.me, root, self.size))

    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        self.clock[self.me] += 1
        self.most[self.me] = self.clock[self.me]
        to = tuple(self.children((self.size - 1).bit_length()))
        packet = Set([ClockPacket(payload, self.me, list(self.clock))])
        return Effects((Send(to, packet),) if to else (), message=packet.message_ids()[0])

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        assert isinstance(packet, Set)
        sends: list[Send] = []
        messages = sorted(packet.messages, key=lambda message: sum(message.clock))
        if self.takes_all_first:
            self.pending += messages
        below = cluster(self.me, link)
        for message in messages:
            if not self.takes_all_first:
                self.pending.append(message)
            while any(x.clock[x.origin] == self.most[x.origin] + 1 for x in self.pending):
                for x in self.pending:
                    if x.clock[x.origin] == self.most[x.origin] + 1:
                        self.most[x.origin] += 1
                        break
                if self.forwards_in_while:
                    sends += self.forward(below, message)
            if not self.forwards_in_while:
                sends += self.forward(below, message)
            if not self.delivers_in_loop:
                self.check_delivery()
        return Effects(tuple(sends)) if sends else NO_EFFECTS

    def forward(self, below: int, message: ClockPacket) -> list[Send]:
        sends = []
        for child in self.children(below):
            together = self.check_aggregation(child, message)
            if together:
                sends.append(Send((child,), Set(together)))
            if self.delivers_in_loop:
                self.check_delivery()
        return sends

    def check_aggregation(self, child: int, message: ClockPacket) -> list[ClockPacket]:
        together = []
        for x in self.pending:
            if child in self.children_in_tree_of(x.origin):
                follows = x.clock[message.origin] >= message.clock[message.origin]
                blocked = any(
                    x.clock[source] > self.most[source] and child in self.children_in_tree_of(source)
                    for source in range(self.size)
                )
                if (follows or not self.first_condition) and not blocked:
                    together.append(x)
        return together

    def check_delivery(self) -> None:
        while deliverable := [x for x in self.pending if self.is_deliverable(x)]:
            x = deliverable[0]
            self.ready.append(x)
            self.clock[x.origin] += 1
            self.pending.remove(x)

    def is_deliverable(self, x: ClockPacket) -> bool:
        others = [k for k in range(self.size) if self.tests_all_entries or k != x.origin]
        following = x.clock[x.origin] == self.clock[x.origin] + 1
        return following and all(x.clock[k] <= self.clock[k] for k in others)

    def deliver(self, now: int) -> Delivery | None:
        return Delivery((x := self.ready.pop(0)).message_ids()[0], x.payload) if self.ready else None

    def waiting(self) -> list[Waiting]:
        return [Waiting(x.message_ids()[0], None) for x in self.pending]

    def paper_bytes(self, packet: Packet) -> int:
        return 0


class ChildrenAsPrinted(Algorithm2):
    """Algorithm 1: 1 < s."""

    name: ClassVar[str] = "algorithm 2: children as printed"
    first_child: ClassVar[int] = 2


class ForwardsInWhile(Algorithm2):
    """As indented: the loop over children inside the `while`."""

    name: ClassVar[str] = "algorithm 2: the loop over children inside the while"
    forwards_in_while: ClassVar[bool] = True


class DeliversInLoop(Algorithm2):
    """As indented: CHECKDELIVERY inside the loop over children."""

    name: ClassVar[str] = "algorithm 2: delivery inside the loop over children"
    delivers_in_loop: ClassVar[bool] = True


class TestsAllEntries(Algorithm2):
    """The delivery test over every k, the sender among them."""

    __test__ = False
    name: ClassVar[str] = "algorithm 2: the sender's entry in the delivery test"
    tests_all_entries: ClassVar[bool] = True


class NoFirstCondition(Algorithm2):
    """Without the first condition of CHECKAGG."""

    name: ClassVar[str] = "algorithm 2: no first condition of CHECKAGG"
    first_condition: ClassVar[bool] = False


class TakesAllFirst(Algorithm2):
    """All of a received set into `pending` first, then message by message."""

    name: ClassVar[str] = "algorithm 2: all of a received set entered first"
    takes_all_first: ClassVar[bool] = True


class DeliversBeforeItForwards(Algorithm2):
    """A delivered message leaves `pending` and can then no longer be forwarded."""

    name: ClassVar[str] = "algorithm 2: delivery before forwarding"

    def forward(self, below: int, message: ClockPacket) -> list[Send]:
        self.check_delivery()
        return super().forward(below, message)
