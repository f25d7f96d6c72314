"""The console in a real browser, over real processes: it shows what they report."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlsplit

import pytest

from antecede.console.server import console
from antecede.console.watch import MAX_LOOKERS
from chromium import brightness, browser

sys.path.append(str(Path(__file__).parents[1] / "live"))

from consoles import Loop, MemberProcess, compare, members, script, text, wait_until
from one_way import OneWay

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

__all__ = ["browser"]

ANA, BO, CY = "ana", "<script>", "cy<b>"


class Watched(NamedTuple):
    """Three processes, of which the third misses a message, and the console's address."""

    address: str
    members: list[MemberProcess]
    cause: str
    effects: list[str]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder, loop, cut = tmp_path_factory.mktemp("watched"), Loop(), OneWay()
    settings = loop.run(cut.settings(False, (ANA, BO, CY)))
    settings = [
        {**each, "group": "room", "store": str(folder / str(index)), "sync": False}
        for index, each in enumerate(settings)
    ]
    with (
        members(settings) as (ana, bo, cy),
        console(lambda: [each.source for each in (ana, bo, cy)]) as address,
    ):
        for each in (ana, bo, cy):
            wait_until(lambda each=each: len(each.state().connected) == 2, "links")  # type: ignore[misc]
            asyncio.run(each.source.ask("messages"))  # from now on they are noted
        for number in range(6):
            (ana, bo, cy)[number % 3].broadcast(f"message {number}")
        wait_until(lambda: all(each.state().delivered == 6 for each in (ana, bo, cy)), "six messages")
        loop.loop.call_soon_threadsafe(cut.stall)
        ana.broadcast("cause")
        wait_until(lambda: bo.state().delivered == 7, "the cause")
        for text in ("effect", "effect of that"):
            bo.broadcast(text)
        wait_until(lambda: cy.state().held == 2, "held messages")
        yield Watched(address, [ana, bo, cy], f"{ANA}:3", [f"{BO}:3", f"{BO}:4"])
        loop.loop.call_soon_threadsafe(cut.close)
    loop.close()


def wait_for_picture(browser: Chrome) -> None:
    is_there = "return page && page.picture && page.picture.held === 2;"
    wait_until(lambda: script(browser, is_there), "a picture")


@pytest.fixture
def page(browser: Chrome, watched: Watched) -> Chrome:
    browser.get("about:blank")
    browser.get(watched.address)
    wait_until(
        lambda: script(browser, "return page && page.picture && page.picture.held === 2;"), "a picture"
    )
    return browser


def shows_details(page: Chrome) -> bool:
    found: bool = script(page, "return !document.querySelector('#details').classList.contains('nothing');")
    return found


def around_of(page: Chrome, message: str) -> Any:
    around = script(page, "return page.details.around;")
    return around if around and around["id"] == message else None


def click(browser: Chrome, selector: str) -> None:
    browser.find_element("css selector", selector).click()


def test_the_page_shows_what_the_members_report(page: Chrome, watched: Watched) -> None:
    shown, wrong = compare(page, lambda: [each.source for each in watched.members])
    assert wrong == []
    assert [row[0] for row in shown["members"]] == sorted([ANA, BO, CY])
    assert shown["missing"] == [f"{watched.cause} is missing"]
    assert [row[3] for row in shown["origins"] if row[0] == ANA] == [f"{CY}: 2"]
    assert "three" not in text(page, "body")


def test_a_missing_cause_is_found_in_three_clicks(page: Chrome, watched: Watched) -> None:
    click(page, "#tiles button")
    click(page, "#held-list button")
    details = wait_until(lambda: text(page, "#details"), "details")
    (missing,) = watched.members[2].state().missing[:1]
    assert missing.cause == watched.cause
    assert details.startswith(f"{watched.cause} is missing")
    has, _, lacks = details.partition("Has it")[2].partition("Does not have it")
    assert sorted(has.split(), reverse=True) == [ANA, BO]
    assert lacks.split()[0] == CY
    assert f"Waiting at {CY} since " in lacks
    assert all(each in lacks for each in watched.effects)
    click(page, "#details .chips button")
    wait_until(lambda: "Causal past" in text(page, "#details"), "the message that waits")
    assert f"Held at {CY} because {watched.cause} is missing there" in text(page, "#details")
    page.back()
    wait_until(lambda: text(page, "#details").startswith(f"{watched.cause} is missing"), "back")


