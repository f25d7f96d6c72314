"""Tests the wheel on each Python from 3.11 to 3.14 and on free-threaded 3.14: `./dev matrix`.

A cell needs an interpreter on the path (python3.12, python3.14t …), or one that `uv python find` knows.
Where there is none the cell says so; the exit code is 1 if a cell failed, and 0 if the others passed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from package import DIST, ROOT, build

VERSIONS = ("3.11", "3.12", "3.13", "3.14", "3.14t")
TESTS = ("tests/causality", "tests/overlay", "tests/stories", "tests/trace", "tests/test_facade.py")
"""What runs in each cell: parts of every layer without Spark, a browser or many processes."""
_NEEDED = ("hypothesis", "pytest", "networkx", "mypy")


def interpreter(version: str) -> str | None:
    """The path of a Python of this version, if there is one."""
    found = shutil.which(f"python{version}")
    if found is None and (uv := shutil.which("uv")):
        asked = [uv, "python", "find", "--no-python-downloads", version]
        done = subprocess.run(asked, capture_output=True, text=True)
        found = done.stdout.strip() or None
    return found


def cell(version: str, wheel: Path) -> tuple[str, bool]:
    """What to print for a version, and whether it is no failure."""
    python = interpreter(version)
    if python is None:
        return f"not tried: no python{version} here", True
    # A free-threaded Python lacks what Spark's client needs; numba is experimental there.
    requirement = str(wheel) if version.endswith("t") else f"{wheel}[sim,live]"
    with tempfile.TemporaryDirectory() as folder:
        begun = time.monotonic()
        venv = Path(folder) / "venv"
        subprocess.run([python, "-m", "venv", str(venv)], check=True)
        inside = str(venv / "bin" / "python")
        pip = [inside, "-m", "pip", "install", "--quiet", requirement, *_NEEDED]
        if subprocess.run(pip).returncode:
            return "failed: pip cannot install it", False
        tests = TESTS[:2] if version.endswith("t") else TESTS
        command = [inside, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--noconftest", *tests]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        last = done.stdout.strip().rpartition("\n")[2].strip("= ")
        if done.returncode:
            print(done.stdout[-3000:] + done.stderr[-1000:])
        verdict = "failed" if done.returncode else "passed"
        return (
            f"{verdict}: {last}; {time.monotonic() - begun:.0f} s with the installation",
            not done.returncode,
        )


def main() -> None:
    wheel = next(iter(DIST.glob("*.whl")), None) or build()
    good = True
    for version in sys.argv[1:] or VERSIONS:
        text, passed = cell(version, wheel)
        good &= passed
        print(f"{version:6} {text}", flush=True)
    sys.exit(not good)


if __name__ == "__main__":
    main()
