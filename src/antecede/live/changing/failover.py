"""When a phone turns to another super peer, without I/O.

A phone that cannot reach its super peer for a while calls the others, and asks the first that answers for a
slot. If its own super peer becomes reachable again, the phone moves without a gap and without a snapshot.
Otherwise it gives up its old slot, and returns at the other super peer with a snapshot and its backlog.
"""

from __future__ import annotations

from antecede.live.changing.events import MoveAsked, SuperPeersLost
from antecede.live.changing.phone import PhoneCore
from antecede.membership.state import Phase

PATIENCE = 2_000_000_000
"""How long a super peer may be unreachable, in nanoseconds, before others are called; after the same time
again, the phone gives up its slot there."""


class Failover:
    """How one phone handles unreachable super peers."""

    def __init__(self, core: PhoneCore) -> None:
        self._core = core
        self._since: dict[int, int] = {}
        self.seeks = False
        """Whether other super peers are to be called."""

    @property
    def is_cut_off(self) -> bool:
        """Whether a broadcast would have to wait for an unreachable super peer."""
        return self._core.hub < 0 or self._core.hub in self._since

    def check(self, connected: set[int], now: int) -> MoveAsked | SuperPeersLost | None:
        """The event to handle next, if any, given the addresses connected to the current one."""
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
