"""Copies those modules of a wheel that live groups need: python pack.py WHEEL NEW-WHEEL"""

from __future__ import annotations

import sys
import zipfile

PACKAGES = ("causality/", "overlay/", "protocols/", "membership/", "trace/", "live/")


def main(source: str, target: str) -> None:
    with zipfile.ZipFile(source) as whole, zipfile.ZipFile(target, "w") as packed:
        for name in sorted(whole.namelist()):
            rest = name.removeprefix("antecede/")
            is_needed = rest.startswith(PACKAGES) and not rest.startswith("live/trial/")
            if name.endswith(".py") and name != rest and (is_needed or "/" not in rest):
                entry = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
                packed.writestr(entry, whole.read(name), zipfile.ZIP_DEFLATED, 9)


if __name__ == "__main__":
    main(*sys.argv[1:])
