"""When a phone turns to another super peer, without I/O.

A phone that cannot reach its super peer for a while calls the others, and asks the first that answers for a
slot. If its own can be reached again it moves, without a gap and without a snapshot. If not, it gives up what
it has there, and returns at the other with a snapshot and its backlog.
"""

from __future__ import annotations

from antecede.live.changing.events import MoveAsked, SuperPeersLost
from antecede.live.changing.phone import PhoneCore
from antecede.membership.state import Phase

PATIENCE = 2_000_000_000
"""How long a super peer may be out of reach, in nanoseconds, before others are called; as long again, before
the phone gives up what it has there."""


class Failover:
    """What one phone does about super peers that are out of reach."""

    def __init__(self, core: PhoneCore) -> None:
        self._core = core
        self._since: dict[int, int] = {}
        self.seeks = False
        """Whether other super peers are to be called."""

    @property
    def is_cut_off(self) -> bool:
        """Whether what is broadcast now would have to wait for a super peer that is out of reach."""
        return self._core.hub < 0 or self._core.hub in self._since

    def check(self, connected: set[int], now: int) -> MoveAsked | SuperPeersLost | None:
        """What to do, given the addresses to which there is a connection from the current one."""
        core = self._core
        relied_on, hub = core.relied_on, core.hub
        self._since = {each: self._since.get(each, now) for each in relied_on - connected}
        lost = {each for each, since in self._since.items() if now - since >= PATIENCE}
        self.seeks = hub in lost and not core.is_moving
        if lost - {hub} or (hub in lost and core.phone.is_giving_up):
            return SuperPeersLost(sorted(lost), now)
        if hub not in lost:
            return None
        if core.is_moving or core.phase == Phase.LEAVING:
            is_hopeless = now - self._since[hub] >= 2 * PATIENCE
            return SuperPeersLost([hub], now) if is_hopeless else None
        for address in sorted(connected - relied_on):
            link = core.link_to(address)
            if link is not None and core.phone.may_move(address):
                return MoveAsked(link, now)
        return None
