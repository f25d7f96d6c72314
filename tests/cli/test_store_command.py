"""antecede store: it finds every damage, says what can be saved, and exports it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import antecede
import command_line
from antecede.live.events import TimerFired
from antecede.live.store.disk import FileDisk
from antecede.live.store.journal import Journal
from antecede.live.store.records import Checkpoint

SOCKET = shutil.ignore_patterns("control")
"""The socket in a running member's store, which cannot be copied."""
BODIES: list[Any] = ["one", {"two": 2}, b"\x00three", "four"]


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return command_line.antecede("store", *map(str, arguments))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Ana's store: three messages, a checkpoint and a fourth message, none of which Bo has received."""

    async def talk(bodies: list[Any]) -> None:
        async with antecede.join("room", me="ana", peers=["bo"], store=tmp_path / "ana.db") as group:
            for body in bodies:
                await group.broadcast(body)

    asyncio.run(talk(BODIES[:3]))
    store = tmp_path / "ana.db"
    asyncio.run(talk(BODIES[3:]))
    identity = {"group": "room", "member": "ana", "protocol": "mbcp", "members": ["ana", "bo"]}
    with Journal(FileDisk(store), identity, sync=False) as journal:
        journal.write([TimerFired(1)])
    return store


def test_an_intact_store(path: Path) -> None:
    checked = run("check", path)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "intact" in checked.stdout
    report = json.loads(run("check", path, "--json").stdout)
    assert (report["intact"], report["damages"]) == (True, [])


def test_show_prints_the_owner_and_content_of_a_store(path: Path) -> None:
    report = json.loads(run("show", path, "--json").stdout)
    assert (report["group"], report["member"], report["protocol"]) == ("room", "ana", "mbcp")
    assert (report["members"], len(report["store"])) == (["ana", "bo"], 16)
    assert (report["broadcast"], report["accepted"]) == (4, 4)
    shown = run("show", path)
    assert shown.returncode == 0
    for part in ("member: ana", "ana:4  'four'", "broadcast: 4"):
        assert part in shown.stdout


def test_messages_are_exported_all_or_after_one(path: Path) -> None:
    lines = [json.loads(line) for line in run("show", path, "--messages").stdout.splitlines()]
    accepted = [line for line in lines if line.get("accepted")]
    assert [(line["origin"], line["seq"]) for line in accepted] == [("ana", seq) for seq in (1, 2, 3, 4)]
    assert [line["body"] for line in accepted] == ["one", {"two": 2}, "AHRocmVl", "four"]
    assert [line.get("is_bytes", False) for line in accepted] == [False, False, True, False]
    after = run("show", path, "--messages", "--after", "ana:3").stdout.splitlines()
    assert [json.loads(line)["body"] for line in after if "accepted" in line] == ["four"]
    wrong = run("show", path, "--messages", "--after", "ana")
    assert wrong.returncode == 2
    assert "write NAME:SEQ" in wrong.stderr


def flip(file: Path, place: int) -> None:
    data = bytearray(file.read_bytes())
    data[place] ^= 4
    file.write_bytes(data)


def test_a_damaged_log_is_reported_with_what_can_be_saved(tmp_path: Path) -> None:
    store = tmp_path / "ana.db"

    async def talk() -> None:
        async with antecede.join("room", me="ana", peers=["bo"], store=store) as group:
            for body in ("one", "two", "three"):
                await group.broadcast(body)
            shutil.copytree(store, tmp_path / "killed", ignore=SOCKET)

    asyncio.run(talk())
    killed = tmp_path / "killed"
    assert run("check", killed).returncode == 0
    log = killed / "log-1"
    flip(log, log.read_bytes().find(b"two"))
    checked = run("check", killed)
    assert checked.returncode == 1
    assert re.search(r"log-1: record \d+: record \d+ does not match its checksum", checked.stdout)
    assert f"antecede store show {killed} --messages" in checked.stdout
    saved = [json.loads(line) for line in run("show", killed, "--messages").stdout.splitlines()]
    assert [
        (line["seq"], line["body"], line.get("verified", True)) for line in saved if "accepted" in line
    ] == [
        (1, "one", True),
        (None, "three", False),
    ]


@pytest.mark.parametrize("name", ["checkpoint", "cursor"])
@pytest.mark.parametrize("missing", [False, True])
def test_other_damaged_files(path: Path, name: str, missing: bool) -> None:
    (file,) = path.glob(name + "*")
    if missing:
        file.unlink()
    else:
        file.write_bytes(bytes(len(file.read_bytes())))
    checked = run("check", path, "--json")
    assert checked.returncode == 1
    (damage,) = json.loads(checked.stdout)["damages"]
    assert damage["file"].startswith(name)
    assert run("show", path).returncode == 0


def test_messages_after_an_unreadable_checkpoint_are_shown_as_unverified(tmp_path: Path) -> None:
    store = tmp_path / "ana.db"

    async def talk() -> None:
        async with antecede.join("room", me="ana", peers=["bo"], store=store) as group:
            await group.broadcast("only in the log")
            shutil.copytree(store, tmp_path / "killed", ignore=SOCKET)

    asyncio.run(talk())
    flip(tmp_path / "killed" / "checkpoint-1", 40)
    (line,) = run("show", tmp_path / "killed", "--messages").stdout.splitlines()
    message = json.loads(line)
    assert (message["body"], message["seq"], message["verified"]) == ("only in the log", None, False)


def test_a_path_that_is_not_a_store_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file")
    (tmp_path / "empty").mkdir()
    for wrong in ("file", "empty", "none"):
        checked = run("check", tmp_path / wrong)
        assert checked.returncode == 2
        assert len(checked.stderr.splitlines()) == 1
        assert "store" in checked.stderr
    assert sorted(file.name for file in tmp_path.rglob("*")) == ["empty", "file"]


@pytest.mark.skipif(os.name == "nt", reason="permissions are others there")
def test_store_commands_work_on_a_running_member_and_a_read_only_folder(tmp_path: Path) -> None:
    store = tmp_path / "ana.db"

    async def talk() -> None:
        async with antecede.join("room", me="ana", peers=["bo"], store=store) as group:
            await group.broadcast("hello")
            checked = await asyncio.to_thread(run, "check", store)
            assert checked.returncode == 0, checked.stderr

    asyncio.run(talk())
    before = {file.name: file.stat().st_mtime_ns for file in store.iterdir()}
    for file in store.iterdir():
        file.chmod(0o400)
    store.chmod(0o500)
    try:
        assert run("check", store).returncode == 0
        assert run("show", store).returncode == 0
    finally:
        store.chmod(0o700)
    assert {file.name: file.stat().st_mtime_ns for file in store.iterdir()} == before


def test_a_store_that_is_replaced_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    store = tmp_path / "ana.db"
    with Journal(FileDisk(store), {"group": "room"}, sync=False) as journal:
        checking = subprocess.Popen(
            [sys.executable, "-c", CHECK_OFTEN, str(store)], stdout=subprocess.PIPE, text=True
        )
        while checking.poll() is None:
            journal.write([], Checkpoint(b"", []))
        assert checking.stdout is not None
        assert checking.stdout.read() == "200 intact\n"


CHECK_OFTEN = """
import sys
from antecede.live.store.disk import FileDisk
from antecede.live.store.inspection import StoreInspection
print(sum(not StoreInspection(FileDisk(sys.argv[1])).damages for _ in range(200)), "intact")
"""
