"""Failure detection in a changing group, as scenarios write it."""

from __future__ import annotations

from typing import NamedTuple

from antecede.errors import InputError
from antecede.units import SECOND, parse_duration
from antecede.user_classes import parse_spec

_DEFAULTS = {"report": "100ms", "remove": "2s"}
_TESTS = {"test": "1s"}


class DetectorSettings(NamedTuple):
    """How often members report, whether they detect failures, and after how long they remove."""

    report: int = SECOND // 10
    detects: bool = True
    remove: int | None = 2 * SECOND
    test: int | None = None
    """How often members test others, if they detect failures by VCube's tests rather than by reports."""


def parse_detector(text: str | None) -> DetectorSettings:
    """Parse the detector of a scenario.

    >>> parse_detector("adaptive,remove=never")
    DetectorSettings(report=100000000, detects=True, remove=None, test=None)
    """
    name, parameters = parse_spec(text or "adaptive")
    if name not in ("adaptive", "vcube", "none"):
        raise InputError(f"there is no detector '{name}'; there are adaptive, vcube and none")
    defaults = _DEFAULTS | (_TESTS if name == "vcube" else {})
    if unknown := sorted(parameters.keys() - defaults.keys()):
        raise InputError(f"detector {name} has no '{unknown[0]}'; it takes {', '.join(defaults)}")
    given = {key: str(value) for key, value in (defaults | parameters).items()}
    report, test = (parse_duration(given.get(key, given["report"])) for key in ("report", "test"))
    for verb, interval in (("report", report), ("test", test)):
        if not interval >= SECOND // 1000:
            raise InputError(f"detector: members {verb} at intervals of at least 1ms, not {given[verb]}")
    remove = None if given["remove"] == "never" else parse_duration(given["remove"])
    return DetectorSettings(report, name != "none", remove, test if name == "vcube" else None)
