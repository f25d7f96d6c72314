"""The packets of members of a dynamic group.

A *stream* is the numbered messages of one incarnation of a member. Its id is unique without agreement: small
for founders, and a hash of the message that admitted it for everyone else, so a process that joins again has
another stream. An *address* is where a driver reaches a process, in one attempt to join.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import ClassVar, TypeVar

import msgspec

from antecede.causality import MessageId
from antecede.membership.sealing import SEALED, is_sealed, split_seal
from antecede.protocols.base import Packet, RemoteError

Stream = int
"""The id of a stream."""

_Item = TypeVar("_Item", Stream, MessageId)

_JOINED = 1 << 62
"""Ids from here on belong to members that have joined; founders have lower ones."""


def admitted_stream(address: int, admission: MessageId) -> Stream:
    """The stream of the process at an address that is admitted by a message."""
    text = f"{address}:{admission.origin}:{admission.seq}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little") | _JOINED


def is_founder(stream: Stream) -> bool:
    return stream < _JOINED


Counts = dict[Stream, int]
"""How many messages of each stream; a stream that is missing has none."""


def in_order(items: Iterable[_Item]) -> frozenset[_Item]:
    """A set that always has the same encoding. The iteration order of a member's own sets depends on their
    history. A driver that restores a member and replays the events since then must get the same packets."""
    return frozenset(sorted(items))


# What a message contains. All of these are broadcast, and delivered in causal order.


class ApplicationData(msgspec.Struct, frozen=True, tag="data", array_like=True):
    """A message of the application."""

    payload: bytes
    original: MessageId | None = None
    """The id under which it was first broadcast, if a wrongly removed member brings it back."""
    author: tuple[Stream, int] | None = None
    """If a phone broadcast it first: the stream of its super peer, and its slot there."""
    sent_by: tuple[int, int] | None = None
    """If a phone of the sender broadcasts it now: its slot, and the number of the message there."""


class AdmitMember(msgspec.Struct, frozen=True, tag="admit", array_like=True):
    """`stream` becomes a member for everyone who has delivered this."""

    stream: Stream
    address: int
    counts: Counts
    """How many messages its sponsor had delivered at that moment, of every stream that it knew. The snapshot
    has exactly these."""
    contact: bytes = b""
    """The identity and address of the new member, encoded by drivers."""


class Departure(msgspec.Struct, frozen=True, tag="leave", array_like=True):
    """The last message of its stream; its sender needs nothing more."""

    sent_to: frozenset[Stream]
    """The members to which its sender sends it; others must fetch it."""
    expelled: Counts = msgspec.field(default_factory=dict)
    """From a super peer: by slot, the last message that it has broadcast for each expelled phone. All
    messages of its other phones are in its stream."""


class Removal(msgspec.Struct, frozen=True, tag="remove", array_like=True):
    """A stream is to be closed; its member needs nothing more."""

    stream: Stream


class FlushReport(msgspec.Struct, frozen=True, tag="flush", array_like=True):
    """How much of each removed stream this member holds. It accepts nothing more from the removed members, so
    the counts are final."""

    held: Counts
    """The last message held without a gap before it."""
    cuts: Counts
    """The end of the stream, if it is known."""


class Disowning(msgspec.Struct, frozen=True, tag="disown", array_like=True):
    """An incarnation that was admitted never started: its stream ends at 0."""

    stream: Stream


class Expulsion(msgspec.Struct, frozen=True, tag="expel", array_like=True):
    """Its sender, a super peer, has retired these slots, because it has expelled their phones: it will
    broadcast no more messages from them."""

    since: ClassVar[int] = 2

    slots: frozenset[int]


MembershipChange = AdmitMember | Departure | Removal | FlushReport | Disowning | Expulsion
Content = ApplicationData | MembershipChange

PLAIN, _OTHER = b"\x00", b"\x01"
"""The first bytes of payloads: of the application's own messages, and of others."""
_decoder = msgspec.msgpack.Decoder(Content)


def encode_content(content: Content) -> bytes:
    """A payload, one byte longer than the application's own if it contains nothing else."""
    if isinstance(content, ApplicationData) and content.original is None and content.sent_by is None:
        return PLAIN + content.payload
    return _OTHER + msgspec.msgpack.encode(content)


def decode_content(payload: bytes) -> Content:
    if is_sealed(payload):
        payload, _ = split_seal(payload)
    try:
        return ApplicationData(payload[1:]) if payload[:1] == PLAIN else _decoder.decode(payload[1:])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteError(f"not the content of a message: {error}") from error


def is_plain(payload: bytes) -> bool:
    """Whether a payload contains only an application message, as most do."""
    return not payload[0] & ~SEALED if payload else False


def is_sent_directly(content: Content) -> bool:
    """Whether a member sends this message to everyone itself, even if the protocol forwards others: a removal
    waits for the reports of all members, and the number of packets is the same."""
    return isinstance(content, FlushReport)


# Packets that are not broadcast. Links carry them in FIFO order with messages.


class ControlPacket(Packet, frozen=True, array_like=True):
    """A packet of members that carries no message of a stream."""


class ProgressReport(ControlPacket, frozen=True, array_like=True, tag=40):
    """What its sender has delivered and closed, and which streams it has announced as done."""

    metric_name: ClassVar[str] = "progress"

    member: Stream
    delivered: Counts
    closed: Counts
    """The streams that have ended and are delivered completely, and where each ended."""
    done: frozenset[Stream]
    """The streams that all members are known to have closed. Its sender will not name them again."""
    has_left: bool = False
    """Whether its sender has left, and reports only that it still supplies its own messages."""
    admissions: dict[Stream, MessageId] = msgspec.field(default_factory=dict)
    """The chain of admissions: the message that admitted its sender, the one that admitted its sponsor, and
    so on, as far as some members may never deliver them."""

    def waiting_from(self) -> Counts:
        """By stream, the first message that is delivered here but was not given to the application yet."""
        return {}


