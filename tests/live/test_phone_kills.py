"""Phones and super peers as processes that are killed (SIGKILL) under load: nothing is lost or duplicated."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from pathlib import Path
from typing import Any

from test_changing_kills import Processes

from antecede.live.trial.ports import free_ports

MEMBER = Path(__file__).parent / "changing_member.py"
PATIENCE = 110.0
PHONES = ("pia", "tim")
ROUNDS = 6


class ProcessesWithPhones(Processes):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.web_ports = dict(zip(self.ports, free_ports(3), strict=True))
        self.sent: list[str] = []

    async def launch(self, name: str) -> None:
        settings: dict[str, Any] = {"me": name, "store": str(self.folder / name)}
        settings["board"] = str(self.folder / f"{name}.json")
        if name in self.ports:
            settings |= {"founders": self.founders, "listen": f":{self.ports[name]}"}
            settings |= {"protocol": "freescale", "web": f"127.0.0.1:{self.web_ports[name]}"}
        else:
            places = [f"{each}@ws://127.0.0.1:{port}" for each, port in self.web_ports.items()]
            turn = PHONES.index(name)
            settings["super_peers"] = places[turn:] + places[:turn]
        pipe = asyncio.subprocess.PIPE
        self.running[name] = await asyncio.create_subprocess_exec(
            sys.executable, str(MEMBER), json.dumps(settings), stdin=pipe, stdout=pipe
        )

    async def broadcast(self, name: str, body: str) -> None:
        """An answered broadcast is accepted; an unanswered one may have been."""
        await self.ask(name, f"broadcast {body}")
        self.sent.append(body)


def test_phones_and_super_peers_are_killed_under_load(tmp_path: Path) -> None:
    async def test() -> None:
        group = ProcessesWithPhones(tmp_path)
        try:
            async with asyncio.timeout(PATIENCE):
                await _test(group, random.Random(3))
        finally:
            for name in list(group.running):
                await group.kill(name)

    asyncio.run(test())


async def _test(group: ProcessesWithPhones, rng: random.Random) -> None:
    await asyncio.gather(*map(group.start, group.ports))
    await asyncio.gather(*map(group.start, PHONES))
    everyone = [*group.ports, *PHONES]
    for turn in range(ROUNDS):
        for name in everyone:
            await group.broadcast(name, f"{turn} {name}")
        victims = rng.sample(list(group.ports), 1) + rng.sample(PHONES, rng.randrange(2))
        for name in victims:
            await group.kill(name)
        alive = [name for name in everyone if name not in victims]
        for name in alive:
            await group.broadcast(name, f"{turn} {name} without {' '.join(victims)}")
        await asyncio.gather(*map(group.start, victims))
    for name in everyone:
        await group.until(name, "bodies", group.sent)
