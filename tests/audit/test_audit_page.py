"""The page of an audit: what it says, that names cannot break it, and that a browser shows the fault."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from antecede.audit.diagram import diagram, short
from antecede.audit.excerpt import Excerpt, build_excerpt, select_rows
from antecede.audit.page import audit_to_page
from antecede.audit.page_layout import AuditPageData, audit_page, headline
from antecede.audit.tally import ByOrigin, ByProcess, OverTime, Tally
from antecede.causality import Verdict
from antecede.errors import InputError
from antecede.trace.foreign.mapped_trace import mapped_trace
from chromium import COLOUR, brightness, browser, size
from planted import chain, table, violation

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

__all__ = ["browser"]
SVG = re.compile(r"<svg.*?</svg>", re.DOTALL)
HOSTILE = "</title><script>alert(1)</script>{}\u202e\x00&\"'"


def shown(rows: pa.Table, process: str, cause: str) -> Excerpt:
    found = violation(rows, process, cause)
    return build_excerpt(found, select_rows(rows, [found]))


def drawn(rows: pa.Table, process: str, cause: str) -> tuple[ET.Element, str]:
    picture, about = diagram(shown(rows, process, cause), "a violation")
    return ET.fromstring(picture), about  # noqa: S314 (our own text)


def classed(svg: ET.Element, *names: str) -> list[ET.Element]:
    return [each for each in svg.iter() if {*names} <= {*(each.get("class") or "").split()}]


def numbers(svg: ET.Element) -> list[str]:
    return [each.findtext("text") or "" for each in classed(svg, "badge")]


def write(folder: Path, rows: pa.Table) -> Path:
    folder.mkdir()
    pq.write_table(rows, folder / "part-00000.parquet")
    return folder


@pytest.mark.parametrize("late", [True, False])
def test_the_path_is_numbered_and_the_fault_is_marked(late: bool) -> None:
    svg, about = drawn(table(chain(3, late)), "n3", "n0:1")
    assert numbers(svg) == ["1", "2", "3"]
    assert [each.get("class") for each in classed(svg, "hop")] == ["hop cause", "hop link", "hop effect"]
    lanes = ["".join(each.itertext()) for each in classed(svg, "lane")]
    assert lanes == [f"n{number}n{number}" for number in range(4)]  # a title and the name
    assert len(classed(svg, "lacks")) == len(classed(svg, "fault")) == 1
    assert len(classed(svg, "direct", "never")) == (not late)
    words = " ".join(" ".join(svg.itertext()).split())
    assert "delivers n2:1 without its cause n0:1" in words
    assert ("n0:1 arrives only here, after 38 ms" if late else "n0:1 is never delivered here") in words
    assert "Time goes to the right" in about


def without_times(events: list[tuple[str, str, str, int]]) -> list[tuple[str, str, str, int]]:
    return [(process, kind, message, 0) for process, kind, message, _ in events]


def skewed(events: list[tuple[str, str, str, int]]) -> list[tuple[str, str, str, int]]:
    return [(p, kind, message, time - 1000 * int(p[1:])) for p, kind, message, time in events]


@pytest.mark.parametrize(("spoil", "says"), [(without_times, "no usable times"), (skewed, "clocks disagree")])
def test_events_are_placed_by_order_if_clocks_disagree(
    spoil: Callable[[list[tuple[str, str, str, int]]], list[tuple[str, str, str, int]]], says: str
) -> None:
    events = spoil(chain(3))
    svg, about = drawn(table(events), "n3", "n0:1")
    assert says in about
    assert classed(svg, "times") == []
    for line in [each.find("path") for each in classed(svg, "hop")]:
        assert line is not None
        start, end = re.findall(r"[ML]([\d.]+),", line.get("d") or "")[:2]
        assert float(start) < float(end)


def test_a_long_path_shows_its_beginning_and_its_end() -> None:
    svg, _ = drawn(table(chain(40)), "n40", "n0:1")
    assert numbers(svg) == [*map(str, range(1, 7)), *map(str, range(35, 41))]
    assert "… 28 more messages …" in " ".join(svg.itertext())


def test_names_from_the_trace_are_escaped(tmp_path: Path) -> None:
    trace = write(tmp_path / "trace", table(chain(3, name=HOSTILE), run="<b>run</b>"))
    audit_to_page(tmp_path / "page.html", "<i>trace</i>", str(trace), "local", 10, None)
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    for word in ("<script", "<i>trace", "<b>run", "\u202e", "\x00", "http:", "https:", "@import", "url("):
        assert word not in html
    assert "&lt;script&gt;" in html
    for picture in SVG.findall(html):
        ET.fromstring(picture)  # noqa: S314


def test_a_violation_can_be_chosen(tmp_path: Path) -> None:
    trace = str(write(tmp_path / "trace", table(chain(3))))
    page = tmp_path / "page.html"
    findings = audit_to_page(page, "t", trace, "local", 10, None, violation=2).findings
    html = page.read_text(encoding="utf-8")
    assert len(findings) == 3
    assert "<h2>Violation 2 of 3</h2>" in html
    assert html.index("<h2>Violation 2") < html.index(findings[1].cause) < html.index("All violations")
    assert len(SVG.findall(html)) == 4, "three violations, and the chart over time"
    for wrong in (4, 100):
        with pytest.raises(InputError, match=f"--violation {wrong}: .* choose 1 to 3"):
            audit_to_page(page, "t", trace, "local", 10, None, violation=wrong)
    in_new_folder = tmp_path / "new" / "page.html"
    audit_to_page(in_new_folder, "t", trace, "local", 10, None)
    assert in_new_folder.is_file()
    with pytest.raises(InputError, match="is a folder"):
        audit_to_page(tmp_path, "t", trace, "local", 10, None)


def test_a_clean_trace_has_a_page_that_says_so(tmp_path: Path) -> None:
    trace = write(tmp_path / "trace", table(chain(1, late=False)))
    audit_to_page(tmp_path / "page.html", "t", str(trace), "local", 10, None)
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Clean: 1 delivery of 1 message at 2 processes, each once and after all its causes." in html
    assert len(SVG.findall(html)) == 1, "the chart over time"
    with pytest.raises(InputError, match="there is none to draw"):
        audit_to_page(tmp_path / "page.html", "t", str(trace), "local", 10, None, violation=1)


def test_the_headline_says_what_is_wrong() -> None:
    assert headline(Verdict(3, 9, 18, 2, 2, 2, 0, 0, 0, 0, 0, 0)) == (
        "Not in causal order: of 18 deliveries of 9 messages at 3 processes, 2 came before their cause."
    )
    assert "but there are other violations" in headline(Verdict(3, 9, 17, 0, 0, 0, 0, 0, 1, 0, 0, 0))


TALLY = Tally(
    by_process=[ByProcess(f"<p{number}>", 100, 50 - number, number, 0, 50 - number) for number in range(50)],
    by_origin=[ByOrigin("o", 10, 3, 4)],
    over_time=OverTime(10**18, 5 * 10**6, [10, 20, 0, 40], [0, 2, 0, 1], [0, 2, 0, 1]),
)


def test_counts_by_process_by_origin_and_over_time() -> None:
    verdict = Verdict(3, 9, 18, 2, 2, 2, 0, 0, 0, 0, 0, 0)
    html = audit_page(AuditPageData("t", verdict, [], [], {}, tally=TALLY))
    assert "<td>&lt;p0&gt;</td><td>50</td>" in html
    assert "and 30 more" in html
    (chart,) = [ET.fromstring(each) for each in SVG.findall(html)]  # noqa: S314
    heights = [[float(bar.get("height") or 0) for bar in row.iter("rect")] for row in classed(chart, "bars")]
    assert heights == [[0, 74, 0, 37], [18.5, 37, 0, 74]]


@pytest.mark.parametrize(("hops", "late"), [(2, True), (3, False), (12, True), (40, True)])
def test_a_browser_shows_the_fault_and_its_path(
    browser: Chrome, tmp_path: Path, hops: int, late: bool
) -> None:
    rows = table(chain(hops, late))
    one = shown(rows, f"n{hops}", "n0:1")
    verdict = Verdict(hops + 1, hops, hops + late, 1, int(late), 1, 0, 0, 0, 0, 0, 0)
    page = tmp_path / "page.html"
    page.write_text(
        audit_page(AuditPageData("t", verdict, [one.finding], [], {0: one}, tally=TALLY)), encoding="utf-8"
    )
    for scheme in ("light", "dark"):
        media = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
        browser.get(page.as_uri())
        paper = browser.execute_script(COLOUR, "body", "backgroundColor")
        for selector, what in ((".fault circle", "stroke"), (".hop path", "stroke"), (".lacks", "stroke")):
            colour = browser.execute_script(COLOUR, selector, what)
            assert abs(brightness(paper) - brightness(colour)) > 60
    assert size(browser, "svg.violation")[0] > 800
    assert size(browser, ".fault circle")[0] > 14
    assert size(browser, ".lacks")[0] > 80
    assert browser.execute_script(FITS)
    assert browser.execute_script(COVERED) == []
    ways = browser.execute_script(WAYS)
    assert len(ways) == min(hops, 12)
    for before, after in pairwise(ways):
        assert before["right"] <= after["left"] + 1  # step by step to the right,
        assert before["bottom"] <= after["top"] + 12  # and down


FITS = "return document.documentElement.scrollWidth <= document.documentElement.clientWidth;"
WAYS = (
    "return [...document.querySelectorAll('.hop > path')].map(each => each.getBoundingClientRect().toJSON());"
)
COVERED = """
  const texts = [...document.querySelectorAll('svg.violation text')];
  const boxes = texts.map(each => [each.textContent, each.getBoundingClientRect()]);
  return boxes.flatMap(([name, a], place) => boxes.slice(place + 1)
    .filter(([, b]) => a.left < b.right - 1 && b.left < a.right - 1)
    .filter(([, b]) => a.top < b.bottom - 3 && b.top < a.bottom - 3)
    .map(([other]) => name + ' / ' + other));
