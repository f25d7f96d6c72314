"""Who seems to be down: members of which nothing was heard for longer than their time-out.

The time-out adapts to each member's link, or is what the setting `suspect_after` says. Nothing that members
deliver depends on it.
"""

from __future__ import annotations

import time
from collections.abc import Collection

from antecede.live.clock import Clock
from antecede.live.settings import Settings
from antecede.live.transport import links
from antecede.membership.failure_detection import HeartbeatDetector
from antecede.units import parse_duration

_SECOND = 1_000_000_000


class Suspicions:
    """The others as one member hears them. A connection's silence is ended by the same time-out."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        fixed = settings.suspect_after
        self.heartbeat = (
            links.HEARTBEAT_SECONDS
            if settings.heartbeat is None
            else parse_duration(settings.heartbeat) / _SECOND
        )
        self._fixed = None if fixed is None else parse_duration(fixed)
        # What is heard last may be half an interval late: this member looks only now and then.
        self._detector = HeartbeatDetector(
            int(1.5 * self.heartbeat * _SECOND), int(4 * self.heartbeat * _SECOND), self._fixed
        )
        self._clock = clock

    def watch(self, members: Collection[int]) -> None:
        self._detector.watch(members, self._clock.now())

    def hear(self, member: int) -> bool:
        """Something has arrived from a member; whether it was suspected until now."""
        return self._detector.hear(member, self._clock.now(), is_report=True)

    def check(self) -> list[int]:
        """Who is suspected since the last time."""
        return self._detector.check(self._clock.now())

    @property
    def suspected(self) -> set[int]:
        return set(self._detector.suspected)

    def since(self, member: int) -> float | None:
        """Since when a member is suspected, in seconds since 1970."""
        away = self.seconds(member)
        return None if away is None else time.time() - away

    def seconds(self, member: int) -> float | None:
        """How long a member has been suspected."""
        since = self._detector.suspected.get(member)
        return None if since is None else (self._clock.now() - since) / _SECOND

    def timeout(self, member: int) -> float:
        """After how many seconds of silence a member is suspected, at present."""
        return self._detector.timeout(member) / _SECOND

    def limit(self, link: links.PartnerLink, member: int) -> None:
        """Set how long a connection may be silent, here and on the part of the member at its other end."""
        link.heartbeat_seconds, link.silence_seconds = self.heartbeat, self.timeout(member)
