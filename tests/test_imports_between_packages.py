"""Which package may import which. CONTRIBUTING.md shows the same."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "antecede"

ALLOWED: dict[str, set[str]] = {
    "causality": set(),
    "compiled": set(),
    "overlay": set(),
    "protocols": {"causality", "overlay"},
    "membership": {"causality", "overlay", "protocols"},
    "trace": {"causality"},
    "sim": {"causality", "compiled", "membership", "overlay", "protocols", "trace"},
    "live": {"causality", "membership", "protocols", "trace"},
    "check": {"causality", "membership", "protocols", "report", "sim", "spark", "trace"},
    "report": {"trace"},
    "spark": {"trace"},
    "transactions": {"causality", "compiled", "trace"},
    "sources": {"trace"},
    "audit": {"causality", "report", "spark", "trace"},
    "explore": {"audit", "causality", "report", "trace"},
    "console": {"causality", "live", "membership", "protocols", "report", "sim"},
    "graph": {"audit", "causality", "spark", "trace"},
    "causal_order": {"causality", "compiled", "sources", "spark", "trace"},
    "advise": {"audit", "causality", "protocols", "sim", "spark", "trace"},
    "sweep": {"audit", "causality", "protocols", "report", "sim", "spark", "trace"},
    "papers": {"causality", "overlay", "protocols", "report", "sim", "sweep", "trace"},
    "demo": {
        "audit",
        "causal_order",
        "causality",
        "graph",
        "live",
        "report",
        "sim",
        "spark",
        "sweep",
        "trace",
    },
}
ALLOWED["cli"] = set(ALLOWED)

FACADES = {"spark/__init__.py": {"advise", "audit", "causal_order", "graph"}}
"""Modules that re-export the public names of packages that their own package may not import."""


def imports(file: Path) -> set[str]:
    """The packages that a file imports, at the top or inside functions."""
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


def test_packages_import_only_what_the_map_allows() -> None:
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert packages == ALLOWED.keys()
    for package in packages:
        for file in (SOURCE / package).rglob("*.py"):
            name = file.relative_to(SOURCE).as_posix()
            wrong = imports(file) - ALLOWED[package] - FACADES.get(name, set()) - {package}
            assert not wrong, f"{name} may not import {', '.join(sorted(wrong))}"


def test_no_protocol_uses_a_clock_a_socket_a_file_or_randomness() -> None:
    outside = {SOURCE / "protocols" / name for name in ("catalog.py", "program.py")}
    forbidden = {"time", "datetime", "socket", "asyncio", "random", "os", "pathlib", "threading", "secrets"}
    for file in set((SOURCE / "protocols").rglob("*.py")) - outside:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                used = {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                used = {(node.module or "").split(".")[0]}
            else:
                continue
            assert not used & forbidden, f"{file.name} imports {used & forbidden}"
