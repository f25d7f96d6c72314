"""Inspecting a changing group from outside: members by a socket, health, and the content of a store."""

from __future__ import annotations

import asyncio
import json
import stat
import time
import tomllib
from pathlib import Path
from typing import Any

from live_groups import run, until
from rooms import Room, room

import command_line
from antecede.cli.chat_terminal import describe_change
from antecede.live.operations.metrics import health, render
from antecede.live.settings import Settings
from antecede.live.view import MemberChange


async def antecede(*arguments: str | Path) -> tuple[int, str]:
    """Run a command while the members of this process keep running; returns its exit code and output."""
    done = await asyncio.to_thread(command_line.antecede, *map(str, arguments))
    return done.returncode, done.stdout + done.stderr


def configure(group: Room, name: str) -> Path:
    path = group.folder / f"{name}.toml"
    founders = json.dumps(group.founders)
    path.write_text(f'group = "room"\nme = "{name}"\nfounders = {founders}\nstore = "{name}"\n')
    return path


def test_members_are_listed_removed_and_prepared_from_a_shell(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy") as group:
            config = configure(group, "ana")
            await group.start("dana")
            await group.have_view("ana", "bo", "cy", "dana")
            code, output = await antecede("members", config, "list", "--json")
            shown = json.loads(output)
            assert (code, shown["group"], shown["me"]) == (0, "room", "ana")
            assert sorted(each["name"] for each in shown["members"]) == ["ana", "bo", "cy", "dana"]
            code, output = await antecede("members", config)
            assert (code, "this one" in output, "connected" in output) == (0, True, True)
            code, output = await antecede("members", config, "leav")
            wrong = (
                "error: Invalid value for 'action': 'leav' is not one of 'list', 'add', 'remove', 'leave'.\n"
            )
            assert (code, output) == (2, wrong)

            code, output = await antecede("members", config, "add", "eve")
            assert '# metrics = "' in output
            newcomer = tomllib.loads(output)
            assert (code, newcomer["me"], len(newcomer["contact"])) == (0, "eve", 4)
            Settings.create(**newcomer).validate_changing()
            await group.start("eve", contact=newcomer["contact"])
            await group.have_view("ana", "bo", "cy", "dana", "eve")

            await group.stop("bo")
            assert (await antecede("members", config, "remove", "bo"))[0] == 0
            await group.have_view("ana", "cy", "dana", "eve")

    run(test())


def test_a_member_leaves_by_the_members_command(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy") as group:
            config = configure(group, "ana")
            await group.groups["ana"].broadcast("to the last")
            code, output = await antecede("members", config, "leave")
            assert (code, "ana of room has left" in output) == (0, True), output
            await group.have_view("bo", "cy")
            await group.agree({"to the last"}, "bo", "cy")
            code, output = await antecede("members", config, "leave")
            assert (code, "no member answers there" in output) == (2, True)

    run(test())


def test_invalid_members_commands_are_refused_in_one_line(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy") as group:
            config = configure(group, "ana")
            for arguments, expected in (
                (["remove", "zoe"], "zoe is not another member"),
                (["remove", "ana"], "ana is this member itself; `leave` ends its membership"),
                (["remove"], "need a NAME"),
                (["leave", "bo"], "leave take none"),
                (["add", "bo"], "bo is a member already"),
                (["add", "a~b"], "separates a name"),
            ):
                code, output = await antecede("members", config, *arguments)
                assert (code, expected in output) == (2, True), output
            socket = tmp_path / "ana" / "control"
            assert stat.S_IMODE(socket.stat().st_mode) == 0o600
            for request in (b"nonsense\n", b'{"do": "explode"}\n', b'{"do": "list", "x": 1}\n'):
                reader, writer = await asyncio.open_unix_connection(socket)
                writer.write(request)
                assert "error" in json.loads(await reader.readline())
                writer.close()
            await group.stop("ana")
            assert not socket.exists()
            code, output = await antecede("members", config)
            assert (code, "no member answers there" in output) == (2, True)

    run(test())


def test_health_and_metrics_report_absent_members_and_their_removal(tmp_path: Path) -> None:
    async def test() -> None:
        options: dict[str, Any] = {"heartbeat": "200ms", "suspect_after": "600ms", "remove_after": "2s"}
        async with room(tmp_path) as group:
            await asyncio.gather(*(group.start(name, **options) for name in ("ana", "bo", "cy")))
            ana = group.groups["ana"]
            await group.have_view("ana", "bo", "cy")
            await group.stop("cy")
            await until(lambda: json.loads(health(ana)[1])["suspected"] == ["cy"], "the suspicion")
            await until(lambda: "away" in [each.kind for each in ana.problems()], "the problem")
            text = next(each.text for each in ana.problems() if each.kind == "away")
            assert "it is removed after 2s" in text
            assert b"antecede_suspected_members{" in render(ana)
            await until(lambda: ana.view.names == ["ana", "bo"], "the removal")
            await until(lambda: "removed" in group.kinds("ana", "cy"), "the end of the removal")
            kinds = group.kinds("ana", "cy")
            # Both others may remove it at the same time.
            assert list(dict.fromkeys(kinds)) == ["suspected", "removing", "removed"]
            await until(lambda: not json.loads(health(ana)[1])["problems"], "that nothing is left to do")

    run(test())


def test_automatic_removal_is_suspended_without_a_majority(tmp_path: Path) -> None:
    async def test() -> None:
        options: dict[str, Any] = {"heartbeat": "200ms", "suspect_after": "600ms", "remove_after": "1s"}
        async with room(tmp_path) as group:
            await asyncio.gather(*(group.start(name, **options) for name in ("ana", "bo", "cy")))
            ana = group.groups["ana"]
            await group.have_view("ana", "bo", "cy")
            await asyncio.gather(group.stop("bo"), group.stop("cy"))
            told = "it cannot be removed: only 1 of 3 members are there"
            await until(lambda: any(told in each.text for each in ana.problems()), told)

            def is_overdue(name: str) -> bool:
                since = ana.view.members[name].suspected
                return since is not None and time.time() - since > 1.5

            await until(lambda: is_overdue("bo") and is_overdue("cy"), "longer than remove_after")
            assert ana.view.names == ["ana", "bo", "cy"]

    run(test())


def test_a_store_shows_messages_that_were_never_delivered(tmp_path: Path) -> None:
    async def test() -> None:
        async with room(tmp_path, "ana", "bo", "cy") as group:
            await group.groups["ana"].broadcast("everybody has this")
            await group.agree({"everybody has this"}, "ana", "bo", "cy")
            await group.groups["ana"].drain()
            for name in ("bo", "cy"):
                await group.stop(name)
            ana = await _again(group, "ana")
            await ana.broadcast("nobody else has this")
            await group.stop("ana")
        code, output = await antecede("store", "show", tmp_path / "ana", "--json")
        shown = json.loads(output)
        assert (code, shown["accepted"], shown["held"], shown["intact"]) == (0, 1, 0, True)
        code, output = await antecede("store", "show", tmp_path / "ana", "--messages")
        found = [json.loads(line) for line in output.splitlines()]
        accepted = [each for each in found if each.get("accepted")]
        assert [(each["origin"], each["body"]) for each in accepted] == [("ana", "nobody else has this")]
        assert (await antecede("store", "check", tmp_path / "ana"))[0] == 0

    run(test())


async def _again(group: Room, name: str) -> Any:
    await group.stop(name)
    return await group.start(name, reads=False)


def test_chat_announces_membership_changes() -> None:
    change = MemberChange("joined", "dana~1f2e3d4c", "dana", "ana")
    assert describe_change(change, "bo") == "dana~1f2e3d4c has joined"
    change = MemberChange("removing", "cy", "cy", "ana")
    assert describe_change(change, "bo") == "cy is being removed by ana"
    change = MemberChange("parked", "cy", "cy", text="9 bytes")
    assert describe_change(change, "bo") == "cy parked: 9 bytes"
