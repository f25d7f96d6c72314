"""Progress of the other members: which messages are stable, and when an ended stream may be forgotten.

A report takes effect once everything that its sender had broadcast before it is delivered here. So when a
member learns that another one has delivered m, it knows every member that the other had admitted before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from antecede.causality import MessageId
from antecede.membership.packets import Counts, GroupReport, ProgressReport, Stream, is_founder


class KnownProgress(msgspec.Struct):
    """What a member is known to have delivered, closed, and announced as done.

    Reports no longer mention streams that their sender has forgotten, so entries are only added. They are
    removed when their stream is forgotten here.
    """

    delivered: Counts = msgspec.field(default_factory=dict)
    closed: set[Stream] = msgspec.field(default_factory=set)
    done: set[Stream] = msgspec.field(default_factory=set)
    waiting: Counts = msgspec.field(default_factory=dict)
    """By stream, the first message that it has delivered but not given to its application."""

    def add(self, report: ProgressReport) -> None:
        self.delivered.update(report.delivered)
        self.closed.update(report.closed)
        self.done.update(report.done)
        self.waiting = report.waiting_from()

    def drop(self, stream: Stream) -> None:
        self.delivered.pop(stream, None)
        self.closed.discard(stream)
        self.done.discard(stream)


_NOTHING = KnownProgress()


def have_all_delivered(stream: Stream, seq: int, members: list[KnownProgress]) -> bool:
    """Whether these members are known to have delivered a message. The first one that has not ends the
    search, which makes repeated calls cheap."""
    for each in members:  # noqa: SIM110  twice as fast as `all`
        if each.delivered.get(stream, 0) < seq:
            return False
    return True


def has_known(counts: Counts, stream: Stream, here: Counts, admissions: Mapping[Stream, MessageId]) -> bool:
    """Whether a member that has delivered `counts` has known a stream, that is, has delivered its admission,
    perhaps as part of a stream that it has forgotten. `here` are the counts of this member."""
    seen = set()
    while stream not in seen and stream in admissions:
        seen.add(stream)
        stream, seq = admissions[stream]
        if stream in counts:
            return counts[stream] >= seq
        if stream not in here:
            return True  # forgotten here: everyone has delivered all of it
    return is_founder(stream)


class StreamProgress(msgspec.Struct):
    """The reports of other members."""

    known: dict[Stream, KnownProgress] = msgspec.field(default_factory=dict)
    """By member, of the reports that have taken effect."""
    pending: dict[Stream, list[ProgressReport | GroupReport]] = msgspec.field(default_factory=dict)
    """By member, the reports that have not taken effect, the earliest first."""
    done: set[Stream] = msgspec.field(default_factory=set)
    """Ended streams that all members are known to have closed. This member no longer names them."""
    announced: set[Stream] = msgspec.field(default_factory=set)
    """Those of them that this member has announced to everyone."""
    coming: set[Stream] = msgspec.field(default_factory=set)
    """Streams of members that have left and whose own copy of their last message has not arrived. No later
    packet follows that copy, so then the stream can be forgotten."""

    def receive(self, report: ProgressReport) -> None:
        self.pending.setdefault(report.member, []).append(report)

    def apply(self, delivered: Counts, ends: Counts, admissions: Mapping[Stream, MessageId]) -> bool:
        """Apply the reports that may take effect; returns whether there were any.

        Entries of streams that are not known here are skipped. For a forgotten stream they would stay
        forever, and for one that is not known yet they are reported again.
        """
        found = False
        for member, reports in list(self.pending.items()):
            count = delivered.get(member)
            if count is None:
                continue  # its admission is not delivered yet
            while reports and count >= reports[0].delivered.get(member, 0):
                report, known = reports.pop(0), self.known.get(member)
                if known is None:
                    known = self.known[member] = KnownProgress()
                known.add(report)
                for mentioned in (report.delivered.keys(), report.closed.keys(), report.done):
                    if not mentioned <= delivered.keys():
                        for stream in mentioned - delivered.keys() - ends.keys():
                            known.drop(stream)
                if unmentioned := ends.keys() - report.delivered.keys():
                    forgotten = self._forgotten_by(report.delivered, unmentioned, delivered, admissions)
                    known.closed.update(forgotten)
                    known.done.update(forgotten)
                found = True
            if not reports:
                del self.pending[member]
        return found

    def _forgotten_by(
        self,
        counts: Counts,
        unmentioned: Collection[Stream],
        delivered: Counts,
        admissions: Mapping[Stream, MessageId],
    ) -> list[Stream]:
        """The streams that the sender of these counts has known and forgotten. If its sponsor had forgotten
        one, no report of this sender will ever mention it."""
        return [each for each in unmentioned if has_known(counts, each, delivered, admissions)]

    def admit(self, member: Stream, counts: Counts) -> None:
        """A new member has everything in its sponsor's snapshot."""
        known = self.known.setdefault(member, KnownProgress())
        known.delivered = {**counts, **known.delivered}

    def has_delivered(self, member: Stream, stream: Stream, seq: int) -> bool:
        """Whether a member is known to have delivered a message."""
        return self.known.get(member, _NOTHING).delivered.get(stream, 0) >= seq

    def of(self, members: Iterable[Stream]) -> list[KnownProgress]:
        """What is known of these members."""
        return [self.known.get(member, _NOTHING) for member in members]

    def finish(
        self, known: list[KnownProgress], closed: Mapping[Stream, int]
    ) -> tuple[list[Stream], list[Stream]]:
        """Advance ended streams. Returns those that are now done, since all members have closed them, and
        those that may be forgotten, since all members, including this one, have announced that they are
        done."""
        done = [
            stream
            for stream in closed
            if stream not in self.done and all(stream in each.closed for each in known)
        ]
        self.done.update(done)
        # A member that has left may have forwarded messages of others, which are still in transit.
        ready = () if self.coming else sorted(self.announced)
        forgotten = [stream for stream in ready if all(stream in each.done for each in known)]
        return done, forgotten

    def drop(self, stream: Stream) -> None:
        """A stream is forgotten."""
        self.done.discard(stream)
        self.announced.discard(stream)
        self.known.pop(stream, None)
        self.pending.pop(stream, None)
        for known in self.known.values():
            known.drop(stream)
