"""End-to-end encrypted groups over real sockets: which processes can read, and which cannot."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from live_groups import run, until
from phone_rooms import PhoneRoom, phone_room
from rooms import Room, room

from antecede.errors import InputError
from antecede.live.changing.secret_messages import is_encrypted
from antecede.live.envelope import unwrap, wrap
from antecede.live.events import Broadcast
from antecede.live.security import keys
from antecede.live.settings import Settings
from antecede.protocols.base import Delivery, LocalError

SERVERS = ["ana", "bo", "cy", "dana"]
FIRST = SERVERS[:3]
PHONES = ["pia", "tim"]
HIDDEN = "a body that only readers may see"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "keys"
    keys.make_keys(made, "room", SERVERS, PHONES, 30, {}, SERVERS)
    return made


@contextlib.asynccontextmanager
async def members(tmp_path: Path, folder: Path, **options: Any) -> AsyncIterator[Room]:
    async with room(tmp_path) as created:
        await asyncio.gather(*(start(created, folder, name, **options) for name in FIRST))
        yield created


async def start(created: Room, folder: Path, name: str, **options: Any) -> Any:
    return await created.start(name, keys=folder / name, encrypt=True, **options)


@contextlib.asynccontextmanager
async def super_peers(tmp_path: Path, folder: Path, **options: Any) -> AsyncIterator[PhoneRoom]:
    """Three super peers, and two phones that know of each other."""
    async with phone_room(tmp_path, keys_of=folder, encrypt=True, **options) as created:
        for name, place in zip(PHONES, ("bo", "cy"), strict=True):
            await created.start_phone(name, place, "cy", keys=folder / name, encrypt=True)
        await until(lambda: knows(created, "pia", "tim") and knows(created, "tim", "pia"), "both phones")
        yield created


def secrecy_of(created: Room, name: str) -> Any:
    group: Any = created.groups[name]
    return group._core.secrecy


def knows(created: Room, name: str, other: str) -> bool:
    """Whether one process encrypts for another."""
    secrecy = secrecy_of(created, name)
    readers = secrecy.state.readers.items()
    return any(reader.name == other and secrecy.is_active(each) for each, reader in readers)


def problems(created: Room, name: str) -> list[str]:
    return [each.text for each in created.groups[name].problems() if each.kind == "unreadable"]


def record(created: Room, name: str) -> list[Delivery]:
    """The payloads delivered to a member from now on, as sent over the wire."""
    found: list[Delivery] = []
    secrecy = secrecy_of(created, name)
    observe = secrecy.observe

    def observe_and_record(delivery: Delivery, is_own: bool = False) -> None:
        found.append(delivery)
        observe(delivery, is_own)

    secrecy.observe = observe_and_record
    return found


def read_all(secrecy: Any, deliveries: list[Delivery]) -> list[Any]:
    """The bodies a process can decrypt: it is shown all messages, then tries each."""
    shown = list(deliveries)
    for each in shown:
        secrecy.observe(each)
    opened = [secrecy.open(each) for each in shown]
    return [unwrap(each.payload).body for each in opened if unwrap(each.payload).kind < 3]


def broadcast_raw(created: Room, name: str, payload: bytes) -> None:
    group: Any = created.groups[name]
    group._core.step(Broadcast([payload], group._clock.now(), False))
    group._driver.stepped()


def bytes_in(folder: Path) -> Iterator[bytes]:
    for file in folder.rglob("*"):
        if file.is_file():
            yield file.read_bytes()


def test_members_decrypt_and_newcomers_decrypt_from_their_admission_on(tmp_path: Path, folder: Path) -> None:
    async def test() -> None:
        async with members(tmp_path, folder) as created:
            before = record(created, "bo")
            for name in FIRST:
                await created.groups[name].broadcast(f"from {name}", headers={"of": name})
            await created.agree({"from ana", "from bo", "from cy"}, *FIRST)
            await start(created, folder, "dana")
            assert sorted(created.boards["dana"].bodies) == ["from ana", "from bo", "from cy"]
            early = list(before)
            await created.groups["bo"].broadcast("to dana too")
            await created.groups["dana"].broadcast("from dana")
            await created.agree({"from ana", "from bo", "from cy", "to dana too", "from dana"}, *SERVERS)
            assert not any(problems(created, name) for name in SERVERS)
            dana = secrecy_of(created, "dana")
            assert read_all(dana, early) == []
            assert sorted(read_all(secrecy_of(created, "ana"), early)) == [
                b"from ana",
                b"from bo",
                b"from cy",
            ]

    run(test())


def test_a_removed_member_cannot_read_later_messages(tmp_path: Path, folder: Path) -> None:
    async def test() -> None:
        async with members(tmp_path, folder) as created:
            await start(created, folder, "dana")
            await created.have_view(*SERVERS)
            for name in SERVERS:
                await created.groups[name].broadcast(f"{name} before")
            await created.agree_on_last("dana before")
            dana = secrecy_of(created, "dana")
            await created.stop("dana")
            await created.groups["ana"].remove("dana")
            await created.have_view(*FIRST)
            later = record(created, "bo")
            for name in FIRST:
                await created.groups[name].broadcast(f"{name} after")
            await until(lambda: "cy after" in created.boards["bo"].bodies, "it is delivered")
            await until(lambda: len([each for each in later if is_encrypted(each.payload)]) == 3, "all")
            assert read_all(dana, later) == []

    run(test())


def test_a_wrongly_removed_member_returns_and_can_decrypt(tmp_path: Path, folder: Path) -> None:
    async def test() -> None:
        async with members(tmp_path, folder) as created:
            await start(created, folder, "dana")
            await created.groups["dana"].broadcast("before")
            await created.agree_on_last("before")
            await created.groups["ana"].remove("dana")
            await until(lambda: created.kinds("bo", "dana")[-1:] == ["joined"], "it has returned")
            await created.groups["bo"].broadcast("again")
            await created.groups["dana"].broadcast("from dana again")
            await created.agree_on_last("again")
            await created.agree_on_last("from dana again")
            assert not any(problems(created, name) for name in SERVERS)

    run(test())


def test_a_newcomer_that_asks_for_history_reads_it(tmp_path: Path, folder: Path) -> None:
    async def test() -> None:
        async with members(tmp_path, folder, retain="1h") as created:
            bodies = {f"{name} {number}" for name in FIRST for number in range(3)}
            for body in sorted(bodies):
                await created.groups[body.partition(" ")[0]].broadcast(body)
            await created.agree(bodies, *FIRST)
            await start(created, folder, "dana", history="all", snapshot=None, restore=None)
            await created.groups["cy"].broadcast("after")
            await created.agree({*bodies, "after"}, "dana")
            assert not problems(created, "dana")

    run(test())


def test_an_encrypting_member_resumes_from_its_store(tmp_path: Path, folder: Path) -> None:
    async def test() -> None:
        async with members(tmp_path, folder) as created:
            await created.groups["ana"].broadcast("one")
            await created.agree({"one"}, *FIRST)
            await created.stop("cy")
            await created.groups["bo"].broadcast("two")
            await start(created, folder, "cy")
            await created.groups["cy"].broadcast("three")
            await created.agree({"two", "three"}, "cy")
            await created.agree({"one", "two", "three"}, "ana", "bo")

    run(test())


def test_relays_forward_messages_they_cannot_read(tmp_path: Path, folder: Path) -> None:
    """Two phones talk through three super peers, none of which holds anything readable."""

    async def test() -> None:
        async with super_peers(tmp_path, folder, relay=True) as created:
            pia, tim = created.phone("pia"), created.phone("tim")
            passed = [record(created, name) for name in FIRST]
            await pia.broadcast(HIDDEN, headers={"subject": HIDDEN}, content_type=f"text/{HIDDEN}")
            await tim.broadcast("from tim")
            await created.agree({HIDDEN, "from tim"}, *PHONES)
            await until(lambda: all(len(each) >= 2 for each in passed), "the super peers have both")
            assert all(created.boards[name].bodies == [] for name in FIRST)
            assert not any(read_all(secrecy_of(created, "ana"), each) for each in passed)
            with pytest.raises(LocalError, match="a relay has no keys"):
                await created.groups["ana"].broadcast("x")
            await pia.move("cy")
            await pia.broadcast("after the move")
            await until(lambda: "after the move" in created.boards["tim"].bodies, "it is read")
            await asyncio.gather(*(created.stop(name) for name in (*FIRST, *PHONES)))
            for name in (*FIRST, *PHONES):
                assert not any(b"only readers" in each for each in bytes_in(tmp_path / name)), name

    run(test())


def test_decrypting_phones_and_members_join_through_super_peers(tmp_path: Path, folder: Path) -> None:
    async def test() -> None:
        async with super_peers(tmp_path, folder) as created:
            everyone = (*FIRST, *PHONES)
            for name in everyone:
                await created.groups[name].broadcast(f"from {name}")
            await created.agree({f"from {name}" for name in everyone}, *everyone)
            await start(created, folder, "dana")
            await created.groups["pia"].broadcast("to dana")
            await created.agree_on_last("to dana")
            assert not any(problems(created, name) for name in (*everyone, "dana"))

    run(test())


def test_an_expelled_phone_cannot_read_later_messages(tmp_path: Path, folder: Path) -> None:
    async def test() -> None:
        async with super_peers(tmp_path, folder, relay=True) as created:
            tim, pia = created.phone("tim"), secrecy_of(created, "pia")
            await tim.broadcast("before")
            await created.agree({"before"}, *PHONES)
            later = record(created, "tim")
            keys.revoke(folder, "pia")
            await until(lambda: not knows(created, "tim", "pia"), "tim is told")
            await tim.broadcast("after")
            await until(lambda: "after" in created.boards["tim"].bodies, "tim has it")
            assert read_all(secrecy_of(created, "tim"), later) == [b"after"]
            assert read_all(pia, later) == []

    run(test())


def test_a_phone_still_decrypts_after_failing_over_to_another_super_peer(
    tmp_path: Path, folder: Path
) -> None:
    async def test() -> None:
        async with phone_room(tmp_path, keys_of=folder, encrypt=True, relay=True) as created:
            pia = await created.start_phone("pia", "cy", "bo", keys=folder / "pia", encrypt=True)
            tim = await created.start_phone("tim", "ana", keys=folder / "tim", encrypt=True)
            await until(lambda: knows(created, "pia", "tim") and knows(created, "tim", "pia"), "both")
            await tim.broadcast("behind cy")
            await created.agree({"behind cy"}, *PHONES)
            await created.stop("cy")
            await until(lambda: pia.super_peer == "bo", "another super peer")
            await created.groups["ana"].remove("cy")
            await pia.broadcast("behind bo")
            await tim.broadcast("from tim")
            await created.agree({"behind cy", "behind bo", "from tim"}, *PHONES)

    run(test())


def garbled(payload: bytes, draw: random.Random) -> bytes:
    wrong = bytearray(payload)
    for _ in range(draw.choice((1, 2, 8))):
        wrong[draw.randrange(2, len(wrong))] = draw.randrange(256)
    return bytes(wrong[: draw.choice((len(wrong), len(wrong), draw.randrange(3, len(wrong))))])


def test_garbled_messages_of_one_member_do_not_stop_the_others(tmp_path: Path, folder: Path) -> None:
    """Garbled key messages too: each is skipped, and others' messages are delivered."""

    async def test() -> None:
        async with members(tmp_path, folder) as created:
            passed, draw = record(created, "ana"), random.Random(5)
            await start(created, folder, "dana")
            for name in SERVERS:
                await created.groups[name].broadcast(f"from {name}")
            await created.agree_on_last("from dana")
            payloads = [each.payload for each in passed]
            for _ in range(60):
                broadcast_raw(created, "bo", garbled(draw.choice(payloads), draw))
            await created.groups["cy"].broadcast("after")
            await created.agree_on_last("after")
            others = ("ana", "cy", "dana")
            await until(lambda: all(problems(created, name) for name in others), "they are told")
            assert all("bo" in text for name in others for text in problems(created, name))

    run(test())


