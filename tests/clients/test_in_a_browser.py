"""The TypeScript client in a real Chromium: a phone of a TLS group, with a token and a store in IndexedDB."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from node_phones import built

sys.path.insert(0, str(Path(__file__).parents[1] / "live"))

from live_groups import PATIENCE, run, until
from phone_rooms import PhoneRoom, phone_room

from antecede.live.security import keys
from chromium import find_browser, open_browser

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = pytest.mark.xdist_group("typescript")
TRUST = Path(__file__).parents[1] / "live" / "trust_authority.py"
PAGE = Path(__file__).with_name("page.html")
SERVERS = ["ana", "bo", "cy"]
BROADCAST = """
const [body, done] = arguments;
group.broadcast(body).then((id) => done(String(id)), (error) => done(String(error)));
"""


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Nothing."""


class Pages:
    """A browser that trusts the group's authority, with a profile that outlives it, and a page for it."""

    def __init__(self, folder: Path) -> None:
        find_browser()
        self.keys = folder / "keys"
        keys.make_keys(self.keys, "room", SERVERS, ["web"], 30, {}, SERVERS)
        self._home, self._profile = folder / "home", folder / "profile"
        self._home.mkdir()
        authority = x509.load_pem_x509_certificate((self.keys / "ca.pem").read_bytes())
        (self._home / "ca.der").write_bytes(authority.public_bytes(serialization.Encoding.DER))
        subprocess.run([sys.executable, str(TRUST), str(self._home), str(self._home / "ca.der")], check=True)
        site = folder / "site"
        site.mkdir()
        shutil.copy(PAGE, site / "index.html")
        (site / "dist").symlink_to(built() / "dist")
        handler = functools.partial(_Quiet, directory=str(site))
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.browser: Chrome = self.open()

    def open(self) -> Chrome:
        self.browser = open_browser(self._profile, self._home)
        self.browser.set_script_timeout(PATIENCE)
        return self.browser

    def url(self, room: PhoneRoom, *super_peers: str) -> str:
        token = (self.keys / "web" / "token").read_text().strip()
        places = [room.super_peers[each] for each in super_peers]
        settings = {"me": "web", "superPeers": places, "store": "web", "token": token}
        return f"http://localhost:{self._server.server_port}/?settings={quote(json.dumps(settings))}"

    def kill(self) -> None:
        """The browser ends at once, as in a crash."""
        ended = _with_children(self.browser.service.process.pid)
        for pid in ended:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.browser.service.process.wait()
        while any(Path(f"/proc/{pid}/exe").exists() for pid in ended):
            time.sleep(0.01)
        for lock in self._profile.glob("Singleton*"):
            lock.unlink()

    def close(self) -> None:
        self.browser.quit()
        self._server.shutdown()
        self._server.server_close()


def _with_children(pid: int) -> list[int]:
    """A process and all below it, itself last."""
    found = []
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [each for child in thread.read_text().split() for each in _with_children(int(child))]
    return [*found, pid]


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Pages]:
    made = Pages(tmp_path)
    yield made
    made.close()


async def look(pages: Pages, script: str) -> Any:
    """What a script on the page returns."""
    return await asyncio.to_thread(pages.browser.execute_script, f"return {script};")


async def page_has(pages: Pages, condition: str) -> None:
    """Wait until an expression is true on the page."""
    async with asyncio.timeout(PATIENCE):
        while not await look(pages, condition):
            assert not (failed := await look(pages, "window.failed")), failed
            await asyncio.sleep(0.02)


async def show(pages: Pages, url: str) -> None:
    await asyncio.to_thread(pages.browser.get, url)
    await page_has(pages, "window.group")


async def broadcast(pages: Pages, body: str) -> str:
    return str(await asyncio.to_thread(pages.browser.execute_async_script, BROADCAST, body))


async def agree(room: PhoneRoom, pages: Pages, *bodies: str) -> None:
    await page_has(pages, f"board.length >= {len(bodies)}")
    assert sorted(await look(pages, "board")) == sorted(bodies)
    assert await look(pages, "twice") == []
    await room.agree(set(bodies), *room.groups)


def test_a_page_is_closed_and_opened_again_and_misses_nothing(pages: Pages, tmp_path: Path) -> None:
    async def test() -> None:
        async with phone_room(tmp_path, keys_of=pages.keys) as room:
            await room.groups["ana"].broadcast("before")
            await room.agree({"before"}, *SERVERS)
            url = pages.url(room, "ana", "bo")
            await show(pages, url)
            sent = await broadcast(pages, "from the page")
            assert sent.startswith("web~")
            await room.groups["bo"].broadcast("from bo")
            await agree(room, pages, "before", "from the page", "from bo")
            assert room.phones_of("ana") == {"web": True}
            await page_has(pages, "[...group.present].sort().join() === 'ana,bo,cy,web'")

            await asyncio.to_thread(pages.browser.get, "about:blank")
            await until(lambda: room.phones_of("ana") == {"web": False}, "the page is closed")
            await room.groups["cy"].broadcast("while it was closed")
            await show(pages, url)
            await agree(room, pages, "before", "from the page", "from bo", "while it was closed")

            # Its super peer stops; later broadcasts go to another super peer, or to the same one.
            await room.stop("ana")
            await page_has(pages, "!group.connected")
            await broadcast(pages, "offline")
            await asyncio.to_thread(pages.kill)
            await room.groups["cy"].broadcast("while it was killed")
            await asyncio.to_thread(pages.open)
            await show(pages, url)
            await page_has(pages, "group.superPeer === 'bo'")
            await room.groups["bo"].remove("ana")  # no member waits for messages it may still have
            last = "while it was killed", "offline"
            await agree(room, pages, "before", "from the page", "from bo", "while it was closed", *last)

    run(test())


def test_the_later_of_two_tabs_takes_over(pages: Pages, tmp_path: Path) -> None:
    async def test() -> None:
        async with phone_room(tmp_path, keys_of=pages.keys) as room:
            url = pages.url(room, "ana")
            await show(pages, url)
            await broadcast(pages, "from the first tab")
            first = pages.browser.current_window_handle
            await asyncio.to_thread(pages.browser.switch_to.new_window, "tab")
            await show(pages, url)
            await broadcast(pages, "from the second tab")
            second = pages.browser.current_window_handle
            pages.browser.switch_to.window(first)
            assert "another tab has opened the store" in await broadcast(pages, "too late")
            pages.browser.switch_to.window(second)
            await agree(room, pages, "from the first tab", "from the second tab")

    run(test())


def test_a_page_is_told_why_it_was_refused(pages: Pages, tmp_path: Path) -> None:
    async def test() -> None:
        async with phone_room(tmp_path, keys_of=pages.keys) as room:
            await show(pages, pages.url(room, "ana"))
            keys.revoke(pages.keys, "web")
            await page_has(
                pages, "changes.some(([kind, , text]) => kind === 'refused' && /revoked/.test(text))"
            )
            await until(lambda: room.phones_of("ana") == {}, "it is expelled")
            keys.renew(pages.keys, "web", 30)

    run(test())
