"""Packets between a super peer and its phones in a dynamic group, besides messages and numbers.

A phone has a *slot* at its super peer. Slots are reused, and the numbers of a slot's messages continue from
one phone to the next, so stream, slot and number identify a phone's message permanently.
"""

from __future__ import annotations

import hashlib
from typing import ClassVar

import msgspec

from antecede.causality import MessageId
from antecede.causality.bit_window import OffsetBitmap
from antecede.membership.backlog import Backlog, BacklogEntry
from antecede.membership.packets import Counts, Stream
from antecede.protocols.base import Packet
from antecede.protocols.freescale.packets import DownlinkPacket

Slot = int
"""A phone's id at its super peer; 0 is the super peer itself."""

_AUTHOR = 3 << 61
"""Ids from here on belong to phones; all members have lower ones (`packets.admitted_stream`)."""


def author_id(stream: Stream, slot: Slot) -> int:
    """The origin of messages from a slot, as applications see it; for a member's own messages, its stream."""
    if slot == 0:
        return stream
    digest = hashlib.sha256(f"{stream}/{slot}".encode()).digest()
    return int.from_bytes(digest[:7], "little") | _AUTHOR


class SiteDownlink(DownlinkPacket, frozen=True, array_like=True, tag=60):
    """A message for phones, with the super peer's number."""

    stream: Stream = 0
    slot: Slot = 0
    """Where it was broadcast."""
    admissions: dict[Stream, MessageId] = msgspec.field(default_factory=dict)
    """By stream, the message that admitted it, as far as others may never have that message."""
    is_again: bool = False
    """Whether it was broadcast before, by a member that was removed."""


class PhoneJoin(Packet, frozen=True, array_like=True, tag=61):
    """Its sender asks for a slot and the application's state."""

    metric_name: ClassVar[str] = "phone_join"

    backlog: Backlog
    """Messages that it had broadcast or delivered at its former super peer, and that may be lost."""


class PhoneWelcome(Packet, frozen=True, array_like=True, tag=62):
    """The receiver now has a slot."""

    metric_name: ClassVar[str] = "phone_welcome"

    stream: Stream
    slot: Slot
    sent: int
    """The last number in this slot that is taken."""
    number: int
    """The messages up to this one are in the snapshot, or were delivered before a move."""
    skipped: OffsetBitmap
    """Further numbers of which the same is true."""
    current: int
    """The super peer's last number."""
    admissions: dict[Stream, MessageId]
    unstable: list[tuple[int, BacklogEntry]] = msgspec.field(default_factory=list)
    """The messages in the snapshot that are not known to be stable, by number."""
    snapshot: bytes | None = None
    last: int = 0
    """The last message in the super peer's stream at this moment. Everything that it knew to be stable, it
    knew by then."""

    def payload_bytes(self) -> int:
        return len(self.snapshot or b"")


class MoveRequest(Packet, frozen=True, array_like=True, tag=63):
    """A phone of another super peer asks for a slot."""

    metric_name: ClassVar[str] = "move"


class MoveReady(Packet, frozen=True, array_like=True, tag=64):
    """The slot is reserved. Its sender retains everything that it delivers after `counts` for the phone."""

    metric_name: ClassVar[str] = "move_ready"

    stream: Stream
    slot: Slot
    sent: int
    counts: Counts
    admissions: dict[Stream, MessageId]


class ReleaseRequest(Packet, frozen=True, array_like=True, tag=65):
    """The last packet of a phone that moves. The receiver releases it when it has delivered these counts."""

    metric_name: ClassVar[str] = "release"

    counts: Counts


class PhoneReleased(Packet, frozen=True, array_like=True, tag=66):
    """The slot is retired. The messages that its phone was sent, and has sent, are in these counts."""

    metric_name: ClassVar[str] = "released"

    counts: Counts
    done: frozenset[Stream]
    """The streams that every member has delivered completely and may have forgotten."""


class PhoneArrival(Packet, frozen=True, array_like=True, tag=67):
    """The phone was released with these counts, and needs everything beyond them."""

    metric_name: ClassVar[str] = "arrival"

    counts: Counts
    done: frozenset[Stream]


class PhoneLeave(Packet, frozen=True, array_like=True, tag=68):
    """The last packet of a phone that leaves, or that gives up a move."""

    metric_name: ClassVar[str] = "phone_leave"

    sent: int
    """The last number that it has used in its slot."""


class PhoneRefused(Packet, frozen=True, array_like=True, tag=69):
    """The receiver no longer has a slot here."""

    metric_name: ClassVar[str] = "phone_refused"

    accepted: int | None = None
    """The last message that was accepted from it; None if its super peer is no longer a member."""


class StableNumber(Packet, frozen=True, array_like=True, tag=70):
    """The messages up to this number are stable, so they will never be requested again."""

    metric_name: ClassVar[str] = "stable"

    number: int
    last: int
    """As in `PhoneWelcome`."""


SitePacket = (
    PhoneJoin
    | PhoneWelcome
    | MoveRequest
    | MoveReady
    | ReleaseRequest
    | PhoneReleased
    | PhoneArrival
    | PhoneLeave
    | PhoneRefused
    | StableNumber
    | SiteDownlink
)
