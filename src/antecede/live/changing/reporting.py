"""When a member reports its progress: if something has changed, and again while it waits for others."""

from __future__ import annotations

from typing import Any

from antecede.membership.member import ChangingMember
from antecede.membership.state import Phase

RETRY = 1_000_000_000
"""How long a member waits before it asks again, in nanoseconds."""


class ReportSchedule:
    """What was reported last, and when. Not in the store: after a restart a member reports once more."""

    def __init__(self) -> None:
        self._last: Any = None
        self._at = 0

    def is_due(self, member: ChangingMember, now: int) -> bool:
        """Whether to report now; then that is taken as done. O(members x streams)."""
        if member.phase not in (Phase.MEMBER, Phase.LEAVING):
            return False
        progress = _progress(member)
        if progress == self._last and not (now - self._at >= RETRY and _waits(member)):
            return False
        self._last, self._at = progress, now
        return True


def _progress(member: ChangingMember) -> Any:
    """What a report says, and what may make it worth repeating."""
    return (
        member.stream,
        dict(member.order.delivered),
        set(member.ends),
        set(member.progress.done),
        member.withholds_done(),
        set(member.addresses),
        # What is said to one that does not know a stream yet is lost on it, so it is said again when it does.
        {each: set(counts) for each, counts in member.heard.items() if each in member.addresses},
    )


def _waits(member: ChangingMember) -> bool:
    """Whether somebody else must send something before this member can go on."""
    if member.phase == Phase.LEAVING or member.removals.removed or member.early or member.lacked:
        return True
    if member.order.count_held():
        return True
    received = member.order.received_up_to
    own = {member.stream}
    return any(
        counts.get(stream, 0) > received(stream)
        for each, counts in member.heard.items()
        if each in member.addresses
        for stream in member.order.delivered.keys() - own
    )
