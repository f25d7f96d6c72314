"""A to-do list that several people edit concurrently, connected or not; all copies converge.

    python examples/todo.py

An entry is a set of versions, each identified by the message that wrote it. There is one operation: replace
these versions, which I have seen, by that one, or by none, which removes the entry. If two people change an
entry concurrently, neither has seen the other's version, so both stay, and the next edit replaces both.
If one removes what another is editing, the edit stays. This is an observed-remove set.

It is correct, and short, because of causal order. An operation names versions that its author had seen, so
they are already here, or were here and were replaced. Without causal order an operation could overtake the
version that it replaces, and that version would reappear, unless everybody kept a list of everything ever
replaced (tombstones). Here only the list itself is kept.

The list is in SQLite. One transaction applies a message and records that it is applied, and only then is the
message acked. So `kill -9` at any moment loses nothing and applies nothing twice: what was not acked is
delivered again, the author's own messages included, and what was applied already is skipped. In two terminals
(each line of the input is a new entry):

    python examples/todo.py ana --listen :7000 --folder ana bo@127.0.0.1:7001
    python examples/todo.py bo --listen :7001 --folder bo ana@127.0.0.1:7000
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import sys
from pathlib import Path
from typing import Any, NamedTuple

import antecede

TABLES = """
CREATE TABLE IF NOT EXISTS versions (message TEXT PRIMARY KEY, entry TEXT, text TEXT, done INTEGER);
CREATE TABLE IF NOT EXISTS applied (origin TEXT PRIMARY KEY, seq INTEGER);
"""


class Version(NamedTuple):
    entry: str
    """The message that added the entry."""
    text: str
    done: bool


class Todo:
    """One member's copy of the list."""

    def __init__(self, group: antecede.Group, database: str | Path = ":memory:") -> None:
        self.group = group
        self._database = sqlite3.connect(database)
        self._database.executescript(TABLES)
        self._changed = asyncio.Condition()

    # Operations of the user.

    async def add(self, text: str) -> str:
        return await self._broadcast({"text": text, "done": False, "replaces": []})

    async def edit(self, entry: str, text: str) -> None:
        await self._change(entry, text=text)

    async def tick(self, entry: str) -> None:
        await self._change(entry, done=True)

    async def remove(self, entry: str) -> None:
        if seen := self.entry(entry):
            await self._broadcast({"entry": entry, "replaces": list(seen)})

    async def _change(self, entry: str, **change: Any) -> None:
        if seen := self.entry(entry):  # Otherwise another user has removed it.
            last = seen[max(seen)]
            new = {"text": last.text, "done": last.done} | change
            await self._broadcast({"entry": entry, "replaces": list(seen)} | new)

    # Broadcast and delivery.

    async def _broadcast(self, operation: dict[str, Any]) -> str:
        """Broadcast an operation, and wait until it is applied here: the user sees what they have done."""
        message = await self.group.broadcast(operation)
        async with self._changed:
            await self._changed.wait_for(lambda: self.applied(message.origin) >= message.seq)
        return str(message)

    async def listen(self) -> None:
        """Apply what is delivered, one's own messages included. Only here does the list change."""
        async for message in self.group:  # Asking for the next message acks the previous one.
            self._apply(message)
            async with self._changed:
                self._changed.notify_all()

    def _apply(self, message: antecede.Message) -> None:
        if message.seq <= self.applied(message.origin):
            return  # It was applied, and the process died before the ack.
        operation = message.body
        with self._database as transaction:
            for seen in operation["replaces"]:
                transaction.execute("DELETE FROM versions WHERE message = ?", (seen,))
            if "text" in operation:
                entry = operation.get("entry", str(message.id))
                row = (str(message.id), entry, operation["text"], operation["done"])
                transaction.execute("INSERT INTO versions VALUES (?, ?, ?, ?)", row)
            transaction.execute("INSERT OR REPLACE INTO applied VALUES (?, ?)", (message.origin, message.seq))

    # Views.

    def applied(self, origin: str) -> int:
        """The number of messages of a member that are applied to the list."""
        row = self._database.execute("SELECT seq FROM applied WHERE origin = ?", (origin,)).fetchone()
        return int(row[0]) if row else 0

    @property
    def versions(self) -> dict[str, Version]:
        rows = self._database.execute("SELECT message, entry, text, done FROM versions")
        return {message: Version(entry, text, bool(done)) for message, entry, text, done in rows}

    def entry(self, entry: str) -> dict[str, Version]:
        """The versions of an entry: one, several that were written concurrently, or none."""
        return {message: each for message, each in self.versions.items() if each.entry == entry}

    def lines(self) -> list[str]:
        entries = sorted({each.entry for each in self.versions.values()})
        return [
            "  or  ".join(
                f"[{'x' if each.done else ' '}] {printable(each.text)}"
                for _, each in sorted(versions.items())
            )
            for versions in map(self.entry, entries)
        ]


