"""The only reader of JSON lines: one value per line, which the caller's decoder validates."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import msgspec

from antecede.errors import InputError
from antecede.trace.csv_records import OnUnreadable

_HALF_PAIR = re.compile(rb"\\u[dD][89a-fA-F]")
_MAX_LINE = 1 << 28
"""The most bytes of a row of JSON."""


class _Lines(Protocol):
    """A source of lines, such as a file."""

    def readline(self, size: int, /) -> bytes: ...


def json_lines(
    stream: _Lines,
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
            on_unreadable(number, f"not JSON: {why_not_json(line, error)}")


def why_not_json(text: bytes, error: Exception) -> str:
    """What is wrong with a JSON text that cannot be decoded.

    msgspec counts bytes from the beginning of a string, and calls half a surrogate pair a text cut off.
    """
    try:
        json.loads(text.decode())
    except UnicodeDecodeError as wrong:
        return f"byte {wrong.start + 1:,} is not text in UTF-8"
    except (ValueError, RecursionError):
        return str(error)
    if isinstance(error, msgspec.ValidationError) or _HALF_PAIR.search(text) is None:
        return str(error)
    return "it has half of a surrogate pair (\\ud800 to \\udfff), which is no character"
