"""Histories of Plume and PolySI: a line for each operation, `r(KEY,VALUE,SESSION,TRANSACTION)` or `w(…)`.

Transactions of a session, and operations of a transaction, are in the order of their lines. Transaction −1
stands for all that were aborted. Every key is 0 at first. Lines are parsed by compiled code, a block at a
time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from antecede.errors import InputError
from antecede.jit import njit_hot
from antecede.terminal import printable
from antecede.trace.foreign.open_files import open_bytes
from antecede.transactions.history import History, Status, from_columns

NAME = "plume"
_LINE = re.compile(rb"\s*[rw]\(\d{1,18},\d{1,18},\d{1,18},(?:\d{1,18}|-1)\)\s*(?:\r?\n|$)")
_BLOCK = 8 << 20
_SHORTEST = 11
"""Bytes of the shortest line, to bound the number of rows in a block."""


def recognise(head: bytes) -> str | None:
    """Whether a file begins with such a line."""
    return NAME if _LINE.match(head.removeprefix(b"\xef\xbb\xbf")) else None


def read(path: Path, max_bytes: int | None = None) -> History:
    """Read a history, a block at a time."""
    parts: list[Any] = []
    lines = 0
    with open_bytes(path, max_bytes) as stream:
        for block in _blocks(stream, path):
            rows = np.empty((len(block) // _SHORTEST + 1, 5), np.int64)
            count, bad, seen = _scan(np.frombuffer(block, np.uint8), rows)
            if bad >= 0:
                text = block[bad : bad + 60].split(b"\n")[0].decode("utf-8", "replace")
                raise InputError(
                    f"{path}, line {lines + seen + 1}: {printable(text)!r} is not "
                    "r(KEY,VALUE,SESSION,TRANSACTION) or w(…) with numbers of at most 18 digits"
                )
            lines += seen
            parts.append(rows[:count].copy())
    rows = np.concatenate(parts) if parts else np.empty((0, 5), np.int64)
    if not len(rows):
        raise InputError(f"{path} is empty")
    write, key, value, session, transaction = np.ascontiguousarray(rows.T)
    return from_columns(
        session,
        transaction,
        write.astype(np.bool_),
        key,
        value,
        status=np.where(transaction < 0, Status.ABORTED, Status.COMMITTED).astype(np.int8),
        initial_value=0,
    )


def _blocks(stream: IO[bytes], path: Path) -> Iterator[bytes]:
    """Blocks of whole lines."""
    rest = b""
    while data := stream.read(_BLOCK):
        end = data.rfind(b"\n") + 1
        if not end and len(data) == _BLOCK:
            raise InputError(f"{path} has a line of more than {_BLOCK:,} bytes; that is no history of {NAME}")
        yield (rest + data[:end]).removeprefix(b"\xef\xbb\xbf")
        rest = data[end:]
    if rest:
        yield rest.removeprefix(b"\xef\xbb\xbf") + b"\n"


@njit_hot
def _scan(text: Any, rows: Any) -> Any:
    """Parse lines: the number of rows, the place of the first bad line or -1, and the lines before it."""
    place = count = lines = 0
    size = len(text)
    while place < size:
        begin = place
        while place < size and (text[place] == 32 or text[place] == 13 or text[place] == 9):
            place += 1
        if place == size or text[place] == 10:  # an empty line
            place += 1
            lines += 1
            continue
        if text[place] != 114 and text[place] != 119:  # r, w
            return count, begin, lines
        rows[count, 0] = 1 if text[place] == 119 else 0
        place += 1
        for column in range(1, 5):
            if place == size or text[place] != (40 if column == 1 else 44):  # ( and ,
                return count, begin, lines
            place += 1
            negative = column == 4 and place < size and text[place] == 45
            if negative:
                place += 1
            number = digits = 0
            while place < size and 48 <= text[place] <= 57:
                number = 10 * number + text[place] - 48
                digits += 1
                place += 1
                if digits > 18:
                    return count, begin, lines
            if digits == 0 or (negative and number != 1):
                return count, begin, lines
            rows[count, column] = -1 if negative else number
        if place == size or text[place] != 41:  # )
            return count, begin, lines
        place += 1
        while place < size and text[place] != 10:
            if text[place] != 32 and text[place] != 13 and text[place] != 9:
                return count, begin, lines
            place += 1
        place += 1
        lines += 1
        count += 1
    return count, -1, lines
