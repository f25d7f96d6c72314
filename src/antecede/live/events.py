"""Everything that can happen to a live member, as values: what `Core.step` takes.

The core is deterministic, so the events that change it are also its log: replayed in the same order, they
give the same packets under the same numbers. Those are the `LogRecord`s. The others either leave nothing
that a crash must not undo, or are covered by the cursor.
"""

from __future__ import annotations

import msgspec

from antecede.live.changing.events import MembershipRecord
from antecede.live.seals import KeyStart, Statement
from antecede.live.stability import Divergence, Row


class Broadcast(msgspec.Struct, frozen=True, array_like=True, tag=0, gc=False):
    """The application broadcast these messages in a row, with nothing delivered in between."""

    payloads: list[bytes]
    time: int
    own: bool = False
    """Whether they are delivered to their author's application too."""


class PacketReceived(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """A partner's packet arrived."""

    link: int
    number: int
    """Its number on the link, from 1."""
    data: bytes
    """The packet, or its chain value alone if every member has its messages already (`outbox.skip`)."""
    time: int


class RepairReceived(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """A partner sent a packet that this member had asked for."""

    link: int
    data: bytes
    time: int
    wanted: list[tuple[int, int, int]]
    """The messages that were asked for: origin, first and last sequence number."""


class TimerFired(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """A time that the protocol has asked for has come."""

    time: int


class Delivered(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """Only in the log: before the next record the protocol had delivered `count` messages in all.

    What is broadcast afterwards depends on them, so a replay must deliver them at the same place.
    """

    count: int
    time: int
    held: int = 0
    """How many more the protocol had delivered, which are held for causes that their senders have signed."""


class Parked(msgspec.Struct, frozen=True, array_like=True, tag=5, gc=False):
    """The application put the message in flight aside, so that those after it can be delivered."""

    position: int
    """Among the messages delivered to the application, from 1."""
    attempts: int
    """How many times it was delivered."""
    reason: str
    time: int


class Unparked(msgspec.Struct, frozen=True, array_like=True, tag=6, gc=False):
    """The application has dealt with a message that it had put aside."""

    position: int
    time: int


class Incarnation(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One life of a member: from one opening of its store to the next."""

    id: str
    """Chosen at random."""
    broadcasts: int
    """How many messages the member had broadcast before."""


class Opened(msgspec.Struct, frozen=True, array_like=True, tag=7, gc=False):
    """A new life of this member begins; durable before any partner hears of it."""

    id: str
    time: int
    speaks: int = 1
    """In a group that changes: the greatest version of the wire format that this life speaks."""


class PartnerMet(msgspec.Struct, frozen=True, array_like=True, tag=8, gc=False):
    """A partner has greeted from a life that this member did not know of."""

    link: int
    lineage: list[Incarnation]
    """Its lives, this one last."""
    time: int
    version: int = 1
    """In a group that changes: the greatest version of the wire format that both speak."""


class CertificateLearned(msgspec.Struct, frozen=True, array_like=True, tag=9, gc=False):
    """The key with which a member signs became known."""

    certificate: bytes
    time: int


class Equivocated(msgspec.Struct, frozen=True, array_like=True, tag=10, gc=False):
    """A member has signed two statements that cannot both be true: nobody talks to it any more."""

    origin: int
    statements: list[Statement]
    time: int


class ForkNoticed(msgspec.Struct, frozen=True, array_like=True, tag=11, gc=False):
    """Only in the log: another member has delivered different messages of an origin under the same ids."""

    divergence: Divergence
    time: int


class KeyStarted(msgspec.Struct, frozen=True, array_like=True, tag=12, gc=False):
    """Only in the log: from where on a member has signed with one of its keys."""

    start: KeyStart
    time: int


LogRecord = (
    Broadcast
    | PacketReceived
    | RepairReceived
    | TimerFired
    | Delivered
    | Parked
    | Unparked
    | Opened
    | PartnerMet
    | CertificateLearned
    | Equivocated
    | ForkNoticed
    | KeyStarted
    | MembershipRecord
)


class AckReceived(msgspec.Struct, frozen=True, gc=False):
    """A partner has made every packet up to this number durable."""

    link: int
    number: int
    chain: bytes
    """The chain value of that packet."""


class ProgressReceived(msgspec.Struct, frozen=True, gc=False):
    """A partner reports how many messages of each origin members have delivered."""

    link: int
    rows: list[Row]


class DeliveryAcked(msgspec.Struct, frozen=True, gc=False):
    """The application has processed the message in flight."""


Event = LogRecord | AckReceived | ProgressReceived | DeliveryAcked


class Cursor(msgspec.Struct, frozen=True, gc=False):
    """How far the application is among the messages delivered to it."""

    acked: int
    """How many it has processed: they are never delivered again."""
    attempts: int
    """How many times it was given the next one: if any, that one is delivered again, marked `redelivered`."""
