"""Recognises a format by the first kilobytes of a file.

A record is compared with the paths in each preset's `recognised_by`. A JSON document that is longer than what
was read is closed where it was cut. This is a pure function of the bytes; only for Parquet, whose names are
at the end of a file, the file itself is opened.
"""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from antecede.errors import InputError
from antecede.sources.catalogue import PRESETS
from antecede.sources.fields import MISSING, find, parse_path
from antecede.sources.kafka import is_console_output, with_body
from antecede.sources.otlp_protobuf import is_otlp_protobuf
from antecede.sources.preset import READERS, Preset
from antecede.sources.records import HEAD_BYTES, container, likely_separator, read_records, schema_outline
from antecede.trace.bad_rows import BadRows
from antecede.trace.foreign.open_files import read_head, text_encoding
from antecede.trace.foreign.shiviz import is_shiviz
from antecede.trace.reader import open_any_parquet

_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},]|"', re.DOTALL)
_TRACE = frozenset({"process", "index", "kind", "origin", "seq"})
"""Columns of a trace of ours, whatever others it has."""
_TABLE_READERS = ("records", "kafka", "debezium")
"""Readers of formats that may be rows of a table."""
_SAMPLES = 20
"""Records at the beginning that are compared."""


def recognise_file(path: Path) -> Preset | None:
    """The preset for a file; None if it is none of the known formats."""
    head = read_head(path, HEAD_BYTES)
    if head.startswith(b"PAR1"):
        found = _matching([schema_outline(open_any_parquet(path).schema_arrow)], _TABLE_READERS)
        if found is None or found.reader != "kafka":
            return found
        # The values of Kafka records are not in the schema.
        records = itertools.islice(read_records(path, BadRows(str(path), strict=False)), _SAMPLES)
        return _matching([with_body(record.value) for record in records], _TABLE_READERS) or found
    return recognise(head)


def recognise(head: bytes) -> Preset | None:
    """The preset for a file that begins like this, if it is not Parquet."""
    if is_otlp_protobuf(head):
        return PRESETS["otlp"]
    what = container(head)
    if what == "parquet" or not head.strip():
        return None
    text = head.decode(text_encoding(head), errors="replace").removeprefix("\ufeff")
    if what == "json":
        found = _matching(_first_values(text.lstrip()))
    elif is_console_output(head):
        found = PRESETS["kafka"]
    else:
        found = _matching([dict.fromkeys(names_in_header(head), "")], _TABLE_READERS)
    return PRESETS["shiviz"] if found is None and is_shiviz(text.replace("\r\n", "\n")) else found


def names_in_header(head: bytes) -> list[str]:
    """The names of the columns of a table in text that begins like this; none if it is no table."""
    text = head.decode(text_encoding(head), errors="replace").removeprefix("\ufeff")
    header = text.splitlines()[0] if text.strip() else ""
    try:
        return next(csv.reader([header], delimiter=likely_separator(header)), [])
    except csv.Error:
        return []


def _matching(values: Iterable[Any], readers: Collection[str] = READERS) -> Preset | None:
    presets = [preset for preset in PRESETS.values() if preset.reader in readers]
    for value in values:
        if isinstance(value, dict) and _TRACE.issubset(value):
            return None
        for preset in presets:
            for paths in preset.recognised_by:
                if all(_is_there(value, path) for path in paths):
                    return preset
    return None


def _is_there(value: Any, path: str) -> bool:
    steps = parse_path(path)
    found = find(value, steps)
    if None in steps and found is not MISSING:
        return any(each is not MISSING for each in found)
    return found is not MISSING


def _first_values(text: str) -> Iterator[Any]:
    """The first objects of JSON lines, of an array, or of a document that may be cut off."""
    lines = [_decode(line) for line in text.splitlines()[:_SAMPLES]]
    decoded = [value for value in lines if value is not MISSING]
    if not lines or not isinstance(lines[0], dict | list):
        # A line within a document may be a value too, such as one of its spans.
        decoded.insert(0, _decode(_closed(text)))
    for value in decoded:
        for each in value[:_SAMPLES] if isinstance(value, list) else [value]:
            yield with_body(each) if isinstance(each, dict) and "offset" in each else each


def _decode(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return MISSING


def _closed(text: str) -> str:
    """A JSON text cut after its last complete element, with its brackets closed; or its first document."""
    open_brackets: list[str] = []
    end = 0
    for match in _TOKENS.finditer(text):
        mark = match[0]
        if mark in "[{":
            open_brackets.append("]" if mark == "[" else "}")
            end = match.end()
        elif mark in "]}" and open_brackets:
            open_brackets.pop()
            end = match.end()
            if not open_brackets:
                break
        elif mark == "," and open_brackets:
            end = match.start()
    return text[:end] + "".join(reversed(open_brackets))


def same_format(files: list[Path]) -> Preset | None:
    """The preset for several files of one log; None if none is of a known format."""
    found: dict[str, tuple[Preset | None, Path]] = {}
    for file in files:
        preset = recognise_file(file)
        found.setdefault(preset.name if preset else "", (preset, file))
    if len(found) > 1 and any(found):
        shown = " and ".join(
            f"{preset.name if preset else 'an unknown format'} ({file.name})"
            for preset, file in found.values()
        )
        raise InputError(f"{files[0].parent} holds {shown}; separate them, or name one format with --preset")
    return next(iter(found.values()))[0] if found else None
