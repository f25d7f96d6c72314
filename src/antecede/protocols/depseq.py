"""Dependency sequences (Prakash & Singhal 1997), the baseline of paper 000.

A message carries everything that happened before it, as sequences: for each peer, the numbers of its
messages as intervals. It never forgets by itself. Under causal delivery what is known of a peer is one
interval from 1, so the cost is that of a vector of those heard from: 8 bytes an interval as the paper
counts. Delivery: the sender's next, and every number named has been delivered.

Links need not be FIFO; memory O(n) and the held messages; a delivery costs O(intervals carried).
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from antecede.protocols.base import Packet
from antecede.protocols.flat import Flat, FlatPacket, Interval, SequencePacket, StampedPacket, sorted_by_peer


def merge(known: list[Interval], more: list[Interval]) -> list[Interval]:
    """Two sequences of disjoint intervals as one, with what touches joined.

    >>> merge([(1, 3), (7, 8)], [(4, 5), (8, 9)])
    [(1, 5), (7, 9)]
    """
    joined: list[Interval] = []
    for first, last in sorted([*known, *more]):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return joined


class DepSeq(Flat):
    name: ClassVar[str] = "depseq"
    kernel: ClassVar[str] = "flat"
    summary: ClassVar[str] = "all that happened before, as intervals of numbers"
    control: ClassVar[str] = "up to n − 1 intervals"
    packets: ClassVar[Any] = SequencePacket
    message_packets: ClassVar[tuple[type[FlatPacket], ...]] = (SequencePacket,)

    known: dict[int, list[Interval]] = msgspec.field(default_factory=dict)

    def stamp(self, seq: int, payload: bytes) -> SequencePacket:
        before = {peer: list(intervals) for peer, intervals in sorted_by_peer(self.known).items()}
        return SequencePacket(payload, self.me, seq, before)

    def on_delivered(self, packet: StampedPacket) -> None:
        """What the message names is known already: it has been delivered here."""
        number = (packet.seq, packet.seq)
        self.known[packet.origin] = merge(self.known.get(packet.origin, []), [number])

    def paper_bytes(self, packet: Packet) -> int:
        intervals = packet.before.values() if isinstance(packet, SequencePacket) else ()
        return 8 * sum(len(each) for each in intervals)
