"""What one partner has not confirmed."""

from __future__ import annotations

from antecede.protocols.base import RemoteError


class Outbox:
    """Packets for one partner that it has not confirmed, by their numbers."""

    def __init__(self) -> None:
        self.packets: dict[int, bytes] = {}
        self.confirmed = 0
        self.last = 0
        self.stored = 0
        """Up to which number the journal has them apart from its log."""
        self.emptied = 0
        """Up to which number packets were looked at that everybody may have by now."""

    def put(self, number: int, data: bytes) -> None:
        if number > self.confirmed:
            self.packets[number] = data
        self.last = max(self.last, number)

    def confirm(self, number: int) -> None:
        """The partner has everything up to `number`."""
        if number > self.last:
            raise RemoteError(f"it confirms packet {number}, and only {self.last} were sent")
        for each in range(self.confirmed + 1, number + 1):
            self.packets.pop(each, None)
        self.confirmed = max(self.confirmed, number)

    def after(self, number: int, most_bytes: int) -> list[bytes]:
        """The packets that follow `number`, at least one and as many as fit."""
        if not self.confirmed <= number <= self.last:
            raise RemoteError(f"no packets after {number}: {self.confirmed} were confirmed, {self.last} sent")
        found: list[bytes] = []
        room = most_bytes
        for each in range(number + 1, self.last + 1):
            data = self.packets[each]
            room -= len(data)
            if found and room < 0:
                break
            found.append(data)
        return found
