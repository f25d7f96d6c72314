"""Histories of dbcop in bincode, `history.bincode`: little-endian, lengths as words of 64 bits before what
they count.

Five words of parameters, three texts (a note, begin and end as dates), then sessions of transactions of
events. An event is: whether it is a write, variable, value, whether it succeeded; a transaction ends with
whether it did. Sessions and transactions have no names; they are numbered from 1, as in dbcop's JSON. Every
variable is 0 at first. A write that failed counts as a write of an aborted transaction.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from antecede.errors import InputError
from antecede.trace.foreign.open_files import read_whole
from antecede.transactions.history import Bools, History, Status, from_columns

NAME = "dbcop"
_EVENT = np.dtype([("write", "u1"), ("variable", "<u8"), ("value", "<u8"), ("success", "u1")])
_DATE = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d")
_LONGEST_TEXT = 1 << 20


def recognise(head: bytes) -> str | None:
    """Whether a file begins with parameters, a note and a date."""
    if len(head) < 72:
        return None
    place = 48 + int.from_bytes(head[40:48], "little")
    begin = head[place : place + 8]
    return NAME if 48 <= place <= len(head) and len(begin) == 8 and _DATE.match(head, place + 8) else None


class _Cursor:
    """A position in a file that is read sequentially."""

    def __init__(self, data: bytes, path: Path) -> None:
        self._data, self._path, self._place = data, path, 0

    def _take(self, size: int, what: str) -> int:
        begin = self._place
        if size > len(self._data) - begin:
            raise InputError(f"{self._path} ends at byte {len(self._data):,}, within {what}")
        self._place += size
        return begin

    def word(self, what: str) -> int:
        begin = self._take(8, what)
        return int.from_bytes(self._data[begin : begin + 8], "little")

    def length(self, what: str, smallest: int) -> int:
        """A count of items that follow, each of at least `smallest` bytes."""
        count = self.word(what)
        if count > (len(self._data) - self._place) // smallest:
            place = self._place - 8
            raise InputError(
                f"{self._path}, byte {place:,}: {count:,} {what} do not fit into the rest of the file"
            )
        return count

    def text(self) -> None:
        self._take(min(self.length("bytes of text", 1), _LONGEST_TEXT), "a text")

    def flag(self, what: str) -> bool:
        begin = self._take(1, what)
        if self._data[begin] > 1:
            raise InputError(f"{self._path}, byte {begin:,}: {what} is {self._data[begin]}, neither 0 nor 1")
        return self._data[begin] == 1

    def events(self, count: int) -> Any:
        begin = self._take(count * _EVENT.itemsize, "events")
        events = np.frombuffer(self._data, _EVENT, count, begin)
        if count and max(events["write"].max(), events["success"].max()) > 1:
            raise InputError(f"{self._path}, byte {begin:,}: an event whose flags are neither 0 nor 1")
        return events

    def end(self) -> None:
        if self._place < len(self._data):
            raise InputError(f"{self._path} goes on after the history, at byte {self._place:,}")


def read(path: Path, max_bytes: int | None = None) -> History:
    """Read a whole history."""
    cursor = _Cursor(read_whole(path, max_bytes), path)
    for name in ("id", "nodes", "variables", "transactions", "events"):
        cursor.word(f"the number of {name}")
    for _ in range(3):
        cursor.text()
    parts, owners = [], []
    number = 0
    for session in range(1, cursor.length("sessions", 8) + 1):
        for _ in range(cursor.length("transactions", 9)):
            events = cursor.events(cursor.length("events", _EVENT.itemsize))
            number += 1
            parts.append(events)
            owners.append((len(events), session, number, cursor.flag("success of a transaction")))
    cursor.end()
    if not any(count for count, *_ in owners):
        raise InputError(f"{path} has no events")
    return _history(np.concatenate(parts), np.array(owners, np.int64), path)


def _history(events: Any, owners: Any, path: Path) -> History:
    for column in ("variable", "value"):
        if events[column].max() >= 1 << 63:
            raise InputError(f"{path} has a {column} of {events[column].max()}, which is more than 2⁶³ − 1")
    session, number, success = (np.repeat(owners[:, column], owners[:, 0]) for column in (1, 2, 3))
    succeeded = events["success"] == 1
    failed_alone: Bools = ~succeeded & (success == 1)
    status = np.where(succeeded & (success == 1), Status.COMMITTED, Status.ABORTED).astype(np.int8)
    # The failed writes of a committed transaction form a transaction of their own, with the negative number.
    transaction = np.where(failed_alone, -number, number)
    kept = succeeded | (events["write"] == 1)
    columns = (
        session,
        transaction,
        events["write"] == 1,
        *(events[name].astype(np.int64) for name in _COLUMNS),
    )
    return from_columns(*(column[kept] for column in columns), status=status[kept], initial_value=0)


_COLUMNS = ("variable", "value")
