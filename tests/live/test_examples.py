"""The examples run as documented, and their replicas converge under concurrent updates."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import random
import re
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live_groups import run, same, together

from antecede.live.group import Group

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@pytest.fixture(autouse=True)
def _examples_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


def shown(*words: str, given: str | None = None) -> list[str]:
    command, folder = [sys.executable, *words], EXAMPLES.parent
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, input=given, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_chat() -> None:
    lines = shown("examples/chat.py")
    assert lines[-1] == "-- everybody has received everything"
    at_cleo = [line.removeprefix("cleo reads ") for line in lines if line.startswith("cleo reads")]
    assert at_cleo[:2] == ["ana:1: is anybody here?", "cleo:1: I am, but my train leaves   (after ana:1)"]
    # Her question on return is concurrent with the messages she missed.
    assert [line for line in at_cleo[2:] if not line.startswith("cleo")] == [
        "ana:2: shall we meet at eight?   (after cleo:1)",
        "bo:1: yes!   (after ana:2)",
    ]
    assert [line.split("   ")[0] for line in at_cleo[2:] if line.startswith("cleo")] == [
        "cleo:2: what did I miss?"
    ]


def test_chat_in_two_processes(tmp_path: Path) -> None:
    """Ana is called by Bo, so only she needs a port; each says a line and leaves when the other has it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    store = ["--store", str(tmp_path / "ana.db")]
    chat = [sys.executable, "examples/chat.py"]
    ana = subprocess.Popen(
        [*chat, "ana", "bo", "--listen", f":{port}", *store],
        cwd=EXAMPLES.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with ana:
        assert ana.stdin is not None
        assert ana.stdout is not None
        try:
            ana.stdin.write("hello\n")
            ana.stdin.flush()
            assert shown("examples/chat.py", "bo", f"ana@127.0.0.1:{port}", given="hi\n")[0].startswith(
                ("bo reads ana:1", "bo reads bo:1")
            )
            assert ana.stdout.readline().startswith("ana reads ana:1: hello")
            assert ana.stdout.readline().startswith("ana reads bo:1: hi")
        finally:
            ana.kill()


def test_dispatch() -> None:
    """Servers, phones and a laptop; the full size is a command of its own."""
    lines = shown(
        *("examples/dispatch/trial.py", "--servers", "3", "--phones", "5", "--away", "1", "--pause", "0.5")
    )
    assert lines[-1] == "nothing stopped, and nothing was lost"


def test_rooms() -> None:
    """Cleo reads the report before the rollback, although the report's sender is away."""
    lines = shown("examples/rooms/workspace.py")
    report, rollback = "#incidents ana: nobody can log in", "#releases bo: 2.7 is rolled back"
    at_cleo = [line.removeprefix("cleo reads ") for line in lines if line.startswith("cleo reads")]
    assert [line.startswith(words) for line, words in zip(at_cleo[1:3], (report, rollback), strict=True)] == [
        True,
        True,
    ]
    assert at_cleo[3:] == ["#incidents ana: thanks, I can log in again"]
    assert lines.index(f"dan reads {at_cleo[2]}") < lines.index(f"cleo reads {at_cleo[2]}")


def test_sensors() -> None:
    """Its page shows what it prints."""
    lines = shown("examples/sensors/plant.py")
    assert lines == (EXAMPLES / "sensors" / "README.md").read_text().split("```")[3].strip().splitlines()


def test_shops() -> None:
    """A gateway is killed while messages pass; what the page shows is what is printed."""
    lines = shown("examples/shops/shops.py")
    assert lines == (EXAMPLES / "shops" / "README.md").read_text().split("```")[3].strip().splitlines()


def test_counter() -> None:
    assert shown("examples/counter.py") == [
        "after 20 + 30 + 50 likes: ana 100, bo 100, cleo 100",
        "ana resets, cleo is offline and adds 7: ana 0, cleo 107",
        "cleo is back: ana 7, bo 7, cleo 7",
    ]


def test_todo() -> None:
    lines = shown("examples/todo.py")
    assert [line.split(maxsplit=1)[1] for line in lines[9:12]] == [
        "[ ] oat milk; [ ] two loaves  or  [ ] rye bread; [x] tea"
    ] * 3
    assert [line.split(maxsplit=1)[1] for line in lines[-3:]] == [
        "[ ] oat milk; [ ] two loaves of rye bread"
    ] * 3


def test_a_list_survives_kills_with_nothing_lost_or_applied_twice(tmp_path: Path) -> None:
    """Ana's process is killed at any moment, also between the commit of her message and its application."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    chance = random.Random(19)
    program = [sys.executable, "-u", "examples/todo.py"]
    at_bo = subprocess.Popen(
        [*program, "bo", "--listen", f":{port}", "--folder", str(tmp_path / "bo"), "ana"],
        cwd=EXAMPLES.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    ana = [*program, "ana", "--folder", str(tmp_path / "ana"), f"bo@127.0.0.1:{port}"]
    added: list[str] = []
    with at_bo:
        try:
            for life in range(12):
                entries = "".join(f"{life}.{number}\n" for number in range(1000))
                added += _killed_while_adding(ana, entries, chance.random() * 0.2)
            lines = shown(*ana[1:], given="the last\n")  # it leaves when bo has everything
        finally:
            at_bo.kill()
    mine, theirs = (_list(tmp_path / who / "list.db") for who in ("ana", "bo"))
    assert mine == theirs
    numbers = [int(message.removeprefix("ana:")) for message in mine]
    assert sorted(numbers) == list(range(1, len(mine) + 1))
    assert mine.keys() >= set(added)
    assert len(added) >= 12
    assert len(set(mine.values())) == len(mine), "an entry is there twice"
    assert lines[-1].startswith("[ ] ")


def _killed_while_adding(program: list[str], entries: str, delay: float) -> list[str]:
    """The messages that were accepted, as far as the process could tell."""
    added = []
    with subprocess.Popen(
        program, cwd=EXAMPLES.parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(entries)
        with contextlib.suppress(BrokenPipeError):
            process.stdin.flush()
        added.append(process.stdout.readline())
        time.sleep(delay)
        process.kill()
        added += process.stdout.readlines()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
    return [line.split()[1] for line in added if line.endswith("\n")]


def _list(database: Path) -> dict[str, str]:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return dict(connection.execute("SELECT message, text FROM versions"))


@contextlib.asynccontextmanager
async def copies(kind: Any) -> AsyncIterator[list[Any]]:
    async with together("ana", "bo", "cleo") as groups:
        made = [kind(group) for group in groups]
        listening = [asyncio.create_task(each.listen()) for each in made]
        yield made
        await same(*groups)
        for task in listening:
            task.cancel()


async def disturb(chance: random.Random, group: Group) -> None:
    if chance.random() < 0.05:
        group.go_offline(chance.random() / 5)
    await asyncio.sleep(chance.random() / 200)


@settings(max_examples=4)
@given(st.integers(0, 2**32))
def test_replicated_counters_converge_under_concurrent_updates(seed: int) -> None:
    counter = importlib.import_module("counter")
    chance = random.Random(seed)

    async def use(mine: Any) -> None:
        for _ in range(25):
            await (mine.reset() if chance.random() < 0.1 else mine.add(chance.randrange(-9, 10)))
            await disturb(chance, mine.group)

    async def test() -> None:
        async with copies(counter.Counter) as counters:
            await asyncio.gather(*map(use, counters))
        first, *others = counters
        assert [each.added for each in others] == [first.added] * 2
        assert len({each.value for each in counters}) == 1

    run(test())


@settings(max_examples=4)
@given(st.integers(0, 2**32))
def test_replicated_lists_converge_under_concurrent_updates(seed: int) -> None:
    todo = importlib.import_module("todo")
    chance = random.Random(seed)

    async def use(mine: Any) -> None:
        for number in range(25):
            entries = sorted({each.entry for each in mine.versions.values()})
            entry = chance.choice(entries) if entries else None
            what = chance.choice(["add", "edit", "tick", "remove"])
            if what == "add" or entry is None:
                await mine.add(f"{mine.group.me}'s {number}")
            elif what == "edit":
                await mine.edit(entry, f"{mine.group.me}'s {number}")
            else:
                await getattr(mine, what)(entry)
            await disturb(chance, mine.group)

    async def test() -> None:
        async with copies(todo.Todo) as lists:
            await asyncio.gather(*map(use, lists))
        first, *others = lists
        assert [each.versions for each in others] == [first.versions] * 2
        assert [each.lines() for each in others] == [first.lines()] * 2

    run(test())


def test_the_readme_names_every_example() -> None:
    readme = (EXAMPLES.parent / "README.md").read_text()
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(re.findall(r"\(examples/(\w+\.py)\)", readme))
