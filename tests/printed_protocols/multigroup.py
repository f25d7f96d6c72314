"""Overlapping groups (paper 001 gives no protocol for them) with simplifications that look right."""

from __future__ import annotations

from typing import ClassVar

from antecede.protocols.multigroup import GroupPacket, Multigroup, PendingDependency


class ForgetsAllOnSend(Multigroup):
    name: ClassVar[str] = "CI := empty on send"

    def _cover(self, index: int) -> None:
        self.causes.clear()


class ForgetsWhateverIsNamed(Multigroup):
    name: ClassVar[str] = "CI without what is named, whatever the group"

    def _update_causes(self, packet: GroupPacket) -> None:
        for sender, group, seq in packet.causes:
            self._drop((sender, group), seq)
        self.causes[packet.origin, packet.group] = PendingDependency(packet.seq, set())


class LeavesItsOwnOut(Multigroup):
    name: ClassVar[str] = "the own message left out"

    def _uncovered(self, index: int) -> list[tuple[int, int, int]]:
        return [cause for cause in super()._uncovered(index) if cause[0] != self.me]


class ForgetsOnOverlap(Multigroup):
    name: ClassVar[str] = "dropping where groups overlap"

    def _cover(self, index: int) -> None:
        for source, cause in list(self.causes.items()):
            if set(self.groups[source[1]][1]) & set(self.groups[index][1]):
                self._drop(source, cause.seq)
            else:
                cause.covered_by.add(index)


class NamesOnlyWhatMeets(Multigroup):
    name: ClassVar[str] = "naming only what was sent to a group that meets this one"

    def _uncovered(self, index: int) -> list[tuple[int, int, int]]:
        here = set(self.groups[index][1])
        return [cause for cause in super()._uncovered(index) if here & set(self.groups[cause[1]][1])]
