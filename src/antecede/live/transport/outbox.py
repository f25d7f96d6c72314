"""Packets for one partner until it has acknowledged them: the retransmission queue of a link.

Each packet has a number and a *chain value*: the hash of all packets on the link up to it. Both ends compute
it. So if sender and receiver remember the same number but different packets, they detect it: one of them was
restored from an older copy of its store.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from antecede.protocols.base import RemoteError

CHAIN_BYTES = 16
CHAIN_START = bytes(CHAIN_BYTES)
_SKIPPED = b"\xc1"
"""No msgpack value begins like this, and so no packet."""


class ForkError(RemoteError):
    """The two ends of a link remember different packets under the same number."""


def chain(previous: bytes, packet: bytes, digests: dict[int, bytes] | None = None) -> bytes:
    """The chain value of a packet that follows a packet with chain value `previous`.

    `digests`, by identity, are those of packets that go to several partners, so that each is hashed once.
    """
    if packet[:1] == _SKIPPED:
        return skipped_value(packet)
    if digests is None:
        digest = sha256(packet).digest()
    elif (known := digests.get(id(packet))) is not None:
        digest = known
    else:
        digests[id(packet)] = digest = sha256(packet).digest()
    return sha256(previous + digest).digest()[:CHAIN_BYTES]


def skip(value: bytes) -> bytes:
    """The replacement of a packet whose messages every member has: only its chain value."""
    return _SKIPPED + value


def is_skipped(packet: bytes) -> bool:
    return packet[:1] == _SKIPPED


def skipped_value(packet: bytes) -> bytes:
    if len(packet) != 1 + CHAIN_BYTES:
        raise RemoteError("a skipped packet without its chain value")
    return packet[1:]


class Outbox:
    """Packets for one partner that it has not acknowledged, by their numbers."""

    def __init__(self) -> None:
        self.packets: dict[int, bytes] = {}
        self.chain: dict[int, bytes] = {0: CHAIN_START}
        """By number, the chain values from the last acknowledged packet on."""
        self.acked = 0
        self.last = 0
        self.skipped = 0
        """The number up to which packets were emptied because every member has their messages."""

    def resume(self, number: int, value: bytes) -> None:
        """Restore that everything up to `number` was acknowledged before a restart."""
        self.acked = self.last = number
        self.chain = {number: value}

    def extend(self, first: int, bodies: Sequence[bytes], digests: dict[int, bytes] | None = None) -> None:
        """Add packets with consecutive numbers, except those that are in the outbox already."""
        for number, data in enumerate(bodies, first):
            if number > self.last:
                self.packets[number] = data
                self.chain[number] = chain(self.chain[number - 1], data, digests)
                self.last = number

    def skip(self, number: int) -> None:
        """Empty a packet: the partner has its messages, so only its number and chain value are still
        needed."""
        self.packets[number] = skip(self.chain[number])

    def ack(self, number: int, value: bytes) -> None:
        """The partner has everything up to `number`, with this chain value."""
        if number > self.last:
            raise RemoteError(f"it acknowledges packet {number}, and only {self.last} were sent")
        if number < self.acked:
            return  # a later one has overtaken it
        if value != self.chain[number]:
            raise ForkError(f"its packets up to {number} are not those that were sent to it")
        for acked in range(self.acked + 1, number + 1):
            del self.packets[acked], self.chain[acked - 1]
        self.acked = number

    def after(self, number: int, max_bytes: int, max_packets: int) -> list[bytes]:
        """The packets that follow `number`, at least one and as many as fit."""
        if not self.acked <= number <= self.last:
            raise RemoteError(f"no packets after {number}: {self.acked} were acknowledged, {self.last} sent")
        bodies: list[bytes] = []
        room = max_bytes
        for following in range(number + 1, min(self.last, number + max_packets) + 1):
            data = self.packets[following]
            room -= len(data)
            if bodies and room < 0:
                break
            bodies.append(data)
        return bodies
