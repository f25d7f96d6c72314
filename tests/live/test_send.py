"""Addressed messages: only the addressees deliver them, in order with all others, and only they can read
them."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from live_groups import PATIENCE, Ear, run, together, until
from phone_rooms import phone_room
from rooms import Room, room
from test_headers import FIXED

import antecede
from antecede.causality import MessageId
from antecede.errors import InputError
from antecede.live.addressing import Addressed, is_for
from antecede.live.changing.protocols import LIVE
from antecede.live.envelope import unwrap
from antecede.live.group import Group
from antecede.live.security import keys, sealed_boxes
from antecede.protocols.base import Delivery, LocalError

NAMES = ["ana", "bo", "cy"]
SECRET = b"the code is 4711"


def make(folder: Path, *names: str) -> Path:
    keys.make_keys(folder, "room", list(names or NAMES), [], 30, {}, [])
    return folder


async def check(ana: Ear, bo: Ear, cy: Ear) -> None:
    """ana sends to bo, between two messages to all."""
    before = {name: len(ear.messages) for name, ear in (("bo", bo), ("cy", cy))}
    await ana.group.broadcast("first")
    await ana.group.send(
        SECRET, [bo.group.settings.me], PATIENCE, headers={"a": "b"}, content_type="text/plain"
    )
    await ana.group.broadcast("last")
    await bo.has(before["bo"] + 3)
    await cy.has(before["cy"] + 2)
    given = bo.messages[before["bo"] :]
    assert [each.body for each in given] == ["first", SECRET, "last"]
    assert (given[1].headers, given[1].content_type, given[1].unreadable) == ({"a": "b"}, "text/plain", False)
    assert given[1].time is not None
    assert [each.body for each in cy.messages[before["cy"] :]] == ["first", "last"]
    await until(lambda: [each.body for each in ana.own[-3:]] == ["first", SECRET, "last"])
    assert ana.own[-2].headers == {"a": "b"}


@pytest.mark.parametrize("protocol", FIXED)
def test_send_delivers_only_to_addressees_with_every_fixed_list_protocol(protocol: str) -> None:
    async def test() -> None:
        async with together("ana", "bo", "cleo", protocol=protocol) as groups:
            ears = [Ear(group) for group in groups]
            await check(*ears)
            await check(*ears)
            await until(lambda: len({str(group.delivered()) for group in groups}) == 1)
            for ear in ears:
                await ear.stop()

    run(test())


@pytest.mark.parametrize("protocol", sorted(LIVE))
def test_send_delivers_only_to_addressees_with_every_changing_group_protocol(
    tmp_path: Path, protocol: str
) -> None:
    async def test() -> None:
        async with room(tmp_path, *NAMES, protocol=protocol, store=None, reads=False) as group:
            ears = [Ear(each) for each in group.groups.values()]
            await check(*ears)
            dana = Ear(await group.start("dana", protocol=protocol, store=None, reads=False))
            await until(lambda: "dana" in ears[0].group.view)
            await check(ears[0], dana, ears[2])
            for ear in [*ears, dana]:
                await ear.stop()

    run(test())


def test_phones_may_be_addressed_by_name(tmp_path: Path) -> None:
    async def test() -> None:
        async with phone_room(tmp_path, reads=False) as group:
            ears = [Ear(each) for each in group.groups.values()]
            pia = Ear(await group.start_phone("pia", "ana", reads=False))
            tom = Ear(await group.start_phone("tom", "bo", reads=False))
            await until(lambda: {"pia", "tom"} <= ears[2].group.present)
            await check(ears[2], pia, tom)
            with pytest.raises(LocalError, match="a phone broadcasts to all"):
                await pia.group.send("x", ["tom"])
            for ear in [*ears, pia, tom]:
                await ear.stop()

    run(test())


def contents(folder: Path) -> bytes:
    return b"".join(each.read_bytes() for each in folder.rglob("*") if each.is_file())


@pytest.mark.parametrize("changes", [False, True])
def test_with_keys_only_addressees_can_read_a_sent_message(tmp_path: Path, changes: bool) -> None:
    made = make(tmp_path / "keys")

    async def test() -> None:
        rooms = Room(tmp_path)
        starting = []
        for name in NAMES:
            options: dict[str, Any] = {"keys": made / name, "reads": False}
            if not changes:
                peers = [f"{each}@127.0.0.1:{port}" for each, port in rooms.ports.items() if each != name]
                options |= {"founders": [], "peers": peers, "snapshot": None, "restore": None}
            starting.append(asyncio.create_task(rooms.start(name, **options)))
        ears = [Ear(await each) for each in starting]
        await until(lambda: all(len(each.group.connected) == 2 for each in ears))
        await check(*ears)
        for ear in ears:
            await ear.stop()
        # Every member stores it, but only the addressees can read it.
        for name in NAMES:
            assert b"first" in contents(tmp_path / name)
            assert SECRET not in contents(tmp_path / name)
        await rooms.close()

    run(test())


def test_newcomers_cannot_read_earlier_messages_nor_removed_members_later_ones(tmp_path: Path) -> None:
    """Also with all packets in hand; addressed to everybody in the view."""
    made = make(tmp_path / "keys", *NAMES, "dana")
    sent: list[Delivery] = []

    async def send(group: Group, body: str) -> None:
        core = group._core
        before = core.wrap

        def wrap(*arguments: Any) -> bytes:
            payload: bytes = before(*arguments)
            sent.append(Delivery(MessageId(core.me, len(sent)), payload))
            return payload

        core.wrap = wrap
        await group.send(body, group.view.names, PATIENCE)
        core.wrap = before

    def reads(group: Group, delivery: Delivery) -> bool:
        return group._deliveries._addressing.open(delivery, "ana") is not delivery

    async def test() -> None:
        rooms = Room(tmp_path)
        try:
            own: dict[str, dict[str, Any]] = {name: {"keys": made / name} for name in (*NAMES, "dana")}
            await asyncio.gather(*(rooms.start(name, **own[name]) for name in NAMES))
            ana = rooms.groups["ana"]
            await send(ana, "before")
            await rooms.agree({"before"}, *NAMES)
            dana = await rooms.start("dana", retain="1MB", history="all", **own["dana"])
            await until(lambda: "dana" in ana.view)
            await send(ana, "with dana")
            await until(lambda: "with dana" in rooms.boards["dana"].bodies)
            assert [reads(dana, each) for each in sent] == [False, True]
            assert "before" not in rooms.boards["dana"].bodies
            # dana is cut off, so that it does not return; what it might get hold of is of no use to it.
            dana.go_offline(PATIENCE)
            await ana.remove("dana")
            await until(lambda: "dana" not in ana.view)
            await send(ana, "without dana")
            assert [reads(dana, each) for each in sent] == [False, True, False]
            assert all(reads(rooms.groups["bo"], each) for each in sent)
        finally:
            await rooms.close()

    run(test())


def test_a_super_peer_forwards_messages_it_cannot_read(tmp_path: Path) -> None:
    made = tmp_path / "keys"
    keys.make_keys(made, "room", ["ext", "sue"], ["pia"], 30, {"sue": ["localhost"]}, ["sue"])

    async def test() -> None:
        options: dict[str, Any] = {"protocol": "freescale"}
        async with (
            antecede.join(
                "room",
                me="sue",
                listen=":0",
                web=":0",
                peers=["ext", "pia behind sue"],
                store=tmp_path / "sue",
                keys=made / "sue",
                **options,
            ) as sue,
            antecede.join(
                "room", me="ext", peers=[f"sue@{sue.address}", "pia behind sue"], keys=made / "ext", **options
            ) as ext,
            antecede.join(
                "room",
                me="pia",
                behind="sue",
                peers=[f"sue@{sue.web_address}", "ext"],
                keys=made / "pia",
                **options,
            ) as pia,
        ):
            # Certificates travel with what is signed: whoever was heard can be addressed.
            await ext.broadcast("I am here")
            assert (await anext(pia)).body == "I am here"
            await pia.send("for ext", ["ext"])
            assert [(await anext(ext)).body for _ in range(2)] == ["I am here", "for ext"]
            await ext.send("for pia", ["pia"])
            assert [(await anext(pia)).body for _ in range(2)] == ["for ext", "for pia"]
            await ext.broadcast("for all")
            assert (await anext(sue)).body == "I am here"
            assert (await anext(sue)).body == "for all"
        assert b"for all" in contents(tmp_path / "sue")
        assert b"for pia" not in contents(tmp_path / "sue")
        assert b"for ext" not in contents(tmp_path / "sue")

    run(test())


def test_an_encrypted_box_opens_only_for_its_recipients() -> None:
    private = [Ed25519PrivateKey.generate() for _ in range(4)]
    public = [each.public_key().public_bytes_raw() for each in private]
    box = sealed_boxes.seal(SECRET, public[:3], b"context")
    for position in range(3):
        assert sealed_boxes.open_box(box, position, private[position], b"context") == SECRET
        assert sealed_boxes.open_box(box, position, private[position], b"another") is None
        assert sealed_boxes.open_box(box, position, private[3], b"context") is None
        assert sealed_boxes.open_box(box, (position + 1) % 3, private[position], b"context") is None
    assert sealed_boxes.open_box(box, 3, private[3], b"context") is None
    damaged = msgspec.structs.replace(box, content=bytes([box.content[0] ^ 1]) + box.content[1:])
    assert sealed_boxes.open_box(damaged, 0, private[0], b"context") is None
    for ephemeral in (bytes(32), b"short", b""):
        broken = msgspec.structs.replace(box, ephemeral=ephemeral)
        assert sealed_boxes.open_box(broken, 0, private[0], b"context") is None
    # Two boxes with the same content have nothing in common.
    other = sealed_boxes.seal(SECRET, public[:3], b"context")
    assert not {*box.keys, box.ephemeral, box.content} & {*other.keys, other.ephemeral, other.content}


def test_ed25519_keys_map_to_matching_x25519_keys() -> None:
    """The private and the public map agree, so what is encrypted by one is opened by the other."""
    for seed in range(20):
        key = Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)
        scalar = hashlib.sha512(key.private_bytes_raw()).digest()[:32]
        expected = X25519PrivateKey.from_private_bytes(scalar).public_key().public_bytes_raw()
        assert sealed_boxes.montgomery(key.public_key().public_bytes_raw()) == expected


def test_rebroadcasting_another_member_s_encrypted_message_is_detected(tmp_path: Path) -> None:
    """bo passes off ana's message to cy as its own, to different addressees."""
    made = make(tmp_path / "keys")

    async def test() -> None:
        async with (
            antecede.join("room", me="bo", listen=":0", peers=["ana", "cy"], keys=made / "bo") as bo,
            antecede.join(
                "room", me="cy", listen=":0", peers=["ana", f"bo@{bo.address}"], keys=made / "cy"
            ) as cy,
            antecede.join(
                "room", me="ana", peers=[f"bo@{bo.address}", f"cy@{cy.address}"], keys=made / "ana"
            ) as ana,
        ):
            await until(lambda: all(len(each.connected) == 2 for each in (ana, bo, cy)))
            payload = b""
            before = ana._core.broadcast

            def tap(body: Any, now: int, about: Any) -> MessageId:
                nonlocal payload
                message: MessageId = before(body, now, about)
                payload = ana._core._staged[-1]
                return message

            ana._core.broadcast = tap
            await ana.send("for cy", ["cy"])
            assert (await anext(cy)).body == "for cy"
            stolen = unwrap(payload)
            assert not is_for(payload, ["bo"])
            addressing = bo._deliveries._addressing
            delivery = Delivery(MessageId(0, 1), payload)
            assert addressing.open(delivery, "ana") is delivery  # bo cannot read it
            assert cy._deliveries._addressing.open(delivery, "ana") is not delivery
            assert cy._deliveries._addressing.open(delivery, "~0") is not delivery  # ana is forgotten
            assert cy._deliveries._addressing.open(delivery, "bo") is delivery  # nor send it on
            addressed = msgspec.msgpack.decode(stolen.body, type=Addressed)
            mine = msgspec.structs.replace(addressed, sender="bo")
            changed = msgspec.structs.replace(stolen, body=msgspec.msgpack.encode(mine))
            as_own = Delivery(MessageId(1, 1), msgspec.msgpack.encode(changed))
            assert cy._deliveries._addressing.open(as_own, "bo") is as_own
            other = msgspec.structs.replace(addressed, to=["cy", "bo"])
            changed = msgspec.structs.replace(stolen, body=msgspec.msgpack.encode(other))
            for_both = Delivery(MessageId(0, 1), msgspec.msgpack.encode(changed))
            assert cy._deliveries._addressing.open(for_both, "ana") is for_both

    run(test())


