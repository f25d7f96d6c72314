"""Rules for names and sizes: one meaning per class name, the field's terms, short functions.

Complexity is checked by the linter, imports between packages by `test_imports_between_packages.py`.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("tidy")
"""One worker parses the sources, once."""

SOURCE = Path(__file__).parent.parent / "src" / "antecede"
MAX_LINES = 60

SAME_CLASS_NAME = {
    "MessageId": "by rank in causality and protocols, by member name in live groups, which users see",
}
"""Class names that may be defined in two modules, and why."""

CLASS_WORDS = {
    "Again": "Nack",
    "Beat": "Heartbeat",
    "Book": "GroupState",
    "Found": "RepairReply",
    "Got": "Ack",
    "Have": "Progress",
    "Held": "HeldMessage",
    "Id": "MessageId",
    "Kept": "HeldMessage",
    "Piece": "Segment",
    "Popped": "a term of delivery",
    "Rough": "FaultInjection",
    "Run": "MessageBatch for messages; a run is one execution of a simulation",
    "Shelf": "SegmentList",
    "Want": "RepairRequest",
}
"""Class names that need decoding, and what to say instead."""

WORDS = {
    "accounts": "stream_counts",
    "causal_deliveries": "causal_violations",
    "chance": "counter_rng, or random",
    "fifo_deliveries": "fifo_violations",
    "fresh": "create_state",
    "given": "scenario, or what it is",
    "hand_on": "repair",
    "handed": "delivered, or repaired",
    "handed_on": "repaired",
    "in_hand": "unacked",
    "lot": "disposition",
    "plain": "insecure",
    "popped": "delivered",
    "put_back": "compact",
    "rough": "faults",
    "said": "broadcast",
    "say": "broadcast",
    "says": "message, or text",
    "settled": "stable",
    "sound": "validate",
    "tainted": "quarantined",
    "take_down": "a verb of the segment list",
    "told": "reported, or matrix_clock",
    "unfit": "unsupported_reason",
}
"""Names of functions, arguments and attributes that need decoding, and what to say instead."""

ALLOWED_WORDS: dict[tuple[str, str], str] = {
    ("audit/tally.py", "causal_deliveries"): "a deprecated JSON key that stays for one release",
    ("live/joining.py", "plain"): "a deprecated setting that stays for one release",
}
"""Exceptions: (file, name) and the reason."""


PATHS = [file.relative_to(SOURCE).as_posix() for file in sorted(SOURCE.rglob("*.py"))]


@cache
def trees() -> dict[str, ast.Module]:
    """The syntax tree of every source file, by path. They are not read before a test needs them."""
    return {path: ast.parse((SOURCE / path).read_text(encoding="utf-8")) for path in PATHS}


def classes(tree: ast.Module) -> Iterator[str]:
    yield from (node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def identifiers(tree: ast.Module) -> Iterator[str]:
    """Names of functions, arguments, fields and attributes that a file defines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def is_compiled(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether it is a compiled kernel, where calls have a cost and long functions may be justified."""
    return any(re.match(r"n?jit", ast.unparse(decorator)) for decorator in function.decorator_list)


def test_a_class_name_has_one_meaning() -> None:
    modules = defaultdict(set)
    for path, tree in trees().items():
        for name in classes(tree):
            modules[name].add(path)
    twice = {name: sorted(paths) for name, paths in modules.items() if len(paths) > 1}
    assert {name: paths for name, paths in twice.items() if name not in SAME_CLASS_NAME} == {}


@pytest.mark.parametrize("path", PATHS)
def test_names_use_field_terms(path: str) -> None:
    tree = trees()[path]
    wrong = {name: CLASS_WORDS[name] for name in classes(tree) if name in CLASS_WORDS}
    for name in identifiers(tree):
        word = name.strip("_")
        if word in WORDS and (path, word) not in ALLOWED_WORDS:
            wrong[name] = WORDS[word]
    assert wrong == {}, "say instead"


@pytest.mark.parametrize("path", PATHS)
def test_functions_are_at_most_60_lines_long(path: str) -> None:
    long = {
        function.name: lines
        for function in functions(trees()[path])
        if not is_compiled(function)
        and (lines := (function.end_lineno or 0) - function.lineno + 1) > MAX_LINES
    }
    assert long == {}, f"longer than {MAX_LINES} lines"
