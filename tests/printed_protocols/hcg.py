"""Paper 003: subgroups and gateways with one rule as printed, or as it might be read or combined."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import msgspec

from antecede.causality import BitWindow, MessageId
from antecede.protocols.base import Delivery, Effects, Packet, Send, Waiting
from antecede.protocols.hcg import Hcg, SubgroupLayout
from antecede.protocols.hcg.clocks import RealTimeClock
from antecede.protocols.hcg.packets import GatewayPacket, LinearAck, SubgroupPacket
from antecede.protocols.hcg.precedence import PrecedenceByTime
from antecede.protocols.hcg.protocol import GatewayDependency


class LargestNumberOnly(Hcg):
    """V is one largest number for each subgroup."""

    name: ClassVar[str] = "largest number"

    def _assign_number(self, packet: SubgroupPacket, before: list[BitWindow]) -> GatewayPacket:
        return super()._assign_number(packet, [BitWindow(window.last) for window in before])


class Times(NamedTuple):
    """The parameters of a member on real time."""

    clock: RealTimeClock
    precedence: PrecedenceByTime
    longest_delay: int


class Variant(Hcg):
    """hcg with one rule as the paper prints it, or as it might be read."""

    @classmethod
    def _create_member(
        cls, me: int, size: int, gateways: list[int], subgroup: tuple[str, int], layout: SubgroupLayout
    ) -> Any:
        member = super()._create_member(me, size, gateways, subgroup, layout)
        if isinstance(member.clock, RealTimeClock) and isinstance(member.precedence, PrecedenceByTime):
            cls.change(Times(member.clock, member.precedence, layout.longest_delay))
        return member

    @classmethod
    def change(cls, of: Times) -> None:
        pass


class NoWait(Variant):
    name: ClassVar[str] = "no wait before delivery in real time"

    @classmethod
    def change(cls, of: Times) -> None:
        of.clock.wait = 0


class NoSkew(Variant):
    name: ClassVar[str] = "a wait that forgets that clocks differ"

    @classmethod
    def change(cls, of: Times) -> None:
        of.clock.wait = of.precedence.gap = of.longest_delay + 1


class MoreThanTheWait(Variant):
    name: ClassVar[str] = "later by more than the wait, instead of as much"

    @classmethod
    def change(cls, of: Times) -> None:
        of.precedence.gap += 1


class TwiceTheWait(Variant):
    name: ClassVar[str] = "twice the wait, between different processes"

    @classmethod
    def change(cls, of: Times) -> None:
        of.precedence.gap *= 2


class DatesBack(Variant):
    name: ClassVar[str] = "forwarded messages dated back, the wait unchanged"

    def _send_in_subgroup(self, payload: bytes, origin: int, seq: int, now: int) -> Send:
        if not isinstance(self.clock, RealTimeClock) or origin == self.me:
            return super()._send_in_subgroup(payload, origin, seq, now)
        (time,) = self.clock.stamp(now)
        packet = SubgroupPacket(payload, origin, seq, self.clock.sent, [time - self.clock.wait])
        self.clock.receive(0, packet)
        return self._to_subgroup(packet)


class SmallestStamp(Hcg):
    name: ClassVar[str] = "the number of the message with the smallest stamp"

    def _assign_number(self, packet: SubgroupPacket, before: list[BitWindow]) -> GatewayPacket:
        return super()._assign_number(packet, [BitWindow(1 if window.last else 0) for window in before])


class EqualNumbers(Hcg):
    """A message's number is one more than the largest that precedes it in its subgroup. Concurrent messages
    get the same."""

    name: ClassVar[str] = "equal numbers for concurrent messages"
    levels: dict[tuple[int, int], int] = msgspec.field(default_factory=dict)
    """The number of each message, by its subgroup and the number that ours has."""

    def _assign_number(self, packet: SubgroupPacket, before: list[BitWindow]) -> GatewayPacket:
        counts = [max((self.levels[k, n] for n in window), default=0) for k, window in enumerate(before)]
        made = msgspec.structs.replace(super()._assign_number(packet, before), counts=counts, beyond=[])
        self._note(self._subgroup(self.me), made)
        return made

    def _receive_from_gateway(self, source: int, packet: GatewayPacket, now: int) -> list[Send]:
        self._note(source, packet)
        return super()._receive_from_gateway(source, packet, now)

    def _note(self, source: int, packet: GatewayPacket) -> None:
        self.levels[source, packet.number] = packet.counts[source] + 1

    def _is_met(self, need: GatewayDependency) -> bool:
        if need.kind:
            return super()._is_met(need)
        return (
            max((self.levels[need.source, n] for n in self.forwarded[need.source]), default=0) >= need.number
        )


class NoOrderOfOrigins(Hcg):
    name: ClassVar[str] = "two messages of one sender within the wait are concurrent"

    def _dependencies(self, packet: GatewayPacket) -> list[GatewayDependency]:
        return super()._dependencies(packet)[:-1]


class CountsWhatArrived(Hcg):
    name: ClassVar[str] = "counts what has arrived"

    def _is_met(self, need: GatewayDependency) -> bool:
        return super()._is_met(need) or (need.kind == 0 and self.received[need.source].base >= need.number)


class NamesNothingBeyond(Hcg):
    name: ClassVar[str] = "names nothing beyond a gap"

    def _assign_number(self, packet: SubgroupPacket, before: list[BitWindow]) -> GatewayPacket:
        return super()._assign_number(packet, [BitWindow(window.base) for window in before])


class PromisesAtOnce(Hcg):
    name: ClassVar[str] = "acknowledgements that hold before what was sent before them is here"

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        return super().receive(
            link, LinearAck(0, packet.time) if isinstance(packet, LinearAck) else packet, now
        )


class GatewayFirst(Hcg):
    name: ClassVar[str] = "a gateway whose application gets forwarded messages at once"
    early: set[MessageId] = set()  # noqa: RUF012 (msgspec copies it)

    def _forward(self, source: int, packet: GatewayPacket, now: int) -> Send:
        send = super()._forward(source, packet, now)
        assert isinstance(send.packet, SubgroupPacket)
        self.ready.append(send.packet)
        return send

    def deliver(self, now: int) -> Delivery | None:
        while (delivery := super().deliver(now)) is not None and delivery.message in self.early:
            pass
        if delivery is not None:
            self.early.add(delivery.message)
        return delivery

    def waiting(self) -> list[Waiting]:
        return [wait for wait in super().waiting() if wait.message not in self.early]


class NoMoreThanTheSum(Variant):
    name: ClassVar[str] = "a wait of exactly the longest delay and the difference of clocks"

    @classmethod
    def change(cls, of: Times) -> None:
        of.clock.wait -= 1
        of.precedence.gap -= 1
