"""Limits on what disconnected members may cost the others, and what happens at these limits.

Messages are retained until every member has them. A member that is away therefore makes the others retain up
to `limit` bytes, at which `broadcast` waits. With `park`, `broadcast` waits only at that larger limit, as
long as all other members keep up. With `remove_after`, a member that is away for that long is removed,
provided that a majority is connected. A suspicion may be wrong, and so may a removal: then the member
returns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from antecede.live.changing.core import ChangingCore
from antecede.live.changing.watch import Tell
from antecede.live.problems import Problems
from antecede.live.settings import Settings
from antecede.live.suspicion import Suspicions
from antecede.membership.state import Phase
from antecede.protocols.base import LocalError
from antecede.units import parse_duration


class AwayMembers:
    """The members that seem to be down. `remove` removes one."""

    def __init__(
        self,
        settings: Settings,
        core: ChangingCore,
        labels: Mapping[int, str],
        suspicions: Suspicions,
        problems: Problems,
        tell: Tell,
        remove: Callable[[int], None],
    ) -> None:
        self._settings, self._core, self._labels, self._suspicions = settings, core, labels, suspicions
        self._problems, self._tell, self._remove = problems, tell, remove
        text = settings.remove_after
        self._remove_after = None if text is None else parse_duration(text) / 1e9
        self.parked: set[int] = set()
        """Members for which more than `limit` is retained."""

    @property
    def limit(self) -> int:
        """How many unstable bytes make `broadcast` wait at present."""
        return max(self._settings.limit, self._settings.park) if self.parked else self._settings.limit

    def check(self, retained: int) -> None:
        """Called periodically; `retained` is the number of bytes that are not stable."""
        core = self._core
        is_member = core.phase == Phase.MEMBER
        away = self._suspicions.suspected & core.member.addresses.keys() if is_member else set()
        self._check_parked(away, retained)
        for stream in away:
            self._check_removal(stream, away)
        current = {("away", self._labels[stream]): stream for stream in away & core.member.addresses.keys()}
        for key in self._problems.keys("away") - current.keys():
            self._problems.end(key)
        for key, stream in current.items():
            label = self._labels[stream]
            self._problems.begin(key, "away", label, self._describe(stream, away, retained))
        self._report_removals()

    def _report_removals(self) -> None:
        """Report which removals wait for more members, and why."""
        member = self._core.member
        removals = member.removals
        unstable = member.unstable_admissions.keys() & member.addresses.keys()
        stable = len(member.addresses) - len(unstable)
        stuck = set() if removals.has_quorum(stable) else removals.removed - member.ends.keys()
        current = {("removing", self._labels[stream]) for stream in stuck}
        for key in self._problems.keys("removing") - current:
            self._problems.end(key)
        for key in sorted(current):
            count = len(removals.removed)
            text = (
                f"{key[1]} is being removed: {stable:,} members are known to all, for {count:,} that were "
                "removed; more must be there before its messages can end"
            )
            self._problems.begin(key, "removing", key[1], text)

    # Parking

    def _check_parked(self, away: set[int], retained: int) -> None:
        limit, park = self._settings.limit, self._settings.park
        parked = set()
        if park > limit and away and retained > limit and self._lacking_here(away) <= limit:
            parked = {stream for stream in away if self._lacks(stream)}
        elif away and retained > limit // 2:
            parked = self.parked & away  # hysteresis around the limit
        for stream in sorted(parked - self.parked):
            text = f"{retained:,} bytes are not stable; up to {park:,} are kept in the store for it"
            self._tell("parked", self._labels[stream], text=text)
        for stream in sorted(self.parked - parked):
            self._tell("unparked", self._labels[stream])
        self.parked = parked

    def _lacks(self, stream: int) -> bool:
        member = self._core.member
        return any(
            not member.progress.has_delivered(stream, origin, max(entries))
            for origin, entries in member.unstable.items()
            if entries
        )

    def _lacking_here(self, away: set[int]) -> int:
        """Bytes that are unstable because of members that are connected. O(messages x members)."""
        member = self._core.member
        present = member.progress.of(member.addresses.keys() - away - {member.stream})
        return sum(
            len(entry.packet)
            for origin, entries in member.unstable.items()
            for seq, entry in entries.items()
            if any(each.delivered.get(origin, 0) < seq for each in present)
        )

    # Removing

    def check_removable(self, who: str, streams: Collection[int]) -> None:
        """Refuse a removal that could never complete: it cannot be undone, and until it completes nothing is
        stable."""
        member = self._core.member
        removed = (member.removals.removed - member.ends.keys()).union(streams)
        stay = len(member.addresses.keys() - member.unstable_admissions.keys() - removed)
        if stay <= len(removed):
            raise LocalError(
                f"{who} is not removed: more members must stay than are removed, and here "
                f"{stay:,} would stay for {len(removed):,}; members that join now do not count until all "
                "members know them"
            )

    def _has_quorum(self, away: set[int]) -> bool:
        return len(self._core.member.addresses.keys() - away) > len(away)

    def _check_removal(self, stream: int, away: set[int]) -> None:
        seconds = self._suspicions.seconds(stream)
        is_due = self._remove_after is not None and seconds is not None and seconds >= self._remove_after
        if is_due and self._has_quorum(away):
            self._remove(stream)

    def _describe(self, stream: int, away: set[int], retained: int) -> str:
        label, settings = self._labels[stream], self._settings
        parts = [f"{label} is not heard; {retained:,} bytes are not stable"]
        if stream in self.parked:
            parts.append(f"up to {settings.park:,} are kept in the store for it, then broadcast waits")
        else:
            parts.append(f"broadcast waits at {self.limit:,}")
        if self._remove_after is None:
            parts.append("remove it if it does not come back")
        elif self._has_quorum(away):
            parts.append(f"it is removed after {settings.remove_after}")
        else:
            count = len(self._core.member.addresses)
            parts.append(f"it cannot be removed: only {count - len(away)} of {count} members are there")
        return "; ".join(parts)
