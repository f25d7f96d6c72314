"""Charts and diagrams as text: what is drawn is what the tables say."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antecede.causality import CausalOrder
from antecede.report.charts import Series, line_chart, nice_ticks
from antecede.report.page import Section, page, table
from antecede.report.spacetime import excerpt, spacetime
from antecede.sim.record import simulate_to
from antecede.sim.scenario import scenario
from antecede.sweep.page import example_events
from antecede.trace.execution_from_rows import execution
from antecede.trace.explain import RunEvents, Wait


def parse(svg: str) -> ET.Element:
    return ET.fromstring(svg)  # noqa: S314 (our own text)


def test_a_chart_has_a_line_for_each_series_and_a_dot_for_each_point() -> None:
    series = [Series("a", [(1, 2.0), (2, 4.0)]), Series("b <i>", [(1, 3.0), (2, 3.5), (5, 9.25)])]
    svg = parse(line_chart(series, "peers", "bytes", "what it shows"))
    assert svg.get("aria-label") == "what it shows"
    assert len(svg.findall(".//path")) == 2
    assert len(svg.findall(".//circle")) == 5
    titles = [title.text for title in svg.iter("title")]
    assert "b <i>: 9.25 bytes at 5 peers" in titles


@given(st.floats(0, 1e12))
def test_ticks_are_few_and_reach_the_top(top: float) -> None:
    ticks = nice_ticks(top)
    assert ticks[0] == 0
    assert ticks[-1] >= top * (1 - 1e-9)
    assert len(ticks) <= 7


def test_a_single_point_is_a_chart() -> None:
    assert len(parse(line_chart([Series("a", [(3, 0.0)])], "x", "y", "z")).findall(".//circle")) == 1


def event(process: str, index: int, kind: str, message: str, time: int) -> dict[str, Any]:
    origin, seq = message.split(":")
    return {
        "process": process,
        "index": index,
        "kind": kind,
        "origin": origin,
        "seq": int(seq),
        "time": time * 10**6,
    }


STORY = [
    event("a", 0, "send", "a:1", 0),
    event("b", 0, "receive", "a:1", 10),
    event("b", 1, "deliver", "a:1", 10),
    event("b", 2, "send", "b:1", 20),
    event("a", 1, "receive", "b:1", 30),
    event("a", 2, "deliver", "b:1", 30),
    event("c", 0, "receive", "b:1", 40),
    event("c", 1, "receive", "a:1", 90),
    event("c", 2, "deliver", "a:1", 90),
    event("c", 3, "deliver", "b:1", 90),
]


def test_a_hold_is_explained_by_the_message_that_ended_it() -> None:
    assert RunEvents(STORY).waits() == [Wait("c", "b:1", "a:1", 40 * 10**6, 90 * 10**6)]


@pytest.mark.parametrize("seed", range(8))
def test_a_held_message_waits_for_one_of_its_causes(tmp_path: Path, seed: int) -> None:
    simulate_to(tmp_path, scenario(protocol="mbcp", peers=5, seconds=1, delay="1-400ms", seed=seed))
    events = example_events(tmp_path)
    whole = execution(pq.read_table(tmp_path / "part-00000.parquet"), {})
    order = CausalOrder(whole)
    ids = {whole.show(message): message for message in order.messages}
    waits = RunEvents(events).waits()
    assert len(waits) > 10
    for wait in waits:
        assert wait.cause is not None
        assert order.happened_before(ids[wait.cause], ids[wait.message])
    few, fewer = excerpt(events, waits)
    assert len({(row["origin"], row["seq"]) for row in few}) == 8
    assert fewer[0] == waits[0]


def test_the_diagram_draws_every_packet_and_the_wait() -> None:
    svg = parse(spacetime(STORY, RunEvents(STORY).waits(), "a wait"))
    packets = [group for group in svg.iter("g") if (group.get("class") or "").startswith("packet")]
    assert sum(len(group.findall("path")) for group in packets) == 4
    (star,) = [group for group in svg.iter("g") if group.get("class") == "hold star"]
    assert star.findtext("text") == "b:1 waits 50 ms for a:1"
    assert {group.get("class") for group in packets} == {"packet cause", "packet effect"}


def test_a_page_loads_nothing_and_escapes_everything() -> None:
    html = page("<title>", "a & b", [Section("<s>", "t", table(["<h>"], [["<c>"]]))], "f")
    assert "<h1>&lt;title&gt;</h1>" in html
    assert "<td>&lt;c&gt;</td>" in html
    for word in ("http:", "https:", "<script", "@import", "url("):
        assert word not in html
