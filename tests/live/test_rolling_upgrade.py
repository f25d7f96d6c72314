"""Groups of real processes that are upgraded one after another from an earlier release, under load.

`releases/` has the earlier release. What members of a group that changes send each other and what they store
is of another version there: reports are sent as deltas only where both understand that, and all use the later
version in the end. Every process is its own oracle (`upgraded_member.py`).
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from antecede.live.trial.ports import free_ports
from antecede.live.versions import CHANGING_WIRE

HERE = Path(__file__).parent
MEMBER = HERE / "upgraded_member.py"
OLD = [HERE / "releases" / "antecede-0.1.0.dev1-py3-none-any.whl"]
NEW = [Path(each) for each in sys.path if each]
PATIENCE = 180.0


class Processes:
    """Members by name, each with a store and an application's file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings: dict[str, dict[str, Any]] = {}
        self.running: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, name: str, release: list[Path], **changes: Any) -> dict[str, Any]:
        settings = {
            **self.settings.get(name, {}),
            "me": name,
            "store": str(self.folder / name),
            "application": str(self.folder / f"{name}.json"),
            **changes,
        }
        pipe = asyncio.subprocess.PIPE
        self.running[name] = await asyncio.create_subprocess_exec(
            *(sys.executable, str(MEMBER), json.dumps(settings)),
            stdin=pipe,
            stdout=pipe,
            limit=1 << 24,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, release))},
        )
        return await self.read(name)

    async def read(self, name: str) -> dict[str, Any]:
        output = self.running[name].stdout
        assert output is not None
        line: dict[str, Any] = json.loads(await output.readline())
        return line

    async def ask(self, name: str, command: str = "look") -> dict[str, Any]:
        self.tell(name, command)
        return await self.read(name)

    def tell(self, name: str, command: str) -> None:
        into = self.running[name].stdin
        assert into is not None
        into.write(f"{command}\n".encode())

    async def stop(self, name: str) -> None:
        self.tell(name, "stop")
        await self.running.pop(name).wait()

    async def kill(self, name: str) -> None:
        process = self.running.pop(name)
        process.kill()
        await process.wait()

    async def until(self, condition: Callable[[dict[str, dict[str, Any]]], object]) -> dict[str, Any]:
        """The counts that all running members report."""
        while True:
            answers = {name: await self.ask(name) for name in self.running}
            if condition(answers):
                return answers
            await asyncio.sleep(0.1)

    async def exchange(self) -> None:
        """Wait until every member has new messages of every other."""
        before = {name: (await self.ask(name))["next"] for name in self.running}
        await self.until(
            lambda now: all(each["last"].get(name, 0) > before[name] for each in now.values() for name in now)
        )

    async def finish(self) -> None:
        """End the load: every member must have all accepted messages once, in causal order, and nothing
        else."""
        for name in self.running:
            await self.ask(name, "quiet")
        await asyncio.sleep(0.2)
        accepted = {
            f"{path.stem}:{number}"
            for path in self.folder.glob("*.json")
            for number in json.loads(path.read_text())["accepted"]
        }
        answers = await self.until(
            lambda now: (
                all(accepted <= set(each["all"]) for each in now.values())
                and len({tuple(sorted(each["all"])) for each in now.values()}) == 1
            )
        )
        for name, each in answers.items():
            assert each["violations"] == [], name
            assert len(each["all"]) == len(set(each["all"])), name
        assert len(accepted) > 50


def run(folder: Path, test: Callable[[Processes], Any]) -> None:
    async def within() -> None:
        processes = Processes(folder)
        try:
            async with asyncio.timeout(PATIENCE):
                await test(processes)
        finally:
            for name in list(processes.running):
                await processes.kill(name)

    asyncio.run(within())


def test_a_group_of_three_is_upgraded_one_member_at_a_time_and_back_before_the_last(tmp_path: Path) -> None:
    async def test(group: Processes) -> None:
        places = dict(zip(("ana", "bo", "cy"), free_ports(3), strict=True))
        founders = [f"{name}@127.0.0.1:{port}" for name, port in places.items()]
        for name, port in places.items():
            group.settings[name] = {"founders": founders, "listen": f"127.0.0.1:{port}"}
        await asyncio.gather(*(group.start(name, OLD) for name in places))
        await group.exchange()
        await group.stop("cy")
        assert (await group.start("cy", NEW))["me"] == "cy"
        await group.exchange()
        await group.kill("bo")
        assert (await group.start("bo", NEW))["me"] == "bo"
        await group.exchange()
        # Back, since one is not upgraded: the store is of the later version, so it leaves and joins again.
        assert (await group.ask("bo", "leave"))["left"]
        await group.running.pop("bo").wait()
        refused = await group.start("bo", OLD)
        assert "store of format 9, and this Antecede reads 8: use a newer Antecede" in refused["error"]
        await group.running.pop("bo").wait()
        shutil.rmtree(tmp_path / "bo")
        group.settings["bo"] = {"contact": founders[:1], "listen": "127.0.0.1:0"}
        assert (await group.start("bo", OLD))["me"].startswith("bo~")
        await group.exchange()
        assert {each["version"] for each in (await group.until(bool)).values()} == {1}
        await group.kill("bo")
        await group.start("bo", NEW)
        await group.exchange()
        await group.kill("ana")
        await group.start("ana", NEW)
        await group.until(lambda now: {each["version"] for each in now.values()} == {max(CHANGING_WIRE)})
        await group.exchange()
        await group.finish()

    run(tmp_path, test)


def test_super_peers_are_upgraded_before_a_phone(tmp_path: Path) -> None:
    async def test(group: Processes) -> None:
        names = ("sam", "sue")
        listening, web = free_ports(2), free_ports(2)
        founders = [f"{name}@127.0.0.1:{port}" for name, port in zip(names, listening, strict=True)]
        for name, at, there in zip(names, listening, web, strict=True):
            group.settings[name] = {
                "founders": founders,
                "listen": f"127.0.0.1:{at}",
                "web": f"127.0.0.1:{there}",
                "protocol": "freescale",
            }
        group.settings["tom"] = {"super_peers": [f"sue@ws://127.0.0.1:{web[1]}"]}
        await asyncio.gather(*(group.start(name, OLD) for name in names))
        await group.start("tom", OLD)
        await group.exchange()
        for name in ("sue", "sam", "tom"):
            await group.kill(name)
            await group.start(name, NEW)
            await group.exchange()
        await group.finish()

    run(tmp_path, test)


def test_a_group_with_a_fixed_list_of_members_is_upgraded_and_back(tmp_path: Path) -> None:
    async def test(group: Processes) -> None:
        places = dict(zip(("ana", "bo", "cy"), free_ports(3), strict=True))
        for name, port in places.items():
            peers = [f"{other}@127.0.0.1:{at}" for other, at in places.items() if other != name]
            group.settings[name] = {"peers": peers, "listen": f"127.0.0.1:{port}"}
        await asyncio.gather(*(group.start(name, OLD) for name in places))
        await group.exchange()
        for name, release in (("cy", NEW), ("bo", NEW), ("bo", OLD), ("bo", NEW), ("ana", NEW)):
            await group.kill(name)
            await group.start(name, release)
            await group.exchange()
        await group.finish()

    run(tmp_path, test)
