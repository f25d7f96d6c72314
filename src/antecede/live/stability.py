"""Stability: which messages every member has delivered, by a matrix clock.

Row m, column o of the *matrix clock* is how many messages of origin o member m is known to have delivered.
The minimum of a column is stable: every member has those messages, and none can request them again. Until
then a message's packet is retained, so that `repair` can supply it to members that miss it if its sender
dies. Time O(1) per message and O(members) per count that changes what is stable; memory O(members²) and the
unstable messages.

Counts alone are not enough: two members that have delivered equally many messages of an origin may have
delivered different ones, if the origin's store was copied or the origin equivocates. So with each count a
member reports the *chain value* (a hash) of the messages up to it. The member that is behind compares it with
its own once it has delivered as many. If they differ, nothing more that the other reports about this origin
counts: permanently, if the member itself has reported it. A third member's report about it may be a lie.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import NamedTuple

import msgspec

from antecede.causality import BitWindow, MessageId
from antecede.live.seals import CHAIN_BYTES, Seals, chain_value
from antecede.protocols.base import Protocol, RemoteError, Span

ENTRY_BYTES = 100
"""Approximate overhead of an unstable message besides its own bytes."""


_REPORTED_BYTES = 8
"""Bytes of a chain value in reports: enough to detect a difference."""
_MAX_PENDING = 8
"""How many counts of a member for an origin may wait until this member has delivered as many."""


class Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A member's deliveries: for each origin a count, and the chain value of the messages up to it."""

    member: int
    counts: dict[int, tuple[int, bytes]]
    signature: bytes = b""
    """In a group with signatures, by the member itself; the row then contains all its counts."""


class Divergence(NamedTuple):
    """Two members have delivered different messages under the same ids."""

    member: int
    origin: int
    agreed: int
    """The last count on which they agreed."""
    differing: int
    """The count on which they do not."""


class OverQuotaError(RemoteError):
    """A message of an origin for which too many bytes wait here already."""

    def __init__(self, origin: int, waiting: int) -> None:
        super().__init__(f"{waiting:,} bytes of member {origin} are not delivered yet: it must wait")
        self.origin = origin


class UnstableMessage(msgspec.Struct, gc=False):
    """A message that is not stable, or several that arrived in one packet."""

    size: int
    """Bytes of each message."""
    packet: bytes | None
    """The packet as it arrived, if it can be used for repair."""
    since: int
    """When it arrived."""
    ready_number: int
    """The number of the `Ready` that makes it durable."""


def message_bytes(data: bytes, span: Span) -> int:
    """The size that is attributed to each message in a packet."""
    _, first, last = span
    return len(data) // (last - first + 1) + ENTRY_BYTES


