"""Histories of dbcop in JSON: sessions of transactions, `[[{"events": […], "committed": true}, …], …]`.

They may be in the field `data` of an object. An event is `{"Write": {"variable": 0, "version": 1}}`,
`{"Read": …}` with a version or null for what was there at first, or, shorter, `["w", 0, 1]` and `["r", 0,
null]`. A transaction is `committed` or not; older files say `success`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from antecede.errors import InputError
from antecede.trace.foreign.open_files import read_whole
from antecede.transactions.history import History, HistoryBuilder, Operation, Status

NAME = "dbcop"
_EVENTS = re.compile(
    rb"\s*(?:\{.{0,3000}?\"data\"\s*:\s*)?\[\s*\[\s*\{\s*\"(?:events|committed|success)\"\s*:", re.DOTALL
)


def recognise(head: bytes) -> str | None:
    """Whether a file begins with a session of transactions with events."""
    return NAME if _EVENTS.match(head) else None


def read(path: Path, max_bytes: int | None = None) -> History:
    """Read a whole history."""
    try:
        document = msgspec.json.decode(read_whole(path, max_bytes))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}") from error
    sessions = document.get("data") if isinstance(document, dict) else document
    builder = HistoryBuilder(None)
    number = 0
    for session, transactions in enumerate(_list(sessions, path, "a history")):
        for transaction in _list(transactions, path, f"session {session + 1}"):
            number += 1
            where = f"session {session + 1}, transaction {number}"
            if not isinstance(transaction, dict):
                raise InputError(f"{path}, {where}: not an object with events")
            events = _list(transaction.get("events"), path, f"events of {where}")
            operations = [_operation(event, path, where) for event in events]
            committed = transaction.get("committed", transaction.get("success", True)) is True
            builder.add(
                session + 1, f"T{number}", operations, Status.COMMITTED if committed else Status.ABORTED
            )
    return builder.build()


def _list(value: Any, path: Path, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise InputError(f"{path}: {what} should be a list")
    return value


def _operation(event: Any, path: Path, where: str) -> Operation:
    match event:
        case {"Write": {"variable": key, "version": value}} | ["w", key, value]:
            write = True
        case {"Read": {"variable": key, "version": value}} | ["r", key, value]:
            write = False
        case {"write": bool(write), "variable": key, "value": value}:
            value = None if value == 0 and not write else value
        case _:
            raise InputError(f"{path}, {where}: {str(event)[:60]!r} is neither a Read nor a Write")
    if not isinstance(key, int | str) or not isinstance(value, int | str | None) or (write and value is None):
        raise InputError(
            f"{path}, {where}: a variable and a version should be numbers, not {str(event)[:60]!r}"
        )
    return Operation(write, key, value)
