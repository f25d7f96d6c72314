"""Everything that can happen to a live member, as values for `Core.step`.

The core is deterministic, so the events that change it are also its log: replayed in the same order, they
produce the same packets with the same numbers. These are the `LogRecord`s. The others either leave nothing
that must survive a crash, or are covered by the cursor.
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
    """The packet, or only its chain value if every member has its messages already (`outbox.skip`)."""
    time: int


class RepairReceived(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """A partner sent a packet that this member had requested."""

    link: int
    data: bytes
    time: int
    wanted: list[tuple[int, int, int]]
    """The requested messages: origin, first and last sequence number."""


class TimerFired(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """A time that the protocol has requested has come."""

    time: int


class Delivered(msgspec.Struct, frozen=True, array_like=True, tag=4, gc=False):
    """Only in the log: before the next record the protocol had delivered `count` messages in all.

    Later broadcasts depend on them, so a replay must deliver them at the same point.
    """

    count: int
    time: int
    held: int = 0
    """How many more the protocol had delivered, which are held for causes that their senders have signed."""


class Parked(msgspec.Struct, frozen=True, array_like=True, tag=5, gc=False):
    """The application parked the message in flight, so that those after it can be delivered."""

    position: int
    """The position of the message among the application's deliveries, from 1."""
    attempts: int
    """How many times it was delivered."""
    reason: str
    time: int


class Unparked(msgspec.Struct, frozen=True, array_like=True, tag=6, gc=False):
    """The application has processed a parked message."""

    position: int
    time: int


class Life(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One life of a member: from one opening of its store to the next."""

    id: str
    """Chosen at random."""
    broadcasts: int
    """How many messages the member had broadcast before."""


class Opened(msgspec.Struct, frozen=True, array_like=True, tag=7, gc=False):
    """A new life of this member begins; durable before any partner learns of it."""

    id: str
    time: int
    speaks: int = 1
    """In a dynamic group: the greatest wire version that this life speaks."""


class PartnerMet(msgspec.Struct, frozen=True, array_like=True, tag=8, gc=False):
    """A partner has greeted from a life that this member did not know."""

    link: int
    lineage: list[Life]
    """Its lives, the current one last."""
    time: int
    version: int = 1
    """In a dynamic group: the greatest wire version that both sides speak."""


class CertificateLearned(msgspec.Struct, frozen=True, array_like=True, tag=9, gc=False):
    """The certificate of a member's signing key became known."""

    certificate: bytes
    time: int


class Equivocated(msgspec.Struct, frozen=True, array_like=True, tag=10, gc=False):
    """A member has signed two statements that cannot both be true: it is refused from now on."""

    origin: int
    statements: list[Statement]
    time: int


class ForkNoticed(msgspec.Struct, frozen=True, array_like=True, tag=11, gc=False):
    """Only in the log: another member has delivered different messages of an origin under the same ids."""

    divergence: Divergence
    time: int


class KeyStarted(msgspec.Struct, frozen=True, array_like=True, tag=12, gc=False):
    """Only in the log: from which message on a member has signed with one of its keys."""

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
    """The application's progress among the messages delivered to it."""

    acked: int
    """How many messages it has processed: they are never delivered again."""
    attempts: int
    """How many times the next one was yielded: if at all, it is delivered again, marked `redelivered`."""
