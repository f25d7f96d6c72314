"""Test vectors of what phones of changing groups say and hear, for clients in any language. Running it
rewrites phone-vectors.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from antecede.causality import MessageId
from antecede.causality.bit_window import OffsetBitmap
from antecede.live.changing.contact import Contact
from antecede.live.changing.events import Gone
from antecede.live.changing.greeting import MemberGreeting
from antecede.live.changing.presence import PresenceUpdate
from antecede.live.envelope import Body, unwrap, wrap
from antecede.live.events import Incarnation
from antecede.live.headers import NOTHING, About
from antecede.live.transport import frames
from antecede.live.transport.outbox import CHAIN_START, chain
from antecede.membership.backlog import Backlog, BacklogEntry
from antecede.membership.freescale import ChangingFreescale
from antecede.membership.site_packets import (
    PhoneJoin,
    PhoneLeave,
    PhoneRefused,
    PhoneWelcome,
    SiteDownlink,
    StableNumber,
    author_id,
)
from antecede.protocols.base import Effects, Packet
from antecede.protocols.freescale.packets import InternalAck, NumberAssignment, UplinkPacket

HERE = Path(__file__).parent
PIA = Contact("pia", bytes(range(8)), "", is_phone=True)
SUE = Contact("sue", b"", "10.0.0.7:7000")
ANA = (1 << 62) + 0x1234_5678_9ABC
"""A stream of a member that has joined: more than a number of JavaScript holds."""
ME = author_id(1, 3)
LIVES = [Incarnation("5f0c", 0), Incarnation("77e1", 41)]
ENTRY = BacklogEntry(MessageId(ME, 2), b"two", (1, 3), is_lost=True)

FRAMES: dict[str, Any] = {
    "a call to whoever answers": MemberGreeting(
        [2], "room", "freescale", PIA, 0, LIVES, [], 1, 0, CHAIN_START, "a.b"
    ),
    "an answer": MemberGreeting(
        [1, 2],
        "room",
        "freescale",
        SUE,
        PIA.address,
        [Incarnation("91ab", 0)],
        LIVES,
        7,
        300,
        chain(CHAIN_START, b"\x01"),
        "",
        12,
        True,
    ),
    "nobody is there any more": Gone(is_forgotten=True),
    "who has come and gone": PresenceUpdate(["pia", "tim"], ["bo"]),
}
DOWN = SiteDownlink(
    b"hi", ANA, 7, 9, 4, OffsetBitmap.from_numbers({5, 8}), ANA, 0, {ANA: MessageId(0, 2)}, is_again=True
)
PACKETS: dict[str, Packet] = {
    "a slot, please": PhoneJoin(Backlog()),
    "a slot, and this may be lost": PhoneJoin(
        Backlog([ENTRY, BacklogEntry(MessageId(ANA, 6), b"six")], {ANA: MessageId(0, 2)}, {1: 5})
    ),
    "a slot": PhoneWelcome(
        1, 3, 2, 8, OffsetBitmap(), 8, {ANA: MessageId(0, 2)}, [(7, ENTRY)], b"\x01state", 4
    ),
    "a slot without a state": PhoneWelcome(0, 1, 0, 0, OffsetBitmap(), 0, {}, [], b""),
    "up": UplinkPacket(b"hi", ME, 3, OffsetBitmap.from_numbers({4, 6}), 5),
    "down": DOWN,
    "echo": NumberAssignment(3, 9),
    "acknowledgement": InternalAck(2, 8, OffsetBitmap.from_numbers({7, 8})),
    "stable": StableNumber(8, 4),
    "farewell": PhoneLeave(3),
    "no slot": PhoneRefused(3),
    "no member": PhoneRefused(),
}
BODIES: dict[str, Body] = {
    "bytes": b"\x00\xff",
    "text": "häi",
    "JSON": {"n": [1, -2.5, None, True, "é"]},
    "an integer beyond 2^53": {"n": 2**60 + 1, "text": "1234567890123456789"},
}
NOW = 1_763_500_000_123_456_000
"""In nanoseconds since 1970."""


def vectors() -> dict[str, list[dict[str, Any]]]:
    contacts = [SUE, PIA, Contact("dana", bytes(8), ":7000")]
    return {
        "frames": [_vector(name, each, frames.encode(each)) for name, each in FRAMES.items()],
        "packets": [_vector(name, each, ChangingFreescale.encode(each)) for name, each in PACKETS.items()],
        "payloads": [
            *(_payload(name, body) for name, body in BODIES.items()),
            _payload("with the time", "x", NOW),
            _payload(
                "with all that is said about it", "y", NOW, About("text/plain", {"a": "b", "c": b"\x01"})
            ),
        ],
        "addresses": [
            {
                "name": each.name,
                "nonce": each.nonce.hex(),
                "phone": each.is_phone,
                "address": str(each.address),
            }
            for each in contacts
        ],
        "origins": [
            {"stream": str(stream), "slot": slot, "origin": str(author_id(stream, slot))}
            for stream, slot in ((1, 3), (ANA, 1), (0, 12))
        ],
        "story": story(),
    }


def _vector(name: str, value: Any, data: bytes) -> dict[str, Any]:
    return {"name": name, "kind": type(value).__name__, "hex": data.hex()}


def _payload(name: str, body: Body, now: int = 0, about: About = NOTHING) -> dict[str, Any]:
    data = wrap(body, True, None, "pia", now, about)
    envelope = unwrap(data)
    return {
        "name": name,
        "kind": envelope.kind,
        "author": envelope.author,
        "time": envelope.time,
        "content type": envelope.content_type,
        "body": envelope.body.hex(),
        "hex": data.hex(),
    }


class Story:
    """What a phone does and is sent, and after each step what it has to send."""

    def __init__(self) -> None:
        self.phone = ChangingFreescale.phone_outside(PIA.address, 0)
        self.steps: list[dict[str, Any]] = []

    def _add(self, effects: Effects, **step: Any) -> None:
        sends = [ChangingFreescale.encode(each.packet).hex() for each in effects.sends]
        phase = self.phone.phase.name.lower()
        self.steps.append({**step, "sends": sends, "phase": phase})

    def join(self) -> None:
        self._add(self.phone.attach(SUE.address, 0), do="join")

    def start(self) -> None:
        self.phone.take_snapshot()
        self._add(Effects(), do="start")

    def receive(self, packet: Packet) -> None:
        data = ChangingFreescale.encode(packet)
        self._add(self.phone.receive(SUE.address, packet, 0), do="receive", hex=data.hex())

    def broadcast(self, payload: bytes) -> None:
        self._add(self.phone.broadcast(payload, 0), do="broadcast", hex=payload.hex())

    def deliver(self) -> None:
        if (delivery := self.phone.deliver(0)) is not None:
            origin, seq = delivery.message
            self._add(Effects(), do="deliver", origin=str(origin), seq=seq)

    def give_up(self) -> None:
        self._add(self.phone.give_up({SUE.address}, 0), do="give up")

    def return_elsewhere(self) -> None:
        backlog = self.phone.make_backlog()
        self.phone = ChangingFreescale.phone_outside(PIA.address, 0)
        self.phone.bring_back(backlog)
        self.join()


def story() -> list[dict[str, Any]]:
    """A slot, messages in both directions, reports, what is stable, a return with a backlog, and leaving."""
    told = Story()
    told.join()
    told.receive(PACKETS["a slot"])
    told.start()
    told.broadcast(b"three")
    numbers = {9: set[int](), 10: {9}, 12: {10}, 13: set[int](), 14: {12, 13}}
    for number, causes in numbers.items():
        named = OffsetBitmap.from_numbers(causes)
        told.receive(SiteDownlink(b"%d" % number, ANA, number, number, number - 1, named, ANA, 0))
    told.receive(NumberAssignment(3, 11))
    for _ in range(3):
        told.deliver()
    told.broadcast(b"four")
    told.deliver()
    told.deliver()
    for number in range(16, 25):
        told.receive(SiteDownlink(b"%d" % number, 0, number, number, 0, OffsetBitmap(), 0, 0))
        told.deliver()
    told.receive(StableNumber(14, 6))
    told.receive(SiteDownlink(b"16", 0, 16, 25, 0, OffsetBitmap(), 0, 0, {}, is_again=True))
    told.receive(SiteDownlink(b"26", 0, 26, 26, 25, OffsetBitmap(), 2, 1, {2: MessageId(0, 1)}))
    told.give_up()
    told.return_elsewhere()
    told.receive(PACKETS["a slot"])
    told.start()
    told.broadcast(b"again three")
    told.receive(PhoneRefused(2))
    told.return_elsewhere()
    told.receive(PACKETS["a slot without a state"])
    told.start()
    told._add(told.phone.detach(0), do="leave")
    told.receive(PhoneRefused(0))
    return told.steps


def text() -> str:
    """One vector a line."""
    parts = []
    for name, section in vectors().items():
        lines = ",\n".join(f"  {json.dumps(vector, ensure_ascii=False)}" for vector in section)
        parts.append(f' "{name}": [\n{lines}\n ]')
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    (HERE / "phone-vectors.json").write_text(text(), encoding="utf-8")
