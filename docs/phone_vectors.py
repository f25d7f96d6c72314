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
from antecede.live.events import Life
from antecede.live.headers import NOTHING, REPLY, REQUEST, About, with_reserved
from antecede.live.transport import frames
from antecede.live.transport.outbox import CHAIN_START, chain
from antecede.membership.backlog import Backlog, BacklogEntry
from antecede.membership.freescale import ChangingFreescale
from antecede.membership.site_packets import (
    MoveReady,
    MoveRequest,
    PhoneArrival,
    PhoneJoin,
    PhoneLeave,
    PhoneRefused,
    PhoneReleased,
    PhoneWelcome,
    ReleaseRequest,
    SiteDownlink,
    StableNumber,
    author_id,
)
from antecede.protocols.base import Effects, Packet
from antecede.protocols.freescale.packets import InternalAck, NumberAssignment, UplinkPacket

HERE = Path(__file__).parent
VERSION = 2
"""The version of the wire format."""
PIA = Contact("pia", bytes(range(8)), "", is_phone=True)
SUE = Contact("sue", b"", "10.0.0.7:7000")
DANA = Contact("dana", bytes(8), ":7000")
ANA = (1 << 62) + 0x1234_5678_9ABC
"""A stream of a member that has joined: larger than any integer of JavaScript."""
ME = author_id(1, 3)
LIVES = [Life("5f0c", 0), Life("77e1", 41)]
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
        [Life("91ab", 0)],
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
    "a move, please": MoveRequest(),
    "a slot is reserved": MoveReady(ANA, 2, 5, {0: 3, ANA: 14}, {ANA: MessageId(0, 2)}),
    "release me when you have this much": ReleaseRequest({0: 3, ANA: 14}),
    "released with this much": PhoneReleased({0: 4, ANA: 15}, frozenset({2})),
    "I have this much": PhoneArrival({0: 4, ANA: 15}, frozenset({2})),
    "the move is done": PhoneWelcome(
        ANA, 2, 5, 20, OffsetBitmap.from_numbers({22, 23}), 24, {}, [], None, 14
    ),
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
    contacts = [SUE, PIA, DANA]
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
        "requests": requests(),
        "story": story(),
        "moves": moves(),
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


def requests() -> list[dict[str, Any]]:
    """A request, and the reply to it."""
    asked = with_reserved(About("text/plain"), {REQUEST: "00112233aabbccdd bo"})
    replied = with_reserved(NOTHING, {REPLY: "00112233aabbccdd pia~1f2e3d4c:3"})
    return [_payload("request", "how much?", NOW, asked), _payload("reply", {"price": 4}, NOW, replied)]


NAMES = {each.address: each.name for each in (SUE, DANA)}


class Story:
    """What a phone does and receives, and after each step what it has to send, and to which member."""

    def __init__(self) -> None:
        self._begin_life()
        self.steps: list[dict[str, Any]] = []

    def _begin_life(self) -> None:
        self.phone = ChangingFreescale.phone_outside(PIA.address, 0)
        self.phone.speaks = VERSION
        for each in (SUE, DANA):
            self.phone.meet(each.address, VERSION)

    def _add(self, effects: Effects, **step: Any) -> None:
        sends = [
            [NAMES[to], ChangingFreescale.encode(each.packet).hex()]
            for each in effects.sends
            for to in each.to
        ]
        phase = self.phone.phase.name.lower()
        self.steps.append({**step, "sends": sends, "phase": phase})

    def join(self, at: Contact = SUE) -> None:
        self._add(self.phone.attach(at.address, 0), do="join", at=at.name)

    def start(self) -> None:
        self.phone.take_snapshot()
        self._add(Effects(), do="start")

    def receive(self, packet: Packet, sender: Contact = SUE) -> None:
        data = ChangingFreescale.encode(packet)
        effects = self.phone.receive(sender.address, packet, 0)
        self._add(effects, do="receive", **{"from": sender.name}, hex=data.hex())

    def broadcast(self, payload: bytes) -> None:
        self._add(self.phone.broadcast(payload, 0), do="broadcast", hex=payload.hex())

    def deliver(self) -> None:
        if (delivery := self.phone.deliver(0)) is not None:
            origin, seq = delivery.message
            self._add(Effects(), do="deliver", origin=str(origin), seq=seq)

    def move(self, to: Contact) -> None:
        self._add(self.phone.move(to.address, 0), do="move", to=to.name)

    def give_up(self, *gone: Contact) -> None:
        effects = self.phone.give_up({each.address for each in gone}, 0)
        self._add(effects, do="give up", gone=[each.name for each in gone])

    def leave(self) -> None:
        self._add(self.phone.detach(0), do="leave")

    def return_at(self, hub: Contact = SUE) -> None:
        backlog = self.phone.make_backlog()
        self._begin_life()
        self.phone.bring_back(backlog)
        self.join(hub)


