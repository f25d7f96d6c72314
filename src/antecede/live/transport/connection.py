"""One partner's connection."""

from __future__ import annotations

import asyncio
import time

from antecede.live.transport.frames import Frame
from antecede.live.transport.wires import Wire


class Connection:
    """What this process knows of one partner, connected or not."""

    def __init__(self, peer: int, name: str, target: str | None) -> None:
        self.peer, self.name, self.target = peer, name, target
        self.wire: Wire | None = None
        self.by_lesser_name = False
        """Whether the one with the lesser name has called."""
        self.has_work = asyncio.Event()
        self.control: list[Frame] = []
        """Frames to send besides packets and acks."""
        self.reported: dict[int, list[int]] = {}
        """The matrix clock as last reported to this partner."""
        self.resend_after: int | None = None
        self.sent_at = self.heard_at = 0.0
        self.reason = ""
        """Why it is not connected, as last heard."""

    def send(self, frame: Frame) -> None:
        self.control.append(frame)
        self.has_work.set()

    def open(self, wire: Wire, by_lesser_name: bool) -> None:
        self.wire, self.by_lesser_name = wire, by_lesser_name
        self.reported, self.control, self.resend_after, self.reason = {}, [], None, ""
        self.sent_at = self.heard_at = time.monotonic()
