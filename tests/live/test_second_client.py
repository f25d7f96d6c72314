"""A client that shares no code with the library is a member like any other: docs/wire.md is enough."""

from __future__ import annotations

import ast
import asyncio
import base64
import contextlib
import hmac
import json
import ssl
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import second_client
from live_groups import Relay, run, until
from second_client import Phone, Refused, bits, pack, ranked, unbits, unpack

import antecede
from antecede.live.group import Group
from antecede.live.joining import Joining
from antecede.live.security.credentials import load_signing_key
from antecede.live.security.keys import make_keys

DOCS = Path(__file__).parent.parent.parent / "docs"
VECTORS: dict[str, list[dict[str, Any]]] = json.loads((DOCS / "wire-vectors.json").read_text("utf-8"))
LINES = ["sue", "lib behind sue", "cell behind sue", "ext"]
NAMES = ["sue", "lib", "cell", "ext"]
STARTS, LONGEST, CUT_EVERY = 8, 6, 25


def test_the_second_client_imports_nothing_of_the_library() -> None:
    nodes = list(ast.walk(ast.parse(Path(second_client.__file__).read_text("utf-8"))))
    found = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    found |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    others = {name.partition(".")[0] for name in found} - sys.stdlib_module_names
    assert others == {"websockets"}


# Bytes


def shaped(shape: Any) -> Any:
    """A value of the vectors, from what stands for it in JSON."""
    if isinstance(shape, list):
        return [shaped(each) for each in shape]
    if isinstance(shape, dict):
        if "hex" in shape:
            return bytes.fromhex(shape["hex"])
        return {shaped(key): shaped(value) for key, value in shape["map"]}
    return shape


@pytest.mark.parametrize(
    "vector",
    [*VECTORS["frames"], *VECTORS["packets"], *VECTORS["payloads"]],
    ids=lambda vector: vector["name"],
)
def test_the_second_client_s_encoding_matches_the_vectors(vector: dict[str, Any]) -> None:
    data, value = bytes.fromhex(vector["hex"]), shaped(vector["shape"])
    assert repr(unpack(data)) == repr(value)  # repr also tells 1 from True
    assert pack(value) == pack(unpack(data)) == data


@pytest.mark.parametrize("size", [0, 1, 15, 16, 31, 32, 255, 256, 65_535, 65_536])
def test_values_of_all_sizes_round_trip(size: int) -> None:
    for value in ("ä" * size, b"\x00" * size, [7] * size, dict.fromkeys(range(size)), size, 2**63 - 1 - size):
        assert unpack(pack(value)) == value
    with pytest.raises(ValueError, match="too early"):
        unpack(pack(b"\x00" * size)[:-1])


def test_number_sets_round_trip_and_match_the_vectors() -> None:
    for numbers in (set(), {1}, {4, 6}, {7, 8}, {9, 16, 17, 400}):
        assert unbits(*bits(numbers)) == numbers
    assert [bits({4, 6}), bits({7, 8}), bits(())] == [[4, b"\x05"], [7, b"\x03"], [0, b""]]


def test_ranks_follow_the_wire_format_page() -> None:
    given = ["zoe", "b behind zoe", "ext", "a behind zoe", "amy", "c behind amy"]
    assert ranked(given) == ["amy", "zoe", "c behind amy", "a behind zoe", "b behind zoe", "ext"]


# Talking


class Talker:
    """A member that says what it has heard so far, so that whoever hears it can judge the order by itself."""

    def __init__(self, name: str, broadcast: Callable[[str], Coroutine[Any, Any, Any]]) -> None:
        self.name, self._broadcast = name, broadcast
        self.heard: list[tuple[str, int]] = []
        self.seen = dict.fromkeys(NAMES, 0)

    async def broadcast(self, hops: int = 0) -> None:
        text = json.dumps({"hops": hops, "seen": self.seen})
        self.seen[self.name] += 1
        await self._broadcast(text)

    async def hear(self, origin: str, seq: int, text: str) -> None:
        message = json.loads(text)
        early = {name: count for name, count in message["seen"].items() if count > self.seen[name]}
        assert not early, f"{self.name} hears {origin}:{seq} before {early}"
        assert seq == self.seen[origin] + 1
        self.seen[origin] = seq
        self.heard.append((origin, seq))
        # One of the others answers, in turn.
        turn = (NAMES.index(origin) + 1 + message["hops"] % 3) % 4
        if message["hops"] < LONGEST and NAMES[turn] == self.name:
            await self.broadcast(message["hops"] + 1)