def test_past_and_future_of_a_message_follow_from_the_reported_causes(page: Chrome, watched: Watched) -> None:
    named = {
        message.id: message.causes
        for each in watched.members
        for message in asyncio.run(each.source.ask("messages")).messages
    }

    def before(message: str) -> set[str]:
        return set(named[message]).union(*(before(each) for each in named[message]))

    assert len(named) == 9
    for message in (f"{ANA}:2", watched.cause, watched.effects[0]):
        (dot,) = [
            each
            for each in page.find_elements("css selector", "#picture .dot")
            if each.get_attribute("data-key") == message
        ]
        page.execute_script("arguments[0].dispatchEvent(new MouseEvent('click', {bubbles: true}))", dot)
        around = wait_until(lambda m=message: around_of(page, m), "its past")  # type: ignore[misc]
        assert set(around["past"]) == before(message)
        assert set(around["future"]) == {each for each in named if message in before(each)}
        kinds = script(
            page,
            "return Object.fromEntries([...document.querySelectorAll('#picture .dot')]"
            ".map((each) => [each.dataset.key, each.getAttribute('class').split(' ')[1]]));",
        )
        assert {each for each, kind in kinds.items() if kind == "past"} == before(message)
        assert kinds[message] == "own"


def test_the_console_can_be_used_with_the_keyboard_alone(page: Chrome, watched: Watched) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    def press(*keys: str) -> None:
        ActionChains(page).send_keys(*keys).perform()

    def focused() -> str:
        found: str = script(page, "return document.activeElement.id || document.activeElement.innerText;")
        return found

    press("1")
    assert focused() == "held"
    press(Keys.ARROW_DOWN)
    assert focused().startswith(f"{watched.cause} is missing")
    version = script(page, "return page.picture.time;")
    wait_until(lambda: script(page, "return page.picture.time;") > version + 1, "another picture")
    assert focused().startswith(f"{watched.cause} is missing")
    press(Keys.ENTER)
    wait_until(lambda: text(page, "#details").startswith(watched.cause), "details")
    wait_until(lambda: focused() == "details", "the focus on them")
    press(Keys.ESCAPE)
    wait_until(lambda: focused().startswith(f"{watched.cause} is missing"), "the row again")
    press("/", watched.effects[0], Keys.ENTER)
    wait_until(lambda: text(page, "#details").startswith(watched.effects[0]), "the message")
    press(Keys.ESCAPE)
    script(page, "document.activeElement.blur();")
    press("3", Keys.ARROW_DOWN, Keys.ENTER)
    wait_until(lambda: "Links" in text(page, "#details"), "a member")
    press(Keys.ESCAPE, "p")
    script(page, "document.activeElement.blur();")
    assert text(page, "#live").strip() == "paused"
    press("p", "?")
    assert script(page, "return document.querySelector('#keys').hidden;") is False
    tabbed = set()
    for _ in range(40):
        press(Keys.TAB)
        tabbed.add(script(page, "const e = document.activeElement.closest('[id]'); return e && e.id;"))
    assert {"tiles", "query", "pause", "held-list", "picture", "members-list"} <= tabbed


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_a_narrow_screen_in_light_and_dark(page: Chrome, watched: Watched, scheme: str) -> None:
    view = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": False}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", view)
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
    try:
        for hash_ in ("", f"#missing={quote(watched.cause)}", f"#message={quote(watched.effects[0])}"):
            script(page, "location.hash = arguments[0];", hash_)
            wait_until(lambda h=hash_: bool(h) == shows_details(page), "details")  # type: ignore[misc]
            width, paper, ink, quiet = script(
                page,
                "const body = getComputedStyle(document.body);"
                "return [document.documentElement.scrollWidth, body.backgroundColor, body.color,"
                " getComputedStyle(document.querySelector('.say')).color];",
            )
            assert width <= 360
            assert abs(brightness(paper) - brightness(ink)) > 120
            assert abs(brightness(paper) - brightness(quiet)) > 75
            assert (brightness(paper) < 100) == (scheme == "dark")
        close = page.find_element("css selector", "#details button")
        assert close.is_displayed()
        close.click()
        wait_until(lambda: not page.find_element("css selector", "#details").is_displayed(), "closed details")
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_names_are_escaped_and_run_no_script(page: Chrome, watched: Watched) -> None:
    for what in (
        f"#member={quote(BO)}",
        f"#message={quote('<img src=x onerror=alert(1)>')}",
        "#member=%zz",
        "",
    ):
        script(page, "location.hash = arguments[0];", what)
    made = script(page, "return [document.querySelectorAll('b > *, script, img').length, document.title];")
    assert made == [1, "(2 held) room - Antecede"]
    injected = "const s = document.createElement('script'); s.textContent = 'window.bad = 1';"
    script(page, f"{injected} document.body.append(s);")
    assert script(page, "return window.bad;") is None
    assert "token" not in page.current_url
    page.refresh()
    wait_for_picture(page)


