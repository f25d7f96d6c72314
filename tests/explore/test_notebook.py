"""The explorer as a widget, in a real browser that hosts it as a notebook does, against the oracle."""

from __future__ import annotations

import base64
import builtins
import importlib
import json
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pytest
from anywidget import AnyWidget

from antecede.causality.happened_before import CausalOrder
from antecede.errors import InputError, MissingExtraError
from antecede.explore import notebook
from antecede.explore.notebook import NotebookExplorer
from antecede.sim.record import simulate_to
from antecede.sim.scenario import scenario
from antecede.trace.execution_from_rows import execution
from antecede.trace.reader import read_trace
from chromium import browser
from planted import chain, spoil, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from selenium.webdriver import Chrome

__all__ = ["browser"]

HOST = Path(__file__).with_name("widget_page.html")
_CALL = """
const done = arguments[arguments.length - 1];
(async (...given) => { const app = await window.explorer; %s })(...arguments)
  .then(done, (error) => done("failed: " + error.stack));
"""


class Cell(NamedTuple):
    """A widget in a page that hosts it as a notebook does."""

    explorer: NotebookExplorer
    browser: Chrome

    def in_frame(self, body: str, *given: Any) -> Any:
        """Run statements in the widget's frame, where `app` is the explorer."""
        self.browser.switch_to.frame(0)
        try:
            answer = self.browser.execute_async_script(_CALL % body, *given)
        finally:
            self.browser.switch_to.default_content()
        assert not str(answer).startswith("failed: "), answer
        return answer

    def host(self, script: str, *given: Any) -> Any:
        return self.browser.execute_script(script, *given)

    def until(self, script: str, *given: Any) -> Any:
        end = time.monotonic() + 30
        while not (found := self.host(script, *given)):
            assert time.monotonic() < end, script
            time.sleep(0.02)
        return found

    def sync(self) -> None:
        """What the page has saved goes to Python, as through a kernel."""
        for changes in self.host("return window.saved.splice(0);"):
            self.explorer.set_state(changes)


def show(explorer: NotebookExplorer, browser: Chrome, folder: Path) -> Cell:
    state = explorer.get_state(["_esm", "_run", "height"])
    given = {
        "esm": state["_esm"],
        "run": base64.b64encode(state["_run"]).decode(),
        "height": state["height"],
    }
    page = folder / "cell.html"
    script = f"<script>window.given = {json.dumps(given).replace('</', '<' + chr(92) + '/')};</script>"
    page.write_text(HOST.read_text().replace('<script type="module">', script + '<script type="module">'))
    browser.get(page.as_uri())
    cell = Cell(explorer, browser)
    cell.until("return window.model && document.querySelector('iframe');")
    return cell


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    """Sixty thousand events, receives included."""
    folder = tmp_path_factory.mktemp("run")
    setting = scenario(protocol="timestamp", peers=48, seconds=1.35, rate=10.0, delay="exp:40ms", seed=3)
    simulate_to(folder, setting)
    return read_trace(folder)


@pytest.fixture(scope="module")
def cell(rows: pa.Table, browser: Chrome, tmp_path_factory: pytest.TempPathFactory) -> Cell:
    shuffled = rows.to_pandas().sample(frac=1, random_state=1)
    return show(NotebookExplorer(shuffled), browser, tmp_path_factory.mktemp("cell"))


def test_sixty_thousand_events_of_a_data_frame_without_a_server(cell: Cell, rows: pa.Table) -> None:
    assert rows.num_rows > 60_000
    assert isinstance(cell.explorer, AnyWidget)
    events = cell.in_frame(
        "while (!app.view.frames) await new Promise(requestAnimationFrame);return app.data.index.events;"
    )
    assert events == cell.explorer.written.events > 30_000
    asked = cell.in_frame("return performance.getEntriesByType('resource').map((each) => each.name);")
    assert asked == []
    script = str(cell.explorer.get_state("_esm")["_esm"])
    namespaces = script.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://", namespaces)


