"""Failure suspicion: members that were silent for longer than their time-out.

The time-out adapts to each member's link, or is given by the setting `suspect_after`. Deliveries do not
depend on it.

In a group in which every member receives heartbeats from every other, n² heartbeats are due per interval. So
the interval grows with the group, up to 10 s: a silent member is then suspected after 40 s at most, and after
25 s once its time-out has adapted. If its process has ended, its connections have ended too, and are
re-established at once.
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
"""Above this many members, heartbeats and checks for silent members are less frequent."""
_LEAST_RATE = 0.3
"""The largest factor by which heartbeats are less frequent."""
_CALLS_EACH = 5


class Suspicions:
    """One member's suspicions of the others. The same time-out ends silent connections."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        fixed = settings.suspect_after
        self._base = (
            links.HEARTBEAT_SECONDS
            if settings.heartbeat is None
            else parse_duration(settings.heartbeat) / _SECOND
        )
        self._grows = settings.heartbeat is None
        self.heartbeat = self._base
        """The current interval in seconds between two signs of life of one member to another."""
        self._fixed = None if fixed is None else parse_duration(fixed)
        self._detector = HeartbeatDetector(*self._expected(), self._fixed)
        self._clock = clock
        self._members = self._calls = 0

    def _expected(self) -> tuple[int, int]:
        """The interval between signs of life, and the first time-out."""
        # The last sign of life may be noticed half an interval late: this member checks only periodically.
        return int(1.5 * self.heartbeat * _SECOND), int(4 * self.heartbeat * _SECOND)

    def watch(self, members: Collection[int]) -> None:
        """Set the members to watch from now on."""
        self._members = len(members)
        rate = max(_LEAST_RATE, min(1.0, _FEW_MEMBERS / (self._members + 1))) if self._grows else 1.0
        if (heartbeat := self._base / rate) != self.heartbeat:
            self.heartbeat = heartbeat
            self._detector.expect(*self._expected())
        self._detector.watch(members, self._clock.now())

    def hear(self, member: int) -> bool:
        """Something has arrived from a member; returns whether it was suspected until now."""
        return self._detector.hear(member, self._clock.now(), is_report=True)

    def check(self) -> list[int]:
        """The members newly suspected since the last call."""
        self._calls += 1
        if self._members > _FEW_MEMBERS and self._calls % _CALLS_EACH:
            return []  # in a large group one check per second is expensive enough
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
        """After how many seconds of silence a member is currently suspected."""
        return self._detector.timeout(member) / _SECOND

    def limit(self, link: links.PartnerLink, member: int) -> None:
        """Set how long a connection may be silent, on this side and at the member at its other end."""
        link.heartbeat_seconds, link.silence_seconds = self.heartbeat, self.timeout(member)
