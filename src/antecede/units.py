"""Durations as people write them, in whole nanoseconds."""

from __future__ import annotations

import re

from antecede.errors import InputError

SECOND = 1_000_000_000
LONGEST = 10**18
_UNITS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": SECOND, "m": 60 * SECOND}
_UNITS |= {"h": 60 * _UNITS["m"], "d": 24 * 60 * _UNITS["m"]}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ns|us|µs|ms|s|m|h|d)?")


def duration(text: str, unit: str | None = None) -> int:
    """Nanoseconds in "20ms", "1.5s"; a bare number takes `unit` if one is given.

    >>> duration("20ms"), duration("0"), duration("3", "us")
    (20000000, 0, 3000)
    """
    match = _DURATION.fullmatch(text.strip())
    if match and (match[2] or unit or float(match[1]) == 0):
        nanoseconds = float(match[1]) * _UNITS[match[2] or unit or "ns"]
        if nanoseconds > LONGEST:
            raise InputError(f"'{text[:40]}' is too long; the longest duration is 30 years")
        return round(nanoseconds)
    raise InputError(f"'{text}' is not a duration; write one like 20ms, 1.5s or 300us")


def span(text: str) -> tuple[int, int]:
    """Two durations with a dash: "1-100ms" is "1ms-100ms"."""
    low, dash, high = text.partition("-")
    if not (low and dash and high):
        raise InputError(f"'{text}' is not a range; write one like 1-100ms")
    match = _DURATION.fullmatch(high.strip())
    result = duration(low, match[2] if match else None), duration(high)
    if result[0] > result[1]:
        raise InputError(f"'{text}' is not a range: it ends before it begins")
    return result


def show(nanoseconds: float) -> str:
    """A duration for a table: three figures and the unit that suits them.

    >>> show(1_500), show(20_400_000), show(0)
    ('1.50 µs', '20.4 ms', '0 s')
    """
    if nanoseconds == 0:
        return "0 s"
    for unit in ("s", "ms", "µs"):
        if nanoseconds >= _UNITS[unit]:
            value = nanoseconds / _UNITS[unit]
            digits = 0 if value >= 100 else 1 if value >= 10 else 2
            return f"{value:.{digits}f} {unit}"
    return f"{nanoseconds:.0f} ns"
