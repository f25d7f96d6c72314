"""The report in a real browser: both pictures are really drawn, in light and in dark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from antecede.audit.core import COUNTS
from antecede.causality import Verdict
from antecede.papers import contest, paper_000
from antecede.papers.paper import FinishedRun, Runs
from antecede.papers.paper_000 import runs as runs_000
from antecede.papers.readings import Agreement, ChosenReading
from antecede.papers.reproduce import write_pages
from antecede.papers.scoreboard_page import PaperResult, Reproduction
from antecede.sim.engines import simulate
from antecede.sim.record import simulate_to
from antecede.sim.scenario import scenario
from antecede.sweep.grid import expand
from antecede.sweep.page import DrawnRun, example_events, sweep_page
from antecede.sweep.results import summarise
from chromium import COLOUR, brightness, browser, size

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

__all__ = ["browser"]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep's page, from small real runs."""
    import msgspec
    import pyarrow as pa

    folder = tmp_path_factory.mktemp("report")
    rows = []
    for setting in expand({"seconds": 0.5}, {"protocol": ["timestamp", "mbcp"], "peers": [2, 4, 8]}):
        metrics = simulate_to(folder / setting.key(), setting).metrics
        clean = dict.fromkeys((*COUNTS, *Verdict.DEPRECATED), 0)
        measured = msgspec.to_builtins(metrics) | {"audited": metrics.deliveries}
        rows.append({"run": setting.key(), **msgspec.to_builtins(setting), **clean, **measured})
    story = scenario(
        protocol="mbcp", peers=4, seconds=0.6, workload="poisson", rate=2.0, delay="30-500ms", seed=225,
        most_messages=5,
    )  # fmt: skip
    simulate_to(folder / "story", story)
    drawn = DrawnRun("a story", example_events(folder / "story"))
    html = sweep_page(summarise(pa.Table.from_pylist(rows)), drawn, "A sweep")
    page = folder / "report.html"
    page.write_text(html, encoding="utf-8")
    return page


@pytest.fixture(scope="module")
def reproduction(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a reproduction, from small real runs of one paper."""
    small = [
        each for each in paper_000.STUDY.plain_grid("quick") if runs_000.size(each) == 10 and each.seed == 1
    ]
    main, beyond, compared = (
        Runs([FinishedRun(setting, simulate(setting).metrics) for setting in those])
        for those in (small, paper_000.STUDY.open_grid("quick")[:2], contest.grid("quick")[:3])
    )
    study = paper_000.STUDY
    choice = ChosenReading(study.plainest, [(study.plainest, Agreement(3, 2, 9))], study.seeds("full"))
    part = PaperResult.score(study, choice, main, beyond)
    found = Reproduction(part.rows, contest.table(compared), {"000": choice}, "Nothing was audited.")
    folder = tmp_path_factory.mktemp("reproduction")
    write_pages(folder, [part], found, "quick")
    return folder / "report.html"


def test_both_charts_are_drawn(browser: Chrome, report: Path) -> None:
    browser.get(report.as_uri())
    for selector in ("svg.chart", "svg.spacetime"):
        width, height = size(browser, selector)
        assert width > 300
        assert height > 150
    count = "return document.querySelectorAll(arguments[0]).length;"
    assert browser.execute_script(count, "svg.chart .series") == 4
    line_width, line_height = size(browser, "svg.chart .series path")
    assert line_width > 150
    assert line_height > 5
    held_width, _ = size(browser, "svg.spacetime .hold.star line")
    assert held_width > 100
    assert "waits" in browser.execute_script("return document.querySelector('.hold.star text').textContent;")


@pytest.mark.parametrize("width", [400, 1280])
def test_nothing_overflows_the_page(browser: Chrome, report: Path, reproduction: Path, width: int) -> None:
    view = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", view)
    script = "return document.documentElement.scrollWidth <= document.documentElement.clientWidth;"
    for page in (report, reproduction, reproduction.with_name("paper-000.html")):
        browser.get(page.as_uri())
        assert browser.execute_script(script)
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_paper_page_shows_the_summary_first_and_every_scoreboard_column(
    browser: Chrome, reproduction: Path
) -> None:
    browser.get(reproduction.as_uri())
    browser.find_element("css selector", 'a[href="paper-000.html"]').click()
    assert browser.execute_script("return document.querySelectorAll('svg.chart').length;") >= 14
    top = "return document.querySelector('#figures').getBoundingClientRect().top;"
    assert browser.execute_script(top) < 3 * 900
    drawn = "return document.querySelector('#rules img.drawn').naturalWidth;"
    assert browser.execute_script(drawn) > 300
    inside = """
      return [...document.querySelectorAll('.scroll')].every(box => box.scrollWidth <= box.clientWidth);
    """
    assert browser.execute_script(inside)


def test_light_and_dark_both_have_contrast(browser: Chrome, report: Path) -> None:
    seen = {}
    for scheme in ("light", "dark"):
        media = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
        browser.get(report.as_uri())
        paper = browser.execute_script(COLOUR, "body", "backgroundColor")
        ink = browser.execute_script(COLOUR, "h1", "color")
        line = browser.execute_script(COLOUR, ".series path", "stroke")
        assert abs(brightness(paper) - brightness(ink)) > 120
        assert abs(brightness(paper) - brightness(line)) > 60
        seen[scheme] = paper
    assert seen["light"] != seen["dark"]
