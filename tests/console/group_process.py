"""A member in a process of its own: settings on the command line, what to broadcast on its input."""

from __future__ import annotations

import asyncio
import json
import sys

import antecede
from antecede.live.group import Group


async def read(group: Group) -> None:
    async for _ in group:
        pass


async def main() -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    async with antecede.join(**json.loads(sys.argv[1])) as group:
        print(group.me, flush=True)
        reading = asyncio.create_task(read(group))
        while line := await reader.readline():
            await group.broadcast(line.decode().strip())
        reading.cancel()


asyncio.run(main())
