"""Histories of Jepsen, in EDN or JSON: operations that processes invoke and that end in ok, fail or info.

A transaction (`:f :txn`) has a list of reads `[:r k v]`, writes `[:w k v]` and appends `[:append k v]`.
Alone, `:read`, `:write` and `:cas` are transactions on one register; where tests run on independent keys,
values are pairs `[k v]`. What ended in `fail` is aborted; what ended in `info`, or not at all, is unknown. An
append is a write of its element, and a read of a list is a read of its last element: that the elements before
it are in order is not checked. Records of processes without a number, such as `:nemesis`, are counted, and
left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from antecede.errors import InputError
from antecede.trace.foreign.open_files import read_whole
from antecede.transactions.formats.edn import parse_edn
from antecede.transactions.history import History, HistoryBuilder, Operation, Status

NAME = "jepsen"
_EDN = re.compile(
    rb"[\s,]*(?:;[^\n]*\n\s*)*[\[(]?\s*(?:#jepsen\.history\.Op\s*)?"
    rb"\{[^\0]*?:type\s+:(?:invoke|ok|fail|info)\b"
)
_JSON = re.compile(rb"\s*\[?\s*\{[^\0]*?\"type\"\s*:\s*\"(?:invoke|ok|fail|info)\"")
_ENDS = {"ok": Status.COMMITTED, "fail": Status.ABORTED, "info": Status.UNKNOWN}
_REGISTER = "register"
"""The key of a test on one register."""


def recognise(head: bytes) -> str | None:
    """Whether a file begins with an operation of a process."""
    edn = _EDN.match(head) and b":process" in head and b":f" in head
    text = _JSON.match(head) and b'"process"' in head and b'"f"' in head
    return NAME if edn or text else None


def read(path: Path, max_bytes: int | None = None) -> History:
    """Read a whole history."""
    builder = HistoryBuilder(None)
    pending: dict[int, tuple[int, dict[str, Any]]] = {}
    number, left_out = 0, list[int]()
    for number, operation in enumerate(_operations(path, max_bytes), start=1):
        process, kind = operation.get("process"), operation.get("type")
        if not isinstance(process, int) or isinstance(process, bool):
            left_out.append(number)
            continue
        if kind == "invoke":
            if process in pending:
                _add(builder, pending.pop(process), Status.UNKNOWN, path)
            pending[process] = number, operation
        elif kind in _ENDS:
            invoked = pending.pop(process, (number, operation))
            ended = (invoked[0], operation) if kind == "ok" else invoked
            _add(builder, ended, _ENDS[kind], path)
        else:
            raise InputError(f"{path}, operation {number}: its type is none of invoke, ok, fail and info")
    if not number:
        raise InputError(f"{path} is empty: it has no operation")
    for left in pending.values():
        _add(builder, left, Status.UNKNOWN, path)
    return replace(builder.build(), records=number, records_left_out=left_out)


def _operations(path: Path, max_bytes: int | None) -> Iterator[dict[str, Any]]:
    data = read_whole(path, max_bytes)
    for value in _json_values(data, path) if _JSON.match(data[:65_536]) else _edn_values(data, path):
        for each in value if isinstance(value, list) else [value]:
            if not isinstance(each, dict):
                raise InputError(f"{path}: {str(each)[:40]!r} is not an operation")
            yield each


def _json_values(data: bytes, path: Path) -> Iterator[Any]:
    try:
        if data.lstrip().startswith(b"["):
            yield msgspec.json.decode(data)
        else:
            yield from msgspec.json.Decoder().decode_lines(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}") from error


def _edn_values(data: bytes, path: Path) -> Iterator[Any]:
    try:
        yield from parse_edn(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text in UTF-8: {error.reason}") from error
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _add(builder: HistoryBuilder, numbered: tuple[int, dict[str, Any]], status: Status, path: Path) -> None:
    number, operation = numbered
    try:
        parts = [_part(*each) for each in _micro_operations(operation)]
    except (TypeError, ValueError) as error:
        shown = str(operation.get("value"))[:60]
        raise InputError(
            f"{path}, operation {number}: {operation.get('f')} of {shown!r} is not a read or write: {error}"
        ) from error
    # An operation that did not end in ok has no valid reads.
    known = [each for each in parts if each.write or status is Status.COMMITTED]
    builder.add(operation["process"], f"operation {number}", known, status)


def _micro_operations(operation: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    name, value = operation.get("f"), operation.get("value")
    if name == "txn" or (isinstance(value, list) and value and all(_is_micro(each) for each in value)):
        yield from ((kind, key, each) for kind, key, each in value or [])
        return
    key: Any = _REGISTER
    if name == "cas":
        if isinstance(value, list) and len(value) == 2 and isinstance(value[1], list):
            key, value = value
        if not isinstance(value, list) or len(value) != 2:
            raise ValueError("a cas has an old value and a new one")
        old, new = value
        yield "r", key, old
        yield "w", key, new
        return
    if name not in ("read", "write", "r", "w"):
        raise ValueError("it should be txn, read, write or cas")
    if isinstance(value, list) and len(value) == 2:
        key, value = value
    yield name[0], key, value


def _is_micro(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and value[0] in ("r", "w", "append")


def _part(kind: Any, key: Any, value: Any) -> Operation:
    if kind == "r":
        value = (value[-1] if value else None) if isinstance(value, list) else value
    elif kind not in ("w", "append"):
        raise ValueError(f"{str(kind)[:20]!r} is none of r, w and append")
    if not isinstance(key, int | str) or not isinstance(value, int | str | float | None):
        raise TypeError("keys and values should be numbers or text")
    if kind != "r" and value is None:
        raise ValueError("nothing is written")
    return Operation(kind != "r", key, value)
