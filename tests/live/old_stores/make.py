"""Makes stores as left behind by killed processes of a release.

    PYTHONPATH=tests/live/releases/WHEEL python tests/live/old_stores/make.py tests/live/old_stores/vN.zip

Three groups are left in the middle of something: one whose members come and go, one with a phone, one with a
fixed list of members. `expected.json` says what was delivered to applications by then, and all that was
accepted.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import antecede


class Application:
    """Reads a group's messages. One that ends with an exclamation mark is never acknowledged."""

    def __init__(self, group: Any, state: list[str]) -> None:
        self.group, self.delivered = group, state
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self.group:
            self.delivered.append(message.body)
            if message.body.endswith("!"):
                await asyncio.Event().wait()

    async def has(self, *bodies: str) -> None:
        while not {*bodies} <= {*self.delivered}:
            await asyncio.sleep(0.02)


class Scene:
    """Members of one group in this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.at: dict[str, Application] = {}
        self.accepted: list[str] = []

    async def start(self, name: str, is_changing: bool = True, **options: Any) -> None:
        state: list[str] = []
        if is_changing:
            options |= {"restore": lambda data: state.extend(json.loads(data))}
            if "super_peers" not in options:
                options |= {"snapshot": lambda: json.dumps(state).encode()}
        group = await antecede.join("room", me=name, store=self.folder / name, sync=False, **options)
        self.at[name] = Application(group, state)

    async def restart(self, name: str, **options: Any) -> None:
        """With a checkpoint in between."""
        former = self.at.pop(name)
        former.task.cancel()
        await asyncio.gather(former.task, return_exceptions=True)
        await former.group.aclose()
        await self.start(name, **options)
        self.at[name].delivered[:0] = former.delivered

    async def broadcast(self, name: str, *bodies: str) -> None:
        for body in bodies:
            await self.at[name].group.broadcast(body)
            self.accepted.append(body)

    async def spread(self, name: str, *bodies: str) -> None:
        """Broadcast and wait until every member has it."""
        await self.broadcast(name, *bodies)
        for each in self.at.values():
            await each.has(*bodies)

    def result(self) -> dict[str, Any]:
        return {
            "delivered": {name: each.delivered for name, each in self.at.items()},
            "accepted": self.accepted,
        }


def ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return found


async def changing(folder: Path) -> Scene:
    scene, names = Scene(folder), ("ana", "bo", "cy")
    places = {name: f"127.0.0.1:{port}" for name, port in zip(names, ports(3), strict=True)}
    founders = [f"{name}@{place}" for name, place in places.items()]
    await asyncio.gather(*(scene.start(name, founders=founders, listen=places[name]) for name in names))
    await scene.spread("ana", "ana 1", "ana 2")
    await scene.start("dana", contact=founders, listen="127.0.0.1:0")
    await scene.spread("dana", "dana 1")
    await scene.restart("bo", founders=founders, listen=places["bo"])
    await scene.spread("bo", "bo 1", "bo 2")
    cy = scene.at.pop("cy")
    await cy.group.aclose()
    await scene.at["ana"].group.remove("cy")
    while any(each.group.view.removing or "cy" in each.group.view.names for each in scene.at.values()):
        await asyncio.sleep(0.05)
    await scene.start("eve", contact=founders[:1], listen="127.0.0.1:0")
    await scene.spread("eve", "eve 1")
    eve = scene.at.pop("eve")
    await eve.group.leave()
    await scene.spread("ana", "ana 3")
    scene.at["bo"].group._connections.go_offline(1000)
    await scene.broadcast("bo", "bo 3", "bo 4")  # nobody else has them
    await scene.broadcast("dana", "dana 2")
    await scene.at["ana"].has("dana 2")  # bo has not
    await scene.broadcast("ana", "ana 4!")  # after it
    await asyncio.sleep(1.2)  # reports
    return scene


async def phones(folder: Path) -> Scene:
    scene, names = Scene(folder), ("sam", "sue")
    listening, web = ports(2), ports(2)
    founders = [f"{name}@127.0.0.1:{port}" for name, port in zip(names, listening, strict=True)]
    common: dict[str, Any] = {"founders": founders, "protocol": "freescale"}
    await asyncio.gather(
        *(
            scene.start(name, listen=f"127.0.0.1:{at}", web=f"127.0.0.1:{there}", **common)
            for name, at, there in zip(names, listening, web, strict=True)
        )
    )
    await scene.spread("sam", "sam 1")
    places = [f"{name}@ws://127.0.0.1:{port}" for name, port in zip(names, web, strict=True)]
    await scene.start("tom", super_peers=places[1:])
    await scene.spread("tom", "tom 1", "tom 2")
    await scene.spread("sue", "sue 1")
    await asyncio.sleep(1.2)
    scene.at["sue"].group._connections.go_offline(1000)
    await scene.broadcast("sam", "sam 2!")
    await scene.broadcast("sue", "sue 2")
    return scene


async def fixed(folder: Path) -> Scene:
    scene, names = Scene(folder), ("ana", "bo", "cy")
    places = {name: f"127.0.0.1:{port}" for name, port in zip(names, ports(3), strict=True)}
    peers = [f"{name}@{place}" for name, place in places.items()]
    options = {
        name: {"peers": [each for each in peers if not each.startswith(name)], "listen": places[name]}
        for name in names
    }
    await asyncio.gather(*(scene.start(name, False, **options[name]) for name in names))
    await scene.spread("ana", "ana 1", "ana 2")
    await scene.restart("bo", is_changing=False, **options["bo"])
    await scene.spread("bo", "bo 1")
    scene.at["bo"].group._connections.go_offline(1000)
    await scene.broadcast("bo", "bo 2")
    await scene.broadcast("cy", "cy 1")
    await scene.at["ana"].has("cy 1")
    await scene.broadcast("ana", "ana 3!")
    await asyncio.sleep(1.2)
    return scene


async def _make(kind: str, folder: Path) -> None:
    scene = await {"changing": changing, "phones": phones, "fixed": fixed}[kind](folder)
    (folder / "expected.json").write_text(json.dumps(scene.result()))
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    if len(sys.argv) == 3:
        asyncio.run(_make(sys.argv[1], Path(sys.argv[2])))
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        for kind in ("changing", "phones", "fixed"):
            (root / kind).mkdir()
            subprocess.run([sys.executable, __file__, kind, str(root / kind)], timeout=120)
            if not (root / kind / "expected.json").exists():
                raise SystemExit(f"{kind} failed")
        with zipfile.ZipFile(sys.argv[1], "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for file in sorted(root.rglob("*")):
                if file.is_file() and file.name not in ("lock", "control"):
                    entry = zipfile.ZipInfo(file.relative_to(root).as_posix(), (2026, 1, 1, 0, 0, 0))
                    archive.writestr(entry, file.read_bytes(), zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    main()
