"""The parts of the documentation site: its reference, and links to headings."""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SITE = ROOT / "docs" / "site"
sys.path.insert(0, str(SITE))
from api_reference import MODULES, api_reference, undocumented  # noqa: E402
from command_reference import command_reference  # noqa: E402
from pages import OUTSIDE  # noqa: E402

SOURCES = [*sorted((ROOT / "docs").rglob("*.md")), *(ROOT / name for name in OUTSIDE)]


@pytest.mark.parametrize("module", MODULES)
def test_the_reference_has_every_public_name(module: str) -> None:
    text = api_reference(module)
    public = sys.modules[module].__all__
    assert [name for name in public if f"\n## {name}\n" not in text] == []
    assert undocumented(module) == []
    assert "ForwardRef" not in text


def test_docstring_examples_render_as_code_blocks() -> None:
    text = api_reference("antecede.transactions")
    assert "\n```python\nfrom antecede.transactions import check, read_history\n\nverdict = check(" in text
    for module in MODULES:
        prose = re.sub(r"^```.*?^```$", "", api_reference(module), flags=re.DOTALL | re.MULTILINE)
        assert re.findall(r"^(?:from \S+ )?import \w+.*", prose, re.MULTILINE) == []


def test_the_command_reference_lists_every_command_and_option() -> None:
    text = command_reference()
    assert "## antecede audit" in text
    assert "| `--max-bytes` INTEGER |" in text


def slug(heading: str) -> str:
    """The anchor of a heading, as the generator and the usual hosts of repositories make it."""
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-")


@cache
def anchors(page: Path) -> set[str]:
    without_code = re.sub(
        r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", without_code, re.MULTILINE)}


@pytest.mark.parametrize("page", SOURCES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_headings_resolve(page: Path) -> None:
    wrong = []
    for target, anchor in re.findall(r"\]\(([^)\s:#]*)#([^)\s]+)\)", page.read_text(encoding="utf-8")):
        file = (page.parent / target).resolve() if target else page
        if file.suffix == ".md" and anchor not in anchors(file):
            wrong.append(f"{target}#{anchor}")
    assert wrong == []
