"""The frames that cross a connection between two members, and their encoding.

A frame is a msgpack array whose first element is its tag. Over TCP each is preceded by its length in four
bytes, most significant first; over WebSocket each is one binary message. Decoding any bytes yields a frame or
a `RemoteError`.

A connection begins with a `Greeting` from either side: its name, its group, and how many of the other's
packets it has, so that the other resumes there. A `Refusal` gives the reason, in words. Then follow `Packets`
with consecutive numbers, an `Ack` for what is durable at the receiver, a `Nack` for a gap, and a `Pause` when
the receiver has no room; `Progress` reports what members have delivered; a `RepairRequest` asks for lost
messages, and a `RepairReply` supplies them. In a subgroup on real time members compare their clocks by
`ClockProbe`.
"""

from __future__ import annotations

import struct

import msgspec

from antecede.live.events import Life
from antecede.live.seals import Statement
from antecede.live.stability import Row
from antecede.protocols.base import RemoteError

MAX_BYTES = 1 << 24
"""The longest frame. A longer one is refused before it is read."""
MAX_REASON = 500
"""Characters of a partner's reason that are shown."""
_LENGTH = struct.Struct(">I")


class Greeting(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """The sender's name, the receiver's name, and what must be the same at both."""

    version: int
    """The lowest wire version that the sender speaks; 0.1.0 knows only this field."""
    group: str
    protocol: str
    members: list[str]
    """The names of all members and how they are arranged, as `Roster.lines`."""
    me: str
    you: str
    lineage: list[Life]
    """The lives of the sender, the current one last."""
    known: list[Life]
    """The receiver's lives that the sender knows; empty if they have not met."""
    attempt: int
    """How many greetings the sender has sent in this life, by which a late one is recognised."""
    received: int
    """The receiver's last packet that is durable at the sender."""
    chain: bytes
    """The chain value of that packet."""
    signed: bool = False
    """Whether the sender signs its messages, and requires that all do."""
    token: str = ""
    """From a phone or a browser: the token that proves its name, where others show a certificate."""
    versions: list[int] = []
    """All wire versions that the sender speaks; if empty, only `version`."""

    @property
    def spoken(self) -> list[int]:
        return self.versions or [self.version]


class Refusal(msgspec.Struct, frozen=True, array_like=True, tag=1):
    reason: str


class RefusedError(RemoteError):
    """The other side refuses this member. `reason` is in the other side's words, in which "it" is this
    member."""

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
    """Every packet up to this number is durable at the receiver: its sender may forget it."""

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
    """The number of the request on this connection, from 1."""
    spans: list[tuple[int, int, int]]


class RepairReply(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Packets with requested messages, as far as they are available."""

    number: int
    """The number of the request."""
    bodies: list[bytes]


class Heartbeat(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """A sign of life when there is nothing else to send."""


class Certificates(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """DER certificates of members' signing keys; sent before any message that they have signed."""

    certificates: list[bytes]


class Evidence(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """Statements that an origin has signed, sent to members with different ones; two contradictory statements
    are proof of equivocation."""

    origin: int
    statements: list[Statement]


class Pause(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """Send no packets until a `Nack` says where to resume: too many bytes wait here for causes, or to be
    delivered."""


class ClockProbe(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """In a subgroup on real time: the sender's clock, in nanoseconds. The answer is a `ClockReading`."""

    sent: int


class ClockReading(msgspec.Struct, frozen=True, array_like=True, tag=15):
    """The content of a `ClockProbe`, and its receiver's clock when it arrived."""

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
    """Decode a frame from the wire, which is untrusted until validated."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteError(f"not a frame: {error}") from error


def add_lengths(frames: list[bytes]) -> bytes:
    """Encoded frames in the format for TCP, many in one write."""
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
