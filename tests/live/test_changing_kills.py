"""Members of a changing group as processes that are killed (SIGKILL) and resume from their stores."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from antecede.live.trial.ports import free_ports

MEMBER = Path(__file__).parent / "changing_member.py"
PATIENCE = 60.0


class Processes:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        names = ("ana", "bo", "cy")
        self.ports = dict(zip(names, free_ports(3), strict=True))
        self.founders = [f"{name}@127.0.0.1:{port}" for name, port in self.ports.items()]
        self.running: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, name: str) -> dict[str, Any]:
        """Start a process and wait until it is a member."""
        await self.launch(name)
        return await self.read(name)

    async def launch(self, name: str) -> None:
        settings: dict[str, Any] = {"me": name, "store": str(self.folder / name), "listen": ":0"}
        settings["board"] = str(self.folder / f"{name}.json")
        if name in self.ports:
            settings |= {"founders": self.founders, "listen": f":{self.ports[name]}"}
        else:
            settings["contact"] = self.founders[:1]
        pipe = asyncio.subprocess.PIPE
        self.running[name] = await asyncio.create_subprocess_exec(
            sys.executable, str(MEMBER), json.dumps(settings), stdin=pipe, stdout=pipe
        )

    async def read(self, name: str) -> dict[str, Any]:
        output = self.running[name].stdout
        assert output is not None
        line: dict[str, Any] = json.loads(await output.readline())
        return line

    async def ask(self, name: str, command: str) -> dict[str, Any]:
        into = self.running[name].stdin
        assert into is not None
        into.write(f"{command}\n".encode())
        return await self.read(name)

    async def kill(self, name: str) -> None:
        process = self.running.pop(name)
        process.kill()
        await process.wait()

    async def until(self, name: str, key: str, value: list[Any]) -> None:
        while sorted((await self.ask(name, "look"))[key]) != sorted(value):
            await asyncio.sleep(0.1)


def test_members_are_killed_while_one_joins_and_one_is_removed(tmp_path: Path) -> None:
    async def test() -> None:
        group = Processes(tmp_path)
        try:
            async with asyncio.timeout(PATIENCE):
                await _test(group)
        finally:
            for name in list(group.running):
                await group.kill(name)

    asyncio.run(test())


async def _test(group: Processes) -> None:
    await asyncio.gather(*(group.start(name) for name in group.ports))
    for number in range(3):
        await group.ask("ana", f"broadcast {number}")
    # The sponsor is killed while it is asked, and comes back.
    await group.launch("dana")
    await asyncio.sleep(0.7)
    await group.kill("ana")
    await group.start("ana")
    began = await group.read("dana")
    assert began["me"].startswith("dana~")
    await group.ask("bo", "broadcast 3")
    await group.until("dana", "bodies", ["0", "1", "2", "3"])
    # The newcomer is killed, and is the same member afterwards.
    await group.kill("dana")
    await group.ask("ana", "broadcast 4")
    assert (await group.start("dana"))["me"] == began["me"]
    await group.until("dana", "bodies", ["0", "1", "2", "3", "4"])
    # A dead member is removed; the group goes on.
    await group.kill("cy")
    await group.ask("dana", "remove cy")
    for name in ("ana", "bo", "dana"):
        await group.until(name, "view", ["ana", "bo", "dana"])
    await group.ask("dana", "broadcast 5")
    await group.until("bo", "bodies", ["0", "1", "2", "3", "4", "5"])
    assert (await group.ask("dana", "leave"))["left"]
    await group.until("ana", "view", ["ana", "bo"])