def test_a_selection_is_synchronised_between_python_and_the_page(cell: Cell) -> None:
    assert cell.explorer.selected == ""
    cell.host("model.set('selected', 'p05:3');")  # as Python does
    text = cell.in_frame(
        "while (!app.view.selection) await new Promise(requestAnimationFrame);"
        "return document.querySelector('#details').textContent;"
    )
    cell.explorer.selected = "p05:3"
    delivered = [row for row in cell.explorer.rows("past").to_pylist() if row["kind"] != "receive"]
    assert f"{len(delivered):,} events in its causal past" in text
    clicked = cell.in_frame("return (await app.goTo(await app.data.findMessage('p07:2'), '')).name;")
    cell.until("return model.get('selected') === arguments[0];", clicked)
    cell.sync()
    assert cell.explorer.selected == clicked == "p07:2"
    cell.host("model.set('selected', 'nobody:1');")
    cell.until("return model.get('selected') === '';")
    assert "no message nobody:1" in cell.in_frame("return document.querySelector('#status').textContent;")
    cell.sync()
    assert cell.explorer.selected == ""


def test_rows_before_and_after_a_message_match_the_oracle(rows: pa.Table) -> None:
    """Also of a run that is not causally ordered, and without a browser."""
    spoiled = spoil(
        rows.slice(0, 20_000).sort_by([("process", "ascending"), ("index", "ascending")]), 5, 30, 40
    )
    explorer = NotebookExplorer(spoiled.rows)
    order = CausalOrder(execution(spoiled.rows, {}))
    names = order.execution.names
    called = {each: f"{names[each.origin]}:{each.seq}" for each in order.position}
    with pytest.raises(InputError, match="no message is selected"):
        explorer.rows("past")
    sends = {f"{row['origin']}:{row['seq']}" for row in spoiled.rows.to_pylist() if row["kind"] == "send"}
    for mine in list(order.position)[::11]:
        name = explorer.selected = called[mine]
        before = {called[each] for each in order.members(order.past[order.position[mine]])}
        after = {called[each] for each in order.position if order.happened_before(mine, each)}
        assert sent(explorer.rows("past")) == before & sends
        assert sent(explorer.rows("future")) == (after - {name}) & sends
        assert sent(explorer.rows("concurrent")) == sends - before - after - {name}
        of_it = explorer.rows("message").to_pylist()
        assert {f"{row['origin']}:{row['seq']}" for row in of_it} == {name}
    for name in ("nobody:1", "p00:999999", "p00:", "p00:x"):
        explorer.selected = name
        with pytest.raises(InputError, match=f"has no message {name}"):
            explorer.rows("past")


def sent(found: pa.Table) -> set[str]:
    return {f"{row['origin']}:{row['seq']}" for row in found.to_pylist() if row["kind"] == "send"}


def test_the_notebook_and_the_widget_do_not_interfere(cell: Cell) -> None:
    """Keys of one are not keys of the other, and a moved cell is drawn again."""
    cell.browser.switch_to.frame(0)
    cell.browser.find_element("css selector", "#canvas").send_keys("nd0")
    cell.browser.switch_to.default_content()
    assert cell.host("return window.keys;") == []
    sandbox = cell.host("return document.querySelector('iframe').sandbox.value;")
    assert sandbox == "allow-scripts"
    assert (
        cell.in_frame("try { return parent.document.title; } catch (error) { return error.name; }")
        == "SecurityError"
    )
    cell.host("model.set('selected', 'p03:1');")
    cell.host("const cell = document.querySelector('#cell'); cell.append(cell.firstChild);")
    assert (
        cell.in_frame(
            "while (!app.view.selection) await new Promise(requestAnimationFrame);"
            "return app.view.selection.name;"
        )
        == "p03:1"
    )


