"""How far a member is, and how far it knows all others to be: what is stable, missing, and who has it.

A message is *stable* once every member is known to have delivered it. Until then its packet is kept, so that
it can be handed on to those who lack it if its sender dies. Time O(1) a message and O(members) for a count
that changes what is stable; memory O(members²) and what is not stable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from antecede.causality import BitWindow, MessageId
from antecede.protocols.base import Protocol, RemoteError, Span

_MAX_FOUND = 1 << 20
"""Bytes of packets that one request is answered with."""
_MAX_WANTED = 1_000
_ENTRY_BYTES = 100
"""What a message that is not stable costs besides its own bytes, roughly."""


class Kept(msgspec.Struct, gc=False):
    """What there is to say of a message that is not stable, or of several that came together."""

    size: int
    """Of each."""
    packet: bytes | None
    """As it came, if it can be handed on."""
    since: int
    """When it arrived."""
    batch: int
    """The batch with which it is written."""


def entry_bytes(data: bytes, span: Span) -> int:
    """What each of the messages in a packet is taken to cost."""
    _, first, last = span
    return len(data) // (last - first + 1) + _ENTRY_BYTES


class Progress:
    """Counts by member and origin, and the messages that are not stable."""

    def __init__(self, protocol: Protocol) -> None:
        size = protocol.size
        self.me, self.size = protocol.me, size
        self.complete = type(protocol).partners is Protocol.partners
        """Whether all members talk to each other, so that each can speak for itself. That this one does is
        not enough: a super peer must pass on how far those behind it are."""
        self.leaves = protocol.leaf_peers()
        """Partners that hear of the group through this member alone."""
        # Where the links alone keep the order, a message that another hands on is of no use.
        self.leaf = protocol.role() == "internal"
        """Whether it hears of the group through one partner alone, which knows more of the others."""
        self.asks = type(protocol).on_repair is not Protocol.on_repair and not self.leaf

        self.arrived = [BitWindow() for _ in range(size)]
        self.known = [[0] * size for _ in range(size)]
        """How many messages of each origin each member has delivered, as far as it has told."""
        self.stable = [0] * size
        self.kept: list[dict[int, Kept]] = [{} for _ in range(size)]
        """What is not stable, by origin and number."""
        self.unstable_bytes = 0
        self.unread_bytes = 0
        """What of them this member's own application has not taken: no other can make that room."""
        self._lacking: dict[int, tuple[int, int]] = {}

    # What happens here

    def arrive(self, span: Span, kept: Kept) -> Sequence[int]:
        """Messages have come; the numbers of those that had not before."""
        origin, first, last = span
        window = self.arrived[origin]
        numbers: Sequence[int] = range(first, last + 1)
        if not window.add_span(first, last):
            numbers = [seq for seq in numbers if window.add(seq)]
        self._keep(origin, numbers, kept)
        return numbers

    def restore(self, span: Span, packet: bytes) -> None:
        """A packet that was kept before a crash."""
        origin, first, last = span
        self._keep(origin, range(first, last + 1), Kept(entry_bytes(packet, span), packet, 0, 0))

    def _keep(self, origin: int, numbers: Sequence[int], kept: Kept) -> None:
        unread = numbers
        read = self.known[self.me][origin]
        if numbers and numbers[0] <= read:
            # After a crash, or if a partner does not keep to the order and later ones were taken before.
            numbers = [seq for seq in numbers if seq > self.stable[origin]]
            unread = [seq for seq in numbers if seq > read]
        entries = self.kept[origin]
        for seq in numbers:
            entries[seq] = kept
        self.unstable_bytes += kept.size * len(numbers)
        self.unread_bytes += kept.size * len(unread)

    def note(self, member: int, origin: int, count: int) -> None:
        """A member has delivered so many messages of an origin."""
        row = self.known[member]
        before = row[origin]
        if count <= before:
            return
        row[origin] = count
        if member == self.me:
            kept = self.kept[origin]
            for seq in range(before + 1, count + 1):
                if (read := kept.get(seq)) is not None:
                    self.unread_bytes -= read.size
        if before <= self.stable[origin]:
            self._settle(origin)

    def _settle(self, origin: int) -> None:
        """Let go of what has become stable."""
        kept = self.kept[origin]
        stable = min([each[origin] for each in self.known])
        for seq in range(self.stable[origin] + 1, stable + 1):
            if (gone := kept.pop(seq, None)) is not None:
                self.unstable_bytes -= gone.size
        self.stable[origin] = max(stable, self.stable[origin])

    # What is said and heard

    def learn(self, link: int, rows: dict[int, dict[int, int]]) -> None:
        """A partner tells how far members are."""
        for member, counts in rows.items():
            if not 0 <= member < self.size or (member != link and link in self.leaves):
                raise RemoteError(f"it speaks for member {member}")
            for origin, count in counts.items():
                if not 0 <= origin < self.size or count < 0:
                    raise RemoteError(f"it counts messages of member {origin}")
                if origin == self.me and count > self.known[self.me][self.me]:
                    raise RemoteError(f"it has message {count} of this member, which has sent fewer")
                if link in self.leaves and origin != link and count > self.arrived[origin].base:
                    raise RemoteError(
                        f"it has message {count} of member {origin}, which has not come by here"
                    )
                if member != self.me:
                    self.note(member, origin, count)

    def news(self, told: dict[int, list[int]], turn: int) -> dict[int, dict[int, int]]:
        """What has changed in `known` since `told`, which is brought up to date.

        Where everybody talks to everybody, that is this member's own row and, in turn, one of another: a
        partner hears of those that it has a slow link to, and the bytes stay O(members).
        """
        rows: dict[int, dict[int, int]] = {}
        members: Iterable[int] = range(self.size)
        if self.complete:
            members = {self.me, turn % self.size}
        elif self.leaf:
            members = (self.me,)
        for member in members:
            row, before = self.known[member], told.setdefault(member, [0] * self.size)
            if row != before:
                rows[member] = {o: n for o, (n, old) in enumerate(zip(row, before, strict=True)) if n > old}
                told[member] = row.copy()
        return rows

    def wanted(
        self, now: int, patience: int, connected: Iterable[int]
    ) -> tuple[int, list[tuple[int, int, int]]] | None:
        """Whom to ask for what has been missing for long, though others have it."""
        if not self.asks:
            return None
        helpers = list(connected)
        wanted: dict[int, list[tuple[int, int, int]]] = {}
        for origin in range(self.size):
            base = self.arrived[origin].base
            able = [peer for peer in helpers if self.known[peer][origin] > base]
            if origin == self.me or not able:
                self._lacking.pop(origin, None)
                continue
            where, since = self._lacking.get(origin, (-1, now))
            if where != base:
                self._lacking[origin] = (base, now)
            elif now - since >= patience:
                helper = able[(now // max(patience, 1) + origin) % len(able)]
                most = min(self.known[helper][origin], base + _MAX_WANTED)
                wanted.setdefault(helper, []).append((origin, base + 1, most))
        return max(wanted.items(), key=lambda item: len(item[1])) if wanted else None

    def found(self, spans: Iterable[tuple[int, int, int]]) -> list[bytes]:
        """Packets of the messages that a member asks for, as far as they are here and fit one answer."""
        packets: dict[int, bytes] = {}
        room = _MAX_FOUND
        for origin, first, last in spans:
            if not 0 <= origin < self.size or not 1 <= first <= last < first + _MAX_WANTED:
                raise RemoteError("it asks for messages that cannot be")
            for seq in range(first, last + 1):
                if origin == self.me and seq > self.known[self.me][self.me]:
                    break  # not written yet
                kept = self.kept[origin].get(seq)
                if kept is None or kept.packet is None or id(kept.packet) in packets:
                    continue
                if room > 0:
                    packets[id(kept.packet)] = kept.packet
                    room -= len(kept.packet)
        return list(packets.values())

    def holders(self, message: MessageId) -> list[int]:
        """The members that are known to have a message."""
        return [
            member
            for member in range(self.size)
            if member != self.me
            and (member == message.origin or self.known[member][message.origin] >= message.seq)
        ]

    def behind(self) -> list[int]:
        """The others that keep most messages from being stable."""
        lasts = [max(kept, default=0) for kept in self.kept]
        lag = {
            member: sum(max(0, last - have) for last, have in zip(lasts, row, strict=True))
            for member, row in enumerate(self.known)
            if member != self.me
        }
        most = max(lag.values(), default=0)
        return [member for member, count in lag.items() if count == most > 0]