def test_a_sent_message_is_repaired_from_a_member_that_cannot_read_it(tmp_path: Path) -> None:
    """ana dies when only bo, who is not an addressee, has its message."""
    made = make(tmp_path / "keys")

    async def test() -> None:
        bo_settings: dict[str, Any] = {"me": "bo", "listen": ":0", "keys": made / "bo"}
        async with antecede.join("room", peers=["ana", "cy"], **bo_settings) as bo:
            ana = await antecede.join("room", me="ana", peers=[f"bo@{bo.address}", "cy"], keys=made / "ana")
            cy_settings: dict[str, Any] = {
                "me": "cy",
                "listen": ":0",
                "keys": made / "cy",
                "store": tmp_path / "cy",
            }
            cy = await antecede.join("room", peers=["ana", f"bo@{bo.address}"], **cy_settings)
            await until(lambda: set(bo.connected) == {"ana", "cy"})
            # bo shows ana the certificate of cy, to which ana has no connection.
            await until(lambda: ana._core.signatures.newest_key("cy") is not None)
            await ana.send("for cy", ["cy"])
            await ana.broadcast("for all")
            assert (await anext(bo)).body == "for all"
            await ana.aclose()
            assert (await anext(cy)).body == "for cy"
            await cy.aclose()
            cy = await antecede.join("room", peers=["ana", f"bo@{bo.address}"], **cy_settings)
            again = await anext(cy)
            assert (again.body, again.redelivered, again.origin) == ("for cy", True, "ana")
            await cy.park(again, "later")
            assert cy.parked()[0].message.body == "for cy"
            assert (await anext(cy)).body == "for all"
            await cy.aclose()

    run(test())


