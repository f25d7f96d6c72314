"""Test vectors of the wire format, for clients in any language. Running it rewrites wire-vectors.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from antecede.causality import BitWindow
from antecede.causality.bit_window import OffsetBitmap
from antecede.live.addressing import Addressed, AddressedContent
from antecede.live.envelope import Body, wrap
from antecede.live.events import Life
from antecede.live.headers import About, describe
from antecede.live.seals import Statement
from antecede.live.security import identity
from antecede.live.stability import Row
from antecede.live.transport import frames
from antecede.live.transport.outbox import chain
from antecede.protocols.base import Protocol
from antecede.protocols.flat import ClockPacket, DependencyPacket, MessageBatch, SequencePacket
from antecede.protocols.flooding import FloodPacket
from antecede.protocols.freescale.packets import (
    DownlinkPacket,
    ExternalPacket,
    FollowingPacket,
    InternalAck,
    NumberAssignment,
    PassedUpPacket,
    UplinkPacket,
)
from antecede.protocols.pc import Hello, Ping, Pong, Snapshot
from antecede.protocols.vcube import Bundle

HERE = Path(__file__).parent
KEY = bytes(range(32))
"""The token key of the vectors; no real group uses it."""

CHAIN = chain(chain(bytes(16), b"\x01"), b"\x02\x03")
MESSAGE = DependencyPacket(b"hi", 2, 7, {0: 3, 1: 12})

FRAMES: dict[str, frames.Frame] = {
    "greeting": frames.Greeting(
        5,
        "room",
        "mbcp",
        ["ana", "bo"],
        "ana",
        "bo",
        [Life("5f0c", 0)],
        [],
        1,
        0,
        bytes(16),
    ),
    "greeting with a token": frames.Greeting(
        5,
        "room",
        "freescale",
        ["sue", "phone behind sue", "ext"],
        "phone",
        "sue",
        [Life("5f0c", 0), Life("77e1", 41)],
        [Life("91ab", 0)],
        2,
        300,
        CHAIN,
        True,
        "a.b",
        [5],
    ),
    "refusal": frames.Refusal("it is of group 'b', ana of 'a'"),
    "packets": frames.Packets(1, [b"\x01", b"\x02\x03"], bytes(16)),
    "ack": frames.Ack(2, CHAIN),
    "nack": frames.Nack(1),
    "progress": frames.Progress([Row(0, {0: (5, bytes(range(8))), 2: (300, bytes(8))})]),
    "repair request": frames.RepairRequest(1, [(2, 4, 9)]),
    "repair reply": frames.RepairReply(1, [b"\x01"]),
    "heartbeat": frames.Heartbeat(),
    "certificates": frames.Certificates([b"0\x82"]),
    "evidence": frames.Evidence(2, [Statement(4, 9, bytes(32), bytes(range(32)), bytes(64))]),
    "pause": frames.Pause(),
}
PACKETS: dict[str, tuple[str, Any]] = {
    "mbcp, timestamp-diff, vcube": ("DependencyPacket", MESSAGE),
    "mbcp, a batch": ("MessageBatch", MessageBatch([b"hi", b"ho"], 2, 7, {0: 3, 1: 12})),
    "timestamp": ("ClockPacket", ClockPacket(b"hi", 1, [3, 8, 0])),
    "depseq": ("SequencePacket", SequencePacket(b"hi", 2, 7, {0: [(1, 3)], 1: [(1, 4), (6, 12)]})),
    "flooding, pc": ("FloodPacket", FloodPacket(b"hi", 2, 7)),
    "vcube-agg": ("Bundle", Bundle([MESSAGE])),
    "freescale, up": ("UplinkPacket", UplinkPacket(b"hi", 3, 2, OffsetBitmap.from_numbers({4, 6}), 5)),
    "freescale, down": ("DownlinkPacket", DownlinkPacket(b"hi", 4, 1, 7, 2, OffsetBitmap.from_numbers({5}))),
    "freescale, echo": ("NumberAssignment", NumberAssignment(2, 8)),
    "freescale, across": (
        "ExternalPacket",
        ExternalPacket(b"hi", 3, 2, 8, 3, 6, {5: 4}, {0: OffsetBitmap.from_numbers({2})}, OffsetBitmap()),
    ),
    "freescale, acknowledgement": ("InternalAck", InternalAck(2, 8, OffsetBitmap.from_numbers({7, 8}))),
    "levels, up": (
        "PassedUpPacket",
        PassedUpPacket(b"hi", 3, 2, OffsetBitmap.from_numbers({4, 6}), 5, 9),
    ),
    "levels, down": (
        "FollowingPacket",
        FollowingPacket(b"hi", 4, 1, 7, 2, OffsetBitmap.from_numbers({5}), 3),
    ),
    "pc, ping": ("Ping", Ping(0, 3, 1)),
    "pc, pong": ("Pong", Pong(1)),
    "pc, hello": ("Hello", Hello()),
    "pc, snapshot": ("Snapshot", Snapshot({1: BitWindow(3, 0b10).to_bytes()})),
}


def vectors() -> dict[str, list[dict[str, Any]]]:
    """For each value: its name, its decoded form as JSON, and its bytes in hexadecimal."""
    sections: dict[str, list[dict[str, Any]]] = {"frames": [], "packets": [], "payloads": [], "tokens": []}
    for name, frame in FRAMES.items():
        sections["frames"].append(_vector(name, type(frame).__name__, frames.encode(frame)))
    for name, (kind, packet) in PACKETS.items():
        sections["packets"].append(_vector(name, kind, Protocol.encode(packet)))
    bodies: dict[str, Body] = {"bytes": b"\x00\xff", "text": "häi", "JSON": {"n": 1}}
    for name, body in bodies.items():
        payload = wrap(body, True, None if name == "bytes" else {1: 4})
        sections["payloads"].append(_vector(name, "Envelope", payload))
    now = 1_700_000_000_123_456_789
    sections["payloads"] += [
        _vector("of a phone, with a time", "TimedEnvelope", wrap("häi", False, None, "pia", now)),
        _vector(
            "with headers",
            "FullEnvelope",
            wrap(b"\x89PNG", False, {}, "", now, describe({"alt": "häi", "id": b"\x00\xff"}, "image/png")),
        ),
        _vector(
            "for bo, not encrypted", "TimedEnvelope", wrap("häi", False, {}, "", now, About(seal=_for_bo))
        ),
    ]
    token = identity.issue(KEY, "room", "phone", 2_000_000_000, "0123456789abcdef")
    sections["tokens"].append({"key": KEY.hex(), "id": "0123456789abcdef", "token": token})
    return sections


def _for_bo(kind: int, body: bytes) -> bytes:
    content = msgspec.msgpack.encode(AddressedContent(kind, body, "text/plain"))
    return msgspec.msgpack.encode(Addressed(["bo"], content, is_sealed=False, sender="ana"))


def _vector(name: str, kind: str, data: bytes) -> dict[str, Any]:
    return {
        "name": name,
        "kind": kind,
        "shape": _to_json(msgspec.msgpack.decode(data, strict=False)),
        "hex": data.hex(),
    }


def _to_json(value: Any) -> Any:
    """As JSON: bytes as {"hex": …}, maps as lists of pairs."""
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, dict):
        return {"map": [[_to_json(key), _to_json(each)] for key, each in value.items()]}
    if isinstance(value, list):
        return [_to_json(each) for each in value]
    return value


def text() -> str:
    """One vector a line."""
    parts = []
    for name, section in vectors().items():
        lines = ",\n".join(f"  {json.dumps(vector, ensure_ascii=False)}" for vector in section)
        parts.append(f' "{name}": [\n{lines}\n ]')
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    (HERE / "wire-vectors.json").write_text(text(), encoding="utf-8")
