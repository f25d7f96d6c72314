"""What a release has: allowed licences, a bill of materials, no unused pictures, hooks that fetch nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "release"))
from licences import PAGE, page, refused, sbom  # noqa: E402
from regenerate import GENERATORS  # noqa: E402


def test_every_licence_is_allowed_and_listed() -> None:
    """After a change of the lock: ./dev python release/licences.py"""
    assert refused() == []
    if sys.platform == "linux":
        assert PAGE.read_text(encoding="utf-8") == page()


def test_the_bill_of_materials_names_locked_packages_with_their_hashes() -> None:
    written = json.loads(json.dumps(sbom()))
    assert written["specVersion"] == "1.6"
    names = {component["name"] for component in written["components"]}
    assert {"pyspark", "msgspec", "cryptography", "deltalake", "pyiceberg"} <= names
    assert [component["name"] for component in written["components"] if not component["hashes"]] == []
    assert len({component["bom-ref"] for component in written["components"]}) == len(names)


def test_files_written_by_generators_exist() -> None:
    for generator in GENERATORS:
        for pattern in generator.writes:
            assert any(ROOT.glob(pattern)), pattern


def test_pre_commit_hooks_are_local() -> None:
    assert re.findall(r"- repo: (.+)", (ROOT / ".pre-commit-config.yaml").read_text()) == ["local"]


@pytest.mark.parametrize(
    ("command", "module"),
    [
        ("check mbcp", "numpy"),
        ("verify mbcp --runs 1", "numpy"),
        ("audit log.jsonl", "numpy"),
        ("audit log.jsonl", "pyarrow"),
    ],
)
def test_a_command_with_a_missing_package_names_the_extra_to_install(
    command: str, module: str, tmp_path: Path
) -> None:
    (tmp_path / "log.jsonl").write_text("{}\n")
    program = f"import sys; sys.modules[{module!r}] = None; from antecede.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, *command.split()], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "pip install 'antecede[sim]'" in done.stderr, done.stderr


def test_no_picture_is_unused() -> None:
    """Pages, programs and styles name every picture in docs and benchmarks."""
    pictures = [file for folder in ("docs", "benchmarks") for file in (ROOT / folder).rglob("*.*")]
    pictures = [file for file in pictures if file.suffix in (".svg", ".png") and "build" not in file.parts]
    pages = [
        *ROOT.glob("*.md"),
        *(page for folder in ("docs", "benchmarks") for page in (ROOT / folder).rglob("*.md")),
    ]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert [str(file.relative_to(ROOT)) for file in pictures if file.name not in text] == []