def answer(address: str, path: str = "", **headers: str) -> HTTPResponse:
    parts = urlsplit(address)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=10)
    connection.request("GET", path or f"{parts.path}?{parts.query}", headers=headers)
    return connection.getresponse()


def cookie_of(address: str) -> str:
    return str(answer(address).headers["Set-Cookie"]).partition(";")[0]


def test_the_console_refuses_requests_without_the_token(watched: Watched) -> None:
    place = urlsplit(watched.address).path
    opened = answer(watched.address)
    assert opened.status == 200
    rules = opened.headers["Content-Security-Policy"]
    assert "default-src 'none'" in rules
    assert "unsafe" not in rules
    set_cookie = opened.headers["Set-Cookie"]
    assert "HttpOnly" in set_cookie
    assert "SameSite=Strict" in set_cookie
    assert f"Path={place};" in set_cookie
    cookie = cookie_of(watched.address)
    assert answer(watched.address, place, Cookie=f"other=1; {cookie}").status == 200
    for path, headers in [
        ("/", {}),
        (place, {}),
        (f"{place}?token=wrong", {}),
        (f"{place}events", {}),
        (f"{place}message?id=x", {"Cookie": "antecede=wrong"}),
        (f"{place}nothing", {"Cookie": cookie}),
        (f"/wrong{place}", {"Cookie": cookie}),
        (place, {"Cookie": cookie, "Host": "evil.example"}),
    ]:
        refused = answer(watched.address, path, **headers)
        assert refused.status == 404, path
        assert "Set-Cookie" not in refused.headers
    asked = answer(watched.address, f"{place}message?id={quote(watched.cause)}", Cookie=cookie)
    assert json.loads(asked.read())["id"] == watched.cause


def opened(address: str, cookie: str) -> HTTPResponse | None:
    """A stream of pictures, if there is room for one more."""
    found = answer(address, f"{urlsplit(address).path}events", Cookie=cookie)
    return found if found.status == 200 else None


def test_browsers_that_do_not_read_do_not_block_others(watched: Watched) -> None:
    """Beyond the limit, connections are refused in one sentence."""
    parts = urlsplit(watched.address)
    cookie = cookie_of(watched.address)
    request = f"GET {parts.path}events HTTP/1.1\r\nHost: {parts.netloc}\r\nCookie: {cookie}\r\n\r\n".encode()
    reading = wait_until(lambda: opened(watched.address, cookie), "a place")
    slow: list[socket.socket] = []
    while len(slow) <= MAX_LOOKERS:
        connection = socket.create_connection((parts.hostname or "", parts.port or 0))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        connection.sendall(request)
        slow.append(connection)
        if connection.recv(12) == b"HTTP/1.1 503":
            break
    assert len(slow) <= MAX_LOOKERS
    times = [json.loads(reading.readline().removeprefix(b"data: ") + reading.readline()) for _ in range(3)]
    assert times[0]["time"] < times[1]["time"] < times[2]["time"]
    for each in watched.members:
        assert each.state().state == "open"
    reading.close()
    for connection in slow:
        connection.close()
    wait_until(lambda: opened(watched.address, cookie), "room again")


def test_the_page_reports_dead_members_and_an_ended_program(browser: Chrome, tmp_path: Path) -> None:
    """No message so far, a member that is killed, no member at all, and the program that ends."""
    settings: dict[str, Any] = {"group": "room", "sync": False}
    ended, opened = threading.Event(), list[str]()
    with members([{**settings, "me": "ana", "peers": ["bo"], "store": str(tmp_path / "ana")}]) as (ana,):

        def serve() -> None:
            with console(lambda: [ana.source]) as address:
                opened.append(address)
                ended.wait()

        serving = threading.Thread(target=serve)
        serving.start()
        wait_until(lambda: opened, "the console")
        browser.get(opened[0])
        wait_until(lambda: "live" in text(browser, "#live"), "a picture")
        assert "No message is held" in text(browser, "#held-say")
        assert "No messages since" in text(browser, "#messages-say")
        assert "bo" in text(browser, "#members-list")
        assert "no link to bo" in text(browser, "#members-list")
        ana.kill()
        wait_until(lambda: "no member answers" in text(browser, "#live"), "that nobody answers")
        assert "No member answers: ana" in text(browser, "#notice")
        ended.set()
        serving.join()
        wait_until(lambda: "no connection" in text(browser, "#live"), "that the program has ended")
        assert "does not answer" in text(browser, "#notice")