def printable(text: str) -> str:
    """Escape what other members wrote: a terminal would obey control characters."""
    return "".join(character if character.isprintable() else "?" for character in text)


async def write_list(me: str, listen: str | None, folder: Path, peers: list[str]) -> None:
    """Add each line of standard input to the list; print what is accepted, and the list in the end."""
    folder.mkdir(parents=True, exist_ok=True)
    async with antecede.join("list", me=me, listen=listen, peers=peers, store=folder / "store") as group:
        todo = Todo(group, folder / "list.db")
        listening = asyncio.create_task(todo.listen())
        while line := await asyncio.to_thread(sys.stdin.readline):
            print("added", await todo.add(line.rstrip("\n")), flush=True)
        await group.drain()
        print("\n".join(todo.lines()))
        listening.cancel()


async def wait_until_equal(*lists: Todo) -> None:
    """Wait until all have delivered the same messages."""
    while len({tuple(each.group.delivered().values()) for each in lists}) > 1:
        await asyncio.sleep(0.01)


def show(title: str, *lists: Todo) -> None:
    print(title)
    for each in lists:
        print(f"  {each.group.me:<5}", "; ".join(each.lines()) or "nothing to do")


async def demonstration() -> None:
    async with (
        antecede.join("list", me="cleo", listen=":0", peers=["ana", "bo"]) as third,
        antecede.join("list", me="bo", listen=":0", peers=["ana", f"cleo@{third.address}"]) as second,
        antecede.join("list", me="ana", peers=[f"bo@{second.address}", f"cleo@{third.address}"]) as first,
    ):
        ana, bo, cleo = everybody = [Todo(group) for group in (first, second, third)]
        listening = [asyncio.create_task(each.listen()) for each in everybody]

        milk, bread = await ana.add("milk"), await ana.add("bread")
        await wait_until_equal(*everybody)
        tea = await cleo.add("tea")
        await wait_until_equal(*everybody)
        show("Ana and Cleo write a list:", *everybody)

        second.go_offline(0.5)
        await bo.edit(milk, "oat milk")
        await bo.edit(bread, "rye bread")
        await bo.tick(tea)
        await ana.remove(milk)
        await ana.edit(bread, "two loaves")
        await cleo.remove(tea)
        show("Bo is in the cellar without a connection; meanwhile:", *everybody)

        await wait_until_equal(*everybody)
        show("Bo is back. What was changed is not lost, even if somebody removed it:", *everybody)

        await cleo.edit(bread, "two loaves of rye bread")
        await bo.remove(tea)
        await wait_until_equal(*everybody)
        show("Cleo settles the bread, Bo drops the tea:", *everybody)
        for task in listening:
            task.cancel()


def main() -> None:
    if len(sys.argv) == 1:
        asyncio.run(demonstration())
        return
    parser = argparse.ArgumentParser(description="A shared to-do list over causal broadcast.")
    parser.add_argument("me", help="your name")
    parser.add_argument("peers", nargs="+", help="every other member, as name@host:port")
    parser.add_argument("--listen", help="host:port, or :port for this machine only")
    parser.add_argument("--folder", type=Path, required=True, help="keeps the list and what was accepted")
    options = parser.parse_args()
    try:
        asyncio.run(write_list(options.me, options.listen, options.folder, options.peers))
    except KeyboardInterrupt:
        print("left", file=sys.stderr)


if __name__ == "__main__":
    main()
