"""Packets for one partner until it has acknowledged them: the retransmission queue of a link."""

from __future__ import annotations

from collections.abc import Sequence

from antecede.protocols.base import RemoteError


class Outbox:
    """Packets for one partner that it has not acknowledged, by their numbers."""

    def __init__(self) -> None:
        self.packets: dict[int, bytes] = {}
        self.acked = 0
        self.last = 0
        self.skipped = 0
        """Up to which number packets were dropped because every member has their messages."""

    def put(self, number: int, data: bytes) -> None:
        if number > self.acked:
            self.packets[number] = data
        self.last = max(self.last, number)

    def extend(self, first: int, bodies: Sequence[bytes]) -> None:
        """Packets under consecutive numbers."""
        for number, data in enumerate(bodies, first):
            self.put(number, data)

    def ack(self, number: int) -> None:
        """The partner has everything up to `number`."""
        if number > self.last:
            raise RemoteError(f"it acknowledges packet {number}, and only {self.last} were sent")
        for acked in range(self.acked + 1, number + 1):
            self.packets.pop(acked, None)
        self.acked = max(self.acked, number)

    def after(self, number: int, max_bytes: int) -> list[bytes]:
        """The packets that follow `number`, at least one and as many as fit."""
        if not self.acked <= number <= self.last:
            raise RemoteError(f"no packets after {number}: {self.acked} were acknowledged, {self.last} sent")
        bodies: list[bytes] = []
        room = max_bytes
        for following in range(number + 1, self.last + 1):
            data = self.packets[following]
            room -= len(data)
            if bodies and room < 0:
                break
            bodies.append(data)
        return bodies