def test_unencrypted_and_replayed_messages_are_not_delivered(tmp_path: Path, folder: Path) -> None:
    async def test() -> None:
        async with members(tmp_path, folder) as created:
            passed = record(created, "bo")
            await created.groups["ana"].broadcast("one")
            await created.agree({"one"}, *FIRST)
            broadcast_raw(created, "bo", wrap("in the clear", False, {}))
            await until(lambda: "it is not encrypted" in str(problems(created, "cy")), "it is refused")
            again = next(each.payload for each in passed if is_encrypted(each.payload))
            broadcast_raw(created, "bo", again)
            await until(lambda: "it was sent before" in str(problems(created, "cy")), "it is refused")
            await created.groups["bo"].broadcast("two")
            await created.agree({"one", "two"}, *FIRST)
            await until(lambda: not problems(created, "cy"), "that is over")

    run(test())


def test_a_member_does_not_wait_for_a_key_nobody_owes_it(tmp_path: Path, folder: Path) -> None:
    """A member that withholds a key from another harms only that one, which is informed."""

    async def test() -> None:
        async with members(tmp_path, folder) as created:
            await created.groups["bo"].broadcast("before")
            await created.agree({"before"}, *FIRST)
            bo, cy = secrecy_of(created, "bo"), secrecy_of(created, "cy")
            is_active = bo._readers.is_active
            bo._readers.is_active = lambda reader: reader != cy.keys.id and is_active(reader)
            bo._readers.changed()
            await created.groups["bo"].broadcast("without cy")
            await created.groups["ana"].broadcast("after")
            await created.agree({"before", "without cy", "after"}, "ana", "bo")
            await created.agree({"before", "after"}, "cy")
            await until(lambda: "nobody who is there" in str(problems(created, "cy")), "it is told")

    run(test())


