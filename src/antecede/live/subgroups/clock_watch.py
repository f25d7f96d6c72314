"""Whether a subgroup on real time keeps its promised bounds, as far as one member can measure, without I/O.

Members compare their clocks with those of the others in their subgroup, as in NTP: one sends its time, the
other replies with its own, which was taken half a round trip ago, give or take that half. Only certain
violations count: clocks that differ by more than the promised skew and half a round trip, and round trips
that take more than twice the longest delay. If an exchange is inconclusive, the previous result stands.

It cannot be determined which of two clocks is wrong. So a member does not start while its own clock seems
wrong, that is, while it differs from most of the others in its subgroup. It starts once it agrees with half
of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from antecede.live.transport.frames import ClockProbe, ClockReading
from antecede.protocols.base import RemoteError

PROBES_AT_ONCE = 8
"""How many exchanges follow each other on a new connection; this many are remembered."""
PROBE_EVERY = 1_000_000_000
"""The interval between later exchanges, in nanoseconds."""
_SLOW_IN_A_ROW = 3
"""How many round trips must be too long: a single one may have met a busy process."""


class Exchange(msgspec.Struct, frozen=True):
    """One measurement, in nanoseconds."""

    offset: int
    """How far the other clock is ahead."""
    round_trip: int


class PartnerClock:
    """The known state of one partner's clock, and of the link to it."""

    def __init__(self, longest_delay: int, skew: int) -> None:
        self._longest_delay, self._skew = longest_delay, skew
        self._exchanges: deque[Exchange] = deque(maxlen=PROBES_AT_ONCE)
        self._asked: int | None = None
        """The time in the probe that is not answered yet."""
        self._next_probe = 0
        self.burst = PROBES_AT_ONCE

    def begin(self) -> None:
        """A new connection is established: measure again, in quick succession."""
        self._exchanges.clear()
        self._asked, self._next_probe, self.burst = None, 0, PROBES_AT_ONCE

    def probe(self, now: int) -> ClockProbe | None:
        """The probe to send, if one is due."""
        if self._asked is not None or now < self._next_probe:
            return None
        self._asked = now
        return ClockProbe(now)

    def read(self, reading: ClockReading, now: int) -> None:
        """A reply has arrived."""
        if reading.sent != self._asked:
            raise RemoteError("it answers a probe of its clock that was not sent")
        self._asked = None
        self.burst = max(0, self.burst - 1)
        self._next_probe = now if self.burst else now + PROBE_EVERY
        round_trip = max(0, now - reading.sent)
        self._exchanges.append(Exchange(reading.arrived - reading.sent - round_trip // 2, round_trip))

    @property
    def is_measured(self) -> bool:
        return not self.burst

    @property
    def best(self) -> Exchange | None:
        """The fastest of the last exchanges."""
        return min(self._exchanges, key=lambda each: each.round_trip, default=None)

    def broken(self, now: int) -> str:
        """A description of the violated bound; empty if there is none."""
        for each in reversed(self._exchanges):
            doubt = each.round_trip // 2
            if abs(each.offset) - doubt > self._skew:
                way = "ahead of" if each.offset > 0 else "behind"
                what = f"its clock is {_ms(abs(each.offset))} {way} this one"
                return f"{what}, and {_ms(self._skew)} at most is promised"
            if abs(each.offset) + doubt <= self._skew:
                break
        trips = [each.round_trip for each in self._exchanges][-_SLOW_IN_A_ROW:]
        if self._asked is not None and now - self._asked > (trips[-1] if trips else 0):
            trips = [*trips, now - self._asked][-_SLOW_IN_A_ROW:]
        if len(trips) == _SLOW_IN_A_ROW and min(trips) > 2 * self._longest_delay:
            longest = _ms(self._longest_delay)
            return (
                f"a packet takes {_ms(min(trips))} there and back, and {longest} at most each way is promised"
            )
        return ""


def _ms(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e6:,.1f} ms"


class ClockWatch:
    """The clocks of the others in this member's subgroup, by rank."""

    def __init__(self, partners: Sequence[int], longest_delay: int, skew: int) -> None:
        self.partners = {peer: PartnerClock(longest_delay, skew) for peer in partners}
        self._longest_delay, self._skew = longest_delay, skew
        self.is_running = not partners
        """Whether this member's clock was found to agree with half of the others since it started."""

    def check(self, now: int) -> dict[int, str]:
        """The violated bounds, by partner."""
        broken = {peer: text for peer, each in self.partners.items() if (text := each.broken(now))}
        agreed = [peer for peer, each in self.partners.items() if each.is_measured and peer not in broken]
        self.is_running = self.is_running or 2 * len(agreed) >= len(self.partners)
        return broken

    def refuses(self, broken: dict[int, str]) -> bool:
        """Whether this member's own clock or links seem to be at fault, so that it must not start."""
        return not self.is_running and 2 * len(broken) > len(self.partners)

    def is_beyond_doubt(self, overdue: int) -> bool:
        """Whether a message that is overdue for this long proves a violation: its confirmation takes at most
        a quarter of the longest delay and two delays, and clocks may differ."""
        return overdue > 2 * self._longest_delay + self._skew
