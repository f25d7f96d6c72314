"""One process of a trial: broadcasts its share of messages, receives everybody's, and logs both.

    python -m antecede.live.trial.worker CONFIG LOG MESSAGES PAUSE BYTES

The log records what the application knows, independently of the member's own store. It has a line for each
message that was accepted (`s`) or delivered (`d`, or `r` if redelivered), written before the next one is
requested, and at each start a line with the number of messages accepted before (`+`). It survives SIGKILL, so
it shows which messages were delivered twice or never. Some messages are processed slowly, so that kills find
them in flight, and some are rejected at first.
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

_CONCURRENT = 64
"""Concurrent broadcasts that wait for the disk, at full speed."""
_REFUSED_EVERY, _SLOW_EVERY, _SLOW_SECONDS = 16, 8, 0.005
_TEXT = b"effects come after their causes, "


class ApplicationLog:
    """Lines that are written to the file immediately."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def line(self, text: str) -> None:
        os.write(self._file, text.encode() + b"\n")


async def broadcast(group: Group, log: ApplicationLog, messages: int, pause: float, size: int) -> None:
    body = (_TEXT * (size // len(_TEXT) + 1))[:size]
    done = group.delivered()[group.me]
    log.line(f"+ {done}")
    left = iter(range(done, messages))

    async def one_after_another() -> None:
        for _ in left:
            message = await group.broadcast(body)
            log.line(f"s {message.seq}")
            if pause:
                await asyncio.sleep(pause)

    await asyncio.gather(*(one_after_another() for _ in range(1 if pause else _CONCURRENT)))


async def receive(group: Group, log: ApplicationLog) -> None:
    async for message in group:
        if message.seq % _REFUSED_EVERY == 1 and not message.redelivered:
            group.nack(message)
            continue
        log.line(f"{'r' if message.redelivered else 'd'} {message.origin} {message.seq}")
        if message.seq % _SLOW_EVERY == 0:
            await asyncio.sleep(_SLOW_SECONDS)


async def run(config: str, path: str, messages: int, pause: float, size: int) -> None:
    """Run until SIGTERM."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    log = ApplicationLog(path)
    async with Joining(Settings.load(config)) as group:
        tasks = [
            asyncio.create_task(broadcast(group, log, messages, pause, size)),
            asyncio.create_task(receive(group, log)),
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
