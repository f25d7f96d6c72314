"""The backlog of a member that was removed wrongly: messages that the others may have lost with it.

The backlog contains all messages that the member had broadcast or delivered and did not know to be stable, in
delivery order. The new incarnation rebroadcasts those that lie beyond the end of their stream, under their
original ids. Several members may return with the same message; duplicates are dropped by the original id.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import msgspec

from antecede.causality import MessageId
from antecede.membership.packets import Counts, Stream


class BacklogEntry(msgspec.Struct, frozen=True):
    """A message of the application, under its original id."""

    original: MessageId
    payload: bytes
    author: tuple[Stream, int] | None = None
    """If a phone has broadcast it: the stream of its super peer, and its slot there."""
    is_lost: bool = False
    """Whether no other member is known to have it."""


class Backlog(msgspec.Struct):
    """The entries whose fate is not known yet, processed in order, and the message that admitted each stream,
    as far as the former incarnation knew."""

    entries: list[BacklogEntry] = msgspec.field(default_factory=list)
    admissions: dict[Stream, MessageId] = msgspec.field(default_factory=dict)
    awaited: Counts = msgspec.field(default_factory=dict)
    """Messages whose fate must be known before anything is brought back. Stability does not include removed
    members, so a sponsor that was removed and does not know it may lack stable messages. At such a sponsor
    the fate of these messages stays open."""

    def add(self, other: Backlog) -> None:
        self.entries += other.entries
        self.admissions |= other.admissions
        self.awaited |= {
            stream: max(last, self.awaited.get(stream, 0)) for stream, last in other.awaited.items()
        }


class Fate(Enum):
    """What has happened to a message, as far as the group knows."""

    DELIVERED = 0
    LOST = 1
    OPEN = 2


def fate(
    message: MessageId,
    admissions: dict[Stream, MessageId],
    delivered: Counts,
    end_of: Callable[[Stream], int | None],
) -> Fate:
    """The fate of a message. If its stream has ended, it is delivered up to the end and lost beyond. A stream
    that is not known here was forgotten, or its admission was lost."""
    stream, seq = message
    end = end_of(stream)
    if end is not None:
        return Fate.DELIVERED if seq <= end else Fate.LOST
    if stream in delivered:
        return Fate.DELIVERED if seq <= delivered[stream] else Fate.OPEN
    if stream not in admissions:
        return Fate.DELIVERED  # a founder, or a member that was forgotten before
    return fate(admissions[stream], admissions, delivered, end_of)
