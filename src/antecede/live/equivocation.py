"""Proving equivocation: an origin's signed statements, sent to members that hold something different from it.

Members that have delivered different messages of an origin under the same ids detect it by their chain values
(`stability.py`). Each then sends what the origin has signed for the message in question. A member that holds
another statement on it has the proof, and sends both to all.

`Seals` remembers only the last statements of each origin. But a message about which members differ is not
stable, so its packet is retained, and the statement is in it. An origin therefore cannot escape the proof by
broadcasting many other messages. Time O(messages in a packet) for each statement received.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from antecede.live.seals import EquivocationError, Seals, Statement, read_statement
from antecede.live.stability import Divergence, Stability
from antecede.protocols.base import Packet, Protocol, Span

_BYTES_PER_VERIFICATION = 1 << 16
"""Bytes of a packet that take about as long to decode and hash as a signature takes to verify."""


class StatementArchive:
    """The signed statements of each origin: those remembered, and those in retained packets."""

    def __init__(self, protocol: Protocol, stability: Stability, seals: Seals) -> None:
        self._decode = type(protocol).decode
        self._stability, self._seals = stability, seals
        self._bytes_read = 0
        """Bytes of retained packets."""

    def verify(self, packet: Packet, spans: Sequence[Span], trusted: bool) -> Iterator[EquivocationError]:
        """Raise a `RemoteError` unless the origins of a packet's messages have signed them; yields an error
        for each origin that has signed something else as well.

        A `trusted` packet was accepted before a restart.
        """
        stability = self._stability
        for (origin, first, last), payloads in zip(spans, packet.payloads_by_span(), strict=True):
            if origin == stability.me and last <= stability.received[origin].base:
                continue  # this member's own message
            try:
                self._seals.verify(origin, first, payloads, trusted)
            except EquivocationError as error:
                if not trusted:  # otherwise the other statement was not known when it was accepted
                    yield error

    def evidence(self, divergence: Divergence, is_first: bool) -> list[Statement]:
        """The statements to send to a member that has delivered something else: the one that covers the count
        on which the two differ; or, for the first evidence on this origin, those remembered near it."""
        origin, stability = divergence.origin, self._stability
        found = self._find(origin, divergence.differing)
        statements = [found] if found is not None else []
        if not statements and is_first:
            statements = self._seals.evidence(origin, divergence.differing)
        if origin == stability.me:
            # A crash may undo what is not durable, and something else may then be signed in its place.
            durable = stability.matrix_clock[origin][origin]
            statements = [each for each in statements if each.last <= durable]
        return statements

    def examine(self, origin: int, statements: Sequence[Statement]) -> float:
        """Examine another member's evidence. Raises an `EquivocationError` if it contradicts itself or this
        member's. Returns the cost, in signature verifications."""
        before = self._bytes_read
        self._seals.examine(origin, statements)
        for statement in statements[:1]:
            # Only the first, which is the one in question: packets are expensive to decode.
            last = min(statement.last, self._stability.received[origin].base)
            near = {statement.first - 1, max(statement.first, self._stability.stable[origin] + 1), last}
            found = [self._find(origin, seq) for seq in sorted(near | {statement.last + 1})]
            self._seals.compare(origin, statement, [each for each in found if each is not None])
        return len(statements) + (self._bytes_read - before) / _BYTES_PER_VERIFICATION

    def _find(self, origin: int, seq: int) -> Statement | None:
        """The statement on one message."""
        entry = self._stability.unstable[origin].get(seq)
        if (found := self._seals.find(origin, seq)) is not None or entry is None or entry.packet is None:
            return found
        self._bytes_read += len(entry.packet)
        packet = self._decode(entry.packet)
        for (author, first, last), payloads in zip(packet.spans(), packet.payloads_by_span(), strict=True):
            if author == origin and first <= seq <= last:
                return read_statement(origin, first, payloads)
        return None
