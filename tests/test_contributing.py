"""The newcomer's map in CONTRIBUTING.md is right: packages, files and symbols exist where it says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from test_imports_between_packages import ALLOWED

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
CHANGES = re.findall(r"^\| (.+?) \| `((?:src|docs)/\S+)` \| `(\w+)` \|$", TEXT, re.MULTILINE)


def definitions(file: Path) -> set[str]:
    """Names that a module defines at its top level."""
    names = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def test_contributing_lists_at_least_15_typical_changes() -> None:
    assert len(CHANGES) >= 15


@pytest.mark.parametrize(("change", "path", "symbol"), CHANGES, ids=[change for change, _, _ in CHANGES])
def test_each_typical_change_points_to_an_existing_symbol(change: str, path: str, symbol: str) -> None:
    assert symbol in definitions(ROOT / path)


def test_the_package_map_lists_every_package_and_its_allowed_imports() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| .+ \| (.+) \|$", TEXT, re.MULTILINE))
    assert rows.keys() == ALLOWED.keys()
    words = {"nothing of ours": set(), "everything": set(ALLOWED) - {"cli"}}
    for package, allowed in ALLOWED.items():
        assert words.get(rows[package], set(rows[package].split(", "))) == allowed, package
