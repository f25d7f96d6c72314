"""A member's part in removals: it reports what it holds, closes removed streams, and refuses void members."""

from __future__ import annotations

from antecede.causality import MessageId
from antecede.membership.packets import Counts, FetchRequest, Removal, Stream
from antecede.membership.removal import FetchRequests
from antecede.membership.state import Phase, ViewChange
from antecede.membership.upgrading import UpgradingMember
from antecede.membership.view_flooding import LinkRequest
from antecede.protocols.base import Packet


class RemovingMember(UpgradingMember, kw_only=True):
    """Closes the streams of removed members where everyone does."""

    def _remove(self, stream: Stream, now: int) -> None:
        self._on_removal(Removal(stream), self._broadcast(Removal(stream), now), now)

    def _on_removal(self, removal: Removal, message: MessageId, now: int) -> None:
        stream = removal.stream
        self.changes.append(ViewChange("remove", stream, message))
        if stream == self.stream:
            self.phase = Phase.REMOVED
            return
        self._exclude(stream)
        self.progress.coming.discard(stream)  # nothing more from it is accepted
        # A departed member that nobody waits for has a tombstone too, but others need a report on it.
        is_forgotten = stream in self.tombstones and stream not in self.order.delivered
        if stream not in self.removals.removed and not is_forgotten:
            self.removals.add(stream)
            if stream not in self.order.delivered:
                self.order.add_peer(stream)
            self._flush(now)

    def _flush(self, now: int) -> None:
        report = self.removals.report(self.order, self.ends)
        for stream, held in report.held.items():
            self._drop_beyond(stream, held)
        if self.order.relays and not self.order.takes_unknown:
            # The report may arrive before this member's first message, which alone names the admission.
            self._greet(1)
        self._broadcast_directly(report, now)
        self.removals.flushes[self.stream] = report

    def _close_removed(self) -> None:
        open_streams = self.removals.removed - self.ends.keys()
        if not open_streams:
            return
        stable = len(self.addresses) - len(self.unstable_admissions.keys() & self.addresses.keys())
        ends, requests = self.removals.find_ends(
            self.stream, self.addresses, stable, self.order, open_streams, self.progress.done
        )
        for holder, request in requests + self._named_and_lacking(open_streams):
            key = holder, request.stream, request.last
            if key not in self.fetching:
                self.fetching.add(key)
                self._fetch(holder, request)
        if self._has_more(ends):
            self.phase = Phase.REMOVED
            return
        for stream, end in ends.items():
            self._end(stream, end)
        if ends:
            self._refuse_void()

    def _has_more(self, ends: Counts) -> bool:
        """Whether more than these ends is delivered here. Streams end where all members, asked what they
        hold, have the last message. So this process is not a member: it was removed, or its own admission
        lies beyond an end, and perhaps nobody else can tell it."""
        return any(end < self.order.delivered[stream] for stream, end in ends.items())

    def _named_and_lacking(self, open_streams: set[Stream]) -> FetchRequests:
        """Missing messages of removed streams on which messages of others, including flush reports, depend.
        Nobody sends them any more, but a member that depends on one has delivered it."""
        requests: FetchRequests = []
        for held in self.order.waiting_for(open_streams):
            holder, cause = held.message.origin, held.cause
            if cause is not None and holder in self.addresses:
                last = self.order.received_up_to(cause.origin)
                if last < cause.seq:
                    requests.append((holder, FetchRequest(cause.origin, last + 1, cause.seq)))
        return requests

    # Members that were never admitted

    def _is_void(self, packet: Packet) -> bool:
        """Whether a message can never be delivered: it depends on one beyond the end of its stream."""
        return any(map(self._is_beyond, self.order.dependencies(packet)))

    def _refuse_void(self) -> None:
        """Refuse members whose admission lies beyond the end of their sponsor's stream, and members whom
        those have admitted."""
        claimed = self._admissions_of_unknown()
        heard_of = (
            self.early.keys() | self.progress.pending.keys() | self.early_requests.keys() | claimed.keys()
        )
        unknown = heard_of - self.order.delivered.keys() - self.tombstones.keys()
        found = True
        while found:
            found = False
            for stream in sorted(unknown):
                packets = (self._decode_message(data) for _, data in self.early.get(stream, ()))
                if any(map(self._is_void, packets)) or any(map(self._is_beyond, claimed.get(stream, ()))):
                    found = True
                    unknown.discard(stream)
                    self._refuse_stranger(stream)

    def _refuse_stranger(self, stream: Stream) -> None:
        """The member of this stream was never admitted."""
        self.tombstones[stream] = 0
        self.gone.discard(stream)
        self.order.refuse(stream)
        for table in (self.early, self.early_requests, self.progress.pending, self.heard):
            table.pop(stream, None)

    def _admissions_of_unknown(self) -> dict[Stream, set[MessageId]]:
        """The admissions that unknown members name, their own and their sponsors'. For flush reports outside
        of streams, all causes."""
        known = self.order.delivered
        chains = [
            each.admissions
            for member, reports in self.progress.pending.items()
            if member not in known
            for each in reports
        ]
        for data in self.early_requests.values():
            request = self.decode(data)
            chains += [request.admissions] if isinstance(request, LinkRequest) else []
        claimed: dict[Stream, set[MessageId]] = {}
        for stream, causes in self.order.held_directly():
            claimed.setdefault(stream, set()).update(causes)
        for chain in chains:
            for stream, message in chain.items():
                claimed.setdefault(stream, set()).add(message)
        return claimed