def test_the_widget_follows_the_notebook_theme_and_the_requested_height(cell: Cell) -> None:
    paper = "return getComputedStyle(document.body).backgroundColor;"
    wait = "for (let n = 0; n < 200 && getComputedStyle(document.body).backgroundColor %s given[0]; n++)"
    wait += " await new Promise(requestAnimationFrame);" + paper
    assert cell.in_frame(paper) == "rgb(255, 255, 255)"
    cell.host("document.body.className = 'dark';")
    assert cell.in_frame(wait % "===", "rgb(255, 255, 255)") == "rgb(18, 22, 29)"
    assert cell.in_frame("return app.view.colours.paper;") == [18, 22, 29]
    cell.host("document.body.className = '';")
    assert cell.in_frame(wait % "!==", "rgb(255, 255, 255)") == "rgb(255, 255, 255)"
    cell.host("model.set('height', 480);")
    assert cell.host("return document.querySelector('iframe').getBoundingClientRect().height;") == 480


def test_hostile_names_are_text(browser: Chrome, tmp_path: Path) -> None:
    bad = "</script><img src=x onerror='parent.bad = window.bad = 1'>"
    events = [
        (name.replace("n1", bad), kind, message.replace("n1", bad), at)
        for name, kind, message, at in chain(2)
    ]
    cell = show(NotebookExplorer(table(events)), browser, tmp_path)
    cell.host("model.set('selected', arguments[0]);", f"{bad}:1")
    text = cell.in_frame(
        "while (!app.view.selection) await new Promise(requestAnimationFrame);"
        "return document.body.textContent;"
    )
    assert bad in text
    assert cell.in_frame("return [window.bad ?? null, document.querySelectorAll('img').length];") == [None, 0]
    assert cell.host("return window.bad ?? null;") is None
    cell.host("window.end();")
    assert cell.host("return [...listeners.values()].flat();") == []


def test_arrow_and_pandas_are_the_same(rows: pa.Table) -> None:
    few = rows.slice(0, 4_000)
    frame = few.to_pandas()
    frame["seq"] = frame["seq"].astype("float64")
    frame["what else"] = [object() for _ in range(len(frame))]
    assert NotebookExplorer(few)._run == NotebookExplorer(frame)._run
    large = few.cast(
        pa.schema([(f.name, pa.large_string() if f.type == pa.string() else f.type) for f in few.schema])
    )
    assert NotebookExplorer(large)._run == NotebookExplorer(few)._run


def test_only_the_rows_shown_are_collected_from_spark(
    rows: pa.Table, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = rows.slice(0, 500)
    frame = spark.createDataFrame(few.to_pandas())
    assert NotebookExplorer(frame).written == NotebookExplorer(few).written
    monkeypatch.setattr(notebook, "MAX_ROWS", 400)
    collected: list[int] = []
    arrow = type(frame).toArrow

    def counted(each: Any) -> pa.Table:
        found = arrow(each)
        collected.append(len(found))
        return found

    monkeypatch.setattr(type(frame), "toArrow", counted)
    with pytest.raises(InputError, match="more than 400 rows"):
        NotebookExplorer(frame)
    assert collected == [401]


def test_bad_input_is_reported_in_one_sentence(rows: pa.Table) -> None:
    for events, message in [
        (3, "expected a DataFrame"),
        (pd.DataFrame({"a": [1]}), "no events|lacks|column"),
        (rows.slice(0, 10).drop_columns(["process"]), "process"),
        (rows.slice(0, 10).to_pandas().assign(seq=0.5), "column seq"),
        (rows.slice(0, 0), "no events"),
    ]:
        with pytest.raises(InputError, match=message):
            NotebookExplorer(events)
    with pytest.raises(InputError, match="expected one of past"):
        NotebookExplorer(rows.slice(0, 10)).rows("before")  # type: ignore[arg-type]


def test_a_missing_anywidget_is_reported_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name == "anywidget":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return original(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.delitem(sys.modules, "antecede.explore.notebook")
    with pytest.raises(MissingExtraError, match=r"antecede\[notebook\]"):
        importlib.import_module("antecede.explore.notebook")
