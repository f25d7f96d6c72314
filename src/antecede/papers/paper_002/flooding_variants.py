"""Variants of paper 002's flooding, as printed or as one might read it. Each breaks; the scoreboard says how
often."""

from __future__ import annotations

from typing import ClassVar

from antecede.protocols.base import NO_EFFECTS, Effects, Packet
from antecede.protocols.flooding import Flooding, FloodPacket


class FloodingThatDeliversFirst(Flooding):
    """Figure 2: deliver, then forward."""

    name: ClassVar[str] = "flooding as printed"

    later: list[tuple[int, FloodPacket]] = []  # noqa: RUF012 (msgspec copies it)

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        effects = super().receive(link, packet, now)
        if effects.sends and isinstance(packet, FloodPacket):
            self.later.append((link, packet))
        return Effects(wake_at=now) if self.later else NO_EFFECTS

    def wake(self, now: int) -> Effects:
        later, self.later = self.later, []
        return Effects(
            tuple(
                send
                for link, packet in later
                for send in self._send_to([peer for peer in self.neighbours if peer != link], packet)
            )
        )


class FloodingThatCounts(Flooding):
    """Figure 2's duplicate test: a number not above the last one is a duplicate."""

    name: ClassVar[str] = "flooding that counts"

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        seen = self.received.get(packet.origin) if isinstance(packet, FloodPacket) else None
        if isinstance(packet, FloodPacket) and seen is not None and packet.seq <= seen.last:
            return NO_EFFECTS
        return super().receive(link, packet, now)


class FloodingWithMovingLinks(Flooding):
    """Uses a link from the moment it opens."""

    name: ClassVar[str] = "flooding over new links at once"
    dynamic_links: ClassVar[bool] = True

    def link_opened(self, link: int, now: int) -> Effects:
        self.neighbours += (link,)
        return NO_EFFECTS

    def link_closed(self, link: int, now: int) -> Effects:
        self.neighbours = tuple(peer for peer in self.neighbours if peer != link)
        return NO_EFFECTS
