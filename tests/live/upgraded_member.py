"""One member in a process of its own, of whatever release is in PYTHONPATH, under load.

Settings are on the command line, commands on its input, answers on its output, as JSON. Its application
checks its own deliveries: each message lists what its sender had delivered before.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from pathlib import Path
from typing import Any

import antecede

PAUSE = 0.02
"""Between two messages, in seconds."""


class Application:
    """What was delivered, in a file that is replaced before a message is acknowledged: it survives a kill."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.state: dict[str, Any] = {"all": [], "next": 1, "accepted": [], "violations": []}
        if path.exists():
            self.state = json.loads(path.read_text())
        self._update_last()

    def _update_last(self) -> None:
        self.last: dict[str, int] = {}
        """Of each sender."""
        for each in self.state["all"]:
            name, number = each.split(":")
            self.last[name] = int(number)

    def save(self) -> None:
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(self.state))
        new.replace(self._path)

    def deliver(self, body: Any, again: bool) -> None:
        name, number, seen = body
        if f"{name}:{number}" in self.state["all"]:
            if not again:
                self.violate(f"{name}:{number} twice")
            return
        if number < self.last.get(name, 0):
            self.violate(f"{name}:{number} after {self.last[name]}")
        for other, count in seen.items():
            if other != name and self.last.get(other, 0) < count:
                self.violate(f"{name}:{number} without {other}:{count}")
        self.state["all"].append(f"{name}:{number}")
        self.last[name] = number
        self.save()

    def violate(self, text: str) -> None:
        self.state["violations"].append(text)

    def dump(self) -> bytes:
        return json.dumps(self.state["all"]).encode()

    def load(self, data: bytes) -> None:
        self.state["all"] = json.loads(data)
        self._update_last()
        self.save()


def say(**values: Any) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


class Worker:
    def __init__(self, group: Any, application: Application, name: str) -> None:
        self.group, self.application, self.name = group, application, name
        self.is_loading = True

    async def broadcast(self) -> None:
        state = self.application.state
        while True:
            await asyncio.sleep(PAUSE)
            if self.is_loading:
                number = state["next"]
                state["next"] += 1  # before it is accepted: no number is used twice, whatever happens
                self.application.save()
                with contextlib.suppress(antecede.LocalError):  # a phone without a super peer
                    await self.group.broadcast([self.name, number, self.application.last])
                    state["accepted"].append(number)
                    self.application.save()

    async def read(self) -> None:
        async for message in self.group:
            self.application.deliver(message.body, message.redelivered)

    async def obey(self) -> None:
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        while line := (await reader.readline()).decode().strip():
            if line == "leave":
                self.is_loading = False
                await asyncio.sleep(2 * PAUSE)  # what is being broadcast is accepted by then
                await self.group.leave()
                say(left=True)
                return
            if line == "stop":
                return
            self.is_loading &= line != "quiet"
            version = getattr(getattr(self.group._core, "member", None), "version", 1)
            connected = list(self.group.connected)
            say(**self.application.state, last=self.application.last, connected=connected, version=version)


async def main(settings: dict[str, Any]) -> None:
    application = Application(Path(settings.pop("application")))
    if settings.get("founders") or settings.get("contact"):
        settings["snapshot"] = application.dump
    if not settings.get("peers"):
        settings["restore"] = application.load
    try:
        async with antecede.join("room", sync=False, **settings) as group:
            worker = Worker(group, application, settings["me"])
            tasks = [asyncio.create_task(each) for each in (worker.broadcast(), worker.read())]
            say(me=group.me)
            await worker.obey()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    except antecede.AntecedeError as error:
        say(error=str(error))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(main(json.loads(sys.argv[1])))
