"""Recognises tables of events by content where their names do not reveal the format.

A file whose name indicates another format, or none, is registered under the right ending. A JSON array, and
JSON lines in UTF-16 or UTF-32, are copied to UTF-8 JSON lines, which readers of large files can start reading
anywhere.
"""

from __future__ import annotations

import csv
from collections.abc import Collection
from pathlib import Path

import msgspec

from antecede.errors import InputError
from antecede.sources.records import HEAD_BYTES, JSON_ERRORS, container
from antecede.trace.copies import original_of, register_copy, table_suffix
from antecede.trace.foreign.open_files import read_head, read_whole, text_encoding

_JSON = (".json", ".jsonl", ".ndjson")
_WIDE = ("utf-16", "utf-32")


def name_by_content(file: Path, columns: Collection[str], separator: str) -> None:
    """Register a file under its actual format; a text table counts if its header has the named columns."""
    head = read_head(file, HEAD_BYTES)
    what, suffix = container(head), table_suffix(file)
    if what == "parquet":
        found = ".parquet"
    elif suffix in (".jsonl", ".ndjson", ".csv") or (suffix == ".json" and what != "json"):
        return
    elif what == "json":
        found = ".jsonl"
    else:
        header = head.decode(text_encoding(head), errors="replace").lstrip("\ufeff").splitlines()
        names = next(csv.reader(header[:1], delimiter=separator), [])
        if not columns or not set(columns) <= set(names):
            return
        found = ".csv"
    if found != suffix:
        register_copy(file, original_of(file), found)


def as_json_lines(file: Path, folder: Path, max_bytes: int | None) -> Path | None:
    """A copy of a JSON array or of JSON in a wide encoding, with one value per line; None if none is
    needed."""
    head = read_head(file, HEAD_BYTES)
    encoding = text_encoding(head)
    if table_suffix(file) not in _JSON or (encoding not in _WIDE and not head.lstrip().startswith(b"[")):
        return None
    try:
        data = read_whole(file, max_bytes).decode(encoding).removeprefix("\ufeff").encode()
    except UnicodeError as error:
        if encoding not in _WIDE:
            return None
        raise InputError(f"{file} is not text in {encoding}: {error}") from error
    try:
        values = msgspec.json.decode(data, type=list[msgspec.Raw])
    except JSON_ERRORS:
        if encoding not in _WIDE:
            return None
    else:
        # A string in JSON contains no line end.
        data = b"".join(b" ".join(bytes(value).splitlines()) + b"\n" for value in values)
    copy = folder / file.name
    copy.write_bytes(data)
    register_copy(copy, original_of(file), ".jsonl")
    return copy