def _down(number: int, stream: int, causes: set[int], seq: int = 0) -> SiteDownlink:
    named = OffsetBitmap.from_numbers(causes)
    return SiteDownlink(b"%d" % number, stream, seq or number, number, number - 1, named, stream, 0)


def story() -> list[dict[str, Any]]:
    """A slot, messages in both directions, reports, stability, a return with a backlog, and leaving."""
    told = Story()
    told.join()
    told.receive(PACKETS["a slot"])
    told.start()
    told.broadcast(b"three")
    for number, causes in {9: set[int](), 10: {9}, 12: {10}, 13: set[int](), 14: {12, 13}}.items():
        told.receive(_down(number, ANA, causes))
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
    told.give_up(SUE)
    told.return_at()
    told.receive(PACKETS["a slot"])
    told.start()
    told.broadcast(b"again three")
    told.receive(SiteDownlink(b"26", 0, 26, 9, 8, OffsetBitmap(), 2, 1, {}, is_again=True))
    told.receive(NumberAssignment(3, 10))
    told.broadcast(b"again four")
    told.receive(PhoneRefused(3))
    told.return_at()
    told.receive(PACKETS["a slot without a state"])
    told.start()
    told.leave()
    told.receive(PhoneRefused(0))
    return told.steps


def moves() -> list[dict[str, Any]]:
    """A move with messages in all directions; a refused one; one whose new super peer goes away; one that
    ends in a return, because the former super peer is gone; and one that the phone requests and then
    cancels."""
    told = Story()
    told.join()
    told.receive(PACKETS["a slot"])
    told.start()
    told.broadcast(b"three")
    told.receive(_down(9, ANA, {8}))
    told.receive(NumberAssignment(3, 10))
    told.move(DANA)
    told.receive(_down(11, ANA, {9}))
    told.deliver()
    told.broadcast(b"before the slot")
    told.receive(PACKETS["a slot is reserved"], DANA)
    told.broadcast(b"queued")
    told.receive(_down(12, 0, {11}))
    told.receive(_down(13, 0, {12}))
    told.receive(NumberAssignment(4, 14))
    told.deliver()
    told.broadcast(b"queued, too")
    told.receive(PACKETS["released with this much"])
    told.receive(_down(15, 0, {13}))  # From a super peer that has released it: there is no such packet.
    told.receive(PACKETS["the move is done"], DANA)
    told.receive(SiteDownlink(b"21", 0, 40, 21, 0, OffsetBitmap(), 0, 0), DANA)
    told.receive(NumberAssignment(6, 25), DANA)
    for _ in range(4):
        told.deliver()
    told.broadcast(b"at dana")
    told.receive(StableNumber(24, 15), DANA)
    told.move(SUE)
    told.receive(PhoneRefused(), SUE)  # It is no longer a member.
    told.move(SUE)
    told.receive(MoveReady(1, 3, 4, {ANA: 15}, {}), SUE)
    told.broadcast(b"never sent")
    told.give_up(SUE)  # The new one goes away during the move.
    told.receive(PhoneRefused(7), DANA)
    told.return_at(DANA)
    told.receive(PACKETS["a slot without a state"], DANA)
    told.start()
    told.broadcast(b"home")
    told.move(SUE)
    told.receive(MoveReady(1, 4, 9, {0: 1}, {}), SUE)
    told.give_up(DANA)  # The former one does not come back.
    told.return_at(SUE)
    told.receive(PACKETS["a slot"])
    told.start()
    told.move(DANA)
    told.give_up(DANA)  # It does not answer: the phone stays.
    told.broadcast(b"still here")
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
