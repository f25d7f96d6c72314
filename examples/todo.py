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
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import antecede


class Version(NamedTuple):
    entry: str
    """The message that added the entry."""
    text: str
    done: bool


class Todo:
    """One member's copy of the list."""

    def __init__(self, group: antecede.Group) -> None:
        self.group = group
        self.versions: dict[str, Version] = {}

    # Operations of the user

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
        if seen := self.entry(entry):  # otherwise somebody has removed it
            last = seen[max(seen)]
            new = {"text": last.text, "done": last.done} | change
            await self._broadcast({"entry": entry, "replaces": list(seen)} | new)

    # Broadcast and delivery

    async def _broadcast(self, operation: dict[str, Any]) -> str:
        message = str(await self.group.broadcast(operation))
        self._apply(message, operation)
        return message

    async def listen(self) -> None:
        async for message in self.group:
            self._apply(str(message.id), message.body)

    def _apply(self, message: str, operation: dict[str, Any]) -> None:
        for seen in operation["replaces"]:
            self.versions.pop(seen, None)
        if "text" in operation:
            entry = operation.get("entry", message)
            self.versions[message] = Version(entry, operation["text"], operation["done"])

    # Views

    def entry(self, entry: str) -> dict[str, Version]:
        """Its versions: one, several that were written concurrently, or none."""
        return {message: each for message, each in self.versions.items() if each.entry == entry}

    def lines(self) -> list[str]:
        entries = sorted({each.entry for each in self.versions.values()})
        return [
            "  or  ".join(
                f"[{'x' if each.done else ' '}] {each.text}" for _, each in sorted(versions.items())
            )
            for versions in map(self.entry, entries)
        ]


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
    asyncio.run(demonstration())


if __name__ == "__main__":
    main()
