"""The arrows of the house: which room may import which, directly or through another."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "antecede"

ALLOWED = {
    "order": set(),
    "overlay": {"order"},
    "protocols": {"order", "overlay"},
    "trace": {"order"},
    "sim": {"protocols", "overlay", "trace", "order"},
    "node": {"protocols", "overlay", "trace", "order"},
    "spark": {"trace", "order", "protocols", "sim", "overlay"},
    "report": {"trace", "order"},
    "studies": {"spark", "sim", "report", "trace", "order", "protocols", "overlay"},
    "console": {"report", "node", "trace", "protocols", "overlay", "order"},
    "cli": {"order", "overlay", "protocols", "trace", "sim", "node", "spark", "studies", "report", "console"},
}


def imports(file: Path) -> set[str]:
    """The rooms that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node.value.startswith("antecede.")
        ):
            names = [node.value]
        found |= {name.split(".")[1] for name in names if name.startswith("antecede.")}
    return found & ALLOWED.keys()


def test_no_room_imports_what_it_may_not() -> None:
    rooms = [room for room in SOURCE.iterdir() if room.is_dir() and room.name != "__pycache__"]
    assert rooms
    for room in rooms:
        assert room.name in ALLOWED, f"{room.name} is no room of the house"
        for file in room.rglob("*.py"):
            wrong = imports(file) - ALLOWED[room.name] - {room.name}
            assert not wrong, f"{file.relative_to(SOURCE)} may not import {', '.join(sorted(wrong))}"


def test_no_protocol_touches_a_clock_a_socket_a_file_or_chance() -> None:
    forbidden = {"time", "datetime", "socket", "asyncio", "random", "os", "pathlib", "threading", "secrets"}
    for file in set((SOURCE / "protocols").glob("*.py")) - {SOURCE / "protocols" / "catalog.py"}:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                used = {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                used = {(node.module or "").split(".")[0]}
            else:
                continue
            assert not used & forbidden, f"{file.name} imports {used & forbidden}"
