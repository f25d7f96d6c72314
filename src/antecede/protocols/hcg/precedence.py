"""Which messages may precede one that leaves a subgroup, as its gateway can tell from stamps.

By time, m1 may precede m if it is at least `gap` older: 1 in linear time, the whole wait in real time.
Messages are processed in order of time, so each is looked at once, and only those within one gap are
remembered.

By vector, m1 may precede m if m's vector counts it. Each message is looked at once for each member. When
there are `MAX_REMEMBERED` messages of one sender, the older half is dropped and taken to precede everything
that follows: that orders too much, never too little.
"""

from __future__ import annotations

from typing import Self

import msgspec

from antecede.causality import BitWindow
from antecede.protocols.hcg.packets import LocalRank, SubgroupPacket
from antecede.protocols.limits import MAX_REMEMBERED


class PrecedenceByTime(msgspec.Struct, tag="recent"):
    """The messages within one gap, and for each subgroup those that precede everything that follows."""

    gap: int
    preceding: list[BitWindow]
    recent: list[tuple[int, int, int]] = msgspec.field(default_factory=list)
    """(time, subgroup, number), in order of time."""

    def find_preceding(self, sender: LocalRank, packet: SubgroupPacket) -> list[BitWindow]:
        """For each subgroup, the numbers of the messages that may precede this packet, the next in order."""
        done = 0
        for time, subgroup, number in self.recent:
            if time + self.gap > packet.stamp[0]:
                break
            self.preceding[subgroup].add(number)
            done += 1
        del self.recent[:done]
        return self.preceding

    def record(self, sender: LocalRank, packet: SubgroupPacket, subgroup: int, number: int) -> None:
        """The packet just processed is message `number` of a subgroup."""
        self.recent.append((packet.stamp[0], subgroup, number))


class PrecedenceByVector(msgspec.Struct, tag="covered"):
    """The last messages of each sender, and how many of them each member is known to have."""

    preceding: list[list[BitWindow]]
    """For each member and each subgroup, the numbers of the messages that the member is known to have."""
    merged: list[list[int]]
    """For each member, how many packets of each sender are in its `preceding`."""
    log: list[list[tuple[int, int]]]
    """(subgroup, number) of each sender's last packets."""
    dropped: list[int]
    """How many of each sender's packets are no longer in its log."""

    @classmethod
    def create(cls, size: int, subgroups: int) -> Self:
        return cls(
            [[BitWindow() for _ in range(subgroups)] for _ in range(size)],
            [[0] * size for _ in range(size)],
            [[] for _ in range(size)],
            [0] * size,
        )

    def find_preceding(self, sender: LocalRank, packet: SubgroupPacket) -> list[BitWindow]:
        for rank, count in enumerate(packet.stamp):
            self._merge(sender, rank, count)
        return self.preceding[sender]

    def _merge(self, member: LocalRank, sender: LocalRank, count: int) -> None:
        """A member has the first `count` packets of `sender`; add those that are logged here."""
        dropped = self.dropped[sender]
        logged = min(count, dropped + len(self.log[sender]))
        for index in range(self.merged[member][sender], logged):
            subgroup, number = self.log[sender][index - dropped]
            self.preceding[member][subgroup].add(number)
        self.merged[member][sender] = max(logged, self.merged[member][sender])

    def record(self, sender: LocalRank, packet: SubgroupPacket, subgroup: int, number: int) -> None:
        log = self.log[sender]
        log.append((subgroup, number))
        if len(log) == MAX_REMEMBERED:
            half = MAX_REMEMBERED // 2
            for member in range(len(self.merged)):
                self._merge(member, sender, self.dropped[sender] + half)
            del log[:half]
            self.dropped[sender] += half
