"""What else can be measured in a run, besides what is always counted.

A probe sees every packet as it is sent and, now and then, all members. It keeps sums only.
"""

from __future__ import annotations

from collections.abc import Sequence

from antecede.order import MessageId
from antecede.protocols.base import Packet, Protocol


class Probe:
    """Told of everything, as an observer is, and of packets and moments besides; nothing before `since`, in
    nanoseconds, is to be measured. A probe answers to what it wants to know of."""

    def __init__(self, since: int = 0) -> None:
        self.since = since

    def send(
        self, process: int, message: MessageId, time: int, control: int, paper: int, group: str | None
    ) -> None:
        """An application sends."""

    def receive(self, process: int, link: int, message: MessageId, time: int) -> None:
        """A message arrives, perhaps once more."""

    def deliver(self, process: int, message: MessageId, time: int) -> None:
        """A message is delivered."""

    def transmit(self, member: Protocol, to: Sequence[int], packet: Packet, now: int) -> None:
        """`member` sends a packet to each of `to`."""

    def sample(self, members: Sequence[Protocol]) -> None:
        """Look at all members as they are at this moment; every 50 ms."""

    def figures(self) -> dict[str, float]:
        """What was found, by name."""
        return {}


class Costs(Probe):
    """Control information sent, by kind of packet, and kept, by kind of member.

    `down_packets`, `down_paper_bytes` and `down_wire_bytes` are of packets called Down, each counted once
    however many get it; `internal_storage` is what internal peers keep, on average over peers and time.
    """

    def __init__(self, since: int = 0) -> None:
        super().__init__(since)
        self._sent: dict[str, list[int]] = {}
        self._kept: dict[str, list[int]] = {}

    def transmit(self, member: Protocol, to: Sequence[int], packet: Packet, now: int) -> None:
        if now >= self.since:
            sums = self._sent.setdefault(type(packet).__name__.lower(), [0, 0, 0])
            sums[0] += 1
            sums[1] += member.paper_bytes(packet)
            sums[2] += member.control_bytes(packet)

    def sample(self, members: Sequence[Protocol]) -> None:
        for member in members:
            sums = self._kept.setdefault(member.kind(), [0, 0])
            sums[0] += 1
            sums[1] += member.paper_storage()

    def figures(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for name, (count, paper, wire) in self._sent.items():
            found[f"{name}_packets"] = count
            found[f"{name}_paper_bytes"] = paper / count
            found[f"{name}_wire_bytes"] = wire / count
        for name, (count, kept) in self._kept.items():
            found[f"{name}_storage"] = kept / count
        return found


PROBES: dict[str, type[Probe]] = {"costs": Costs}
