"""A workspace of rooms that overlap: people are in some of them, and read all theirs in one causal order.

    python examples/rooms/workspace.py

Ana reports an incident in one room, and Bo rolls back a release because of it and says so in another. Cleo is
in both. Whatever the network does, and whoever is away, she reads the report before the rollback. Dan, who is
not in the room of the report, does not wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import antecede

ROOMS = {"incidents": ["ana", "bo", "cleo"], "releases": ["bo", "cleo", "dan"]}


class Desk:
    """A person at a computer, which is switched off now and then."""

    def __init__(self, name: str, folder: Path, at: dict[str, str]) -> None:
        self.name, self._store, self._at = name, folder / name, at
        self.transcript: list[str] = []
        """All rooms of this person, in the order in which they are read."""
        self._reading: asyncio.Task[None] | None = None

    async def switch_on(self) -> None:
        """Switch on, for the first time or again: the state is in the store."""
        self._node = await antecede.connect(me=self.name, listen=self._at[self.name], store=self._store)
        self.rooms = {
            room: await self._node.join(room, founders=[f"{each}@{self._at[each]}" for each in people])
            for room, people in ROOMS.items()
            if self.name in people
        }
        self._reading = asyncio.create_task(self._read())

    async def switch_off(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading
        await self._node.aclose()

    async def say(self, room: str, text: str, because_of: str = "") -> None:
        """Post a message: everything this person has read precedes it, in any room; `because_of` is only
        shown."""
        await self.rooms[room].broadcast({"text": text, "because of": because_of})

    async def _read(self) -> None:
        async for message in self._node:  # All rooms, in one causal order.
            self.transcript.append(shown(message))

    async def has_read(self, text: str) -> None:
        await until(lambda: any(text in line for line in self.transcript))

    def waits(self) -> list[str]:
        """The messages that have arrived here but are not shown yet, and why."""
        return [
            f"a message of {each.id.origin} in {name} waits for one of {each.cause.origin} in {each.group}"
            for name, room in self.rooms.items()
            for each in room.waiting()
            if each.cause is not None
        ]


def shown(message: Any) -> str:
    because = message.body["because of"]
    return f"#{message.group} {message.origin}: {message.body['text']}" + (
        f"   ({because})" if because else ""
    )


async def until(condition: Callable[[], Any], seconds: float = 120) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


def free_places(names: list[str]) -> dict[str, str]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in names]
    places = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return dict(zip(names, places, strict=True))


async def story(folder: Path) -> None:
    names = sorted({name for people in ROOMS.values() for name in people})
    at = free_places(names)
    desks = {name: Desk(name, folder, at) for name in names}
    ana, bo, cleo, dan = desks.values()
    # The rooms begin when most of their founders are present.
    await asyncio.gather(*(each.switch_on() for each in desks.values()))
    try:
        await ana.say("incidents", "good morning")
        await asyncio.gather(bo.has_read("morning"), cleo.has_read("morning"))

        print("-- Cleo is on a train. Ana reports something to Bo, and closes her laptop.")
        await cleo.switch_off()
        await ana.say("incidents", "nobody can log in since 9:40")
        await bo.has_read("log in")
        await ana.switch_off()

        print("-- Bo rolls back the release, and says so in another room.")
        await bo.say("releases", "2.7 is rolled back", "see #incidents")
        await dan.has_read("rolled back")
        print(f"dan reads {dan.transcript[-1]}")

        print("-- Cleo is there again. Bo's message is sent to her at once; Ana's laptop is still closed.")
        await cleo.switch_on()
        waited: set[str] = set()
        while "rolled back" not in cleo.transcript[-1]:
            waited.update(cleo.waits())
            await asyncio.sleep(0.02)
        for line in waited:
            print(f"for a while, {line}")
        for line in cleo.transcript:
            print(f"cleo reads {line}")

        print("-- Ana opens her laptop.")
        await ana.switch_on()
        await ana.say("incidents", "thanks, I can log in again")
        await cleo.has_read("thanks")
        print(f"cleo reads {cleo.transcript[-1]}")
    finally:
        for each in desks.values():
            with contextlib.suppress(antecede.AntecedeError):
                await each.switch_off()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        asyncio.run(story(Path(temporary)))