def test_messages_sent_to_others_are_not_delivered_after_a_restart(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path, *NAMES, reads=False, retain="10MB") as group:
            ana, bo = (group.groups[name] for name in NAMES[:2])
            ear = Ear(ana)
            for number in range(5):
                await ana.send(f"secret {number}", ["bo"], PATIENCE)
                await ana.broadcast(number)
            first = await anext(group.groups["cy"])
            assert first.body == 0
            await group.stop("cy")
            cy = await group.start("cy", reads=False)
            given = [(await anext(cy)) for _ in range(5)]
            assert [each.body for each in given] == list(range(5))
            assert [each.redelivered for each in given] == [True, False, False, False, False]
            at_bo = [(await anext(bo)).body for _ in range(10)]
            assert at_bo == [each for number in range(5) for each in (f"secret {number}", number)]
            # A newcomer that asks for the history does not get it either.
            eve = await group.start("eve", reads=False, history="all", snapshot=None, restore=None)
            assert [(await anext(eve)).body for _ in range(5)] == list(range(5))
            await ear.stop()

    run(test())


@pytest.mark.parametrize(
    ("to", "reason"),
    [
        ([], "to: name one member at least"),
        ("bo", "to: it is a list of names"),
        (["bo", "eve"], "to: eve is not known to be in the group; nothing was broadcast"),
    ],
)
def test_send_requires_addressees(to: Any, reason: str) -> None:
    async def test() -> None:
        async with together("ana", "bo") as (ana, _):
            with pytest.raises(InputError, match=reason):
                await ana.send("x", to)
            assert ana.delivered()["ana"] == 0

    run(test())


def test_nothing_is_sent_if_an_addressee_s_key_is_unknown(tmp_path: Path) -> None:
    made = make(tmp_path / "keys")

    async def test() -> None:
        async with antecede.join("room", me="ana", peers=["bo"], keys=made / "ana") as ana:
            with pytest.raises(LocalError, match="no signing certificate of bo that is not revoked is known"):
                await ana.send("x", ["bo"])
            assert ana.delivered()["ana"] == 0
            await ana.broadcast("to all")
        async with antecede.join("room", me="ana", peers=["bo"], keys=made / "ana", sign=False) as ana:
            with pytest.raises(LocalError, match="it needs keys with which members sign"):
                await ana.send("x", ["bo"])

    run(test())
