"""Two variants of `vcube-agg` that paper 004 compares it with. They are not in the catalogue of protocols.

`VcubeAggPaperSizes` cuts packets by the paper's count instead of the wire's: a packet is full when 20 bytes
of header, its payloads and 4 bytes for every clock entry that changed would exceed the MTU.

`VcubeAggSingleTree` also has one spanning tree for all sources. Every message goes to peer 0 first and from
there down the tree of peer 0. It passes its own source again, which serves its children in that tree as every
peer does. All causes of a message reach a child by the same path as the message itself, so each of them
blocks it.

Both have the kernel of `vcube-agg`, which takes them as parameters.
"""

from __future__ import annotations

from typing import ClassVar

from antecede.protocols.base import Effects, Packet, RemoteError, Send
from antecede.protocols.flat import DependencyPacket
from antecede.protocols.limits import MAX_BUNDLE_BYTES
from antecede.protocols.vcube import Bundle, ForwardingState, VcubeAgg

HEADER = 20
ROOT = 0


class VcubeAggPaperSizes(VcubeAgg):
    name: ClassVar[str] = "vcube-agg, counted"
    kernel: ClassVar[str] = "vcube"
    summary: ClassVar[str] = "vcube-agg, with packets cut as paper 004 counts"
    mtu: ClassVar[int] = MAX_BUNDLE_BYTES - HEADER

    def _message_size(self, message: DependencyPacket) -> int:
        return message.payload_bytes() + self.paper_bytes(Bundle([message]))


class VcubeAggSingleTree(VcubeAggPaperSizes):
    name: ClassVar[str] = "single tree"
    kernel: ClassVar[str] = "vcube"
    summary: ClassVar[str] = "vcube-agg down the tree of peer 0, whoever sends"

    def broadcast(self, payload: bytes, now: int, group: str | None = None) -> Effects:
        effects = super().broadcast(payload, now, group)
        if self.me == ROOT or not effects.sends:
            return effects
        return Effects((Send((ROOT,), effects.sends[0].packet),), message=effects.message)

    def receive(self, link: int, packet: Packet, now: int) -> Effects:
        if not isinstance(packet, Bundle):
            raise RemoteError(f"{self.name} has no packets of type {type(packet).__name__}")
        below = self._served(ROOT)
        accepted, returned = [], []
        for message in packet.messages:
            if message.origin == self.me and self.me != ROOT:
                if message.seq <= self.delivered[self.me] and self.received[self.me].add(message.seq):
                    returned.append(message)
            elif self._accept(message, self._validate(message)[1]):
                accepted.append(message)
                self.forwarding[message.message_ids()[0]] = ForwardingState(message, below)
        out = self._forward_unblocked(accepted)
        if returned:
            out = {bit: returned + out.get(bit, []) for bit in range(below)}
        return Effects(self._send_bundles(out))

    def _served(self, source: int) -> int:
        return super()._served(ROOT)
