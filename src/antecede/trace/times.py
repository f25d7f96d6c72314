"""Times as logs write them, in nanoseconds: ISO 8601, whole numbers and decimals.

A time never affects a verdict, which follows from each process's own order. It only shows when events
happened, so parsing is lenient; no zone means UTC. Nanoseconds since 1970 cover the years 1678 to 2261.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from antecede.units import format_duration

UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
"""Nanoseconds of each unit in which a number may count."""

_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,30}[.,]?[0-9]{0,30}|[.,][0-9]{1,30})(?:[eE][+-]?[0-9]{1,2})?")
_ISO = re.compile(
    r"(?P<day>[0-9]{4}-?[0-9]{2}-?[0-9]{2})"
    r"(?:[Tt ](?P<time>[0-9]{2}(?::?[0-9]{2}){0,2})(?:[.,](?P<fraction>[0-9]{1,12}))?)?"
    r" ?(?P<zone>[Zz]|UTC|GMT|[+-][0-9]{2}(?::?[0-9]{2})?)?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LEAST_SINCE_1970 = 10**17
"""Nanoseconds, three years: no run takes as long, and no log is as old as 1973."""


def parse_time(value: Any, unit: str | None = None) -> int | None:
    """A time in nanoseconds, or None if it cannot be read.

    Numbers count `unit`s; without one, whole numbers count nanoseconds and decimals seconds.

    >>> parse_time("1970-01-01T00:00:01.5Z"), parse_time("1970-01-01 01:00:00+01:00")
    (1500000000, 0)
    >>> parse_time(7), parse_time("1.5"), parse_time(2, "ms"), parse_time("noon")
    (7, 1500000000, 2000000, None)
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return _bounded(value * UNITS[unit or "ns"])
    if isinstance(value, float):
        value = repr(value)
    return _parse_text(value.strip(), unit) if isinstance(value, str) else None


def format_time(nanoseconds: int) -> str:
    """A time for people: ISO 8601 if it counts from 1970, and otherwise the time since the run began.

    >>> format_time(1_500_000_000), format_time(1_793_534_401_250_000_000)
    ('1.50 s', '2026-11-01T12:00:01.250Z')
    """
    if nanoseconds < _LEAST_SINCE_1970:
        return format_duration(nanoseconds)
    moment = _EPOCH + timedelta(microseconds=nanoseconds // 1000)
    precision = (
        "microseconds" if nanoseconds % 10**6 else "milliseconds" if nanoseconds % 10**9 else "seconds"
    )
    return f"{moment:%Y-%m-%dT}{moment.time().isoformat(precision)}Z"


def _parse_text(text: str, unit: str | None) -> int | None:
    if _WHOLE.fullmatch(text):
        return _bounded(int(text) * UNITS[unit or "ns"])
    if _DECIMAL.fullmatch(text):
        return _bounded(int(Decimal(text.replace(",", ".")) * UNITS[unit or "s"]))
    return _parse_iso(text)


def _parse_iso(text: str) -> int | None:
    found = _ISO.fullmatch(text)
    if found is None:
        return None
    zone = (found["zone"] or "Z").upper().replace("UTC", "Z").replace("GMT", "Z")
    try:
        moment = datetime.fromisoformat(f"{found['day']}T{found['time'] or '00'}{zone}")
    except ValueError:  # For example, the 31st of February.
        return None
    seconds = (moment - _EPOCH) // timedelta(seconds=1)
    return _bounded(seconds * 10**9 + int((found["fraction"] or "0").ljust(9, "0")[:9]))


def _bounded(nanoseconds: int) -> int | None:
    return nanoseconds if -(2**63) <= nanoseconds < 2**63 else None
