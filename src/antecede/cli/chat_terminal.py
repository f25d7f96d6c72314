"""The terminal of `antecede chat`: a prompt, a status line and a few commands."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
import zlib
from collections.abc import AsyncIterator
from html import escape
from typing import Any

from prompt_toolkit import PromptSession, print_formatted_text
from prompt_toolkit.formatted_text import HTML
from prompt_toolkit.patch_stdout import patch_stdout

from antecede.cli.input_lines import read_lines
from antecede.live.group import Group
from antecede.live.joining import Joining
from antecede.live.messages import Message, Notice
from antecede.live.settings import Settings
from antecede.live.view import MemberChange
from antecede.terminal import printable

_COLOURS = ("ansicyan", "ansigreen", "ansiyellow", "ansimagenta", "ansiblue", "ansired")
_LEAVING_SECONDS = 1.0
_WAITING_SECONDS = 2.0
"""Seconds after which the user is told that the member is not in the group yet."""
_HELP = "/who: connected members; /held: held messages; /cut 5: offline for 5 seconds; /quit: leave"


async def run(settings: Settings) -> None:
    """Chat until /quit, Ctrl-C or the end of the input."""
    async with contextlib.AsyncExitStack() as stack:
        waiting = asyncio.create_task(_note_waiting(settings))
        try:
            group = await stack.enter_async_context(Joining(settings))
        finally:
            waiting.cancel()
        with patch_stdout(raw=True) if sys.stdin.isatty() else contextlib.nullcontext():
            _print_note(f"{group.me} in {settings.group}, by {settings.protocol}; {_HELP}")
            printed: list[Message] = []
            tasks = [
                asyncio.create_task(_print_messages(group, printed)),
                asyncio.create_task(_print_notices(group)),
                asyncio.create_task(_print_changes(group)),
            ]
            try:
                async for line in _lines(group):
                    if not await _handle(group, line.strip()):
                        break
                await _wait_until_printed(group, printed)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


async def _note_waiting(settings: Settings) -> None:
    """Tell the user what is awaited: a group begins when most founders are present, and a newcomer waits for
    a contact that answers."""
    await asyncio.sleep(_WAITING_SECONDS)
    others = settings.first_members() or settings.contacts() or settings.super_peer_list()
    names = [each.name for each in others if each.name != settings.me]
    who = ", ".join(names) or "others"
    _print_note(f"{settings.me} is not in {settings.group} yet, and waits for {who}; Ctrl-C ends it")


async def _lines(group: Group) -> AsyncIterator[str]:
    """Typed lines, with a status line below the prompt; or piped lines."""
    if not sys.stdin.isatty():
        async for line in read_lines():
            yield line
        return
    session: PromptSession[str] = PromptSession(
        bottom_toolbar=lambda: _status(group), refresh_interval=0.5, erase_when_done=True
    )
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        while True:
            yield await session.prompt_async(f"{group.me}> ")


def _status(group: Group) -> str:
    connected = ", ".join(group.connected) or "nobody"
    held = group.waiting()
    first = f" · {len(held)} held: {_describe_held(held[0])}" if held else ""
    return f" connected to {connected}{first}"


def _describe_held(held: Any) -> str:
    seconds = max(0.0, time.time() - held.since)
    return f"{held.id} has waited {seconds:.0f} s for {held.cause or 'an earlier message'}"


async def _handle(group: Group, line: str) -> bool:
    """Broadcast a line or carry out its command. Return False to leave."""
    word, _, rest = line.partition(" ")
    if word == "/quit":
        return False
    if word == "/who":
        others = sorted(set(group.members) - set(group.connected) - {group.me})
        connected = ", ".join(group.connected) or "nobody"
        _print_note(f"connected: {connected}; not connected directly: {', '.join(others) or 'nobody'}")
    elif word == "/held":
        for held in group.waiting():
            has = f"; {', '.join(held.holders)} may have it" if held.holders else ""
            _print_note(f"{_describe_held(held)}{has}")
        if not group.waiting():
            _print_note("nothing is held")
    elif word == "/cut":
        seconds = float(rest) if rest.replace(".", "", 1).isdigit() else 5.0
        group.go_offline(seconds)
        _print_note(f"offline for {seconds:g} s")
    elif word.startswith("/"):
        _print_note(_HELP)
    elif line:
        await group.broadcast(line)
    return True


async def _wait_until_printed(group: Group, printed: list[Message]) -> None:
    """Messages that this member just broadcast are delivered to it at once; wait for them, but not for
    long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LEAVING_SECONDS):
            while group.delivered()[group.me] > (printed[-1].seq if printed else 0):
                await asyncio.sleep(0.01)


async def _print_messages(group: Group, printed: list[Message]) -> None:
    """Print what is delivered; `printed` is the last printed message of this member itself."""
    async for message in group:
        printed[:] = [message] if message.own else printed
        _print_message(message.origin, _text(message), " (redelivered)" if message.redelivered else "")
        group.ack(message)


async def _print_notices(group: Group) -> None:
    last = ""
    async for notice in group.events():
        if (text := _describe(notice)) != last:
            _print_note(text)
        last = text


async def _print_changes(group: Group) -> None:
    """Print changes: members that join, leave, are suspected, are removed or return."""
    async for change in group.changes():
        _print_note(describe_change(change, group.me))


def describe_change(change: MemberChange, me: str) -> str:
    by = f" by {change.by}" if change.by not in ("", change.label, me) else ""
    texts = {
        "joined": f"{change.label} has joined",
        "returned": f"{change.name} has returned as {change.label}",
        "left": f"{change.label} has left",
        "removing": f"{change.label} is being removed{by}",
        "removed": f"{change.label} was removed",
        "suspected": f"{change.label} is not heard",
        "trusted": f"{change.label} is heard again",
    }
    return texts.get(change.kind, f"{change.label} {change.kind}: {change.text}")


def _describe(notice: Notice) -> str:
    if notice.kind == "joined":
        return f"{notice.member} connected"
    if notice.kind == "lost":
        return f"{notice.member} disconnected: {notice.text}"
    return f"{notice.kind}: {notice.member}: {notice.text}"


def _text(message: Message) -> str:
    return message.body if isinstance(message.body, str) else repr(message.body)


def _print_message(origin: str, text: str, mark: str) -> None:
    # Not by the rank among the members: its author may have left.
    colour = _COLOURS[zlib.crc32(origin.partition("~")[0].encode()) % len(_COLOURS)]
    _print_html(f"<b><{colour}>{_escape(origin)}</{colour}></b>  {_escape(text)}<gray>{mark}</gray>")


def _print_note(text: str) -> None:
    _print_html(f"<gray>— {_escape(text)}</gray>")


def _print_html(html: str) -> None:
    print_formatted_text(HTML(html))


def _escape(text: str) -> str:
    """Show markup and control characters as escapes: the text comes from other members."""
    return escape(printable(text), quote=False)
