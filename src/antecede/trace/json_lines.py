"""The one reader of JSON lines: a value in each line, which a decoder of the caller's checks."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from typing import IO, Any

import msgspec

from antecede.errors import InputError
from antecede.trace.csv_records import OnUnreadable

_MAX_LINE = 1 << 28
"""Bytes of a row of JSON."""


def json_lines(
    stream: IO[bytes],
    decode: Callable[[bytes], Any],
    on_unreadable: OnUnreadable,
    where: object,
    first_row: int = 1,
) -> Iterator[tuple[int, Any]]:
    """The decoded lines that are not blank, each with its number."""
    for number, line in enumerate(iter(lambda: stream.readline(_MAX_LINE + 1), b""), first_row):
        if len(line) > _MAX_LINE:
            raise InputError(f"{where}, row {number}: it has more than {_MAX_LINE:,} bytes")
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        if not line.strip():
            continue
        try:
            yield number, decode(line)
        except msgspec.ValidationError as error:
            on_unreadable(number, str(error))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            on_unreadable(number, f"not JSON: {error}")
