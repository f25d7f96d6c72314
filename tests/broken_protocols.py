"""Protocols that lack one thing that they need, for `check` to find."""

from __future__ import annotations

from typing import ClassVar

from antecede.causality import MessageId
from antecede.protocols.base import Effects, LocalError, Packet, Waiting
from antecede.protocols.flat import DependencyPacket, Flat, FlatPacket, StampedPacket, UnmetDependencies
from antecede.protocols.mbcp import Mbcp
from antecede.protocols.timestamp import Timestamp


class _NoDependencyCheck(Flat):
    """Delivers in each sender's order, whatever the message names."""

    def _accept(self, packet: FlatPacket, unmet: UnmetDependencies) -> bool:
        return super()._accept(packet, [])


class _NoFifoCheck(Flat):
    """Delivers once the named causes are delivered, ignoring sender order."""

    def _accept(self, packet: FlatPacket, unmet: UnmetDependencies) -> bool:
        is_new = self.received[packet.origin].add(packet.seq)
        if is_new:
            self.holdback.hold_unmet(packet, unmet)
        return is_new


class TimestampWithoutDependencies(_NoDependencyCheck, Timestamp):
    name: ClassVar[str] = "timestamp without its check of dependencies"


class MbcpWithoutDependencies(_NoDependencyCheck, Mbcp):
    name: ClassVar[str] = "mbcp without its check of dependencies"


class TimestampWithoutFifo(_NoFifoCheck, Timestamp):
    name: ClassVar[str] = "timestamp without its check of the sender's order"


class MbcpWithoutFifo(_NoFifoCheck, Mbcp):
    name: ClassVar[str] = "mbcp without its check of the sender's order"


class MbcpThatForgets(Mbcp):
    """Names only the message that was delivered last."""

    name: ClassVar[str] = "mbcp that names one dependency"

    def on_delivered(self, packet: StampedPacket) -> None:
        self.causes = {packet.origin: packet.seq}


class MbcpThatNeverDelivers(Mbcp):
    name: ClassVar[str] = "mbcp that waits for ever"

    def _accept(self, packet: FlatPacket, unmet: UnmetDependencies) -> bool:
        return super()._accept(packet, [MessageId(packet.origin, packet.seq), *unmet])

    def waiting(self) -> list[Waiting]:
        return []


class MbcpThatRepeats(Mbcp):
    name: ClassVar[str] = "mbcp that delivers again what arrives again"

    def _accept(self, packet: FlatPacket, unmet: UnmetDependencies) -> bool:
        if packet.seq <= self.delivered[packet.origin]:
            self.holdback.ready.append(packet)
        return super()._accept(packet, unmet)


class MbcpThatRaises(Mbcp):
    name: ClassVar[str] = "mbcp that raises"

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        if isinstance(packet, DependencyPacket) and packet.causes:
            raise LocalError("this is too much")
        return super().receive(link, packet, now)


class MbcpWithWrongReasons(Mbcp):
    """Says of every held message that it waits for its sender's previous one."""

    name: ClassVar[str] = "mbcp that gives wrong reasons"

    def waiting(self) -> list[Waiting]:
        return [
            Waiting(wait.message, MessageId(wait.message.origin, wait.message.seq))
            for wait in super().waiting()
        ]


class MbcpThatDoesNotSave(Mbcp):
    """Its dependencies are not part of the saved state."""

    name: ClassVar[str] = "mbcp that does not save its dependencies"

    @classmethod
    def restore(cls, state: bytes) -> MbcpThatDoesNotSave:
        restored = super().restore(state)
        restored.causes = {}
        return restored
