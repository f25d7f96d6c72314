"""How a member admits others: with its application's state, between two messages."""

from __future__ import annotations

from collections.abc import Callable

from antecede.live.changing.core import ChangingCore
from antecede.live.changing.events import Declined, Sponsored
from antecede.live.changing.membership import MAX_SNAPSHOT
from antecede.live.clock import Clock
from antecede.live.operations.logs import Log
from antecede.protocols.base import LocalError

Snapshot = Callable[[], bytes]


class Sponsor:
    """Admits who has asked. `snapshot` is the application's, if it has one."""

    def __init__(self, core: ChangingCore, snapshot: Snapshot | None, clock: Clock, log: Log) -> None:
        self._core, self.snapshot, self._clock, self._log = core, snapshot, clock, log

    def admit(self) -> None:
        """Admit whoever has asked, if the application is between two messages."""
        core = self._core
        while core.may_sponsor:
            address = core.join_requests[0]
            contact = core.greeted.get(address)
            who = contact.label if contact is not None else "somebody"
            try:
                snapshot = None if self.snapshot is None else bytes(self.snapshot())
                if snapshot is not None and len(snapshot) > MAX_SNAPSHOT:
                    raise LocalError(f"the snapshot has {len(snapshot):,} bytes; {MAX_SNAPSHOT:,} at most")
            except Exception as error:
                # Whatever the application does: the group goes on, and the newcomer asks elsewhere.
                self._log.error("%s is not admitted: %s", who, error, extra={"peer": who})
                core.step(Declined(address, self._clock.now()))
                continue
            core.step(Sponsored(address, snapshot, self._clock.now()))
            self._log.info("admitted %s", who, extra={"peer": who})
