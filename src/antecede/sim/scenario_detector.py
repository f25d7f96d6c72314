"""How members of a changing group find out who is down, as scenarios write it."""

from __future__ import annotations

from typing import NamedTuple

from antecede.errors import InputError
from antecede.units import SECOND, parse_duration
from antecede.user_classes import parse_spec

_DEFAULTS = {"report": "100ms", "remove": "2s"}


class DetectorSettings(NamedTuple):
    """How often members report, whether they detect failures by that, and after how long they remove."""

    report: int = SECOND // 10
    detects: bool = True
    remove: int | None = 2 * SECOND


def parse_detector(text: str | None) -> DetectorSettings:
    """Parse the detector of a scenario.

    >>> parse_detector("adaptive,remove=never")
    DetectorSettings(report=100000000, detects=True, remove=None)
    """
    name, parameters = parse_spec(text or "adaptive")
    if name not in ("adaptive", "none"):
        raise InputError(f"there is no detector '{name}'; there are adaptive and none")
    if unknown := sorted(parameters.keys() - _DEFAULTS.keys()):
        raise InputError(f"detector {name} has no '{unknown[0]}'; it takes {', '.join(_DEFAULTS)}")
    given = {key: str(value) for key, value in (_DEFAULTS | parameters).items()}
    report = parse_duration(given["report"])
    if not report >= SECOND // 1000:
        raise InputError(f"detector: members report at intervals of at least 1ms, not {given['report']}")
    remove = None if given["remove"] == "never" else parse_duration(given["remove"])
    return DetectorSettings(report, name == "adaptive", remove)
