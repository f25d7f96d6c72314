"""One process of a trial cluster: says its share of messages, listens, and keeps an account of its own.

    python -m antecede.live.trial.worker CONFIG ACCOUNT MESSAGES PAUSE BYTES

The account is what the application knows, apart from what the node writes: a line for each message that was
accepted (`s`) or delivered (`d`, or `r` if it came again), written before the next one is asked for. It
outlives the process, so after any number of kills it says whether something came twice or never.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys

from antecede.errors import AntecedeError
from antecede.live.group import Group
from antecede.live.joining import Joining
from antecede.live.settings import Settings

_AT_ONCE = 64
"""How many broadcasts wait for the disk together, at full speed."""
_WORDS = b"effects come after their causes, "


class Account:
    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def line(self, text: str) -> None:
        os.write(self._file, text.encode() + b"\n")


async def talk(group: Group, account: Account, messages: int, pause: float, size: int) -> None:
    body = (_WORDS * (size // len(_WORDS) + 1))[:size]
    done = group.delivered()[group.me]
    account.line(f"+ {done}")
    left = iter(range(done, messages))

    async def one_after_another() -> None:
        for _ in left:
            message = await group.broadcast(body)
            account.line(f"s {message.seq}")
            if pause:
                await asyncio.sleep(pause)

    await asyncio.gather(*(one_after_another() for _ in range(1 if pause else _AT_ONCE)))


async def listen(group: Group, account: Account) -> None:
    async for message in group:
        account.line(f"{'r' if message.redelivered else 'd'} {message.origin} {message.seq}")


async def run(config: str, path: str, messages: int, pause: float, size: int) -> None:
    """Until asked to end."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    account = Account(path)
    async with Joining(Settings.load(config)) as group:
        tasks = [
            asyncio.create_task(talk(group, account, messages, pause, size)),
            asyncio.create_task(listen(group, account)),
        ]
        waiting = asyncio.create_task(ended.wait())
        await asyncio.wait([waiting, tasks[1]], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks)


def main() -> None:
    config, path, messages, pause, size = sys.argv[1:]
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        asyncio.run(run(config, path, int(messages), float(pause), int(size)))
    except AntecedeError as error:
        sys.exit(f"{config}: {error}")


if __name__ == "__main__":
    main()
