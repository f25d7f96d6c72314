"""The state of one partner's connection."""

from __future__ import annotations

import asyncio

from antecede.live.transport.links import PartnerLink
from antecede.live.transport.wires import Wire


class Connection:
    """One partner, connected or not."""

    def __init__(self, link: PartnerLink, name: str, target: str | None) -> None:
        self.link, self.peer, self.name, self.target = link, link.peer, name, target
        self.wire: Wire | None = None
        self.has_work = asyncio.Event()
        self.reason = ""
        """The last known reason why it is not connected."""

    def open(self, wire: Wire) -> None:
        self.wire, self.reason = wire, ""

    def close(self, reason: str) -> None:
        self.wire, self.reason = None, reason
        self.link.close()
