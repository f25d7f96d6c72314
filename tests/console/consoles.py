"""Helpers of console tests: processes, and a comparison of the page with what members report."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from antecede.console.sources import MemberSource, StoreSource
from antecede.errors import AntecedeError
from antecede.live.operations.state import MemberReport

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

PATIENCE = 60.0


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    """Wait until a function returns a true value; returns that value."""
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end, f"not within {PATIENCE} s: {what}"
        time.sleep(0.02)
    return found


@contextmanager
def process(*arguments: str | Path, out: Path | None = None) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A command that serves a page, and the address that it prints. What else it prints goes to a file."""
    started = subprocess.Popen(
        [sys.executable, "-m", "antecede", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL if out is None else out.open("wb"),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stderr is not None
    try:
        said = ""
        while not (found := re.search(r"Open (\S+)", said)):
            line = started.stderr.readline()
            assert line, said
            said += line
        threading.Thread(target=started.stderr.read, daemon=True).start()
        yield started, found[1]
    finally:
        started.kill()
        started.wait()


@contextmanager
def serving(*arguments: str | Path, out: Path | None = None, ends_with: int = 0) -> Iterator[str]:
    """The address that a command prints; it must end well on Ctrl-C."""
    with process(*arguments, out=out) as (started, address):
        yield address
        started.send_signal(signal.SIGINT)
        assert started.wait(30) == ends_with


def first_picture(address: str) -> dict[str, Any]:
    """The first picture, fetched like a browser: a cookie for the token, then the event stream."""
    parts = urlsplit(address)
    opening = HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    opening.request("GET", f"{parts.path}?{parts.query}")
    opened = opening.getresponse()
    assert opened.status == 200
    opened.read()
    stream = HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    cookie = str(opened.headers["Set-Cookie"]).partition(";")[0]
    stream.request("GET", f"{parts.path}events", headers={"Cookie": cookie})
    picture: dict[str, Any] = json.loads(stream.getresponse().readline().removeprefix(b"data: "))
    stream.close()
    opening.close()
    return picture


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()


class MemberProcess:
    """A member in a process of its own."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.store = str(settings["store"])
        self.name = settings["me"]
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("group_process.py")), json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip(), "it does not begin"

    def broadcast(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def source(self) -> MemberSource:
        return StoreSource(self.store, self.name)

    def state(self) -> MemberReport:
        found: MemberReport = asyncio.run(self.source.ask("state"))
        return found


@contextmanager
def members(settings: list[dict[str, Any]]) -> Iterator[list[MemberProcess]]:
    started = [MemberProcess(each) for each in settings]
    try:
        for each in started:
            each.wait()
        yield started
    finally:
        for each in started:
            each.kill()


def script(browser: Chrome, body: str, *given: Any) -> Any:
    return browser.execute_script(f"const page = window.console_page; {body}", *given)


def text(browser: Chrome, selector: str) -> str:
    found: str = script(browser, "return document.querySelector(arguments[0]).innerText;", selector)
    return found


_SHOWN = """
const cells = (row) => [...row.children].map((each) => each.textContent);
const rows = (list) => [...document.querySelectorAll(list)].map(cells);
const { picture } = page;
return { picture,
  members: rows("#members-list tr"), origins: rows("#stability-list tr"),
  missing: [...document.querySelectorAll("#held-list b")].map((each) => each.textContent),
  changes: document.querySelectorAll("#changes-list button").length,
  tiles: [...document.querySelectorAll("#tiles b")].map((each) => each.textContent) };
"""


def differences(shown: dict[str, Any], before: list[MemberReport], after: list[MemberReport]) -> list[str]:
    """Differences between the page and the members' reports; empty if the page is right. Members keep
    running, so they are queried before and after the page: unchanged values must match, and growing ones must
    lie in between."""
    picture, found = shown["picture"], list[str]()

    def check(is_right: bool, what: str) -> None:
        if not is_right:
            found.append(what)

    rows = {row[0]: row for row in shown["members"]}
    documents = {each["label"]: each for each in picture["members"]}
    check(rows.keys() == documents.keys(), f"rows {sorted(rows)} for {sorted(documents)}")
    later = {state.me: state for state in after}
    for one in before:
        other, document = later.get(one.me), documents.get(one.me)
        if other is None or one.opened != other.opened or not (document and document["answers"]):
            continue  # it was restarted, or became another incarnation, between the two
        me = one.me
        check(one.delivered <= document["delivered"] <= other.delivered, f"delivered of {me}")
        check(one.broadcast <= document["broadcast"] <= other.broadcast, f"broadcast of {me}")
        if one.connected == other.connected and one.partners == other.partners:
            up = f"{len(set(one.partners) & set(one.connected) - {me})}/{len(set(one.partners) - {me})}"
            check(rows[me][2] == up, f"links of {me}: {rows[me][2]}, and {up} are there")
        if one.held == other.held == 0 and one.delivered == other.delivered:
            check(document["held"] == 0, f"held at {me}")
        views = [{each.label for each in state.members} for state in (one, other)]
        check(
            views[0] & views[1] <= rows.keys(),
            f"the view of {me}: {sorted(views[0] & views[1] - rows.keys())}",
        )
        suspects = [{each.label for each in state.members if each.suspected} for state in (one, other)]
        for label in suspects[0] & suspects[1] - {me}:
            check(me in documents[label]["suspected_by"], f"{me} suspects {label}")
        for cause in {each.cause for each in one.missing} & {each.cause for each in other.missing}:
            held = [
                {held.id for each in state.missing if each.cause == cause for held in each.held}
                for state in (one, other)
            ]
            listed = {
                message["id"]
                for missing in picture["missing"]
                for at in missing["at"]
                if at["member"] == me
                for message in at["messages"]
            }
            check(held[0] & held[1] <= listed, f"held at {me}: {held[0] & held[1] - listed}")
        seen = {(each.kind, each.about) for each in one.changes[-50:]}
        listed_changes = {
            (each["kind"], each["about"]) for each in picture["changes"] if me in each["seen_by"]
        }
        check(
            seen <= listed_changes or len(picture["changes"]) >= 200,
            f"changes at {me}: {seen - listed_changes}",
        )
    known = set().union(*({each.label for each in state.members} | {state.me} for state in [*before, *after]))
    answering = {label for label, each in documents.items() if each["answers"]}
    if answering <= {state.me for state in before} == later.keys():  # a busy member may answer only the page
        check(rows.keys() <= known, f"{sorted(rows.keys() - known)} are in nobody's view")
    in_all = sum(int(each["held"]) for each in picture["members"] if each["answers"])
    check(shown["tiles"][0] == f"{in_all:,}", f"held: {shown['tiles'][0]} for {in_all}")
    check(shown["tiles"][2] == str(len(rows)), "members")
    check(len(shown["missing"]) == min(6, len(picture["missing"])), "rows of missing messages")
    check(len(shown["origins"]) == len(picture["origins"]), "rows of stability")
    check(shown["changes"] == min(12, len(picture["changes"])), "rows of changes")
    return found


async def ask_all(sources: list[MemberSource]) -> list[MemberReport]:
    """The members that answer."""

    async def ask(source: MemberSource) -> MemberReport | None:
        try:
            async with asyncio.timeout(2):
                found: MemberReport = await source.ask("state")
                return found
        except (AntecedeError, OSError, TimeoutError):
            return None

    return [state for state in await asyncio.gather(*map(ask, sources)) if state is not None]


def compare(browser: Chrome, sources: Callable[[], list[MemberSource]]) -> tuple[dict[str, Any], list[str]]:
    """Ask the members, wait for a newer picture, and ask them again."""
    before = asyncio.run(ask_all(sources()))
    asked = time.time()
    newer = "return page.picture.members.every((each) => !each.answers || each.as_of > arguments[0]);"
    wait_until(lambda: script(browser, newer, asked), "a newer picture of everybody")
    shown = script(browser, _SHOWN)
    return shown, differences(shown, before, asyncio.run(ask_all(sources())))
