"""Removing members: their streams end at the same message for everyone.

A member that delivers a removal accepts nothing more from the removed member, and reports how much of its
stream it holds. With the reports of all members in its view, a member knows where the stream ends: at the
last message that anybody holds, if its causes are held too. It fetches the messages that it lacks. Several
removed members are treated together, since their messages may depend on each other.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from antecede.membership.packets import Counts, FetchRequest, FlushReport, Stream

FetchRequests = list[tuple[Stream, FetchRequest]]
"""Which messages to request, and from which members."""


class Removals(msgspec.Struct):
    """The removed members that are not forgotten, and what others hold of their streams."""

    removed: set[Stream] = msgspec.field(default_factory=set)
    flushes: dict[Stream, FlushReport] = msgspec.field(default_factory=dict)
    """The last report of each member."""
    decided: dict[Stream, tuple[int, Stream]] = msgspec.field(default_factory=dict)
    """For each removed stream, the end reported by a member of the view that had all reports, and that
    member."""

    def add(self, stream: Stream) -> None:
        """A member is removed. Reported ends no longer count: the removed member may have reported them
        without all reports, and nobody else may know them."""
        self.removed.add(stream)
        self.decided = {each: end for each, end in self.decided.items() if end[1] != stream}

    def report(self, order: Any, ends: Counts) -> FlushReport:
        """How much this member holds of all removed streams. Messages beyond a gap are dropped, so that they
        are not counted and nobody relies on them."""
        held: Counts = {}
        for stream in sorted(self.removed):
            held[stream] = order.received_up_to(stream)
            order.discard_beyond(stream, held[stream])
        return FlushReport(held, {stream: ends[stream] for stream in held if stream in ends})

    def hear(self, member: Stream, ends: Counts) -> None:
        """A member of the view knows where these streams end."""
        for stream in self.removed:
            if stream in ends:
                self.decided.setdefault(stream, (ends[stream], member))

    def find_ends(
        self,
        me: Stream,
        view: Collection[Stream],
        stable_members: int,
        order: Any,
        open_streams: set[Stream],
        closed: Collection[Stream],
    ) -> tuple[Counts, FetchRequests]:
        """Where these removed streams end, and which messages to fetch from whom before that can be decided.
        Reports must cover all removed streams except those that everybody has `closed`: a member that reports
        only on some may still accept the others' messages from another removed member."""
        decided = {stream: self.decided[stream] for stream in sorted(open_streams) if stream in self.decided}
        ends: Counts = {}
        requests: FetchRequests = []
        for stream, (end, holder) in decided.items():
            last = order.received_up_to(stream)
            if self._has_all(order, stream, end):
                ends[stream] = end
            elif last < end and holder in view:
                requests.append((holder, FetchRequest(stream, last + 1, end)))
        if not decided and self.has_quorum(stable_members) and self._has_reports(view, closed):
            return self._decide(me, view, open_streams, order)
        return ends, requests

    def _has_all(self, order: Any, stream: Stream, end: int) -> bool:
        """Whether a stream is delivered up to the end that another member has reported. Holding it is not
        enough: if that member is removed too, the causes may be lost with it."""
        return bool(order.delivered.get(stream, 0) >= end)

    def _has_reports(self, view: Collection[Stream], closed: Collection[Stream]) -> bool:
        if len(self.flushes) < len(view):
            return False  # this is asked after each report, of which there are as many as members
        needed = self.removed.difference(closed)
        return all(each in self.flushes and needed <= self.flushes[each].held.keys() for each in view)

    def has_quorum(self, stable_members: int) -> bool:
        """Whether the members whose admission is stable outnumber the removed."""
        return stable_members > len(self.removed)

    def _decide(
        self, me: Stream, view: Collection[Stream], streams: set[Stream], order: Any
    ) -> tuple[Counts, FetchRequests]:
        """Decide with all reports."""
        reports = {member: self.flushes[member] for member in view}
        requests: FetchRequests = []
        for stream in sorted(streams):
            held = [order.delivered.get(stream, 0), *(each.held[stream] for each in reports.values())]
            end, last = max(held), order.received_up_to(stream)
            if last < end:
                holders = [each for each in sorted(view) if each != me and reports[each].held[stream] >= end]
                requests += [(holder, FetchRequest(stream, last + 1, end)) for holder in holders]
        if requests or order.has_deliverable():
            # First deliver everything deliverable: it may admit members, which have to report too.
            return {}, requests
        # The remaining messages depend on a message of a removed member that nobody holds, or on a member
        # whose admission nobody holds. Their other causes were broadcast before the reports of their
        # senders, and would be delivered.
        return {stream: order.delivered.get(stream, 0) for stream in sorted(streams)}, []
