"""Every printed error is found, and the pages have what `docs/protocols/errata.py` writes."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from pathlib import Path

import pytest

import printed_protocols
from antecede.check.draw import draw
from antecede.papers.errata import smallest_runs
from antecede.protocols.base import Protocol

PAGES = Path(__file__).parents[2] / "docs" / "protocols"
sys.path.insert(0, str(PAGES))
import errata  # noqa: E402
from errata_catalogue import AS_PRINTED, AS_READ, ERRATA, NOT_OF_ORDER, Erratum  # noqa: E402

EXPENSIVE = {"DropsWhatIsStillNamed", "TakesAnyPongSoon", "PassesPingsOnOverAnyLink"}
"""Half a million states and more; the script finds them."""
HELPERS = {"Algorithm2", "Variant", "TakesAnyPong", "UsesNewLinksAtOnce"}
"""The corrected algorithm, what variants share, and variants of the same rule."""


@pytest.mark.parametrize("erratum", ERRATA, ids=lambda erratum: erratum.name)
def test_pages_have_the_smallest_run(erratum: Erratum) -> None:
    """After a change: python docs/protocols/errata.py, and look at the difference."""
    page, image = PAGES / f"{erratum.page}.md", errata.IMAGES / f"{erratum.name}.svg"
    assert erratum.name in errata.runs_on(page)
    assert erratum.name in errata.rows_there()
    assert image.exists()
    if erratum.name not in EXPENSIVE:
        found = errata.find(erratum)
        assert errata.runs_on(page)[erratum.name] == errata.run(erratum, found)
        assert errata.rows_there()[erratum.name] == errata.row(erratum, found)
        assert image.read_text(encoding="utf-8") == draw(found) + "\n"
        assert errata.record(erratum, found) in smallest_runs()


def test_every_variant_is_found_or_listed_with_the_reason() -> None:
    modules = [
        importlib.import_module(f"printed_protocols.{module.name}")
        for module in pkgutil.iter_modules(printed_protocols.__path__)
    ]
    variants = {
        name
        for module in modules
        for name, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, Protocol) and kind.__module__ == module.__name__
    }
    listed = {name for name in variants if any(f"`{name}`" in error.error for error in NOT_OF_ORDER)}
    assert variants - {erratum.name for erratum in ERRATA} - listed == HELPERS


def test_no_page_has_a_run_that_is_not_in_the_catalogue() -> None:
    names = {name for page in PAGES.glob("*.md") for name in errata.runs_on(page)}
    assert names == errata.rows_there().keys() == {erratum.name for erratum in ERRATA}
    assert {image.stem for image in errata.IMAGES.glob("*.svg")} == names
    assert [run.name for run in smallest_runs()] == [erratum.name for erratum in ERRATA]


def test_rules_that_fail_as_printed_state_the_correction() -> None:
    assert AS_PRINTED.keys() | set(AS_READ) <= {erratum.name for erratum in ERRATA}
    assert all(bool(run.corrected) == (run.kind == "printed") for run in smallest_runs())
    assert all(run.drawing.startswith("data:image/svg+xml;base64,") for run in smallest_runs())
