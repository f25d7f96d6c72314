"""What `antecede node` does once it is configured."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator

import msgspec

from antecede.cli import show
from antecede.errors import InputError
from antecede.live.envelope import LONGEST_BODY
from antecede.live.group import Group
from antecede.live.joining import Joining
from antecede.live.messages import Message
from antecede.live.settings import Settings


class Lines(logging.Formatter):
    """The log of a node: a line for people, or a JSON object a line; either says whose it is."""

    def __init__(self, group: str, me: str, as_json: bool) -> None:
        super().__init__()
        self._group, self._me, self._as_json = group, me, as_json

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info:
            text += f": {record.exc_info[1]!r}"
        if not self._as_json:
            return f"{self.formatTime(record)} {record.levelname} {self._group}/{self._me} {text}"
        said = {
            "time": record.created,
            "level": record.levelname.lower(),
            "group": self._group,
            "member": self._me,
            "peer": getattr(record, "peer", None),
            "message_id": getattr(record, "message_id", None),
            "text": text,
        }
        return msgspec.json.encode(said).decode()


async def run(settings: Settings, say: bool, as_json: bool) -> None:
    """Until Ctrl-C, or SIGTERM."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    async with Joining(settings) as group:
        _introduce(group)
        tasks = [asyncio.create_task(_listen(group, as_json)), asyncio.create_task(ended.wait())]
        if say:
            tasks.append(asyncio.create_task(_say(group)))
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()


def _introduce(group: Group) -> None:
    where = [place for place in (group.address, group.web_address) if place]
    at = f" at {' and '.join(where)}" if where else ""
    show.err.print(f"{group.me} of {group.settings.group}{at}; {len(group.members)} members")


async def _listen(group: Group, as_json: bool) -> None:
    async for message in group:
        print(_line(message) if not as_json else _json(message), flush=True)


def _line(message: Message) -> str:
    body = message.body
    text = body if isinstance(body, str) else repr(body) if isinstance(body, bytes) else str(body)
    return f"{message.id}  {text}" + ("  (again)" if message.redelivered else "")


def _json(message: Message) -> str:
    return msgspec.json.encode(
        {
            "origin": message.origin,
            "seq": message.seq,
            "body": message.body,
            "causes": [str(cause) for cause in message.causes],
            "redelivered": message.redelivered,
        }
    ).decode()


async def _say(group: Group) -> None:
    async for line in lines_of_input():
        await group.broadcast(line)
    await asyncio.Event().wait()  # to have nothing more to say is no reason to leave


async def lines_of_input() -> AsyncIterator[str]:
    """What is piped in, as it comes; a file, too."""
    mode = os.fstat(sys.stdin.fileno()).st_mode
    if not stat.S_ISFIFO(mode) and not stat.S_ISSOCK(mode) and not sys.stdin.isatty():
        for line in sys.stdin.buffer:  # always ready, so nothing waits for it
            yield line.decode(errors="replace").rstrip("\n")
        return
    reader = asyncio.StreamReader(limit=2 * LONGEST_BODY)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        while line := await reader.readline():
            yield line.decode(errors="replace").rstrip("\n")
    except ValueError as error:
        raise InputError(f"a line of the input has more than {2 * LONGEST_BODY:,} bytes") from error
