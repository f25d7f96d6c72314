"""Tests the wheel on each Python from 3.11 to 3.14 and on free-threaded 3.14: `./dev matrix`, or on one of
them: `./dev matrix 3.14t`.

A cell needs an interpreter on the path (python3.12, python3.14t …), or one that pyenv or `uv python find`
knows. Where there is none the cell says so; the exit code is 1 if a cell failed, and 0 if the others passed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from package import ROOT, build

VERSIONS = ("3.11", "3.12", "3.13", "3.14", "3.14t")
TESTS = (
    "tests/causality",
    "tests/overlay",
    "tests/stories",
    "tests/trace",
    "tests/test_facade.py",
    "tests/audit/test_passes.py",
    "tests/live/test_core_stories.py",
    "tests/live/test_group.py",
    "tests/live/test_wire.py",
)
"""What runs in each cell: parts of every layer without Spark, a browser or many processes."""
_WITH_SPARK = (
    "--ignore=tests/trace/test_own_ids.py",
    "--ignore=tests/trace/test_trace_folders.py",
    "--deselect=tests/test_facade.py::test_public_modules_export_only_existing_names[antecede.spark]",
)
_NEEDED = ("hypothesis", "pytest", "pytest-xdist", "networkx", "mypy")


def interpreter(version: str) -> str | None:
    """The path of a Python of this version, if there is one that runs."""
    name = f"python{version}"
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(name), *map(str, sorted(pyenv.glob(f"{version.rstrip('t')}.*/bin/{name}")))]
    if uv := shutil.which("uv"):
        asked = [uv, "python", "find", "--no-python-downloads", version]
        found.append(subprocess.run(asked, capture_output=True, text=True).stdout.strip())
    # A pyenv shim on the path runs only where that version is selected.
    return next((path for path in found if path and _runs(path)), None)


def _runs(python: str) -> bool:
    return subprocess.run([python, "-c", ""], capture_output=True).returncode == 0


def cell(version: str, wheel: Path) -> tuple[str, bool]:
    """The text to print for a version, and whether the cell did not fail."""
    python = interpreter(version)
    if python is None:
        return f"not tried: no python{version} here", True
    with tempfile.TemporaryDirectory() as folder:
        begun = time.monotonic()
        venv = Path(folder) / "venv"
        subprocess.run([python, "-m", "venv", str(venv)], check=True)
        inside = str(venv / "bin" / "python")
        pip = [inside, "-m", "pip", "install", "--quiet", f"{wheel}[sim,live]", *_NEEDED]
        if subprocess.run(pip).returncode:
            return "failed: pip cannot install it", False
        command = [inside, "-m", "pytest", "-q", "-p", "no:cacheprovider", *_WITH_SPARK, *TESTS]
        # Make sure that the wheel is tested, whatever else is on the path.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        last = done.stdout.strip().rpartition("\n")[2].strip("= ")
        if done.returncode:
            print(done.stdout[-3000:] + done.stderr[-1000:])
        verdict = "failed" if done.returncode else "passed"
        return (
            f"{verdict}: {last}; {time.monotonic() - begun:.0f} s with the installation",
            not done.returncode,
        )


def main() -> None:
    wheel = build()
    good = True
    for version in sys.argv[1:] or VERSIONS:
        text, passed = cell(version, wheel)
        good &= passed
        print(f"{version:6} {text}", flush=True)
    sys.exit(not good)


if __name__ == "__main__":
    main()
