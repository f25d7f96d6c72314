"""Every line of the threat model names a test that exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "security.md").read_text()
WHO = (
    "A stranger",
    "A web page",
    "A phone",
    "A member",
    "A member of a group that changes",
    "An operator",
    "A thief of a disk",
)
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def lines_about(who: str) -> list[str]:
    """The page's statements about an attacker, one text per list item."""
    (section,) = re.findall(rf"^## {who}\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
    return [" ".join(item.split()) for item in re.split(r"^- ", section, flags=re.MULTILINE)[1:]]


@cache
def functions_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("who", WHO)
def test_every_threat_names_its_test(who: str) -> None:
    lines = lines_about(who)
    assert lines
    assert [line for line in lines if not TEST.search(line)] == []


def test_every_named_test_exists() -> None:
    named = TEST.findall(PAGE)
    assert [f"{path}::{name}" for path, name in named if name not in functions_in(path)] == []
    assert PAGE.count("tests/") - 1 == len(named)  # and each is written so that it is found