"""


FAMILY = "👨‍👩‍👧‍👦"
FOREIGN = [
    ("שרת-ראשי", "send", "הודעה:1", 0),
    ("خادم-٢", "deliver", "הודעה:1", 0),
    ("خادم-٢", "send", f"ردّ {FAMILY}:1", 0),
    (f"node {FAMILY}", "deliver", f"ردّ {FAMILY}:1", 0),
    (f"node {FAMILY}", "deliver", "הודעה:1", 0),
]


def write_foreign(folder: Path) -> Path:
    """A log without times, with names from right to left and joined emoji."""
    rows = ["process,kind,message", *(",".join(event[:3]) for event in FOREIGN), ""]
    rows[-1:] = [f"{FOREIGN[4][0]},deliver,{FAMILY * 20}", ""]
    (folder / "log.csv").write_text("\n".join(rows), encoding="utf-8")
    with mapped_trace(str(folder / "log.csv"), ["message=message"]) as ours:
        audit_to_page(folder / "page.html", "log.csv", ours, "local", 10, None)
    return folder / "page.html"


def test_names_in_other_scripts_stay_distinct_and_whole(tmp_path: Path) -> None:
    page = write_foreign(tmp_path).read_text(encoding="utf-8")
    assert f"<bdi>node {FAMILY}</bdi> delivered <bdi>ردّ {FAMILY}:1</bdi> before its cause" in page
    assert '<tspan class="name">הודעה:1</tspan>' in page
    assert "The trace has no usable times" in page
    assert "Over time" not in page


def test_long_names_are_cut_at_grapheme_boundaries() -> None:
    assert short(FAMILY * 30) == f"{FAMILY * 5}…{FAMILY * 5}"
    assert short("e\u0301" * 30) == f"{'e' + chr(0x301)}" * 10 + "…" + "e\u0301" * 11


@pytest.mark.parametrize("width", [400, 1200])
def test_a_browser_shows_the_whole_page_on_a_small_screen(
    browser: Chrome, tmp_path: Path, width: int
) -> None:
    page = write_foreign(tmp_path)
    metrics = {"width": width, "height": 1600, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        browser.get(page.as_uri())
        assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
        outside = browser.execute_script(
            """return [...document.querySelectorAll("svg text")].filter(each => {
            const box = each.getBBox(), view = each.ownerSVGElement.viewBox.baseVal;
            return box.x < 0 || box.x + box.width > view.width;
            }).map(each => each.textContent)"""
        )
        assert outside == []
        tables = "return [...document.querySelectorAll('table')].every(t => t.offsetWidth <= innerWidth)"
        assert browser.execute_script(tables)
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
