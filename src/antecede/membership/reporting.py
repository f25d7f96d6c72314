"""Progress reports: which messages are stable or missing, and which streams may be forgotten."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from antecede.membership.packets import (
    Counts,
    FetchReply,
    FetchRequest,
    ProgressReport,
    Stream,
    in_order,
)
from antecede.membership.progress import KnownProgress, have_all_delivered
from antecede.membership.state import MemberState, Phase
from antecede.protocols.base import RemoteError, Send

_MAX_FETCHED = 10_000
"""Messages that one request may ask for."""


class ReportingMember(MemberState, kw_only=True):
    """Reports its deliveries to others, and learns about theirs."""

    def _report(self, forgotten: Collection[Stream] = ()) -> ProgressReport:
        closed = self._closed() | dict.fromkeys(sorted(forgotten), 0)
        done = in_order({*self.progress.done, *forgotten})
        has_left = self.phase == Phase.LEAVING
        chain = self._admission_chain(self.stream)
        return ProgressReport(self.stream, dict(self.order.delivered), closed, done, has_left, chain)

    def _known(self) -> dict[Stream, ProgressReport]:
        """The progress of others, as known here, and of this member itself."""
        known = {
            member: ProgressReport(
                member, dict(each.delivered), dict.fromkeys(sorted(each.closed), 0), in_order(each.done)
            )
            for member, each in self.progress.known.items()
        }
        return known | {self.stream: self._report()}

    def _required(self) -> set[Stream]:
        """The members whose progress counts: those of the view, and removed ones whose streams may
        continue."""
        return (self.view | self._unclosed()) - {self.stream}

    def _finished(self, others: list[KnownProgress]) -> Counts:
        """The streams that this member no longer needs."""
        return self._closed()

    def withholds_done(self) -> bool:
        """Whether reports currently omit the streams that are done."""
        return False

    # Stability

    def _find_stable(self) -> None:
        self.is_stale = False
        if not (self.unstable or self.unstable_admissions or self.ends or self.forgotten):
            return
        others, delivered = self.progress.of(self._required()), self.order.delivered
        for stream, entries in list(self.unstable.items()):
            first = min(entries)
            if first <= delivered.get(stream, 0) and have_all_delivered(stream, first, others):
                known = (each.delivered[stream] for each in others)
                self._forget_stable(stream, min(known, default=delivered[stream]))
        for member, (sponsor, seq) in list(self.unstable_admissions.items()):
            if sponsor not in delivered or self._is_stable(sponsor, seq, others):
                del self.unstable_admissions[member]
                self.newcomers.pop(member, None)
        if self.ends:
            done, forgotten = self.progress.finish(others, self._finished(others))
            for stream in done:
                self.order.stop_naming(stream)
            for stream in forgotten:
                self._forget(stream)
        for stream, counts in list(self.forgotten.items()):
            if all(self._is_stable(each, seq, others) for each, seq in counts.items() if each in delivered):
                del self.forgotten[stream]
                self.order.forgotten.discard(stream)

    def _is_stable(self, stream: Stream, seq: int, others: list[KnownProgress]) -> bool:
        return self.order.delivered[stream] >= seq and have_all_delivered(stream, seq, others)

    def _forget_stable(self, stream: Stream, known: int) -> None:
        """All others are known to have delivered a stream up to the message `known`."""
        stable = min(known, self.order.delivered[stream])
        entries = self.unstable[stream]
        for seq in [seq for seq in entries if seq <= stable]:
            del entries[seq]
        if not entries:
            del self.unstable[stream]
        self.order.forget_up_to(stream, stable)

    def _forget(self, stream: Stream) -> None:
        """All members have closed a stream and have announced that it is done: drop it from all tables."""
        if stream in self.removals.removed:
            self.tombstones[stream] = self.ends[stream]
        elif stream not in self.tombstones:
            self.stream_at = {address: each for address, each in self.stream_at.items() if each != stream}
            self.contacts.pop(stream, None)
        self.forgets += 1
        self.removals.removed.discard(stream)
        self.gone.discard(stream)
        self.progress.drop(stream)
        self.order.drop_peer(stream)
        self.forgotten[stream] = dict(self.order.delivered)
        self.order.forgotten.add(stream)
        tables: tuple[dict[Stream, Any], ...] = (
            self.removals.flushes,
            self.removals.decided,
            self.admissions,
            self.heard,
            self.ends,
            self.unstable,
            self.early,
            self.early_requests,
        )
        for table in tables:
            table.pop(stream, None)

    def _greet(self, least: int = 2) -> None:
        """Announce this member's admission before its first message to others that may not know its sponsor.
        If this member and the sponsor are gone, nobody else can determine that they never were members. It
        does so if at least `least` admissions may be unknown to others: its own, its sponsor's, and so on."""
        greeting = self._report()
        if len(greeting.admissions) >= least:
            self.outbox.append(
                Send(self._other_addresses(), msgspec.structs.replace(greeting, done=frozenset()))
            )

    # Missing messages

    def _fetch_lacking(self) -> None:
        """Ask for messages that others have delivered and that have not arrived here since the last report,
        for example those of a member that left before it knew of this one."""
        before, self.lacked = self.lacked, {}
        self.reports += 1
        self.fetching.clear()  # the members that were asked before may be gone
        for stream in sorted(self.order.delivered.keys() - {self.stream}):
            last = self.order.received_up_to(stream)
            counts = {each: self.heard[each].get(stream, 0) for each in self.addresses if each in self.heard}
            holders = sorted(each for each, count in counts.items() if count > last)
            if holders:
                self.lacked[stream] = last
                if before.get(stream) == last:
                    # In turn: one of them may be down, which may become known only from the missing messages.
                    holder = holders[self.reports % len(holders)]
                    self._fetch(holder, FetchRequest(stream, last + 1, counts[holder]))

    def _drop_early(self) -> None:
        """If members forward messages, drop those that have waited for an admission since the last report.
        They may have been forwarded by a process that was never admitted and does not know it, and belong to
        a stream that is forgotten here. If they are a member's after all, they will be fetched."""
        for stream, count in self.early_before.items():
            if packets := self.early.get(stream, [])[count:]:
                self.early[stream] = packets
            else:
                self.early.pop(stream, None)
        self.early_before = {stream: len(packets) for stream, packets in self.early.items()}

    def _fetch(self, holder: Stream, request: FetchRequest) -> None:
        if self.order.takes_unknown:
            self._send_again(self.order.ask(holder))  # only links deliver messages, in their order
        else:
            self._send(self.addresses[holder], request)

    def _on_fetch(self, link: int, request: FetchRequest) -> None:
        if request.last - request.first > _MAX_FETCHED:
            raise RemoteError(f"it asks for more than {_MAX_FETCHED} messages at once")
        entries = self.unstable.get(request.stream, {})
        found = [entries[seq] for seq in range(request.first, request.last + 1) if seq in entries]
        if self.phase == Phase.LEAVING:
            # It takes no part in deciding where removed streams end, so messages that it only holds do not
            # count.
            found = [each for each in found if each.place]
        self._send(link, FetchReply(list(dict.fromkeys(each.packet for each in found))))
