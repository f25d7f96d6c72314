"""Durations and sizes as people write them, in whole nanoseconds and bytes."""

from __future__ import annotations

import re

from antecede.errors import InputError

SECOND = 1_000_000_000
MAX_DURATION = 10**18
_UNITS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": SECOND, "m": 60 * SECOND}
_UNITS |= {"h": 60 * _UNITS["m"], "d": 24 * 60 * _UNITS["m"]}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ns|us|µs|ms|s|m|h|d)?")

_BYTE_UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_BYTE_UNITS |= {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_BYTES = re.compile(r"(\d{1,15}(?:\.\d+)?)\s*([kmgt]i?b|b)", re.IGNORECASE)


def parse_duration(text: str, unit: str | None = None) -> int:
    """Nanoseconds in "20ms" or "1.5s". A number without a unit takes `unit`; only 0 needs none.

    >>> parse_duration("20ms"), parse_duration("0"), parse_duration("3", "us")
    (20000000, 0, 3000)
    """
    if not isinstance(text, str):  # A parameter of a user's class: JSON without quotes is a number.
        raise InputError(f"{text!r} is not a duration; write it with a unit, as in {text}us")
    match = _DURATION.fullmatch(text.strip())
    if match and (match[2] or unit or float(match[1]) == 0):
        nanoseconds = float(match[1]) * _UNITS[match[2] or unit or "ns"]
        if nanoseconds > MAX_DURATION:
            raise InputError(f"'{text[:40]}' is too long; the longest duration is 30 years")
        return round(nanoseconds)
    raise InputError(f"'{text}' is not a duration; write one like 20ms, 1.5s or 300us")


def parse_range(text: str) -> tuple[int, int]:
    """Two durations separated by a dash. A first without a unit takes the second's.

    >>> parse_range("1-100ms") == parse_range("1ms-100ms")
    True
    """
    low, dash, high = text.partition("-")
    if not (low and dash and high):
        raise InputError(f"'{text}' is not a range; write one like 1-100ms")
    match = _DURATION.fullmatch(high.strip())
    result = parse_duration(low, match[2] if match else None), parse_duration(high)
    if result[0] > result[1]:
        raise InputError(f"'{text}' is not a range: it ends before it begins")
    return result


def parse_bytes(text: str) -> int:
    """Bytes in "100MB" or "1.5 GiB".

    >>> parse_bytes("100MB"), parse_bytes("1 KiB")
    (100000000, 1024)
    """
    match = _BYTES.fullmatch(text.strip())
    if match is None or not (size := round(float(match[1]) * _BYTE_UNITS[match[2].lower()])):
        raise InputError(f"'{text[:40]}' is not a number of bytes; write one like 100MB or 2GiB")
    return size


def format_duration(nanoseconds: float) -> str:
    """A duration for a table, with three digits and a suitable unit.

    >>> format_duration(1_500), format_duration(20_400_000), format_duration(0), format_duration(-2e9)
    ('1.50 µs', '20.4 ms', '0 s', '-2.00 s')
    """
    if nanoseconds == 0:
        return "0 s"
    if nanoseconds < 0:
        return f"-{format_duration(-nanoseconds)}"
    for unit in ("s", "ms", "µs"):
        if nanoseconds >= _UNITS[unit]:
            value = nanoseconds / _UNITS[unit]
            digits = 0 if value >= 100 else 1 if value >= 10 else 2
            return f"{value:.{digits}f} {unit}"
    return f"{nanoseconds:.0f} ns"


def count_of(number: int, noun: str) -> str:
    """A number of things, in the singular if it is one.

    >>> count_of(1, "cause"), count_of(2_000, "process")
    ('1 cause', '2,000 processes')
    """
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{ending}"
