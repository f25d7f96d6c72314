"""Stability: which messages every member has delivered, by a matrix clock.

Row m, column o of the *matrix clock* is how many messages of origin o member m is known to have delivered.
The minimum of a column is stable: everybody has those messages, and nobody can ask for them again. Until
then a message's packet is retained, so that `repair` can supply it to members that lack it if its sender
dies. Time O(1) per message and O(members) per count that changes what is stable; memory O(members²) and
the unstable messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from antecede.causality import BitWindow, MessageId
from antecede.protocols.base import Protocol, RemoteError, Span

ENTRY_BYTES = 100
"""What an unstable message costs besides its own bytes, roughly."""


class UnstableMessage(msgspec.Struct, gc=False):
    """A message that is not stable, or several that arrived in one packet."""

    size: int
    """Of each message, in bytes."""
    packet: bytes | None
    """As it arrived, if it can be used for repair."""
    since: int
    """When it arrived."""
    ready_number: int
    """The number of the `Ready` that makes it durable."""


def message_bytes(data: bytes, span: Span) -> int:
    """What each of the messages in a packet is taken to cost."""
    _, first, last = span
    return len(data) // (last - first + 1) + ENTRY_BYTES


class Stability:
    """The matrix clock, and the messages that are not stable."""

    def __init__(self, protocol: Protocol) -> None:
        size = protocol.size
        self.me, self.size = protocol.me, size
        self.is_mesh = type(protocol).partners is Protocol.partners
        """Whether all members exchange packets with each other, so that each reports for itself. It is not
        enough that this member does: a super peer must pass on the progress of those behind it."""
        self.leaves = protocol.leaf_peers()
        """Partners that reach the group through this member alone."""
        self.is_leaf = protocol.role() == "internal"
        """Whether this member reaches the group through one partner alone, which knows more of the others."""

        self.received = [BitWindow() for _ in range(size)]
        """The sequence numbers of each origin that have arrived, one's own included."""
        self.matrix_clock = [[0] * size for _ in range(size)]
        self.stable = [0] * size
        self.unstable: list[dict[int, UnstableMessage]] = [{} for _ in range(size)]
        """By origin and sequence number."""
        self.unstable_bytes = 0
        self.undelivered_bytes = 0
        """The part of it that this member's own application has not been given: nobody else can free that."""

    # What happens here

    def receive(self, span: Span, entry: UnstableMessage) -> Sequence[int]:
        """Messages have arrived; the sequence numbers of those that are new."""
        origin, first, last = span
        window = self.received[origin]
        seqs: Sequence[int] = range(first, last + 1)
        if not window.add_span(first, last):
            seqs = [seq for seq in seqs if window.add(seq)]
        self._retain(origin, seqs, entry)
        return seqs

    def restore(self, span: Span, packet: bytes) -> None:
        """Retain a packet that was unstable before a crash."""
        origin, first, last = span
        entry = UnstableMessage(message_bytes(packet, span), packet, 0, 0)
        self._retain(origin, range(first, last + 1), entry)

    def _retain(self, origin: int, seqs: Sequence[int], entry: UnstableMessage) -> None:
        undelivered = seqs
        delivered = self.matrix_clock[self.me][origin]
        if seqs and seqs[0] <= delivered:
            # After a crash, or if a partner does not keep FIFO order and later messages were delivered first.
            seqs = [seq for seq in seqs if seq > self.stable[origin]]
            undelivered = [seq for seq in seqs if seq > delivered]
        entries = self.unstable[origin]
        for seq in seqs:
            entries[seq] = entry
        self.unstable_bytes += entry.size * len(seqs)
        self.undelivered_bytes += entry.size * len(undelivered)

    def record_delivered(self, member: int, origin: int, count: int) -> None:
        """A member has delivered `count` messages of an origin."""
        row = self.matrix_clock[member]
        before = row[origin]
        if count <= before:
            return
        row[origin] = count
        if member == self.me:
            entries = self.unstable[origin]
            for seq in range(before + 1, count + 1):
                if (entry := entries.get(seq)) is not None:
                    self.undelivered_bytes -= entry.size
        if before <= self.stable[origin]:
            self._update_stable(origin)

    def _update_stable(self, origin: int) -> None:
        entries = self.unstable[origin]
        stable = min([row[origin] for row in self.matrix_clock])
        for seq in range(self.stable[origin] + 1, stable + 1):
            if (entry := entries.pop(seq, None)) is not None:
                self.unstable_bytes -= entry.size
        self.stable[origin] = max(stable, self.stable[origin])

    # What members tell each other

    def merge(self, link: int, counts: dict[int, dict[int, int]]) -> None:
        """Take over what a partner reports, row by row, as far as it can be true."""
        for member, row in counts.items():
            if not 0 <= member < self.size or (member != link and link in self.leaves):
                raise RemoteError(f"it reports progress of member {member}")
            for origin, count in row.items():
                self._validate(link, origin, count)
                if member != self.me:
                    self.record_delivered(member, origin, count)

    def _validate(self, link: int, origin: int, count: int) -> None:
        if not 0 <= origin < self.size or count < 0:
            raise RemoteError(f"it reports an invalid count for member {origin}")
        if origin == self.me and count > self.matrix_clock[self.me][self.me]:
            raise RemoteError(f"it has message {count} of this member, which has sent fewer")
        if link in self.leaves and origin != link and count > self.received[origin].base:
            raise RemoteError(f"it has message {count} of member {origin}, which has not passed through here")

    def changes_since(self, reported: dict[int, list[int]], turn: int) -> dict[int, dict[int, int]]:
        """What has changed in the matrix clock since `reported`, which is brought up to date.

        In a mesh, that is this member's own row and, in turn, one of another member: a partner hears of those
        to which it has a slow link, and the report stays O(members).
        """
        rows: dict[int, dict[int, int]] = {}
        members: Iterable[int] = range(self.size)
        if self.is_mesh:
            members = {self.me, turn % self.size}
        elif self.is_leaf:
            members = (self.me,)
        for member in members:
            row, before = self.matrix_clock[member], reported.setdefault(member, [0] * self.size)
            if row != before:
                rows[member] = {o: n for o, (n, old) in enumerate(zip(row, before, strict=True)) if n > old}
                reported[member] = row.copy()
        return rows

    # What can be asked

    def holders(self, message: MessageId) -> list[int]:
        """The members known to have a message."""
        return [
            member
            for member in range(self.size)
            if member != self.me
            and (member == message.origin or self.matrix_clock[member][message.origin] >= message.seq)
        ]

    def lag(self, member: int) -> int:
        """How many messages that were delivered here a member is not known to have delivered."""
        mine, theirs = self.matrix_clock[self.me], self.matrix_clock[member]
        return sum(max(0, here - there) for here, there in zip(mine, theirs, strict=True))

    def lagging(self) -> list[int]:
        """The other members that keep most messages from being stable."""
        lasts = [max(entries, default=0) for entries in self.unstable]
        lag = {
            member: sum(max(0, last - have) for last, have in zip(lasts, row, strict=True))
            for member, row in enumerate(self.matrix_clock)
            if member != self.me
        }
        most = max(lag.values(), default=0)
        return [member for member, count in lag.items() if count == most > 0]
