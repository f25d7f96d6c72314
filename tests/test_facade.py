"""What `import antecede` offers: typed, lazy and cheap."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import antecede
from antecede.errors import AntecedeError

FACADE = Path(antecede.__file__)
ROOT = Path(__file__).parent.parent


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=ROOT)


PUBLIC_MODULES = [
    "antecede.protocols",
    "antecede.sim",
    "antecede.spark",
    "antecede.trace",
    "antecede.transactions",
]


@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_public_modules_export_only_existing_names(module: str) -> None:
    public = importlib.import_module(module)
    assert [name for name in public.__all__ if not hasattr(public, name)] == []
    assert dir(public) == sorted(public.__all__)
    assert not hasattr(public, "nothing_of_this_name")


@pytest.mark.parametrize("name", antecede.__all__)
def test_every_public_name_resolves(name: str) -> None:
    value = getattr(antecede, name)
    assert value.__name__ == name
    assert name in dir(antecede)
    if name.endswith("Error"):
        assert issubclass(value, AntecedeError)


def test_every_public_error_is_in_the_facade() -> None:
    """Errors that callers may catch: direct subclasses of AntecedeError."""
    defined = {
        node.name
        for file in FACADE.parent.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef) and "AntecedeError" in map(ast.unparse, node.bases)
    }
    assert defined <= set(antecede.__all__)


def test_a_misspelt_name_suggests_the_right_one() -> None:
    done = run("-c", "import antecede; antecede.jion")
    assert "AttributeError: module 'antecede' has no attribute 'jion'; did you mean join?" in done.stderr


def test_using_an_unimported_public_module_suggests_the_import() -> None:
    done = run("-c", "import antecede; antecede.spark")
    assert "write: import antecede.spark" in done.stderr


def test_type_checkers_know_the_names_and_their_types(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    lines = ["import antecede", "antecede.jion", "reveal_type(antecede.join)"]
    lines += [f"import {module}; {module}.nope" for module in PUBLIC_MODULES]
    program.write_text("\n".join(lines))
    checked = run("-m", "mypy", str(program)).stdout  # with the project's settings and cache
    assert 'program.py:2: error: Module has no attribute "jion"' in checked
    assert "Joining" in checked
    for line in range(4, 4 + len(PUBLIC_MODULES)):
        assert f'program.py:{line}: error: Module has no attribute "nope"' in checked


def test_importing_antecede_loads_only_the_errors_module() -> None:
    script = (
        "import sys, antecede; print(sorted(name for name in sys.modules if name.startswith('antecede')))"
    )
    assert run("-c", script).stdout.strip() == "['antecede', 'antecede.errors']"


def test_no_public_name_needs_an_extra() -> None:
    extras = "pyspark pyarrow pandas numpy numba websockets cryptography prometheus_client prompt_toolkit"
    block = f"import sys; sys.modules.update(dict.fromkeys({extras.split()}))"
    done = run("-c", f"{block}; from antecede import *; print(join)")
    assert "function join" in done.stdout, done.stderr
