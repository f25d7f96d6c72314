"""The frames that cross a connection between two members, and their encoding.

A frame is a msgpack array whose first element is its tag. Over TCP each is preceded by its length in four
bytes, most significant first; over WebSocket each is one binary message. Whatever bytes arrive, decoding
gives a frame or a `RemoteError`.

A connection begins with a `Greeting` from either side: who it is, for which group, and how many of the
other's packets it has, so that the other resumes there. A `Refusal` gives the reason, in words. Then follow
`Packets` under consecutive numbers, an `Ack` for what is durable at the receiver, a `Nack` for a gap, a
`Pause` for what the receiver has no room for;
`Progress` reports what members have delivered; a `RepairRequest` asks for lost messages, and a
`RepairReply` brings them. In a subgroup on real time members compare their clocks by `ClockProbe`.
"""

from __future__ import annotations

import struct

import msgspec

from antecede.live.events import Incarnation
from antecede.live.seals import Statement
from antecede.live.stability import Row
from antecede.protocols.base import RemoteError

MAX_BYTES = 1 << 24
"""The longest frame. A longer one is refused before it is read."""
MAX_REASON = 500
"""Characters of a partner's reason that are shown."""
_LENGTH = struct.Struct(">I")


class Greeting(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Who speaks, to whom, and what must be the same at both."""

    version: int
    """The least version of the wire format that the speaker speaks; 0.1.0 knows only this field."""
    group: str
    protocol: str
    members: list[str]
    """The names of all members and how they are arranged, as `Roster.lines`."""
    me: str
    you: str
    lineage: list[Incarnation]
    """The lives of the speaker, the present one last."""
    known: list[Incarnation]
    """The other's lives, as remembered from before; empty if they have not met."""
    attempt: int
    """How many greetings the speaker has sent in this life: a late one is recognised."""
    received: int
    """The last of the other's packets that is durable here."""
    chain: bytes
    """The chain value of that packet."""
    signed: bool = False
    """Whether the speaker signs its messages, and requires that all do."""
    token: str = ""
    """From a phone or a browser: what proves its name, where others show a certificate."""
    versions: list[int] = []
    """All versions that the speaker speaks; empty: the one above."""

    @property
    def spoken(self) -> list[int]:
        return self.versions or [self.version]


class Refusal(msgspec.Struct, frozen=True, array_like=True, tag=1):
    reason: str


class RefusedError(RemoteError):
    """The other side refuses this member. `reason` is in its words, in which "it" is this member."""

    def __init__(self, reason: str) -> None:
        self.reason = reason[:MAX_REASON]
        super().__init__(f"it refuses this member: {self.reason}")

    def by(self, who: str, me: str) -> str:
        """The same with both names."""
        return f"{who} refuses {me}: {self.reason}"


class Packets(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Encoded packets under consecutive numbers of a link."""

    first: int
    bodies: list[bytes]
    previous: bytes = b""
    """The chain value of the packet before the first."""


class Ack(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Every packet up to this number is durable here: the sender may forget it."""

    number: int
    chain: bytes
    """The chain value of that packet."""


class Nack(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Packets after this number are missing: send them again; also after a `Pause`."""

    number: int


class Progress(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Changed entries of the matrix clock: how many of each origin's messages members have delivered."""

    rows: list[Row]


class RepairRequest(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Messages that this member lacks: origin, first and last sequence number."""

    number: int
    """Of the request on this connection, from 1."""
    spans: list[tuple[int, int, int]]


class RepairReply(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Packets that hold messages asked for, as far as they are here."""

    number: int
    """Of the request."""
    bodies: list[bytes]


class Heartbeat(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Nothing to send, and still there."""


class Certificates(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """Certificates, in DER, of members' signing keys; before any message that they have signed."""

    certificates: list[bytes]


class Evidence(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """What the speaker has seen an origin sign, since others have seen something else; two statements that
    cannot both be true are proof."""

    origin: int
    statements: list[Statement]


class Pause(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """Send no packets until a `Nack` says from which on: too much waits here for causes, or to be read."""


class ClockProbe(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """In a subgroup on real time: the speaker's clock, in nanoseconds. The answer is a `ClockReading`."""

    sent: int


class ClockReading(msgspec.Struct, frozen=True, array_like=True, tag=15):
    """What a `ClockProbe` said, and the clock of whom it was sent to when it arrived."""

    sent: int
    arrived: int


Frame = (
    Greeting
    | Refusal
    | Packets
    | Ack
    | Nack
    | Progress
    | RepairRequest
    | RepairReply
    | Heartbeat
    | Certificates
    | Evidence
    | Pause
    | ClockProbe
    | ClockReading
)

_decoder: msgspec.msgpack.Decoder[Frame] = msgspec.msgpack.Decoder(Frame)
encode = msgspec.msgpack.Encoder().encode


def decode(data: bytes) -> Frame:
    """A frame from the wire; hostile until decoded."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteError(f"not a frame: {error}") from error


def add_lengths(frames: list[bytes]) -> bytes:
    """Encoded frames as they go over TCP, many in one write."""
    return b"".join(part for frame in frames for part in (_LENGTH.pack(len(frame)), frame))


def read_length(head: bytes, longest: int = MAX_BYTES) -> int:
    """The length of the frame that follows these four bytes."""
    (size,) = _LENGTH.unpack(head)
    if head[:2] == b"\x16\x03":
        raise RemoteError("it speaks TLS, and this member has no keys")
    if size > longest and head.isascii() and head.decode().isprintable():
        raise RemoteError(f"it sends text ('{head.decode()}...'), so it is not a member")
    if size > longest:
        raise RemoteError(f"a frame of {size} bytes; the longest is {longest}")
    return int(size)
