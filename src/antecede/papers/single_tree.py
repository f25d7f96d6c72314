"""Paper 004's two comparisons that are no protocols of ours: packets cut as it counts, and one tree for all.

`Counted` is `vcube-agg` with a packet full when its size, as the paper counts it, would pass the MTU: 20
bytes of header, and for each message its payload and 4 bytes for every clock entry that changed.

`SingleTree` sends every message to peer 0, and from there down the tree of peer 0, through its source
again, which serves its own children in that tree as everyone does. So whatever a message waits for comes
to a child by the same way, and blocks it.
"""

from __future__ import annotations

from typing import ClassVar

from antecede.protocols.base import Effects, Packet, RemoteError, Send
from antecede.protocols.flat import DependencyPacket
from antecede.protocols.vcube import Bundle, ForwardingState, VcubeAgg

HEADER = 20
ROOT = 0


class Counted(VcubeAgg):
    name: ClassVar[str] = "vcube-agg, counted"
    summary: ClassVar[str] = "vcube-agg, with packets cut as paper 004 counts"
    mtu: ClassVar[int] = 1500 - HEADER
    twin: ClassVar[str] = "vcube counted"
    """The kernel that does the same."""

    def _room(self, message: DependencyPacket) -> int:
        return message.payload_bytes() + self.paper_bytes(Bundle([message]))


class SingleTree(Counted):
    name: ClassVar[str] = "single tree"
    summary: ClassVar[str] = "vcube-agg down the tree of peer 0, whoever sends"
    twin: ClassVar[str] = "vcube single"

    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        effects = super().broadcast(payload, now, group)
        if self.me == ROOT or not effects.sends:
            return effects
        return Effects((Send((ROOT,), effects.sends[0].packet),), message=effects.message)

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        if not isinstance(packet, Bundle):
            raise RemoteError(f"{self.name} has no packet {type(packet).__name__}")
        below = self._served(ROOT)
        arrived, back = [], []
        for message in packet.messages:
            if message.origin == self.me and self.me != ROOT:
                if message.seq <= self.delivered[self.me] and self.received[self.me].add(message.seq):
                    back.append(message)
            elif self._accept(message, self._validate(message)[1]):
                arrived.append(message)
                self.passing[message.message_ids()[0]] = ForwardingState(message, below)
        out = self._moved(arrived)
        if back:
            out = {bit: back + out.get(bit, []) for bit in range(below)}
        return Effects(self._bundles(out))

    def _served(self, source: int) -> int:
        return super()._served(ROOT)
