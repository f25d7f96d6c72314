"""Who seems to be down: members of which nothing was heard for longer than their time-out.

The time-out adapts to each member's link, or is what the setting `suspect_after` says. Nothing that members
deliver depends on it.

In a group in which everyone hears everyone, n² heartbeats are due an interval. So the interval grows with the
group, up to 10 s: a member that is silent is then suspected after 40 s at most, and after 25 s once its
time-out has adapted. If its process has ended, its connections have, too, and are made again at once.
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
_FEW_MEMBERS = 16
"""Above so many, heartbeats are less frequent, and it is checked less often who is silent."""
_LEAST_RATE = 0.3
"""Heartbeats are at most so much less frequent."""
_CALLS_EACH = 5


class Suspicions:
    """The others as one member hears them. A connection's silence is ended by the same time-out."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        fixed = settings.suspect_after
        self._base = (
            links.HEARTBEAT_SECONDS
            if settings.heartbeat is None
            else parse_duration(settings.heartbeat) / _SECOND
        )
        self._grows = settings.heartbeat is None
        self.heartbeat = self._base
        """Seconds between two signs of life of one member to another, at present."""
        self._fixed = None if fixed is None else parse_duration(fixed)
        self._detector = HeartbeatDetector(*self._expected(), self._fixed)
        self._clock = clock
        self._members = self._calls = 0

    def _expected(self) -> tuple[int, int]:
        """The interval between signs of life, and the first time-out."""
        # What is heard last may be half an interval late: this member looks only now and then.
        return int(1.5 * self.heartbeat * _SECOND), int(4 * self.heartbeat * _SECOND)

    def watch(self, members: Collection[int]) -> None:
        """The others, from now on."""
        self._members = len(members)
        rate = max(_LEAST_RATE, min(1.0, _FEW_MEMBERS / (self._members + 1))) if self._grows else 1.0
        if (heartbeat := self._base / rate) != self.heartbeat:
            self.heartbeat = heartbeat
            self._detector.expect(*self._expected())
        self._detector.watch(members, self._clock.now())

    def hear(self, member: int) -> bool:
        """Something has arrived from a member; whether it was suspected until now."""
        return self._detector.hear(member, self._clock.now(), is_report=True)

    def check(self) -> list[int]:
        """Who is suspected since the last time."""
        self._calls += 1
        if self._members > _FEW_MEMBERS and self._calls % _CALLS_EACH:
            return []  # in a large group one look a second takes enough time
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
