"""One member of a changing group in a process of its own, to be killed.

Settings on the command line, commands on stdin, and the application's state on stdout, as JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import antecede
from antecede.live.group import Group
from antecede.live.messages import Message


class Board:
    """Bodies in a file that is replaced with every message, before that is acked: it survives a kill."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.bodies: list[Any] = json.loads(path.read_text()) if path.exists() else []

    def add(self, message: Message) -> None:
        if message.body not in self.bodies:
            self._replace([*self.bodies, message.body])
        elif message.deliveries == 1:  # otherwise a kill preceded its ack, and it is delivered again
            raise AssertionError(f"{message.body} comes twice")

    def dump(self) -> bytes:
        return json.dumps(self.bodies).encode()

    def load(self, state: bytes) -> None:
        self._replace(json.loads(state))

    def _replace(self, bodies: list[Any]) -> None:
        self.bodies = bodies
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(bodies))
        new.replace(self._path)


def say(**values: Any) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


async def obey(group: Group, board: Board) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while line := await reader.readline():
        command, _, rest = line.decode().strip().partition(" ")
        if command == "broadcast":
            await group.broadcast(rest)
        elif command == "remove":
            await group.remove(rest)
        elif command == "leave":
            await group.leave()
            say(left=True)
            return
        say(done=line.decode().strip(), bodies=board.bodies, view=group.view.names)


async def main(settings: dict[str, Any]) -> None:
    board = Board(Path(settings.pop("board")))
    if "super_peers" not in settings:  # nobody joins at a phone
        settings["snapshot"] = board.dump
    async with antecede.join("room", restore=board.load, **settings) as group:
        say(me=group.me, bodies=board.bodies)
        obeying = asyncio.create_task(obey(group, board))
        async for message in group:
            board.add(message)
        await obeying


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