class GroupReport(ProgressReport, frozen=True, array_like=True, tag=81):
    """As `ProgressReport`, from a member that may be in other groups."""

    waiting: Counts = {}  # noqa: RUF012
    """By stream, the first message that is delivered but was not given to the application yet."""
    gone: dict[str, frozenset[Stream]] = {}  # noqa: RUF012
    """Streams of other groups that need not be named any more."""
    removed: dict[str, Counts] = {}  # noqa: RUF012
    """By group, removed members that may not know of their removal, and where their streams end."""

    def waiting_from(self) -> Counts:
        return self.waiting


class DepartureConfirmed(ControlPacket, frozen=True, array_like=True, tag=41):
    """Its sender has delivered the receiver's last message, or has left too and does not need it."""

    metric_name: ClassVar[str] = "departed"

    member: Stream
    view: Counts
    """The members that may not have delivered it, as far as the sender knows, and their addresses. The sender
    is among them if it is a member."""
    ended: frozenset[Stream]
    """The streams that have ended or whose members no longer need the message."""
    contacts: dict[Stream, bytes] = msgspec.field(default_factory=dict)
    """The contacts of the members in `view`."""
    is_forgotten: bool = False
    """Whether the sender has forgotten the receiver's stream: then every member has closed it."""


class JoinRequest(ControlPacket, frozen=True, array_like=True, tag=42):
    """The process at this address asks for admission."""

    metric_name: ClassVar[str] = "join"

    address: int


class HistoryRequest(JoinRequest, frozen=True, array_like=True, tag=58):
    """As `JoinRequest`, but the process asks for the retained messages instead of a snapshot."""

    since: ClassVar[int] = 2


class Welcome(ControlPacket, frozen=True, array_like=True, tag=43):
    """The initial state of a newly admitted member, from its sponsor."""

    metric_name: ClassVar[str] = "welcome"

    stream: Stream
    admission: MessageId
    snapshot: bytes
    """The application's state, after exactly what is in `delivered` and before the admission."""
    delivered: Counts
    addresses: Counts
    """The addresses of the members of the view."""
    messages: list[bytes]
    """Packets of the sponsor's protocol: the messages that it has delivered and does not know to be stable,
    in the order of delivery, and then those that it holds."""
    removed: frozenset[Stream]
    cuts: Counts
    done: frozenset[Stream]
    flushes: dict[Stream, FlushReport]
    progress: dict[Stream, ProgressReport | GroupReport]
    admissions: dict[Stream, MessageId]
    unstable_admissions: dict[Stream, MessageId]
    tombstones: Counts
    forgotten: dict[Stream, Counts]
    originals: frozenset[MessageId]
    authors: dict[Stream, dict[int, int]] = msgspec.field(default_factory=dict)
    """For each slot of a super peer, the last message of its phones that is delivered."""
    contacts: dict[Stream, bytes] = msgspec.field(default_factory=dict)

    def payload_bytes(self) -> int:
        return len(self.snapshot)

    def proven(self) -> dict[Stream, bytes]:
        """Signed statements on the last messages in `delivered`."""
        return {}


class SealedWelcome(Welcome, frozen=True, array_like=True, tag=54):
    """As `Welcome`, in a group whose messages have seals."""

    statements: dict[Stream, bytes] = msgspec.field(default_factory=dict)
    """Signed statements on the last messages in `delivered`, encoded by drivers."""

    def proven(self) -> dict[Stream, bytes]:
        return self.statements


class FetchRequest(ControlPacket, frozen=True, array_like=True, tag=44):
    """Requests missing messages."""

    metric_name: ClassVar[str] = "fetch"

    stream: Stream
    first: int
    last: int


class FetchReply(ControlPacket, frozen=True, array_like=True, tag=45):
    """Packets of the sender's protocol, with requested messages."""

    metric_name: ClassVar[str] = "fetched"

    messages: list[bytes]


class NobodyHere(ControlPacket, frozen=True, array_like=True, tag=46):
    """There is no member at its sender's address: it was removed, or never started."""

    metric_name: ClassVar[str] = "nobody"

    has_started: bool


class Farewell(ControlPacket, frozen=True, array_like=True, tag=48):
    """Its sender has left, and no longer forwards messages."""

    metric_name: ClassVar[str] = "farewell"

    member: Stream


class VersionRequired(ControlPacket, frozen=True, array_like=True, tag=59):
    """Its sender admits no process that does not speak this version of the wire format (`upgrading.py`)."""

    metric_name: ClassVar[str] = "version"
    since: ClassVar[int] = 2

    version: int
    broadcasts: int
    """How many messages its sender had broadcast before, some of which may have admitted others."""


class RemovedNotice(ControlPacket, frozen=True, array_like=True, tag=47):
    """A stream of the receiver was removed, and ends at `cut`."""

    metric_name: ClassVar[str] = "refused"

    stream: Stream
    cut: int


MembershipPacket = (
    ProgressReport
    | DepartureConfirmed
    | JoinRequest
    | HistoryRequest
    | Welcome
    | SealedWelcome
    | FetchRequest
    | FetchReply
    | NobodyHere
    | Farewell
    | RemovedNotice
    | VersionRequired
)
