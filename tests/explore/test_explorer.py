"""The explorer in a real browser: it agrees with the oracle and the audit, whatever the names."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pytest

import command_line
from antecede.audit.core import judge_run
from antecede.causality import MessageId
from antecede.causality.happened_before import CausalOrder
from antecede.explore.columns import read_columns
from antecede.explore.index import read_run, write_index
from antecede.explore.layout import STEP, select_events
from antecede.explore.page import write_file
from antecede.explore.server import open_server
from antecede.sim.record import simulate_to
from antecede.sim.scenario import scenario
from antecede.trace.execution_from_rows import execution
from antecede.trace.foreign.mapped_trace import mapped_trace
from antecede.trace.parquet_files import write_parquet
from antecede.trace.reader import read_trace
from antecede.trace.schema import SCHEMA, SEND
from chromium import brightness, browser
from planted import chain, spoil, table

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

__all__ = ["browser"]

_CALL = """
const done = arguments[arguments.length - 1];
(async (...given) => { const app = await window.explorer; %s })(...arguments)
  .then(done, (error) => done("failed: " + error.stack));
"""


def call(browser: Chrome, body: str, *given: Any) -> Any:
    """Run statements in the page, where `app` is the explorer."""
    answer = browser.execute_async_script(_CALL % body, *given)
    assert not str(answer).startswith("failed: "), answer
    return answer


def antecede(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return command_line.antecede(*arguments, cwd=folder)


class Explored(NamedTuple):
    """A trace with faults, and the address of its explorer."""

    trace: Path
    rows: pa.Table
    address: str


def in_flight_for_long(rows: pa.Table) -> pa.Table:
    """A separate group in which a message whose past no other process knows is delivered late in the run."""
    events = [("x", "send", "x:1", 1), ("y", "deliver", "x:1", 2), ("y", "send", "y:1", 3)]
    events += [("y", "send", f"y:{number}", 100 * number) for number in range(2, 20)]
    events += [("z", "deliver", "y:1", 2500), ("z", "send", "z:1", 2501), ("x", "deliver", "z:1", 2600)]
    late = table(events, rows.column("run")[0].as_py())
    group = pa.array(["late"] * len(late))
    return late.set_column(late.column_names.index("group"), "group", group).select(
        [name for name in late.column_names if name in rows.column_names]
    )


@pytest.fixture(scope="module")
def explored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explored]:
    """Some thousand events with faults and with clocks that disagree, in so small files that all are used."""
    folder = tmp_path_factory.mktemp("explored")
    setting = scenario(protocol="timestamp", peers=12, seconds=3.0, rate=8.0, delay="exp:40ms", seed=5)
    simulate_to(folder / "clean", setting)
    rows = spoil(read_trace(folder / "clean"), 11, 40, 60).rows
    process = rows.column("process").combine_chunks().dictionary_encode().indices.to_numpy()
    skewed = rows.column("time").to_numpy() + 9_000_000 * (process % 3)
    rows = rows.set_column(rows.column_names.index("time"), "time", pa.array(skewed))
    rows = pa.concat_tables([rows, in_flight_for_long(rows)], promote_options="default")
    write_parquet(rows, folder / "trace.parquet")
    (folder / "explorer" / "data").mkdir(parents=True)

    def write(name: str, content: bytes) -> None:
        (folder / "explorer" / "data" / name).write_bytes(content)

    write_index(folder / "trace.parquet", "a run with faults", None, write, chunk=256)
    server, address = open_server(folder / "explorer")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield Explored(folder / "trace.parquet", rows, address)
    server.shutdown()
    server.server_close()


def test_past_and_future_match_the_oracle(browser: Chrome, explored: Explored) -> None:
    browser.get(explored.address)
    assert call(browser, "return app.data.index.checkpoints;") > 10
    order = CausalOrder(execution(explored.rows, {}))
    columns = read_columns(explored.trace)
    events = select_events(columns)
    names = columns.origins
    ranks = {name: rank for rank, name in enumerate(order.execution.names)}
    sends = np.flatnonzero(events.kind == SEND)
    origin, position = events.lane[sends], events.position[sends]
    ids = [
        MessageId(ranks[names[lane]], int(columns.messages.seq[message]))
        for lane, message in zip(origin, events.message[sends], strict=True)
    ]
    late = [place for place, lane in enumerate(origin) if names[lane] in ("x", "z")]
    for place in [*range(0, len(ids), 23), *late]:
        name = f"{names[origin[place]]}:{ids[place].seq}"
        found = call(
            browser,
            "const found = await app.select(await app.data.findMessage(given[0]));"
            "return [[...found.past], [...found.future]];",
            name,
        )
        past, future = (np.array(each) for each in found)
        before = {each for each, is_in in zip(ids, position < past[origin], strict=True) if is_in}
        after = {each for each, is_in in zip(ids, position >= future[origin], strict=True) if is_in}
        mine = ids[place]
        assert before == {*order.members(order.past[order.position[mine]])}, name
        assert after == {mine} | {each for each in ids if order.happened_before(mine, each)}, name


def test_violations_match_the_audit_and_are_one_key_away(browser: Chrome, explored: Explored) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.get(explored.address)
    run = explored.rows.column("run")[0].as_py()
    found = judge_run(run, explored.rows, {})
    marks = call(browser, "return app.data.index.marks;")
    texts = [each.text for each in found.findings] + [each.text for each in found.faults]
    assert [mark["text"] for mark in marks] == texts
    browser.find_element("css selector", "#canvas").send_keys("n")
    call(browser, "while (!app.view.selection) await new Promise(requestAnimationFrame);")
    browser.find_element("css selector", "#canvas").send_keys("n")
    call(browser, "while (app.view.mark !== 1) await new Promise(requestAnimationFrame);")
    browser.find_element("css selector", "#canvas").send_keys("b")
    call(browser, "while (app.view.mark !== 0) await new Promise(requestAnimationFrame);")
    shown = call(
        browser,
        "while (!app.view.selection || app.view.selection.message !== app.data.index.marks[0].message)"
        "  await new Promise(requestAnimationFrame);"
        "const mark = app.data.index.marks[0];"
        "return [app.view.t0 < mark.time && mark.time < app.view.t1,"
        " document.querySelector('#details .bad').textContent, app.data.index.origins[mark.lane]];",
    )
    worst = found.findings[0]
    assert shown == [True, worst.text, worst.process]
    browser.find_element("css selector", "#canvas").send_keys(Keys.ESCAPE)
    assert call(browser, "return app.view.selection === null && app.view.mark === -1;")


def test_search_zoom_and_the_wait_of_a_held_message(browser: Chrome, explored: Explored) -> None:
    browser.get(explored.address)
    wide = call(browser, "return app.view.t1 - app.view.t0;")
    held = call(
        browser,
        "for (let n = 0; n < app.data.chunks; n++) { const c = await app.data.chunk(n);"
        " for (let i = 0; i < c.count; i++) if (c.held[i] > 2e7) {"
        "  const m = await app.data.message(c.message[i]);"
        "  return [m.name, app.data.index.origins[c.laneKind[i] >>> 4], c.held[i]]; } }",
    )
    box = browser.find_element("css selector", "#query")
    box.send_keys(held[0] + "\n")
    call(browser, "while (!app.view.selection) await new Promise(requestAnimationFrame);")
    rows = browser.find_elements("css selector", "#details tr")
    (row,) = [row.text for row in rows if row.text.startswith(held[1] + " ")]
    assert row.endswith("ms")
    assert row.count("ms") == 2
    assert call(browser, "return app.view.t1 - app.view.t0;") < wide
    begin, end = call(
        browser, "app.view.centre(0, -1, 1e8); await app.search('1.5 s'); return [app.view.t0, app.view.t1];"
    )
    assert begin < 1.5e9 < end
    lane = call(browser, "await app.search('p07'); return app.view.laneAt(26 + app.view.plotHeight / 2);")
    names = call(browser, "return app.data.index.origins;")
    assert names[lane] == "p07" or call(browser, "return app.view.fitHeight() > 24;")
    call(browser, "await app.search('no such thing');")
    assert "no such thing" in browser.find_element("css selector", "#status").text


def test_hostile_names_are_text_in_a_page_that_needs_no_server(browser: Chrome, tmp_path: Path) -> None:
    names = [
        "<script>window.bad = 1</script>",
        "<img src=x onerror='window.bad = 1'>",
        "</script><b>",
        "\u202e\x07",
    ]
    events = [
        (name.replace("n0", names[0]).replace("n1", names[1]).replace("n2", names[2]), kind, message, time)
        for name, kind, message, time in chain(2)
    ]
    renamed = {"n0:1": f"{names[0]}:1", "n1:1": f"{names[1]}:1"}
    rows = table([(name, kind, renamed[message], time) for name, kind, message, time in events])
    ids = [f"{names[2]}{number % 3}" for number in range(len(rows))]
    by_message = dict(zip(rows.column("origin").to_pylist(), ids, strict=True))
    message = pa.array([by_message[origin] for origin in rows.column("origin").to_pylist()])
    rows = rows.set_column(SCHEMA.names.index("message"), "message", message)
    write_parquet(rows, tmp_path / "trace.parquet")
    page = tmp_path / "explore.html"
    written = write_file(tmp_path / "trace.parquet", names[2], None, page)
    assert written.faults == 2
    browser.get(page.as_uri() + "#violation=1")
    shown = call(
        browser,
        "return [window.bad, document.querySelectorAll('b, img').length, document.body.textContent,"
        " app.data.index.origins, document.title];",
    )
    assert shown[:2] == [None, 0]
    assert names[2] in shown[2]
    assert names[0] in shown[3]
    assert "before its cause" in shown[2]
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_a_narrow_screen_in_light_and_dark(
    browser: Chrome, explored: Explored, scheme: str
) -> None:
    view = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", view)
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
    browser.get(explored.address + "#violation=1")
    width, canvas, paper, ink = call(
        browser,
        "app.view.draw(); return [document.documentElement.scrollWidth,"
        " document.querySelector('#canvas').getBoundingClientRect().height,"
        " getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color];",
    )
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert width <= 360
    assert canvas > 200
    assert abs(brightness(paper) - brightness(ink)) > 120
    assert (brightness(paper) < 100) == (scheme == "dark")


def test_requests_without_the_token_are_refused(explored: Explored) -> None:
    parts = urlsplit(explored.address)

    def ask(path: str, headers: dict[str, str]) -> HTTPResponse:
        connection = HTTPConnection(parts.hostname or "", parts.port, timeout=10)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        rules = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in rules
        assert "frame-ancestors 'none'" in rules
        assert "unsafe" not in rules
        connection.close()
        return answer

    opened = ask(f"{parts.path}?{parts.query}", {})
    assert opened.status == 200
    cookie = {"Cookie": str(opened.headers["Set-Cookie"]).partition(";")[0]}
    for path, headers in [
        ("/", cookie),
        ("/wrong/", cookie),
        (parts.path, {}),
        (f"{parts.path}?token=wrong", {}),
        (parts.path + "data/index.json", {}),
        (parts.path + "data/../../trace.parquet", cookie),
        (parts.path + "data/secret.txt", cookie),
        (f"{parts.path}?{parts.query}", {"Host": "evil.example"}),
    ]:
        assert ask(path, headers).status == 404, path
    for path in (parts.path, parts.path + "data/index.json"):
        assert ask(path, cookie).status == 200, path


def test_commands_write_the_explorer_and_link_to_it(tmp_path: Path) -> None:
    write_parquet(table(chain(2)), tmp_path / "trace.parquet")
    done = antecede(tmp_path, "explore", "trace.parquet", "--out", "explorer", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["faults"] == 2
    assert antecede(tmp_path, "explore", "trace.parquet", "--out", "explorer").returncode == 0
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("mine")
    refused = antecede(tmp_path, "explore", "trace.parquet", "--out", "other")
    assert refused.returncode == 2
    assert "something else in it" in refused.stderr
    assert (tmp_path / "other" / "mine.txt").read_text() == "mine"
    linked = ["audit", "trace.parquet", "--html", "audit.html", "--explorer", "it/see.html"]
    assert antecede(tmp_path, *linked).returncode == 2
    assert not (tmp_path / "audit.html").exists()
    (tmp_path / "it").mkdir()
    judged = antecede(tmp_path, *linked)
    assert judged.returncode == 1, judged.stderr
    assert 'href="it/see.html#violation=1"' in (tmp_path / "audit.html").read_text()
    assert (tmp_path / "it" / "see.html").exists()


NO_TIMES = """process,index,kind,msg
ana,1,send,question
bo,1,deliver,question
bo,2,send,answer
cleo,1,deliver,answer
cleo,2,deliver,question
ana,2,deliver,answer
"""


def test_without_times_causes_are_left_of_their_effects(browser: Chrome, tmp_path: Path) -> None:
    """The log of the tutorial: no scale, no times, and no arrow that points backwards."""
    (tmp_path / "log.csv").write_text(NO_TIMES)
    antecede(tmp_path, "explore", "log.csv", "--map", "message=msg", "--out", "log.html")
    browser.get((tmp_path / "log.html").as_uri())
    places = call(
        browser,
        "const at = await app.data.chunk(0);"
        "return [...at.time].map((time, event) => [at.laneKind[event] >>> 4, time, at.since[event]]);",
    )
    by_lane = {lane: [round(time / 1000) for own, time, _ in places if own == lane] for lane in range(3)}
    assert by_lane == {0: [0, 3], 1: [1, 2], 2: [3, 4]}
    assert all(since > 0 for _, time, since in places if time not in (0, 2300))
    about, status = (browser.find_element("id", name).text for name in ("about", "status"))
    assert "no times: left to right is order only" in about
    assert status == "6 events"
    call(browser, "await app.showMark(0);")
    details = browser.find_element("id", "details").text
    assert " ns" not in about + status + details
    assert " s." not in details
    assert "Sent by bo." in details
    call(browser, "await app.search('2 s');")
    assert "a process or ORIGIN:SEQ." in browser.find_element("id", "status").text


def test_alternating_messages_without_times_form_one_chain(tmp_path: Path) -> None:
    """Two processes of which one counts its events from a thousand: only the messages relate them."""
    lines = ["process,index,kind,msg"]
    for turn in range(50):
        first, second = ("ana", "bo") if turn % 2 == 0 else ("bo", "ana")
        lines += [f"{first},{2 * turn + 1_000 * (first == 'bo')},send,m{turn}"]
        lines += [f"{second},{2 * turn + 1 + 1_000 * (second == 'bo')},deliver,m{turn}"]
    (tmp_path / "log.csv").write_text("\n".join([*lines, ""]))
    with mapped_trace(str(tmp_path / "log.csv"), ["message=msg"]) as ours:
        explored = read_run(Path(ours), "log", None)
    assert not explored.has_times
    time, sequence = explored.layout.events.time, explored.layout.sequence
    assert (time[sequence] // STEP).tolist() == list(range(100))
    assert (np.diff(time[sequence]) > 0).all()
