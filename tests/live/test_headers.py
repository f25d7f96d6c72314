"""Metadata sent with a body, in every protocol: broadcast time, headers and content type."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from live_groups import PATIENCE, Ear, run, together, until
from phone_rooms import phone_room
from rooms import room

import antecede
from antecede.causality import MessageId
from antecede.errors import InputError
from antecede.live.changing.protocols import LIVE
from antecede.live.envelope import unwrap, wrap
from antecede.live.group import Group
from antecede.live.headers import describe
from antecede.live.messages import Message
from antecede.protocols.base import Delivery
from antecede.protocols.catalog import PROTOCOLS

FIXED = [name for name, kind in PROTOCOLS.items() if not kind.overlapping_groups]
HEADERS: dict[str, str | bytes] = {"trace": "4bf92f", "signature": b"\x00\xff", "häi": ""}


async def check(sender: Ear, *others: Ear) -> None:
    """A broadcast is delivered to its author and the others with its metadata."""
    began = time.time()
    await sender.group.broadcast(b"\x89PNG", PATIENCE, headers=HEADERS, content_type="image/png")
    await sender.group.broadcast("bare")
    ended = time.time()
    for ear in (sender, *others):
        heard = ear.own if ear is sender else ear.messages
        await until(lambda heard=heard: len(heard) >= 2, f"two messages at {ear.group.me}")  # type: ignore[misc]
        with_headers, bare = heard[-2:]
        assert with_headers.own == bare.own == (ear is sender)
        assert with_headers.body == b"\x89PNG"
        assert with_headers.headers == HEADERS
        assert with_headers.content_type == "image/png"
        assert (bare.body, bare.headers, bare.content_type) == ("bare", {}, "")
        # The member's clock differs from the time of day if that was set since it began.
        assert began - 1 <= (with_headers.time or 0) <= (bare.time or 0) <= ended + 1
        heard.clear()


async def check_all(*groups: Group) -> None:
    """From the first and from the last."""
    ears = [Ear(group) for group in groups]
    await check(*ears)
    await check(*ears[::-1])
    for ear in ears:
        await ear.stop()


@pytest.mark.parametrize("protocol", FIXED)
def test_headers_arrive_with_every_fixed_list_protocol(protocol: str) -> None:
    async def test() -> None:
        async with together("ana", "bo", "cleo", "dan", protocol=protocol) as groups:
            await check_all(*groups)

    run(test())


@pytest.mark.parametrize("protocol", sorted(LIVE))
def test_headers_arrive_with_every_changing_group_protocol(tmp_path: Path, protocol: str) -> None:
    async def test() -> None:
        options: dict[str, Any] = {"protocol": protocol, "store": None, "reads": False}
        async with room(tmp_path, "ana", "bo", "cy", **options) as group:
            await check_all(*group.groups.values())

    run(test())


def test_headers_arrive_at_newcomers_and_phones(tmp_path: Path) -> None:
    async def test() -> None:
        async with phone_room(tmp_path, reads=False) as group:
            ears = [Ear(each) for each in group.groups.values()]
            ears.append(Ear(await group.start("dana", reads=False)))
            ears.append(Ear(await group.start_phone("pia", "ana", reads=False)))
            ears.append(Ear(await group.start_phone("tom", "bo", reads=False)))
            for number in range(len(ears)):
                await check(*ears[number:], *ears[:number])
            for ear in ears:
                await ear.stop()

    run(test())


def test_headers_are_part_of_redelivered_messages_and_of_history(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy", reads=False, retain="10MB") as group:
            ana, bo = group.groups["ana"], group.groups["bo"]
            await ana.broadcast("kept", headers=HEADERS, content_type="text/plain")
            sent = (await anext(bo)).time
            await group.stop("bo")
            again = await anext(await group.start("bo", reads=False))
            ear = Ear(ana)
            eve = await group.start("eve", reads=False, history="all", snapshot=None, restore=None)
            past = await anext(eve)
            assert past.history
            assert again.redelivered
            for each in (again, past):
                assert (each.body, each.headers, each.content_type) == ("kept", HEADERS, "text/plain")
                assert each.time == sent
            await ear.stop()

    run(test())


def message(payload: bytes) -> Message:
    return Message(Delivery(MessageId(0, 1), payload), ["ana"])


def test_envelopes_are_compatible_with_an_earlier_version_in_both_directions() -> None:
    """An earlier version ignores elements that it does not know and does not send them."""

    class Before(msgspec.Struct, array_like=True):
        kind: int
        after_own: bool
        causes: dict[int, int] | None
        body: bytes
        author: str = ""

    about = describe(HEADERS, "text/plain")
    payload = wrap("hello", True, {1: 2}, "pia", 1_700_000_000_000_000_000, about)
    before = msgspec.msgpack.decode(payload, type=Before)
    assert before == Before(1, True, {1: 2}, b"hello", "pia")
    found = message(msgspec.msgpack.encode(before))
    assert (found.body, found.time, found.headers, found.content_type) == ("hello", None, {}, "")


def test_received_headers_are_accepted_only_if_text_or_bytes() -> None:
    strange = {"a": 1, "b": ["x"], "good": "yes", "antecede-other": "later version", "c": None}
    found = message(msgspec.msgpack.encode([1, False, {}, b"hello", "", 0, "", strange]))
    assert (found.body, found.headers, found.time) == ("hello", {"good": "yes"}, None)
    # What is no envelope is a body of bytes, as before.
    for wrong in ([1, False, {}, b"hello", "", "now"], [1, False, {}, b"hello", "", 0, "", {1: "a"}]):
        payload = msgspec.msgpack.encode(wrong)
        assert message(payload).body == payload
    no_text = b"\x98\x01\xc2\x80\xc4\x01x\xa0\x00\xa0\x81\xa1a\xa1\xff"
    assert unwrap(no_text).body == no_text


@pytest.mark.parametrize(
    ("headers", "content_type", "reason"),
    [
        ({"n": 1}, "", r"headers\['n'\]: a value of type int; headers are text or bytes"),
        ({1: "a"}, "", "headers: 1 is no name"),
        ({"": "a"}, "", "headers: '' is no name"),
        (["a"], "", "headers: a list, and no dict"),
        ({"antecede-reply-to": "a"}, "", "are the library's own"),
        ({"x" * 101: "a"}, "", "the name has 101 characters; it has 100 at most"),
        ({f"{n}": "" for n in range(65)}, "", "headers: 65 of them; a message has 64 at most"),
        ({"a": "x" * 5_000, "b": b"x" * 5_000}, "", "headers: 10,002 bytes together; a message has 8,192"),
        ({"a": "\ud800"}, "", r"headers\['a'\]: the text has half of a surrogate pair"),
        ({"\ud800": "a"}, "", "half of a surrogate pair"),
        ({}, "x" * 256, "content_type: 256 characters; it has 255 at most"),
        ({}, "\udfff", "content_type: the text has half of a surrogate pair"),
        ({}, b"text/plain", "content_type: a bytes, and no text"),
    ],
)
def test_headers_that_cannot_be_sent_are_refused_in_one_sentence(
    headers: Any, content_type: Any, reason: str
) -> None:
    async def test() -> None:
        async with antecede.join("room", me="ana", peers=[]) as ana:
            with pytest.raises(InputError, match=reason):
                await ana.broadcast("hello", headers=headers, content_type=content_type)
            assert ana.delivered() == {"ana": 0}

    run(test())
