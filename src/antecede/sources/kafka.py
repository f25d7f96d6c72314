r"""Dumps of Kafka records: JSON of kcat (`-J`) or in the columns of Spark's source, Parquet, CSV, and the
text of the console consumer (with `print.partition`, `print.offset`, and what else it prints).

A record has `topic`, `partition` and `offset`, `headers`, and `body`: what it carries, if that is JSON. The
console consumer does not print the topic: it is the file's name up to its first dot. Spark writes binary
columns to JSON in base64; header values in its columns are converted if all of a record's are base64 of text.
"""

from __future__ import annotations

import base64
import binascii
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from antecede.errors import InputError
from antecede.sources.records import HEAD_BYTES, MAX_DOCUMENT, SourceRecord, is_text, read_records
from antecede.trace.bad_rows import BadRows
from antecede.trace.foreign.open_files import open_bytes, read_head, text_encoding

CONSOLE = re.compile(
    r"(?:(?:CreateTime|LogAppendTime):(?P<time>-?\d+)\t|NO_TIMESTAMP\t)?"
    r"Partition:(?P<partition>\d+)\tOffset:(?P<offset>\d+)(?:\t(?P<rest>.*))?",
    re.DOTALL,
)
"""A line of the console consumer's output."""
_HEADERS = re.compile(r"[\w.\-]+:[^,\t]*(?:,[\w.\-]+:[^,\t]*)*")
_VALUE_NAMES = ("payload", "value")


def read_kafka(
    path: Path, bad: BadRows, encoding: str = "", separator: str = "", max_bytes: int | None = None
) -> Iterator[SourceRecord]:
    """The records of a dump."""
    head = read_head(path, HEAD_BYTES)
    if is_console_output(head):
        yield from _console_records(path, bad, encoding, max_bytes)
        return
    for record in read_records(path, bad, encoding, separator, max_bytes):
        key, headers = (record.value.get(name) for name in ("key", "headers"))
        yield SourceRecord(record.row, with_body(record.value), record.text, key, headers)


def is_console_output(head: bytes) -> bool:
    """Whether a file that begins like this is the console consumer's output."""
    first = head.decode(text_encoding(head), errors="replace").split("\n", 1)[0]
    return CONSOLE.fullmatch(first.rstrip("\r")) is not None


def with_body(record: dict[str, Any]) -> dict[str, Any]:
    """A record with `body`, and with its headers as text."""
    for name in _VALUE_NAMES:
        if name in record:
            record["body"] = decode_body(record[name], "timestampType" in record)
            break
    headers = record.get("headers")
    if "timestampType" in record and isinstance(headers, list) and headers:
        record["headers"] = _decode_headers(headers)
    return record


def decode_body(value: Any, maybe_base64: bool = False) -> Any:
    """The value of a record, if it is a JSON object, in decoded form, text or bytes; None otherwise."""
    if isinstance(value, dict):
        return value
    if not isinstance(value, str | bytes) or not value:
        return None
    if maybe_base64 and isinstance(value, str) and not value.lstrip().startswith("{"):
        value = _base64_text(value) or value
    try:
        body = msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def _decode_headers(headers: list[Any]) -> list[Any]:
    texts = [_base64_text(each.get("value")) if isinstance(each, dict) else None for each in headers]
    if any(text is None for text in texts):
        return headers
    return [{"key": each.get("key"), "value": text} for each, text in zip(headers, texts, strict=True)]


def _base64_text(value: Any) -> str | None:
    """The text of which a value is the base64 encoding; None if it is not."""
    if not isinstance(value, str) or not value:
        return None
    try:
        text = base64.b64decode(value, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    return text if text.isprintable() or text.lstrip().startswith("{") else None


def _console_records(
    path: Path, bad: BadRows, encoding: str, max_bytes: int | None
) -> Iterator[SourceRecord]:
    topic = path.name.split(".")[0]
    with open_bytes(path, max_bytes) as stream:
        marked = text_encoding(stream.peek(4)[:4])  # type: ignore[attr-defined]
        chosen = encoding if encoding and marked == "utf-8" else marked
        lines = io.TextIOWrapper(stream, chosen, errors="surrogateescape", newline="\n")
        for number, line in enumerate(iter(lambda: lines.readline(MAX_DOCUMENT), ""), start=1):
            if len(line) >= MAX_DOCUMENT:
                raise InputError(f"{path}, line {number}: it has more than {MAX_DOCUMENT:,} characters")
            line = line.rstrip("\r\n")
            found = CONSOLE.fullmatch(line)
            if found is None or not is_text(line):
                if line:
                    what = "lines that do not begin with a partition and an offset, left out"
                    text = line.encode("utf-8", "surrogateescape")
                    bad.add(what, f"row {number}: {_as_text(line)}", str(path), text=text)
                continue
            record: dict[str, Any] = {
                "topic": topic,
                "partition": int(found["partition"][:18]),
                "offset": int(found["offset"][:18]),
                "ts": found["time"],
            }
            rest = (found["rest"] or "").split("\t")
            headers = None
            if len(rest) > 1 and (rest[0] == "NO_HEADERS" or _HEADERS.fullmatch(rest[0])):
                headers, *rest = rest
                pairs = (each.partition(":") for each in headers.split(","))
                record["headers"] = [{"key": name, "value": value} for name, _, value in pairs]
            # Nothing says whether a key was printed; a tab more likely separates key and value than belongs
            # to the value.
            key, rest = (rest[0], rest[1:]) if len(rest) > 1 else (None, rest)
            record |= {"key": key, "payload": "\t".join(rest)}
            yield SourceRecord(number, with_body(record), line, key, headers)


def _as_text(line: str) -> str:
    return line.encode(errors="surrogateescape").decode(errors="replace")
