"""The packets of HCG, within a subgroup and between gateways."""

from __future__ import annotations

from typing import ClassVar

from antecede.causality import MessageId
from antecede.protocols.base import Packet
from antecede.protocols.flat import MessagePacket

LocalRank = int
"""The rank of a member within its subgroup; the gateway's is 0."""


class SubgroupPacket(MessagePacket, frozen=True, array_like=True, tag=20):
    """A message within a subgroup, sent there by its origin or by the gateway that forwards it."""

    metric_name: ClassVar[str] = "local"

    seq: int
    number: int
    """Its sequence number among the packets that its sender sent in the subgroup, forwarded ones included."""
    stamp: list[int]
    """One time, or a vector that includes this packet."""

    def message_ids(self) -> tuple[MessageId, ...]:
        return (MessageId(self.origin, self.seq),)


class LinearAck(Packet, frozen=True, array_like=True, tag=21):
    """A promise: after its first `sent` packets, the sender stamps none with `time` or less."""

    metric_name: ClassVar[str] = "ack"

    sent: int
    time: int


class GatewayPacket(MessagePacket, frozen=True, array_like=True, tag=22):
    """A message between gateways."""

    metric_name: ClassVar[str] = "global"

    seq: int
    number: int
    """Assigned by the gateway of its subgroup."""
    counts: list[int]
    """For each subgroup, a number up to which all messages may precede this one."""
    beyond: list[tuple[int, int]]
    """(subgroup, number) of single messages beyond those counts that may precede it too."""

    def message_ids(self) -> tuple[MessageId, ...]:
        return (MessageId(self.origin, self.seq),)
