"""Paper 000's free-scale networks with one line of a listing misread or left out, or with section 3.2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import msgspec

from antecede.protocols.base import Send
from antecede.protocols.freescale import Freescale
from antecede.protocols.freescale.external import ExternalInbox, ExternalNumber, ExternalPeer
from antecede.protocols.freescale.internal import InternalPeer
from antecede.protocols.freescale.packets import DownlinkPacket, ExternalPacket, InternalAck
from antecede.protocols.freescale.super_peer import InternalProgress, SuperPeer


class _SuperPeerOfSection32(SuperPeer):
    named_by: dict[int, int] = msgspec.field(default_factory=dict)
    """For each number the first one that depends on it."""

    def _send_inside(self, down: DownlinkPacket) -> Iterator[Send]:
        for cause in (*down.causes.numbers(), down.sender_previous):
            self.named_by.setdefault(cause, down.number)
        yield from super()._send_inside(down)

    def _receive_ack(self, link: int, packet: InternalAck) -> None:
        self._record_progress(link, InternalProgress(packet.delivered_up_to))

    def _clean_up_occasionally(self) -> None:
        self._clean_up()

    def _clean_up(self) -> None:
        reports = [self.progress.get(peer, InternalProgress()) for peer in self.inside]
        delivered_by_all = min((report.delivered_up_to for report in reports), default=0)
        for number, effect in self.named_by.items():
            if effect <= delivered_by_all and number in self.table:
                del self.assigned[self.table.pop(number)]


class DropsWhatIsStillNamed(Freescale):
    """Section 3.2: m1 is dropped from the table once all inside have delivered an m2 that depends on it."""

    name: ClassVar[str] = "section 3.2 drops what a message in flight names"
    super_peer: ClassVar[type[SuperPeer]] = _SuperPeerOfSection32
    peer: InternalPeer | ExternalPeer | _SuperPeerOfSection32


class _TakesOutNewerPairs(ExternalPeer):
    def drop_covered(self, packet: ExternalPacket) -> None:
        super().drop_covered(packet)
        for peer in packet.peers:
            self.peer_causes.pop(peer, None)


class TakesOutNewerPairs(Freescale):
    name: ClassVar[str] = "Listing 12 line 19 takes out whatever pair there is of that peer"
    external_peer: ClassVar[type[ExternalPeer]] = _TakesOutNewerPairs
    peer: InternalPeer | _TakesOutNewerPairs | SuperPeer


class _WaitsForItself(ExternalInbox):
    def is_delivered(self, entry: ExternalNumber) -> bool:
        return entry[0] != self.me and super().is_delivered(entry)


class _ExternalWaitsForItself(ExternalPeer):
    inbox: _WaitsForItself


class _SuperWaitsForItself(SuperPeer):
    inbox: _WaitsForItself


class WaitsForItself(Freescale):
    name: ClassVar[str] = "Listing 11 does not skip its own id"
    external_inbox: ClassVar[type[ExternalInbox]] = _WaitsForItself
    external_peer: ClassVar[type[ExternalPeer]] = _ExternalWaitsForItself
    super_peer: ClassVar[type[SuperPeer]] = _SuperWaitsForItself
    peer: InternalPeer | _ExternalWaitsForItself | _SuperWaitsForItself


class _LeavesAtTheFirstMatch(SuperPeer):
    def _translate_outwards(self, down: DownlinkPacket) -> ExternalPacket:
        packet = super()._translate_outwards(down)
        return msgspec.structs.replace(packet, peers=dict(list(packet.peers.items())[:1]))


class LeavesAtTheFirstMatch(Freescale):
    name: ClassVar[str] = "Exit For in Listing 14 leaves both loops"
    super_peer: ClassVar[type[SuperPeer]] = _LeavesAtTheFirstMatch
    peer: InternalPeer | ExternalPeer | _LeavesAtTheFirstMatch


class _ForgetsItsOwnNumbers(SuperPeer):
    def _translate_causes(self, packet: ExternalPacket) -> set[int]:
        others = {peer: row for peer, row in packet.supers.items() if peer != self.inbox.me}
        return super()._translate_causes(msgspec.structs.replace(packet, supers=others))


class ForgetsItsOwnNumbers(Freescale):
    name: ClassVar[str] = "without line 1 of Listing 15"
    super_peer: ClassVar[type[SuperPeer]] = _ForgetsItsOwnNumbers
    peer: InternalPeer | ExternalPeer | _ForgetsItsOwnNumbers


class _NoLastOutside(SuperPeer):
    def _translate_outwards(self, down: DownlinkPacket) -> ExternalPacket:
        return super()._translate_outwards(msgspec.structs.replace(down, sender_previous=0))


class NoLastOutside(Freescale):
    name: ClassVar[str] = "without line 6 of Listing 14"
    super_peer: ClassVar[type[SuperPeer]] = _NoLastOutside
    peer: InternalPeer | ExternalPeer | _NoLastOutside


class _NoLastForExternalPeers(SuperPeer):
    def _translate_previous(self, sender: int, packet: ExternalPacket) -> int:
        return 0 if sender >= self.inbox.super_peers else super()._translate_previous(sender, packet)


class NoLastForExternalPeers(Freescale):
    name: ClassVar[str] = "without line 16 of Listing 15"
    super_peer: ClassVar[type[SuperPeer]] = _NoLastForExternalPeers
    peer: InternalPeer | ExternalPeer | _NoLastForExternalPeers


class _LastForSuperPeersToo(SuperPeer):
    def _translate_previous(self, sender: int, packet: ExternalPacket) -> int:
        return max((number for number, (peer, _) in self.table.items() if peer == sender), default=0)


class LastForSuperPeersToo(Freescale):
    name: ClassVar[str] = "Last for whatever came through another super peer"
    super_peer: ClassVar[type[SuperPeer]] = _LastForSuperPeersToo
    peer: InternalPeer | ExternalPeer | _LastForSuperPeersToo


class _NoFifoInside(InternalPeer):
    def accept(self, packet: DownlinkPacket) -> None:
        super().accept(msgspec.structs.replace(packet, sender_previous=0))


class _SuperPeerWithoutFifoInside(SuperPeer):
    application: _NoFifoInside


class NoFifoInside(Freescale):
    name: ClassVar[str] = "without the FIFO condition of Listing 5"
    internal_peer: ClassVar[type[InternalPeer]] = _NoFifoInside
    super_peer: ClassVar[type[SuperPeer]] = _SuperPeerWithoutFifoInside
    peer: _NoFifoInside | ExternalPeer | _SuperPeerWithoutFifoInside
