"""Dependency sequences (Prakash & Singhal 1997), the baseline of paper 000.

A message carries everything that happened before it, as sequences: for each peer, the sequence numbers of its
messages as intervals. Nothing is ever forgotten. Under causal delivery, the known messages of a peer are one
interval from 1, so the cost is that of a vector with an entry for each peer heard from: 8 bytes per interval
as the paper counts. A message is delivered once it is the sender's next and every number that it names is
delivered.

Links need not be FIFO; memory O(n) and the held messages; a delivery costs O(intervals carried).
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from antecede.causality import MessageId
from antecede.protocols.base import Packet
from antecede.protocols.flat import Flat, FlatPacket, Interval, SequencePacket, StampedPacket, sorted_by_peer


def merge_intervals(one: list[Interval], other: list[Interval]) -> list[Interval]:
    """The union of two sequences of disjoint intervals; adjacent ones are joined.

    >>> merge_intervals([(1, 3), (7, 8)], [(4, 5), (8, 9)])
    [(1, 5), (7, 9)]
    """
    merged: list[Interval] = []
    for first, last in sorted([*one, *other]):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged


class DepSeq(Flat):
    name: ClassVar[str] = "depseq"
    kernel: ClassVar[str] = "flat"
    summary: ClassVar[str] = "all that happened before, as intervals of numbers"
    control: ClassVar[str] = "up to n − 1 intervals"
    packets: ClassVar[Any] = SequencePacket
    message_packets: ClassVar[tuple[type[FlatPacket], ...]] = (SequencePacket,)

    sequences: dict[int, list[Interval]] = msgspec.field(default_factory=dict)
    """For each other peer, the sequence numbers delivered here."""

    def next_causes(self) -> dict[int, list[Interval]]:
        return {peer: list(intervals) for peer, intervals in sorted_by_peer(self.sequences).items()}

    def stamp(self, seq: int, payload: bytes) -> SequencePacket:
        return SequencePacket(payload, self.me, seq, self.next_causes())

    def on_delivered(self, packet: StampedPacket) -> None:
        """Add this one message: everything that it names was delivered here before."""
        number = (packet.seq, packet.seq)
        self.sequences[packet.origin] = merge_intervals(self.sequences.get(packet.origin, []), [number])

    def begin(self, counts: dict[int, int], admission: MessageId) -> None:
        super().begin(counts, admission)
        self.sequences = {
            peer: [(1, count)] for peer, count in self.delivered.items() if count and peer != self.me
        }

    def stop_naming(self, peer: int) -> None:
        self.sequences.pop(peer, None)

    def paper_bytes(self, packet: Packet) -> int:
        sequences = packet.before.values() if isinstance(packet, SequencePacket) else ()
        return 8 * sum(len(intervals) for intervals in sequences)
