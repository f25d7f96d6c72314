"""PC-broadcast without one of its rules, or with one as printed."""

from __future__ import annotations

from typing import ClassVar

from antecede.protocols.base import NO_EFFECTS, Effects, Packet, Send
from antecede.protocols.flooding import FloodPacket
from antecede.protocols.pc import Pc, Ping, Pong


class UsesNewLinksAtOnce(Pc):
    name: ClassVar[str] = "new links used at once"

    def link_opened(self, link: int, now: int) -> Effects:
        self.neighbours += (link,)
        return NO_EFFECTS


class TakesAnyPong(Pc):
    name: ClassVar[str] = "any pong will do"
    max_buffered: ClassVar[int] = 3

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        if isinstance(packet, Pong) and link in self.unsafe_links:
            packet = Pong(self.unsafe_links[link].first_ping)
        return super().receive(link, packet, now)


class PingsOverTheNewLink(Pc):
    name: ClassVar[str] = "the ping goes over the new link"

    def link_opened(self, link: int, now: int) -> Effects:
        effects = super().link_opened(link, now)
        return Effects(tuple(Send((link,), send.packet) for send in effects.sends), effects.wake_at)


class PassesPingsOnOverAnyLink(Pc):
    name: ClassVar[str] = "pings are passed on over links that are not safe"

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        effects = super().receive(link, packet, now)
        if not isinstance(packet, Ping) or not effects.sends:
            return effects
        others = tuple(peer for peer in self.unsafe_links if peer != packet.source)
        return Effects((*effects.sends, Send(others, packet)))


class ForgetsWhatItKept(Pc):
    name: ClassVar[str] = "nothing is buffered for a new link"

    def _mark_safe(self, link: int) -> list[FloodPacket]:
        super()._mark_safe(link)
        return []


class TakesAnyPongSoon(TakesAnyPong):
    max_buffered: ClassVar[int] = 1
