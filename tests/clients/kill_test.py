"""The kill test of the TypeScript client in Node: it is killed (SIGKILL) at random moments while it and
others broadcast, and nothing is lost or comes twice.

    python tests/clients/kill_test.py [KILLS] [SEED]

Three Python members are its super peers; every third time it is told to move to another one, and every tenth
time the one that it is behind is started again, too.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from node_phones import NodePhone

sys.path.insert(0, str(Path(__file__).parents[1] / "live"))

from live_groups import until
from phone_rooms import PhoneRoom, phone_room

RESTART_EVERY = 10
MOVE_EVERY = 3
BURST = 6


class KillTest:
    """A room, and a phone that is killed in it."""

    def __init__(self, room: PhoneRoom, phone: NodePhone, seed: int) -> None:
        self._room, self._phone, self._rng = room, phone, random.Random(seed)
        self.accepted: list[str] = []
        """Broadcasts accepted by members, or by the phone before it was killed."""
        self.tried: list[str] = []
        self.restarts = self.moves = 0

    async def run(self, kills: int) -> None:
        for turn in range(kills):
            await self._phone.start()
            if turn % RESTART_EVERY == RESTART_EVERY - 1:
                await self._restart_its_super_peer(turn)
            if turn % MOVE_EVERY == 0:
                self.moves += 1
                self._phone.tell(f"move {self._rng.choice(sorted(self._room.super_peers))}")
            bodies = [f"nod {turn:05}.{each}" for each in range(BURST)]
            for body in bodies:
                self._phone.tell(f"broadcast {body}")
            self.tried += bodies
            members = [self._broadcast(name, f"{name} {turn:05}") for name in ("bo", "cy")]
            killing = asyncio.create_task(self._kill())
            await asyncio.gather(*members)
            answers = await killing
            done = [answer["done"] for answer in answers]
            self.accepted += [
                each.removeprefix("broadcast ") for each in done if each.startswith("broadcast ")
            ]

    async def _restart_its_super_peer(self, turn: int) -> None:
        """Stopped and started, with the same application."""
        name = (await self._phone.ask("look"))["superPeer"]
        if name:
            self.restarts += 1
            self._room.next_board = self._room.boards[name]
            await self._room.stop(name)
            await self._room.start(name)

    async def _broadcast(self, name: str, body: str) -> None:
        await self._room.groups[name].broadcast(body)
        self.accepted.append(body)

    async def _kill(self) -> list[dict[str, Any]]:
        await asyncio.sleep(self._rng.uniform(0, 0.08))
        return await self._phone.kill()

    async def judge(self) -> dict[str, int]:
        """Lost and duplicate messages, once every process has caught up."""
        began = await self._phone.start()
        assert not began.get("failed"), began
        await self._room.groups["bo"].broadcast("the end")
        boards = self._room.boards.values()
        await until(lambda: all("the end" in board.bodies for board in boards), "the end at the members")
        await until(lambda: len({str(sorted(board.bodies)) for board in boards}) == 1, "the same at all")
        everything = set(self._room.boards["bo"].bodies)
        async with asyncio.timeout(60):
            while not everything <= set(mine := await self._phone.bodies()):
                await asyncio.sleep(0.05)
        lists = [*(board.bodies for board in boards), mine]
        lost = sum(body not in bodies for body in self.accepted for bodies in lists)
        twice = sum(len(bodies) - len(set(bodies)) for bodies in lists)
        own = [[body for body in bodies if body.startswith("nod ")] for bodies in lists]
        disordered = sum(bodies != sorted(bodies) for bodies in own)
        foreign = sum(body not in {*self.tried, *self.accepted, "the end"} for body in mine)
        return {
            "accepted": len(self.accepted),
            "lost": lost,
            "twice": twice,
            "out of order": disordered,
            "made up": foreign,
            "moves asked for": self.moves,
            "super peers restarted": self.restarts,
        }


async def kill_test(folder: Path, kills: int, seed: int = 1) -> dict[str, int]:
    async with phone_room(folder) as room:
        phone = NodePhone(folder, me="nod", superPeers=list(room.super_peers.values()))
        try:
            test = KillTest(room, phone, seed)
            await test.run(kills)
            return await test.judge()
        finally:
            await phone.kill()


if __name__ == "__main__":
    count, *rest = map(int, sys.argv[1:] or ["200"])
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as made:
        found = asyncio.run(kill_test(Path(made), count, *rest))
    print(
        f"{count} kills in {time.monotonic() - start:.0f} s:",
        ", ".join(f"{n} {what}" for what, n in found.items()),
    )
