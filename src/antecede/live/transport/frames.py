"""What crosses a connection between two nodes, and its encoding.

A frame is a msgpack array whose first element says what it is. Over TCP each is preceded by its length
in four bytes, most significant first; over WebSocket each is one binary message. Whatever bytes come in,
only a `RemoteError` comes out.

A connection begins with a `Greeting` from either side, which says who speaks, for what group, and how much
of the other's packets it has: from there the other goes on. A `Refusal` says why not, in words. Then
`Packets` under consecutive numbers, `Got` for what is safe with the receiver, `Again` for what did not come;
`Have` tells how far members are; `Want` asks for messages that went astray, and `Found` brings them.
"""

from __future__ import annotations

import struct

import msgspec

from antecede.protocols.base import RemoteError

VERSION = 2
MAX_BYTES = 1 << 24
"""The longest frame. A longer one is refused before it is read."""
_LENGTH = struct.Struct(">I")


class Greeting(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Who speaks, to whom, and what must be the same at both."""

    version: int
    group: str
    protocol: str
    members: list[str]
    """The names of all members and how they are arranged, as `Roster.lines`."""
    me: str
    you: str
    store: str
    """Made up when a member's store was: another one has nothing of what was said before."""
    known: str
    """Which store of the other's this member has dealt with before; empty if none."""
    got: int
    """The last packet of the other's that is safe here."""
    token: str = ""
    """From a phone or a browser: what proves its name, where others show a certificate."""


class Refusal(msgspec.Struct, frozen=True, array_like=True, tag=1):
    reason: str


class Packets(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Encoded packets under consecutive numbers of this link."""

    first: int
    bodies: list[bytes]


class Got(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Every packet up to this number is safe: it may be forgotten."""

    number: int


class Again(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Packets after this number did not come: send them again."""

    number: int


class Have(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """How many of each origin's messages members have delivered; only what changed since the last time."""

    rows: dict[int, dict[int, int]]


class Want(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Messages that this member lacks: origin, first and last number."""

    spans: list[tuple[int, int, int]]


class Found(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Packets that hold messages which were asked for."""

    bodies: list[bytes]


class Beat(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Nothing to say, and still there."""


Frame = Greeting | Refusal | Packets | Got | Again | Have | Want | Found | Beat

_decoder: msgspec.msgpack.Decoder[Frame] = msgspec.msgpack.Decoder(Frame)
encode = msgspec.msgpack.Encoder().encode


def decode(data: bytes) -> Frame:
    """A frame from the wire; hostile until decoded."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteError(f"not a frame: {error}") from error


def framed(bodies: list[bytes]) -> bytes:
    """Encoded frames as they go over TCP, many in one piece."""
    return b"".join(part for body in bodies for part in (_LENGTH.pack(len(body)), body))


def length(head: bytes) -> int:
    """How long the frame is that follows these four bytes."""
    (size,) = _LENGTH.unpack(head)
    if head[:2] == b"\x16\x03":
        raise RemoteError("it speaks TLS, and this member has no keys")
    if size > MAX_BYTES:
        raise RemoteError(f"a frame of {size} bytes; the longest is {MAX_BYTES}")
    return int(size)