def join(**options: Any) -> Joining:
    return antecede.join("room", protocol="freescale", own=False, **options)


@contextlib.asynccontextmanager
async def library(keys: Path | None = None) -> AsyncIterator[tuple[Group, Group, Group]]:
    """A super peer, an external peer and a phone of the library, in a group with one that is not of it."""
    key = {name: {"keys": keys / name} if keys else {} for name in NAMES}
    async with (
        join(me="sue", listen=":0", web=":0", peers=["ext", *LINES[1:3]], **key["sue"]) as sue,
        join(me="ext", peers=[f"sue@{sue.address}", *LINES[1:3]], **key["ext"]) as ext,
        join(me="lib", behind="sue", peers=[f"sue@{sue.web_address}", "ext", LINES[2]], **key["lib"]) as lib,
    ):
        yield sue, lib, ext


async def listen(group: Group, talker: Talker) -> None:
    async for message in group:
        await talker.hear(message.origin, message.seq, message.body)


async def listen_and_lose(phone: Phone, talker: Talker, relay: Relay) -> None:
    async for origin, seq, body in phone:
        await talker.hear(origin, seq, body)
        if len(talker.heard) % CUT_EVERY == 0:
            relay.cut()
            relay.mend()


async def ended(listeners: list[asyncio.Task[None]], condition: Callable[[], object]) -> None:
    """Wait until a condition holds or a listener has failed."""
    await until(lambda: condition() or any(task.done() for task in listeners))
    for task in listeners:
        if task.done():
            task.result()


def test_every_message_is_delivered_once_and_in_order_also_over_cuts() -> None:
    async def test() -> None:
        async with (
            library() as (sue, lib, ext),
            Relay(str(sue.web_address).removeprefix("ws://")) as relay,
            Phone(f"ws://{relay.address}", "room", LINES, "cell", "sue") as cell,
        ):
            groups = {"sue": sue, "lib": lib, "ext": ext}
            talkers = [Talker(name, group.broadcast) for name, group in groups.items()]
            listeners = [asyncio.create_task(listen(groups[each.name], each)) for each in talkers]
            talkers.append(Talker("cell", cell.broadcast))
            listeners.append(asyncio.create_task(listen_and_lose(cell, talkers[-1], relay)))
            for _ in range(STARTS):
                for talker in talkers:
                    await talker.broadcast()
            total = len(NAMES) * STARTS * (LONGEST + 1)
            await ended(listeners, lambda: all(sum(each.seen.values()) == total for each in talkers))
            assert all(len(each.heard) == total - each.seen[each.name] for each in talkers)
            assert len({str(each.seen) for each in talkers}) == 1
            assert cell.connections > 2
            # Progress reaches all members, so they may forget every message.
            await ended(listeners, lambda: not any(group.unstable_bytes for group in groups.values()))
            for task in listeners:
                task.cancel()
            await asyncio.gather(*listeners, return_exceptions=True)

    run(test())


def test_messages_broadcast_on_either_side_of_a_cut_are_delivered_afterwards() -> None:
    async def test() -> None:
        async with (
            library() as (sue, lib, ext),
            Relay(str(sue.web_address).removeprefix("ws://")) as relay,
            Phone(f"ws://{relay.address}", "room", LINES, "cell", "sue") as cell,
        ):
            await ext.broadcast("question")
            assert await anext(cell) == ("ext", 1, "question")
            relay.cut()
            await cell.broadcast(b"\x00 answer")
            await until(lambda: "cell" not in sue.connected)
            await ext.broadcast({"another": "question"})
            assert [(await anext(lib)).seq for _ in range(2)] == [1, 2]
            relay.mend()
            answer = await anext(lib)
            assert (answer.body, answer.causes) == (b"\x00 answer", (("ext", 1),))
            assert await anext(cell) == ("ext", 2, {"another": "question"})
            # The causes that it reports are the immediate ones, including its own previous message.
            await cell.broadcast("and more")
            assert (await anext(lib)).causes == (("cell", 1), ("ext", 2))
            await lib.broadcast("enough")
            assert await anext(cell) == ("lib", 1, "enough")
            await cell.broadcast("well")
            assert [(await anext(ext)).causes for _ in range(4)][-1] == (("lib", 1),)

    run(test())