class Stability:
    """The matrix clock, and the messages that are not stable."""

    def __init__(self, protocol: Protocol, seals: Seals | None = None) -> None:
        size = protocol.size
        self.me, self.size, self._seals = protocol.me, size, seals
        self._signed_rows: dict[int, Row] = {}
        """With signatures, the latest row of each member, as it was signed."""
        self.is_mesh = type(protocol).partners is Protocol.partners
        """Whether all members exchange packets with each other, so that each reports for itself. It is not
        enough that this member does: a super peer must pass on the progress of the members behind it."""
        self.behind = protocol.members_behind()
        """Partners that reach the group only through this member, each with all members that it reports
        for."""
        self.upstream = protocol.upstream()
        """The partner through which this member reaches all others, and which knows more about them."""

        self.received = [BitWindow() for _ in range(size)]
        """The sequence numbers of each origin that have arrived, including this member's own."""
        self.out_of_order: dict[int, BitWindow] = {}
        """By origin, the messages that were delivered, for origins whose messages were not delivered in
        order: a sign of equivocation or a fork."""
        self.matrix_clock = [[0] * size for _ in range(size)]
        if self.upstream is not None and seals is None:
            self._share_row(self.upstream)
        self._mine = self.matrix_clock[self.me]
        self._reported_chain = [[b""] * size for _ in range(size)]
        """The chain values that members have reported with their counts."""
        self._partners = frozenset(protocol.partners())
        self._pending: list[dict[int, dict[int, tuple[bytes, bool]]]] = [{} for _ in range(size)]
        """By origin, count and member: chain values to compare once this member has delivered as many, and
        whether the member itself has reported them."""
        self._pending_counts: dict[tuple[int, int], list[int]] = {}
        self.chain = [bytes(CHAIN_BYTES)] * size
        """For each origin, the chain value of the messages delivered here; for this member, of those
        broadcast."""
        self.history: list[dict[int, bytes]] = [{0: bytes(_REPORTED_BYTES)} for _ in range(size)]
        """By origin and count, chain values from the last stable message on; the reported part is enough."""
        self._agreed = [[0] * size for _ in range(size)]
        """The last counts of members whose chain values were compared and are equal."""
        self.connected: set[int] = set()
        """Partners that report for themselves at present."""
        self.divergences: dict[tuple[int, int], Divergence] = {}
        """By member and origin."""
        self.lasting: dict[tuple[int, int], Divergence] = {}
        """Those divergences that the member itself has reported."""
        self.unlogged: list[Divergence] = []
        """Those of them that are not logged yet."""
        self.stable = [0] * size
        self.unstable: list[dict[int, UnstableMessage]] = [{} for _ in range(size)]
        """By origin and sequence number."""
        self._unstable_bytes = 0
        self._unsettled: set[int] = set()
        """Origins for which more may be stable than `stable` says, until `settle` updates it."""
        self.undelivered_by_origin = [0] * size
        self.undelivered_bytes = 0
        """The part of `unstable_bytes` that this member's own application has not received: only it can free
        these."""
        self.max_undelivered = sys.maxsize
        """The quota: bytes of an origin that may wait here, for causes or for the application. An origin that
        respects this member's limit never reaches it. Each message counts for at least `ENTRY_BYTES`, so
        their number is bounded too."""

    def _share_row(self, upstream: int) -> None:
        """A super peer reports what every member beyond it has delivered at least."""
        near = {self.me}.union(*self.behind.values())
        for member in range(self.size):
            if member not in near:
                self.matrix_clock[member] = self.matrix_clock[upstream]

    # Local events

    def receive(self, span: Span, entry: UnstableMessage) -> Sequence[int]:
        """Messages have arrived; returns the sequence numbers of the new ones."""
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
        self.unstable[origin].update(dict.fromkeys(seqs, entry))
        self._unstable_bytes += entry.size * len(seqs)
        self.undelivered_bytes += entry.size * len(undelivered)
        self.undelivered_by_origin[origin] += entry.size * len(undelivered)

    def deliver(self, origin: int, seq: int, payload: bytes) -> bool:
        """Another member's message is delivered to the application; False if one with this id was delivered
        before."""
        mine = self._mine
        before = mine[origin]
        if seq != before + 1 or origin in self.out_of_order:
            window = self.out_of_order.setdefault(origin, BitWindow(before))
            is_new = window.add(seq)
            if not window.bits:
                del self.out_of_order[origin]
            if seq <= before:
                return is_new
        chain = self.chain
        chain[origin] = value = sha256(chain[origin] + payload).digest()  # `chain_value`
        self.history[origin][seq] = value
        if seq in self._pending[origin]:
            self._compare_pending(origin, seq)
        mine[origin] = seq
        if (entry := self.unstable[origin].get(seq)) is not None:
            size = entry.size
            self.undelivered_bytes -= size
            self.undelivered_by_origin[origin] -= size
        if before <= self.stable[origin]:
            # The slowest member makes each message stable by delivering it: batching them is cheaper.
            self._unsettled.add(origin)
        return True

    def broadcast(self, first: int, payloads: Sequence[bytes]) -> None:
        """This member has broadcast messages; they count as delivered once they are durable."""
        for seq, payload in enumerate(payloads, first):
            self.chain[self.me] = value = chain_value(self.chain[self.me], payload)
            self.history[self.me][seq] = value

    def resume(self, counts: list[int], chain: list[bytes], history: list[dict[int, bytes]]) -> None:
        """Restore how much this member had delivered before a restart."""
        self.chain, self.history = chain, history
        for origin, count in enumerate(counts):
            if count not in history[origin]:
                raise ValueError(f"it has no chain value for message {count} of member {origin}")
            self.record_delivered(self.me, origin, count)

    def resume_divergence(self, divergence: Divergence) -> None:
        """Restore a divergence that was detected before a restart."""
        key = divergence.member, divergence.origin
        if not all(0 <= rank < self.size for rank in key):
            raise ValueError(f"a fork of member {divergence.origin} at member {divergence.member}")
        self.divergences[key] = self.lasting[key] = divergence

    def record_delivered(self, member: int, origin: int, count: int) -> None:
        """A member is known to have delivered `count` messages of an origin."""
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
                    self.undelivered_by_origin[origin] -= entry.size
        if before <= self.stable[origin]:
            self._update_stable(origin)

    @property
    def unstable_bytes(self) -> int:
        """Bytes of messages that are not stable."""
        if self._unsettled:
            self.settle()
        return self._unstable_bytes

    def settle(self) -> None:
        """Forget the messages that became stable by this member's own deliveries."""
        while self._unsettled:
            self._update_stable(self._unsettled.pop())

    def _update_stable(self, origin: int) -> None:
        before, stable = self.stable[origin], min([row[origin] for row in self.matrix_clock])
        if stable <= before:
            return
        entries, history = self.unstable[origin], self.history[origin]
        freed = 0
        for seq in range(before + 1, stable + 1):
            if (entry := entries.pop(seq, None)) is not None:
                freed += entry.size
            history.pop(seq - 1, None)
        self._unstable_bytes -= freed
        self.stable[origin] = stable

    # Quotas

    def check_quota(self, origin: int) -> None:
        """Raise an `OverQuotaError` if no more messages of an origin are accepted."""
        if (waiting := self.undelivered_by_origin[origin]) > self.max_undelivered:
            raise OverQuotaError(origin, waiting)

    def has_room_again(self, origin: int) -> bool:
        """Whether an origin that exceeded its quota may continue: once half of it is delivered."""
        return self.undelivered_by_origin[origin] <= self.max_undelivered // 2

    def takes_repair(self, origin: int, first: int) -> bool:
        """Whether messages of an origin from this one on are accepted from others: within its quota, or
        within twice the quota if they fill a gap, since all waiting messages may depend on them."""
        window = self.received[origin]
        fills_gap = window.bits and first <= window.base + 1
        return self.undelivered_by_origin[origin] <= self.max_undelivered * (2 if fills_gap else 1)

    # Progress reports

    def merge(self, link: int, rows: Sequence[Row]) -> None:
        """Merge a partner's report, as far as it can be true."""
        if len(rows) > self.size:
            raise RemoteError(f"it reports {len(rows)} rows for {self.size} members")
        for row in rows:
            if not 0 <= row.member < self.size or row.member not in self.behind.get(link, {row.member}):
                raise RemoteError(f"it reports progress of member {row.member}")
            try:
                for origin, (count, value) in row.counts.items():
                    self._validate(link, origin, count, value)
            except RemoteError:
                if self._seals is None or row.member == link:
                    raise
                continue  # a lie by the member itself, which the partner could not detect
            if not self._is_news(link, row):
                continue
            is_certain = self._seals is not None or row.member == link or row.member not in self._partners
            for origin, (count, value) in row.counts.items():
                if row.member != self.me and count > self.matrix_clock[row.member][origin]:
                    self._compare_or_wait(row.member, origin, count, value, is_certain)
                    if (row.member, origin) not in self.divergences:
                        self._reported_chain[row.member][origin] = value
                        self.record_delivered(row.member, origin, count)

    def _is_news(self, link: int, row: Row) -> bool:
        """Whether a row may count. With signatures: if the member itself has signed it, and it is new.
        Otherwise: if it comes from the member, or the member cannot be asked."""
        if self._seals is None:
            return row.member == link or row.member not in self.connected
        if row.member == self.me:
            return False
        known = self._signed_rows.get(row.member)
        if known is not None and _total(row) <= _total(known):
            return False
        if not self._seals.verify_progress(row.member, row.counts, row.signature):
            return False
        self._signed_rows[row.member] = row
        return True

    def _validate(self, link: int, origin: int, count: int, value: bytes) -> None:
        if not 0 <= origin < self.size or count < 0 or len(value) != _REPORTED_BYTES:
            raise RemoteError(f"it reports an invalid count for member {origin}")
        if origin == self.me and count > self.matrix_clock[self.me][self.me]:
            raise RemoteError(f"it has message {count} of this member, which has sent fewer")
        if origin not in self.behind.get(link, {origin}) and count > self.received[origin].base:
            raise RemoteError(f"it has message {count} of member {origin}, which has not passed through here")

    def _compare_or_wait(self, member: int, origin: int, count: int, value: bytes, is_certain: bool) -> None:
        if count <= self.matrix_clock[self.me][origin]:
            self._compare(member, origin, count, value, is_certain)
            return
        pending, counts = self._pending[origin], self._pending_counts.setdefault((member, origin), [])
        if count in counts:
            return
        if len(counts) == _MAX_PENDING:
            # The latest is never removed: no other may follow.
            latest = counts.pop()
            del pending[latest][member]
            if not pending[latest]:
                del pending[latest]
        counts.append(count)
        pending.setdefault(count, {})[member] = value, is_certain

    def _compare_pending(self, origin: int, count: int) -> None:
        for member, (value, is_certain) in self._pending[origin].pop(count).items():
            self._pending_counts[member, origin].remove(count)
            self._compare(member, origin, count, value, is_certain)

    def _compare(self, member: int, origin: int, count: int, value: bytes, is_certain: bool) -> None:
        key = member, origin
        # Before the last stable message there are no values: all members agreed on it.
        if self.history[origin].get(count, value)[:_REPORTED_BYTES] == value:
            self._agreed[member][origin] = max(count, self._agreed[member][origin])
            if key not in self.lasting:
                self.divergences.pop(key, None)
            return
        agreed = max(self._agreed[member][origin], self.stable[origin])
        divergence = self.divergences.setdefault(key, Divergence(member, origin, agreed, count))
        if is_certain and key not in self.lasting:
            self.lasting[key] = divergence
            self.unlogged.append(divergence)

    def changes_since(self, link: int, reported: dict[int, list[int]], turn: int) -> list[Row]:
        """The changes in the matrix clock since it was `reported` to a partner, which is updated accordingly.

        In a mesh, these are this member's own row and, in turn, one row of another member. So a partner also
        learns of members to which its own link is slow, and the report stays O(members). A partner behind
        this member receives one row for all members that are not behind that partner, unless rows are signed.
        """
        if link in self.behind and self._seals is None:
            row = self._summary_row(self.behind[link], reported.setdefault(self.me, [0] * self.size))
            return [row] if row is not None else []
        members: Iterable[int] = range(self.size)
        if self.is_mesh:
            members = {self.me, turn % self.size}
        elif link == self.upstream:
            members = sorted({self.me}.union(*self.behind.values()))
        rows = (
            self._changed_row(member, reported.setdefault(member, [0] * self.size))
            if self._seals is None
            else self._signed_row(self._seals, member, reported.setdefault(member, [0] * self.size))
            for member in members
        )
        return [row for row in rows if row is not None]

    def _summary_row(self, without: frozenset[int], before: list[int]) -> Row | None:
        """What all members except these have delivered at least, as a row of this member, with its own chain
        values."""
        rows = {id(row): row for member, row in enumerate(self.matrix_clock) if member not in without}
        least = [min(column) for column in zip(*rows.values(), strict=True)]
        if least == before:
            return None
        counts = {
            origin: (count, value[:_REPORTED_BYTES])
            for origin, (count, old) in enumerate(zip(least, before, strict=True))
            # A malicious origin may leave gaps, which have none.
            if count > old and (value := self.history[origin].get(count)) is not None
        }
        before[:] = least
        return Row(self.me, counts) if counts else None

    def _changed_row(self, member: int, before: list[int]) -> Row | None:
        row = self.matrix_clock[member]
        if row == before:
            return None
        counts = {
            origin: (count, self._chain_at(member, origin))
            for origin, (count, old) in enumerate(zip(row, before, strict=True))
            if count > old
        }
        before[:] = row
        return Row(member, counts)

    def _signed_row(self, seals: Seals, member: int, before: list[int]) -> Row | None:
        """Another member's row as it has signed it; this member's own is signed when it has changed."""
        signed = self._signed_rows.get(member)
        if member == self.me:
            row = self.matrix_clock[member]
            counts = {origin: (n, self._chain_at(member, origin)) for origin, n in enumerate(row) if n}
            if counts and (signed is None or signed.counts != counts):
                signed = Row(member, counts, seals.sign_progress(member, counts))
                self._signed_rows[member] = signed
        if signed is None or _total(signed) <= sum(before):
            return None
        before[:] = [signed.counts.get(origin, (0, b""))[0] for origin in range(self.size)]
        return signed

    def _chain_at(self, member: int, origin: int) -> bytes:
        """The reported part of the chain value of a member's deliveries."""
        if member != self.me:
            return self._reported_chain[member][origin]
        return self.history[origin][self.matrix_clock[member][origin]][:_REPORTED_BYTES]

    # Queries

    def holders(self, message: MessageId) -> list[int]:
        """The members known to have a message."""
        return [
            member
            for member in range(self.size)
            if member != self.me
            and (member == message.origin or self.matrix_clock[member][message.origin] >= message.seq)
        ]

    def lag(self, member: int) -> int:
        """How many messages delivered here a member is not known to have delivered."""
        mine, theirs = self.matrix_clock[self.me], self.matrix_clock[member]
        return sum(max(0, here - there) for here, there in zip(mine, theirs, strict=True))

    def lagging(self) -> list[int]:
        """The other members that keep most messages from becoming stable; a super peer stands for all members
        beyond it."""
        lasts = [max(entries, default=0) for entries in self.unstable]
        beyond = self.matrix_clock[self.upstream] if self.upstream is not None else None
        lag = {
            member: sum(max(0, last - have) for last, have in zip(lasts, row, strict=True))
            for member, row in enumerate(self.matrix_clock)
            if member != self.me and not (member != self.upstream and row is beyond)
        }
        most = max(lag.values(), default=0)
        return [member for member, count in lag.items() if count == most > 0]


def _total(row: Row) -> int:
    return sum(count for count, _ in row.counts.values())