def test_members_that_do_not_all_encrypt_refuse_each_other(tmp_path: Path, folder: Path) -> None:
    async def test() -> None:
        async with phone_room(tmp_path, keys_of=folder, encrypt=True) as created:
            refused: list[str] = []
            created.listen("ana", refused)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.5):
                    await created.start("dana", keys=folder / "dana")
            await created.fails(created.start_phone("pia", "ana", keys=folder / "pia"))
            text = "ana requires that messages are encrypted end to end, and it does not encrypt"
            await until(lambda: len([each for each in refused if text in each]) >= 2, "both are refused")

    run(test())


def test_invalid_encryption_settings_are_refused(tmp_path: Path) -> None:
    def check(message: str, **options: Any) -> None:
        settings = Settings.create(group="room", me="ana", **options)
        with pytest.raises(InputError, match=message):
            settings.validate_changing() if settings.is_changing else settings.roster()

    founded = {"founders": ["ana@:1", "bo@:2"], "listen": ":1"}
    check("need keys of their own", encrypt=True, **founded)
    check("need keys of their own", encrypt=True, secret=tmp_path / "secret", **founded)
    check("sign = true", encrypt=True, keys=tmp_path, sign=False, **founded)
    check("relay: it is for", relay=True, **founded)
    check("relay: it is for", relay=True, encrypt=True, keys=tmp_path, super_peers=["bo@:2"])
    check("members come and go", encrypt=True, keys=tmp_path, peers=["bo@:2"])


def test_a_store_cannot_switch_between_encrypted_and_unencrypted(tmp_path: Path, folder: Path) -> None:
    async def test() -> None:
        async with members(tmp_path, folder) as created:
            await created.stop("cy")
            with pytest.raises(InputError, match="another encryption: end to end, not none"):
                await created.start("cy", keys=folder / "cy")

    run(test())
