"""When a member reports its progress.

Other members need to know what this one has delivered only if the view changes or somebody waits for it. So a
waiting member asks the others (`asks`), and otherwise deliveries accumulate before they are reported. A round
of reports from everyone to everyone is n² packets, each with up to n counts. Reports may cost about as much
as the messages that they cover, and in a quiet group about as much as heartbeats.
"""

from __future__ import annotations

from typing import Any

from antecede.live.changing.events import Reported
from antecede.membership.member import ChangingMember
from antecede.membership.packets import Counts, ProgressReport, Stream, is_founder
from antecede.membership.state import Phase

RETRY = 1_000_000_000
"""How long a member waits before it asks again, in nanoseconds: one second, the unit of the other
intervals."""
_LONGEST = 600
"""Seconds after which a delivery is reported in any case."""
_CALM_REPORTS, _BUSY_REPORTS = 25, 2_500
"""Reports per second over the whole group: while nobody waits, and while the view changes."""
_FEW_MEMBERS = 16
"""In larger groups, rounds are rarer while nobody waits; `_BYTES` bounds the retained messages."""
_DELIVERIES, _SQUARE = 4, 12
"""A report is due after 4 n deliveries, and after n² / 12 in large groups, whose reports are long."""
_BYTES = 1 << 20
"""A report is due after this many bytes, which are retained until they are known to be stable."""
_SHORT = 0.2
"""Seconds between checks for a due report. If rounds are this frequent, there is no need to ask."""


class ReportSchedule:
    """What was reported last, and when. Not persisted: after a restart a member reports once more."""

    def __init__(self) -> None:
        self._last: Any = None
        self._deliveries = self._at = self._asked_at = self._checked_at = 0
        self._since: int | None = None
        """When the first unreported delivery was noticed."""
        self._waits = self._waited = False
        self._heard: dict[Stream, Counts] = {}
        """By member, the last counts of which this member has every message."""
        self.bytes = 0
        """Bytes of the messages delivered since the last report."""
        self.wants = False
        """Whether the application waits for others' reports; set by the driver before each tick."""
        self.is_asked = False
        """Whether another member waits for this one's report."""
        self._has_news = False

    def hear(self, last: ProgressReport | None, report: ProgressReport) -> None:
        """Another member's report has arrived. A member ignores counts of streams that it does not know yet,
        so they are repeated when it reports a stream for the first time. All members know the founders."""
        new = report.delivered.keys() - (last.delivered.keys() if last is not None else ())
        self._has_news |= any(not is_founder(stream) for stream in new)

    def due(self, member: ChangingMember, now: int) -> Reported | None:
        """The report that is due, if any; it is then considered sent. O(members), and once a second O(what
        others have reported since)."""
        if member.phase not in (Phase.MEMBER, Phase.LEAVING):
            return None
        state, deliveries = _state(member), member.deliveries
        if self._last is None and _is_fresh(member):
            self._last, self._deliveries = state, deliveries  # every member knows this initial state
        if deliveries != self._deliveries and self._since is None:
            self._since = now
        asks = self._asks(member, now)
        if not (asks or self._is_due(member, state, now)):
            return None
        self._last, self._deliveries, self._at, self._since = state, deliveries, now, None
        self.bytes, self.is_asked, self._has_news = 0, False, False
        return Reported(now, asks)

    def _asks(self, member: ChangingMember, now: int) -> bool:
        """Whether to ask others now: this member has been waiting since the last check, a second ago."""
        if now - self._checked_at >= RETRY:
            self._checked_at, self._waited = now, self._waits
            self._waits = self._is_waiting(member)
        waits = self.wants or (self._waits and (self._waited or member.phase == Phase.LEAVING))
        interval = _interval(len(member.addresses), _CALM_REPORTS)
        if not waits or interval <= _SHORT * RETRY or now - self._asked_at < RETRY:
            return False
        self._asked_at = now
        return True

    def _is_due(self, member: ChangingMember, state: Any, now: int) -> bool:
        elapsed, size = now - self._at, len(member.addresses)
        if self._waits and elapsed >= RETRY:
            return True
        is_fresh = member.deliveries != self._deliveries
        if state != self._last or self._has_news or (is_fresh and (self.is_asked or _is_unsettled(member))):
            return elapsed >= _interval(size, _BUSY_REPORTS) or self._last is None
        if not is_fresh or self._since is None:
            return False
        # Jitter: members that have delivered the same messages should not all report at once.
        spread = 1 + (member.stream * 40_503 + member.reports * 40_499) % 256 / 1_024
        most = max(_DELIVERIES * size, size * size // _SQUARE) * spread
        return (
            member.deliveries - self._deliveries >= most
            or self.bytes >= _BYTES
            or now - self._since >= _interval(size, _CALM_REPORTS) * spread
        )

    def _is_waiting(self, member: ChangingMember) -> bool:
        """Whether another member must send something before this one can proceed."""
        if member.phase == Phase.LEAVING or member.removals.removed or member.early or member.lacked:
            return True
        order = member.order
        if order.count_held():
            return True
        for each, counts in member.heard.items():
            if each in member.addresses and self._heard.get(each) is not counts:
                known = counts.keys() & order.delivered.keys() - {member.stream}
                if any(counts[stream] > order.received_up_to(stream) for stream in known):
                    return True
                self._heard[each] = counts
        if len(self._heard) > 2 * len(member.heard):
            self._heard = {}
        return False


def _interval(size: int, reports: int) -> int:
    """How long a round of this many members takes at this rate."""
    seconds, longest = size * (size - 1) / reports, 1.0
    if reports == _CALM_REPORTS:
        seconds, longest = seconds * max(1.0, size / _FEW_MEMBERS), _LONGEST
    return int(min(seconds, longest) * RETRY)


def _state(member: ChangingMember) -> Any:
    """The content of a report other than the counts of delivered messages."""
    delivered = member.order.delivered
    return (
        member.stream,
        member.phase,
        member.forgets,
        len(delivered),
        frozenset(stream for stream, end in member.ends.items() if delivered.get(stream, 0) >= end),
        frozenset(member.progress.done),
        member.withholds_done(),
        frozenset(member.addresses),
    )


def _is_fresh(member: ChangingMember) -> bool:
    """Whether this is a founder of a group in which nothing has happened yet."""
    return not any(member.order.delivered.values()) and all(map(is_founder, member.order.delivered))


def _is_unsettled(member: ChangingMember) -> bool:
    """Whether membership is changing: streams are closed, done or forgotten only after everyone's reports."""
    return bool(
        member.ends
        or member.forgotten
        or member.unstable_admissions
        or member.removals.removed
        or member.early
        or member.backlog.entries
    )
