"""The TypeScript client: its own tests, and phones of Node among members and phones of Python."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from kill_test import kill_test
from node_phones import CLIENT, NodePhone, built, call, find_node

from antecede.live.trial.ports import free_ports

sys.path.insert(0, str(Path(__file__).parents[1] / "live"))

from live_groups import PATIENCE, run, until
from phone_rooms import PhoneRoom, phone_room
from test_requests import applications

from antecede.live.security import keys

pytestmark = pytest.mark.xdist_group("typescript")


def test_the_typescript_client_s_own_tests_pass() -> None:
    built()
    call([find_node()[0], "--test", "test/"])


def test_the_typescript_client_is_as_small_as_its_readme_says() -> None:
    """The size of what a page loads matches the README."""
    built()
    size = json.loads(call([find_node()[0], "scripts/size.mjs"]))
    (stated,) = re.findall(
        r"([\d.]+) kB minified, ([\d.]+) kB compressed", (CLIENT / "README.md").read_text()
    )
    assert [size["minified"] / 1000, size["gzip"] / 1000] == pytest.approx([*map(float, stated)], rel=0.03)
    assert size["gzip"] < 30_000


def test_the_lock_names_no_host() -> None:
    lock = (CLIENT / "package-lock.json").read_text()
    assert "resolved" not in lock
    assert "://" not in lock.replace("https://github.com/sponsors", "").replace("https://opencollective", "")


def test_the_readme_example_of_the_typescript_client_works(tmp_path: Path) -> None:
    page = (CLIENT / "README.md").read_text()
    (settings,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (program,) = re.findall(r"```js\n(.*?)```", page, re.DOTALL)
    for port, free in zip(("7000", "8000"), free_ports(2), strict=True):
        settings, program = settings.replace(f":{port}", f":{free}"), program.replace(f":{port}", f":{free}")
    (tmp_path / "sue.toml").write_text(settings)
    (tmp_path / "pia.mjs").write_text(program)
    modules = tmp_path / "node_modules"
    modules.mkdir()
    (modules / "antecede-client").symlink_to(built())

    async def test() -> None:
        pipe = asyncio.subprocess.PIPE
        command = [sys.executable, "-c", "from antecede.cli.main import main; main()", "node", "sue.toml"]
        sue = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, stdin=pipe, stdout=pipe)
        pia = await asyncio.create_subprocess_exec(find_node()[0], "pia.mjs", cwd=tmp_path, stdout=pipe)
        try:
            assert pia.stdout is not None
            async with asyncio.timeout(PATIENCE):
                assert await pia.stdout.readline() == b"pia { text: 'hello from Node' }\n"
        finally:
            for process in (sue, pia):
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    run(test())


@contextlib.asynccontextmanager
async def node_phone(
    room: PhoneRoom, folder: Path, *super_peers: str, **settings: Any
) -> AsyncIterator[NodePhone]:
    places = [room.super_peers[each] for each in super_peers or room.super_peers]
    phone = NodePhone(folder, **{"me": "nod", "superPeers": places, "sync": False, **settings})
    try:
        yield phone
    finally:
        await phone.kill()


async def asked(phone: NodePhone, condition: Callable[[dict[str, Any]], object], what: str) -> dict[str, Any]:
    """Wait until the answer of a phone satisfies a condition."""
    async with asyncio.timeout(PATIENCE):
        while not condition(answer := await phone.ask("look")):
            await asyncio.sleep(0.02)
    return answer


async def agree(room: PhoneRoom, phone: NodePhone, *bodies: str) -> None:
    await asked(phone, lambda answer: set(answer["bodies"]) == set(bodies), f"{bodies}")
    assert len(await phone.bodies()) == len(bodies)
    await room.agree(set(bodies), *room.groups)


@pytest.mark.parametrize("stored", [True, False])
def test_a_typescript_phone_joins_broadcasts_and_leaves(tmp_path: Path, stored: bool) -> None:
    async def test() -> None:
        options: dict[str, Any] = {} if stored else {"store": None}
        async with phone_room(tmp_path, **options) as room, node_phone(room, tmp_path, **options) as nod:
            await room.groups["bo"].broadcast("before")
            await room.agree({"before"}, "ana", "bo", "cy")
            assert (await nod.start())["bodies"] == ["before"]
            await room.start_phone("pia", "cy", **options)
            sent = await nod.broadcast("from Node")
            assert sent.startswith("nod~")
            await room.groups["ana"].broadcast("from ana")
            await room.phone("pia").broadcast("from pia")
            await agree(room, nod, "before", "from Node", "from ana", "from pia")
            assert sent in {str(each) for each in room.boards["bo"].ids}
            assert room.phones_of("ana") == {"nod": True}
            everyone = ["ana", "bo", "cy", "nod", "pia"]
            seen = await asked(nod, lambda answer: answer["present"] == everyone, "presence")
            assert ["came", "pia", ""] in seen["changes"]
            assert seen["waiting"] == []
            assert await nod.ask("leave") == {"left": True}
            await until(lambda: room.phones_of("ana") == {}, "it has left")

    run(test())


def test_a_typescript_phone_resumes_from_its_store(tmp_path: Path) -> None:
    async def test() -> None:
        async with phone_room(tmp_path) as room, node_phone(room, tmp_path, "ana") as nod:
            await nod.start()
            await nod.broadcast("one")
            await agree(room, nod, "one")
            await nod.kill()
            await room.groups["bo"].broadcast("two")
            await room.agree({"one", "two"}, "ana", "bo", "cy")
            assert (await nod.start())["bodies"] == ["one"]
            await agree(room, nod, "one", "two")
            # Messages broadcast while no super peer is reachable are sent later.
            await room.stop("ana")
            await asked(nod, lambda answer: not answer["connected"], "it is cut off")
            held = await nod.broadcast("three")
            assert (await nod.ask("look"))["waiting"] == [held]
            await nod.kill()
            await nod.start()
            assert (await nod.ask("look"))["waiting"] == [held]
            await room.start("ana")
            await room.agree({"three"}, "ana")
            await agree_of(room, nod, {"one", "two", "three"})

    run(test())


def test_a_typescript_phone_verifies_its_super_peer_by_the_group_authority(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    names = ["ana", "bo", "cy"]
    keys.make_keys(folder, "room", names, ["nod"], 30, {}, names)

    async def test() -> None:
        async with phone_room(tmp_path, keys_of=folder) as room:
            async with node_phone(room, tmp_path, "ana", keys=str(folder / "nod")) as nod:
                await nod.start()
                await nod.broadcast("proven")
                await agree(room, nod, "proven")
            # Another member at that address is not the one called and must not see the token.
            elsewhere = [f"cy@{room.super_peers['bo'].partition('@')[2]}"]
            settings = {"store": None, "superPeers": elsewhere, "keys": str(folder / "nod")}
            async with node_phone(room, tmp_path, **settings, timeout=500) as nod:
                with pytest.raises(AssertionError, match="is for URI:antecede:room/bo"):
                    await nod.start()

    run(test())


def test_a_super_peer_may_present_a_public_certificate_to_phones(tmp_path: Path) -> None:
    """Another authority stands for one that the system trusts."""
    folder, public = tmp_path / "keys", tmp_path / "public"
    names = ["ana", "bo", "cy"]
    keys.make_keys(folder, "room", names, ["nod"], 30, {}, names)
    keys.make_keys(public, "web", ["localhost"], [], 30, {}, [])
    shutil.copy(public / "localhost" / "certificate.pem", folder / "ana" / "web.pem")
    shutil.copy(public / "localhost" / "key.pem", folder / "ana" / "web.key")
    token = (folder / "nod" / "token").read_text().strip()

    async def test() -> None:
        async with phone_room(tmp_path, keys_of=folder) as room:
            trusting = {"NODE_EXTRA_CA_CERTS": str(public / "ca.pem")}
            async with node_phone(room, tmp_path, "ana", token=token, environment=trusting) as nod:
                await nod.start()
                await nod.broadcast("in public")
                await agree(room, nod, "in public")
            settings = {"store": None, "token": token, "timeout": 500}
            async with node_phone(room, tmp_path, "bo", **settings, environment=trusting) as nod:
                with pytest.raises(AssertionError, match=r"unable to verify|self-signed"):
                    await nod.start()

    run(test())


def test_a_typescript_phone_killed_at_random_moments_loses_nothing(tmp_path: Path) -> None:
    """200 kills take minutes: python tests/clients/kill_test.py 200."""
    found = asyncio.run(kill_test(tmp_path, 8, seed=7))
    assert [found[each] for each in ("lost", "twice", "out of order", "made up")] == [0, 0, 0, 0], found
    assert found["accepted"] > 8


async def agree_of(room: PhoneRoom, phone: NodePhone, bodies: set[str]) -> None:
    """As `agree`, where a member was started again and has a new board."""
    await asked(phone, lambda answer: set(answer["bodies"]) == bodies, f"{bodies}")
    others = [name for name in room.groups if set(room.boards[name].bodies) != {"three"}]
    await room.agree(bodies, *others)


def test_a_typescript_phone_fails_over_to_another_super_peer_without_loss(tmp_path: Path) -> None:
    async def test() -> None:
        async with phone_room(tmp_path) as room, node_phone(room, tmp_path, "cy", "bo") as nod:
            await nod.start()
            await nod.broadcast("behind cy")
            await agree(room, nod, "behind cy")
            await room.stop("cy")
            await nod.broadcast("cy is gone")
            await asked(nod, lambda answer: answer["superPeer"] == "bo", "another super peer")
            await nod.broadcast("behind bo")
            await room.groups["ana"].remove("cy")
            await room.groups["ana"].broadcast("from ana")
            await agree(room, nod, "behind cy", "cy is gone", "behind bo", "from ana")
            changes = (await nod.ask("look"))["changes"]
            assert ["returned", "bo", ""] in changes

    run(test())


async def here(phone: NodePhone, super_peer: str) -> dict[str, Any]:
    return await asked(phone, lambda answer: answer["superPeer"] == super_peer, f"it is behind {super_peer}")


def test_a_typescript_phone_moves_under_load_without_a_snapshot(tmp_path: Path) -> None:
    async def test() -> None:
        async with phone_room(tmp_path) as room, node_phone(room, tmp_path) as nod:
            await nod.start()
            bodies = []
            for turn, to in enumerate(["bo", "cy", "ana", "cy"]):
                await nod.ask(f"move {to}")
                for each in range(5):
                    mine, theirs = f"nod {turn}.{each}", f"bo {turn}.{each}"
                    await asyncio.gather(nod.broadcast(mine), room.groups["bo"].broadcast(theirs))
                    bodies += [mine, theirs]
                await here(nod, to)
                assert [each for each in room.groups if "nod" in room.phones_of(each)] == [to]
            await agree(room, nod, *bodies)
            own = [body for body in bodies if body.startswith("nod")]
            for board in room.boards.values():
                assert [body for body in board.bodies if body.startswith("nod")] == own
            last = await nod.ask("look")
            assert last["restored"] == 1
            kinds = [kind for kind, _, _ in last["changes"]]
            assert (kinds.count("moved"), kinds.count("returned")) == (4, 0)
            # Killed during the move, it is behind one of the two super peers and lacks no message.
            await nod.broadcast("before the kill")
            nod.tell("move bo")
            await nod.kill()
            await nod.start()
            await room.groups["cy"].broadcast("after the kill")
            await agree(room, nod, *bodies, "before the kill", "after the kill")

    run(test())


def test_a_typescript_phone_sends_and_answers_requests(tmp_path: Path) -> None:
    async def test() -> None:
        async with phone_room(tmp_path, reads=False) as room, node_phone(room, tmp_path, "ana") as nod:
            tom = await room.start_phone("tom", "cy", reads=False)
            async with applications(*room.groups.values()):
                await nod.start()
                assert (await nod.ask("request bo how much?"))["result"] == "how much?!"
                assert (await nod.ask("request tom and you?"))["result"] == "and you?!"
                unknown = (await nod.ask("request eve there?"))["result"]
                assert unknown == "unknown: eve is not known to be in the group; nothing was broadcast"
                await until(lambda: "nod" in tom.present, "presence")
                for asking in (tom, room.groups["bo"]):
                    reply = await asking.request("nod", f"{asking.me}, well?", PATIENCE)
                    assert (reply.body, reply.headers) == (f"{asking.me}, well?!", {"by": "nod"})
                    assert reply.reply_to is not None
                    assert reply.reply_to.origin == asking.me

    run(test())


def test_a_typescript_phone_delivers_only_messages_addressed_to_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with phone_room(tmp_path) as room, node_phone(room, tmp_path, "ana") as nod:
            await nod.start()
            bo = room.groups["bo"]
            await until(lambda: "nod" in bo.present, "presence")
            await bo.send("for cy alone", to=["cy"])
            await bo.send("for nod", to=["nod"])
            await bo.broadcast("for all")
            await asked(nod, lambda answer: answer["bodies"] == ["for nod", "for all"], "the two")

    run(test())
