"""Proving equivocation: an origin's signed statements, shown to members that have something else of it.

Members that have delivered different messages of an origin under the same ids notice it by their chain values
(`stability.py`). Each then shows what the origin has signed of the message in question. Whoever has another
statement of it has the proof, and shows both to all.

`Seals` remembers the last statements of each origin only. But a message about which members differ is not
stable, so its packet is retained, and the statement is in it. So an origin cannot escape the proof by saying
much else. Time O(messages in a packet) for each statement shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from antecede.live.seals import EquivocationError, Seals, Statement, read_statement
from antecede.live.stability import Divergence, Stability
from antecede.protocols.base import Packet, Protocol, Span

_BYTES_PER_VERIFICATION = 1 << 16
"""Of a packet, which take as long to decode and hash as a signature to verify, roughly."""


class StatementArchive:
    """What each origin has signed: as remembered, and in the packets that are retained."""

    def __init__(self, protocol: Protocol, stability: Stability, seals: Seals) -> None:
        self._decode = type(protocol).decode
        self._stability, self._seals = stability, seals
        self._bytes_read = 0
        """Of retained packets."""

    def verify(self, packet: Packet, spans: Sequence[Span], trusted: bool) -> Iterator[EquivocationError]:
        """Raise a `RemoteError` unless the origins of a packet's messages have signed them; the origins that
        have signed something else as well.

        A `trusted` packet was accepted before a restart.
        """
        stability = self._stability
        for (origin, first, last), payloads in zip(spans, packet.payloads_by_span(), strict=True):
            if origin == stability.me and last <= stability.received[origin].base:
                continue  # it comes back
            try:
                self._seals.verify(origin, first, payloads, trusted)
            except EquivocationError as error:
                if not trusted:  # otherwise the other statement was not known when it was accepted
                    yield error

    def evidence(self, divergence: Divergence, is_first: bool) -> list[Statement]:
        """What to show to whom has delivered something else: what covers the count on which the two differ,
        or, if it is shown something of the origin for the first time, what is remembered near that."""
        origin, stability = divergence.origin, self._stability
        found = self._find(origin, divergence.differing)
        statements = [found] if found is not None else []
        if not statements and is_first:
            statements = self._seals.evidence(origin, divergence.differing)
        if origin == stability.me:
            # What is not durable may be undone by a crash, and something else be signed in its place.
            durable = stability.matrix_clock[origin][origin]
            statements = [each for each in statements if each.last <= durable]
        return statements

    def examine(self, origin: int, statements: Sequence[Statement]) -> float:
        """Another member's evidence; an `EquivocationError` if it contradicts itself or this member's. What
        that has cost, in verifications of a signature."""
        before = self._bytes_read
        self._seals.examine(origin, statements)
        for statement in statements[:1]:
            # Only the first, which is the one in question: a packet is long.
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
