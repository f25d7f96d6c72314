"""Regenerates every generated file, and lists those that differ: `./dev regenerate`, with exit code 1 if one
does.

`--all` includes what takes minutes. Measurements are not here, because another day gives other figures: the
results of `benchmarks`, and docs/scoreboard.md, which `antecede reproduce --full` writes. The reference of
commands and modules is made when the site is built, and is in no commit.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent


class Generator(NamedTuple):
    """A command, and patterns of the files that it writes or writes parts of."""

    arguments: tuple[str, ...]
    writes: tuple[str, ...]
    takes_minutes: bool = False


GENERATORS = (
    Generator(("docs/protocols/draw.py",), ("docs/protocols/images/*.svg",)),
    Generator(
        ("docs/protocols/changing_runs.py",), ("docs/protocols/*.md", "docs/protocols/images/changing/*.svg")
    ),
    Generator(("docs/vectors.py",), ("docs/wire-vectors.json",)),
    Generator(("release/licences.py",), ("docs/licences.md",)),
    Generator(
        (
            "-m",
            "pytest",
            "-q",
            "--rewrite",
            "tests/sim/test_golden_traces.py",
            "tests/live/test_transcripts.py",
        ),
        ("tests/sim/**/*", "tests/live/transcripts/*"),
    ),
    Generator(
        ("docs/protocols/errata.py",),
        ("docs/protocols/*.md", "docs/check.md", "src/antecede/papers/errata/*"),
        takes_minutes=True,
    ),
    Generator(
        ("tests/membership/find_broken.py",),
        ("docs/membership.md", "docs/images/membership/*.svg", "tests/membership/*.json"),
        takes_minutes=True,
    ),
)


def contents(patterns: tuple[str, ...]) -> dict[Path, bytes]:
    """The files of some patterns."""
    files = (file for pattern in patterns for file in ROOT.glob(pattern))
    return {file: file.read_bytes() for file in files if file.is_file() and "__pycache__" not in file.parts}


def main() -> None:
    chosen = [each for each in GENERATORS if not each.takes_minutes or "--all" in sys.argv[1:]]
    different = set()
    for generator in chosen:
        print(" ".join(generator.arguments), flush=True)
        before = contents(generator.writes)
        done = subprocess.run([sys.executable, *generator.arguments], cwd=ROOT, stdout=subprocess.DEVNULL)
        if done.returncode:
            sys.exit(f"{' '.join(generator.arguments)} failed")
        after = contents(generator.writes)
        different |= {file for file in before.keys() | after.keys() if before.get(file) != after.get(file)}
    for file in sorted(different):
        print(f"{file.relative_to(ROOT)} was not up to date; look at the difference and commit it")
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
