"""Processes of the dispatch example: servers, a laptop, and many phones in one process.

    python examples/dispatch/member.py      # takes commands from its input, one JSON object in each line

Each member has a board, which is its whole application: the number of reports it has from each author. The
board records every fault: a report that is missing or delivered twice, or an answer to a report that is not
there. `trial.py` starts these processes, and decides what happens to them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import antecede


class Board:
    """The application state of one member."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.counts: dict[str, int] = json.loads(file.read_text()) if file.exists() else {}
        self.faults: list[str] = []
        self._last_at, self.longest_pause = float("inf"), 0.0

    def dump(self) -> bytes:
        """A snapshot for a newcomer; called between two messages."""
        return json.dumps(self.counts).encode()

    def load(self, state: bytes) -> None:
        self.counts = json.loads(state)

    def save(self) -> None:
        self._file.write_text(json.dumps(self.counts))

    def take(self, message: antecede.Message) -> None:
        author, number, answers = message.body["by"], message.body["number"], message.body["answers"]
        now = time.monotonic()
        self.longest_pause = max(self.longest_pause, now - self._last_at)
        self._last_at = now
        have = self.counts.get(author, 0)
        if message.own:  # A phone that returns may receive its own former reports after its newest one.
            self.counts[author] = max(have, number)
            return
        if message.redelivered and number <= have:
            return  # It was in flight when the process stopped.
        if number != have + 1:
            self.faults.append(f"report {number} of {author} comes after {have}")
        if answers and self.counts.get(answers[0], 0) < answers[1]:
            self.faults.append(f"report {number} of {author} answers one that is not there: {answers}")
        self.counts[author] = number


class Person:
    """A member and its user, who sends a report now and then."""

    def __init__(self, name: str, folder: Path, settings: dict[str, Any]) -> None:
        self.name, self._settings = name, settings
        self.board = Board(folder / f"{name}.board")
        self._file = folder / f"{name}.reports"
        self.accepted = int(self._file.read_text()) if self._file.exists() else 0
        self.refusals = 0
        self.is_there = asyncio.Event()
        self._is_leaving, self._between_reports = asyncio.Event(), asyncio.Lock()
        self._pause, self._has_new_pace = 0.0, asyncio.Event()
        self._task = asyncio.create_task(self._run())

    async def until_there(self) -> None:
        """Wait until it is a member; raise the error that prevented it."""
        there = asyncio.create_task(self.is_there.wait())
        await asyncio.wait([there, self._task], return_when=asyncio.FIRST_COMPLETED)
        if not self.is_there.is_set():
            await self._task

    async def _run(self) -> None:
        settings = antecede.Settings.create(**self._settings)
        snapshot = None if settings.super_peers else self.board.dump  # Phones admit nobody.
        async with antecede.join(settings, snapshot=snapshot, restore=self.board.load) as group:
            self.group = group
            self.is_there.set()
            reporting = asyncio.create_task(self._report(group))
            reading = asyncio.create_task(self._read(group))
            await asyncio.wait(
                [asyncio.create_task(self._is_leaving.wait()), reading], return_when=asyncio.FIRST_COMPLETED
            )
            # Not in the middle of a broadcast: it may have been accepted, and would not be counted.
            await self._between_reports.acquire()
            for each in (reporting, reading):
                each.cancel()
            for result in await asyncio.gather(reporting, reading, return_exceptions=True):
                if isinstance(result, Exception):
                    self.board.faults.append(f"{self.name}: {result!r}")
        self.board.save()
        self._file.write_text(str(self.accepted))

    async def _read(self, group: antecede.Group) -> None:
        async for message in group:
            self.board.take(message)

    async def _report(self, group: antecede.Group) -> None:
        while True:
            self._has_new_pace.clear()
            seconds = random.expovariate(1 / self._pause) if self._pause else None
            try:
                async with asyncio.timeout(seconds):
                    await self._has_new_pace.wait()
            except TimeoutError:
                async with self._between_reports:
                    await self._report_once(group)

    async def _report_once(self, group: antecede.Group) -> None:
        """Answer another author's last report. The report counts once it is accepted."""
        other = random.choice(sorted(self.board.counts)) if self.board.counts else None
        answers = None if other is None else [other, self.board.counts[other]]
        body = {"by": self.name, "number": self.accepted + 1, "answers": answers}
        try:
            await group.broadcast(body)
        except antecede.AntecedeError:
            self.refusals += 1  # No server can be reached now; the user tries again.
        else:
            self.accepted += 1

    def set_pace(self, pause: float) -> None:
        """Seconds between two reports, on average; 0 for none."""
        self._pause = pause
        self._has_new_pace.set()

    async def stop(self) -> None:
        self._is_leaving.set()
        await self._task

    def status(self) -> dict[str, Any]:
        group = self.group if self.is_there.is_set() else None
        return {
            "counts": self.board.counts,
            "accepted": self.accepted,
            "refusals": self.refusals,
            "faults": self.board.faults,
            "pause": self.board.longest_pause,
            "view": sorted(group.view.members) if group is not None else [],
            "connected": len(group.connected) if group is not None else 0,
        }


class Process:
    """The members of one process."""

    def __init__(self) -> None:
        self.people: dict[str, Person] = {}

    async def obey(self, command: dict[str, Any]) -> Any:
        do, names = command["do"], command.get("names") or list(self.people)
        if do == "start":
            for name, settings in command["settings"].items():
                self.people[name] = Person(name, Path(command["folder"]), settings)
            await asyncio.gather(*(self.people[name].until_there() for name in command["settings"]))
        elif do == "pace":
            for name in names:
                self.people[name].set_pace(command["pause"])
        elif do == "stop":
            await asyncio.gather(*(self.people.pop(name).stop() for name in names))
        elif do == "status":
            return {name: self.people[name].status() for name in names}
        return {}


async def main() -> None:
    loop = asyncio.get_running_loop()
    commands = asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    process = Process()
    while line := await commands.readline():
        try:
            answer = await process.obey(json.loads(line))
        except antecede.AntecedeError as error:
            answer = {"failed": str(error)}
        print(json.dumps(answer), flush=True)
    with contextlib.suppress(Exception):
        await process.obey({"do": "stop"})


if __name__ == "__main__":
    asyncio.run(main())
