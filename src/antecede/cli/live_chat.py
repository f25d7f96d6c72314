"""A chat in a terminal: what `antecede chat` does once it is configured."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from html import escape
from typing import Any

from prompt_toolkit import PromptSession, print_formatted_text
from prompt_toolkit.formatted_text import HTML
from prompt_toolkit.patch_stdout import patch_stdout

from antecede.cli.live_node import lines_of_input
from antecede.live.group import Group
from antecede.live.joining import Joining
from antecede.live.messages import Message, Notice
from antecede.live.settings import Settings

_COLOURS = ("ansicyan", "ansigreen", "ansiyellow", "ansimagenta", "ansiblue", "ansired")
_HELP = "/who shows who is connected, /held what waits, /cut 5 goes offline for 5 seconds, /quit leaves"


async def run(settings: Settings) -> None:
    """Until /quit, Ctrl-C or the end of the input."""
    async with Joining(settings) as group:
        with patch_stdout(raw=True) if sys.stdin.isatty() else contextlib.nullcontext():
            _tell(f"{group.me} in {settings.group}, by {settings.protocol}; {_HELP}")
            tasks = [asyncio.create_task(_listen(group)), asyncio.create_task(_watch(group))]
            try:
                async for line in _lines(group):
                    if not await _do(group, line.strip()):
                        break
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


async def _lines(group: Group) -> AsyncIterator[str]:
    """What is typed, with a line below it that says how things are; or what is piped in."""
    if not sys.stdin.isatty():
        async for line in lines_of_input():
            yield line
        return
    session: PromptSession[str] = PromptSession(
        bottom_toolbar=lambda: _state(group), refresh_interval=0.5, erase_when_done=True
    )
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        while True:
            yield await session.prompt_async(f"{group.me}> ")


def _state(group: Group) -> str:
    connected = ", ".join(group.connected) or "nobody"
    held = group.waiting()
    waits = f" · {len(held)} held: {_held(held[0])}" if held else ""
    return f" connected to {connected}{waits}"


def _held(held: Any) -> str:
    cause = f"waits for {held.cause}" if held.cause else "waits for an earlier message"
    return f"{held.id} {cause} since {max(0.0, time.time() - held.since):.0f} s"


async def _do(group: Group, line: str) -> bool:
    """Say a line, or do what it commands; whether to go on."""
    word, _, rest = line.partition(" ")
    if word == "/quit":
        return False
    if word == "/who":
        away = sorted(set(group.members) - set(group.connected) - {group.me})
        here = ", ".join(group.connected) or "nobody"
        _tell(f"connected: {here}; not directly: {', '.join(away) or 'nobody'}")
    elif word == "/held":
        for held in group.waiting():
            has = f"; {', '.join(held.holders)} may have it" if held.holders else ""
            _tell(f"{_held(held)}{has}")
        if not group.waiting():
            _tell("nothing is held")
    elif word == "/cut":
        seconds = float(rest) if rest.replace(".", "", 1).isdigit() else 5.0
        group.go_offline(seconds)
        _tell(f"offline for {seconds:g} s")
    elif word.startswith("/"):
        _tell(_HELP)
    elif line:
        message = await group.broadcast(line)
        _print(group, message.origin, line, "")
    return True


async def _listen(group: Group) -> None:
    async for message in group:
        _print(group, message.origin, _text(message), " (again)" if message.redelivered else "")


async def _watch(group: Group) -> None:
    said = ""
    async for notice in group.events():
        if (text := _news(notice)) != said:
            _tell(text)
        said = text


def _news(notice: Notice) -> str:
    if notice.kind == "joined":
        return f"{notice.member} is here"
    if notice.kind == "lost":
        return f"{notice.member} is away: {notice.text}"
    return f"{notice.kind}: {notice.member}: {notice.text}"


def _text(message: Message) -> str:
    return message.body if isinstance(message.body, str) else repr(message.body)


def _print(group: Group, origin: str, text: str, mark: str) -> None:
    colour = _COLOURS[group.members.index(origin) % len(_COLOURS)]
    _show(f"<b><{colour}>{_safe(origin)}</{colour}></b>  {_safe(text)}<gray>{mark}</gray>")


def _tell(text: str) -> None:
    _show(f"<gray>— {_safe(text)}</gray>")


def _show(html: str) -> None:
    print_formatted_text(HTML(html))


def _safe(text: str) -> str:
    """Without what would move a terminal's cursor or break the mark-up: it comes from others."""
    return escape("".join(each for each in text if each.isprintable()), quote=False)
