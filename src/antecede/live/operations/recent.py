"""The last messages of one member, with their immediate dependencies, for `antecede console`.

They are recorded from the first request until there was none for a minute, so there is no cost while nobody
asks. Bodies are not kept.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

import msgspec

from antecede.live.messages import MessageId

MAX_MESSAGES = 1_000
MAX_CAUSES = 10_000
"""Maximum number of causes over all of them: in a large group a message may name many."""
_PATIENCE = 60.0
"""Seconds without a request after which recording stops."""


class RecentMessage(msgspec.Struct, frozen=True):
    """A message, when it was delivered here, and its immediate dependencies."""

    id: str
    time: float
    causes: list[str]


class RecentMessages:
    def __init__(self) -> None:
        self._messages: deque[tuple[float, MessageId, Sequence[MessageId]]] = deque()
        self._causes = 0
        self._asked_at = time.monotonic()

    def add(self, message: MessageId, causes: Sequence[MessageId]) -> bool:
        """A message was delivered here, or broadcast; returns whether recording continues."""
        self._messages.append((time.time(), message, causes))
        self._causes += len(causes)
        while len(self._messages) > MAX_MESSAGES or self._causes > MAX_CAUSES:
            self._causes -= len(self._messages.popleft()[2])
        return time.monotonic() - self._asked_at < _PATIENCE

    def ask(self, most: int) -> list[RecentMessage]:
        """The last `most` messages, the oldest first."""
        self._asked_at = time.monotonic()
        first = max(0, len(self._messages) - most)
        return [
            RecentMessage(str(message), when, [str(cause) for cause in causes])
            for place, (when, message, causes) in enumerate(self._messages)
            if place >= first
        ]