def test_the_second_client_s_answer_is_held_until_the_question_arrives() -> None:
    async def test() -> None:
        async with (
            join(me="sue", listen=":0", web=":0", peers=["ext", "eve", LINES[2]]) as sue,
            join(me="ext", listen=":0", peers=[f"sue@{sue.address}", "eve", LINES[2]]) as ext,
            Relay(str(ext.address)) as relay,
            join(me="eve", peers=[f"sue@{sue.address}", f"ext@{relay.address}", LINES[2]]) as eve,
            Phone(str(sue.web_address), "room", ["sue", "eve", *LINES[2:]], "cell", "sue") as cell,
        ):
            relay.cut()
            await until(lambda: eve.connected == ("sue",) and "eve" in sue.connected)
            await ext.broadcast("question")
            assert await anext(cell) == ("ext", 1, "question")
            await cell.broadcast("answer")
            await until(eve.waiting)
            assert [held.id for held in eve.waiting()] == [("cell", 1)]
            relay.mend()
            assert [(await anext(eve)).body for _ in range(2)] == ["question", "answer"]

    run(test())


def test_a_phone_that_only_receives_reports_its_progress() -> None:
    async def test() -> None:
        async with (
            library() as (sue, lib, ext),
            Phone(str(sue.web_address), "room", LINES, "cell", "sue") as cell,
        ):
            for number in range(100):
                await ext.broadcast(number)
            for number in range(100):
                assert await anext(cell) == ("ext", number + 1, number)
            await ext.broadcast(b"large" * 500_000)
            assert len((await anext(cell))[2]) == 2_500_000
            await cell.broadcast("all of it")
            for group in (sue, lib):
                assert [(await anext(group)).origin for _ in range(102)][-1] == "cell"
            await anext(ext)
            await ext.drain()

    run(test())


# Authentication


def token(key: bytes, name: str, expires: int) -> str:
    """A token, made as the page says."""
    said = {"group": "room", "name": name, "expires": expires, "id": "0123456789abcdef"}
    claims = json.dumps(said, separators=(",", ":")).encode()
    signature = hmac.digest(key, b"antecede token\n" + claims, "sha256")
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (claims, signature))


def test_a_token_built_as_documented_matches_its_vector() -> None:
    (vector,) = VECTORS["tokens"]
    assert token(bytes.fromhex(vector["key"]), "phone", 2_000_000_000) == vector["token"]


def test_the_second_client_authenticates_by_token_and_reads_refusal_reasons(tmp_path: Path) -> None:
    make_keys(tmp_path, "room", ["sue", "ext"], ["lib", "cell"], 1, {}, ["sue"])
    signing_key, certificate = load_signing_key(tmp_path / "cell")
    signing = (signing_key.sign, certificate)
    key, now = (tmp_path / "token.key").read_bytes(), int(time.time())

    async def test() -> None:
        trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        trusting.check_hostname = False  # names are what counts, not hosts
        async with library(keys=tmp_path) as (sue, lib, ext):
            url = str(sue.web_address)
            assert url.startswith("wss://")
            for expires, reason in ((now - 60, "its token expired"), (None, "token")):
                bad = token(key, "cell", expires) if expires else ""
                async with Phone(url, "room", LINES, "cell", "sue", bad, trusting, *signing) as cell:
                    with pytest.raises(Refused, match=reason):
                        await anext(cell)
            async with Phone(url, "room", LINES, "cell", "sue", "", ssl.create_default_context()) as cell:
                with pytest.raises(Refused, match="certificate verify failed"):
                    await anext(cell)
            good = token(key, "cell", now + 60)
            async with Phone(url, "room", LINES, "cell", "sue", good, trusting, *signing) as cell:
                await cell.broadcast("hello")
                for group in (sue, lib, ext):
                    assert (await anext(group)).body == "hello"
                await lib.broadcast("hello to you")
                assert await anext(cell) == ("lib", 1, "hello to you")

    run(test())
