"""Every rule of changing groups is there because a schedule fails without it: find_broken.py finds them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from antecede.check.changing.world import ChangingWorld
from antecede.membership.member import ChangingMember

sys.path.insert(0, str(Path(__file__).parent))
import find_broken

PAGES = Path(__file__).parents[2] / "docs" / "protocols"
ENTRIES = find_broken.read()
FOUND = {name: found for name, found in ENTRIES.items() if found.schedule}


def protocol(name: str) -> type[ChangingMember]:
    """What a broken member would be if it were not broken."""
    kind, _ = find_broken.kinds(find_broken.VARIANTS[name])
    return next(each for each in kind.__mro__ if each.__module__ == "antecede.membership.catalog")


def test_every_broken_member_has_a_search_result() -> None:
    assert list(ENTRIES) == list(find_broken.VARIANTS)
    assert all(found.schedule or found.runs for found in ENTRIES.values())


@pytest.mark.parametrize("name", FOUND)
def test_a_broken_member_fails_where_the_protocol_holds(name: str) -> None:
    found = FOUND[name]
    kind, world = find_broken.kinds(find_broken.VARIANTS[name])
    schedule = found.founders, found.size, found.schedule
    assert find_broken.judge(kind, world, *schedule) == found.violation
    assert find_broken.judge(protocol(name), ChangingWorld, *schedule) == ""


def test_the_membership_page_matches_the_search_results() -> None:
    page = find_broken.PAGE.read_text(encoding="utf-8")
    assert f"{find_broken.BEGIN}\n{find_broken.table(ENTRIES)}\n{find_broken.END}" in page
    for name, svg in find_broken.drawings(ENTRIES):
        assert (find_broken.IMAGES / f"{name}.svg").read_text(encoding="utf-8") == svg


def test_runs_on_protocol_pages_match_the_implementation(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a change: python docs/protocols/changing_runs.py, and look at the difference."""
    monkeypatch.syspath_prepend(str(PAGES))
    runs = importlib.import_module("changing_runs")
    drawn = dict(runs.drawings())
    there = {image.stem: image.read_text(encoding="utf-8") for image in runs.IMAGES.glob("*.svg")}
    assert drawn == there
    for name, page in runs.PAGES.items():
        text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
        assert runs.with_runs(text, name) == text
