"""antecede node: a member of a live group that prints what is delivered."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from antecede.cli import show
from antecede.cli.console import ConsoleFlag, serving
from antecede.cli.live_options import MemberOptions
from antecede.terminal import printable, printable_json
from antecede.units import count_of

if TYPE_CHECKING:
    from antecede.live.group import Group
    from antecede.live.messages import Message
    from antecede.live.settings import Settings


def node(
    member: MemberOptions,
    metrics: Annotated[
        str | None, typer.Option(help="host:port for Prometheus: /metrics, and /health.")
    ] = None,
    broadcast_input: Annotated[
        bool, typer.Option("--broadcast-input", "--say", help="Broadcast each line of standard input.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print messages and the log as JSON lines.")
    ] = False,
    console: ConsoleFlag = False,
    log: Annotated[bool, typer.Option("--log/--no-log", help="Log link events to standard error.")] = True,
) -> None:
    """Run a member of a live group and print every delivered message, its own included, until Ctrl-C.

    Use it for a super peer that serves phones and sends nothing itself.
    """
    settings = member.settings(metrics=metrics)
    with logged(LogFormatter(settings.group, settings.me, as_json)) if log else nullcontext():
        asyncio.run(_run(settings, broadcast_input, as_json, console))


@contextmanager
def logged(formatter: logging.Formatter) -> Iterator[None]:
    """Write Antecede's own log to standard error; the libraries below log as well."""
    handler, logger = logging.StreamHandler(), logging.getLogger("antecede.live")
    handler.setFormatter(formatter)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class LogFormatter(logging.Formatter):
    """A log line as text or as a JSON object; both name the group and the member."""

    def __init__(self, group: str, me: str, as_json: bool) -> None:
        super().__init__()
        self._group, self._me, self._as_json = group, me, as_json

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info:
            text += f": {record.exc_info[1]!r}"
        if not self._as_json:
            return printable(f"{self.formatTime(record)} {record.levelname} {self._group}/{self._me} {text}")
        document = {
            "time": record.created,
            "level": record.levelname.lower(),
            "group": self._group,
            "member": self._me,
            "peer": getattr(record, "peer", None),
            "message_id": getattr(record, "message_id", None),
            "text": text,
        }
        return printable_json(msgspec.json.encode(document).decode())


async def _run(settings: Settings, broadcast_input: bool, as_json: bool, console: bool) -> None:
    """Take part until SIGINT or SIGTERM."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    if (group := await _join(settings, stopped)) is None:
        return
    async with group:
        _print_introduction(group)
        with _console_of(group) if console else nullcontext():
            await _take_part(group, stopped, broadcast_input, as_json)


async def _join(settings: Settings, stopped: asyncio.Event) -> Group | None:
    """Join the group, which may take until other members are present; None if stopped before."""
    from antecede.live.joining import Joining

    async def join() -> Group:
        return await Joining(settings)

    joining, stopping = asyncio.create_task(join()), asyncio.create_task(stopped.wait())
    await asyncio.wait({joining, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not joining.done():
        joining.cancel()
    try:
        return await joining
    except asyncio.CancelledError:
        show.err.print("stopped before it was in the group", markup=False)
        return None


def _console_of(group: Group) -> AbstractContextManager[None]:
    from antecede.console.sources import GroupSource

    source = GroupSource(group)
    return serving(lambda: [source])


async def _take_part(group: Group, stopped: asyncio.Event, broadcast_input: bool, as_json: bool) -> None:
    tasks = [asyncio.create_task(_print_messages(group, as_json)), asyncio.create_task(stopped.wait())]
    if broadcast_input:
        tasks.append(asyncio.create_task(_broadcast_lines(group)))
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


def _print_introduction(group: Group) -> None:
    addresses = [address for address in (group.address, group.web_address) if address]
    at = f" at {' and '.join(addresses)}" if addresses else ""
    name = printable(f"{group.me} of {group.settings.group}")
    show.err.print(f"{name}{at}; {count_of(len(group.members), 'member')}", markup=False)


async def _print_messages(group: Group, as_json: bool) -> None:
    async for message in group:
        print(_json_line(message) if as_json else _text_line(message), flush=True)
        group.ack(message)


def _text_line(message: Message) -> str:
    body = message.body
    text = body if isinstance(body, str) else repr(body) if isinstance(body, bytes) else str(body)
    return printable(f"{message.id}  {text}" + ("  (redelivered)" if message.redelivered else ""))


def _json_line(message: Message) -> str:
    about = {"time": message.time, "content_type": message.content_type, "headers": message.headers}
    line = msgspec.json.encode(
        {
            "origin": message.origin,
            "seq": message.seq,
            "body": message.body,
            "causes": [str(cause) for cause in message.causes],
            "own": message.own,
            "redelivered": message.redelivered,
            **{key: value for key, value in about.items() if value},
        }
    )
    return printable_json(line.decode())


async def _broadcast_lines(group: Group) -> None:
    from antecede.cli.input_lines import read_lines

    async for line in read_lines():
        await group.broadcast(line)
    await asyncio.Event().wait()  # The member stays after the end of the input.
