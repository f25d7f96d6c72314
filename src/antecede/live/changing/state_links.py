"""State transfers over a process's connections, as sponsor and as newcomer: the driver of `transfer.py`."""

from __future__ import annotations

import asyncio
import time

from antecede.live.changing import snapshots
from antecede.live.changing.core import ChangingCore
from antecede.live.changing.transfer import (
    StateFetch,
    StateFrame,
    StateOffer,
    StateRequest,
    StateSource,
    StateTooLargeError,
)
from antecede.membership.state import Phase
from antecede.protocols.base import RemoteError

_PATIENCE_SECONDS = 60.0
"""How long a newcomer may send no request before it is given up."""


class StateLinks:
    """State transfers by link, as connections identify them."""

    def __init__(self, core: ChangingCore, has_store: bool) -> None:
        self._core = core
        self._source = StateSource(core, core.files)
        max_bytes = snapshots.MAX_STATE if has_store else snapshots.MAX_IN_MEMORY
        self._fetch = StateFetch(core.files, max_bytes)
        self._fetching: int | None = None
        """The link on which this newcomer receives its state."""
        self.received_at = float("-inf")
        """When the last part of it arrived, by the monotonic clock."""
        self.too_large = ""
        """Why this newcomer cannot take the offered state."""

    def open(self, link: int) -> None:
        self._source.open(self._core.links[link][1])

    def close(self, link: int) -> None:
        if link == self._fetching:
            self._fetching = None
            self._fetch.close()

    def next_frame(self, link: int) -> StateFrame | None:
        """The next frame for the newcomer at the other end, if there is one."""
        core = self._core
        if not core.transfers or link not in core.links or core.links[link][0] != core.address:
            return None
        return self._source.next_frame(core.links[link][1], time.monotonic())

    def has_work(self, link: int) -> bool:
        core = self._core
        return bool(core.transfers) and link in core.links and self._source.has_work(core.links[link][1])

    async def receive(self, link: int, frame: StateFrame) -> StateRequest | None:
        """A frame has arrived; returns the answer."""
        core = self._core
        mine, theirs = core.links[link]
        if isinstance(frame, StateRequest):
            if mine == core.address:
                self._source.receive(theirs, frame, time.monotonic())
            return None
        if mine != core.address or core.phase != Phase.JOINING:
            return None  # it has been admitted, here or elsewhere
        if not core.sent[link]:
            raise RemoteError("it offers a state that nobody has asked for")
        if isinstance(frame, StateOffer):
            core.begin_fetch(frame.transfer)
        self._fetching, self.received_at = link, time.monotonic()
        try:
            return await asyncio.to_thread(self._fetch.receive, mine, core.history_at(mine), frame)
        except StateTooLargeError as error:
            self.too_large = str(error)
            raise

    def overdue(self) -> list[int]:
        """Newcomers that do not fetch the state offered to them."""
        return self._source.overdue(time.monotonic(), _PATIENCE_SECONDS) if self._core.transfers else []
