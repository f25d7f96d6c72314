"""Records of a file in any container: JSON lines, JSON, CSV, TSV or Parquet.

What a file holds is decided by its first bytes, not by its name. JSON lines, CSV and Parquet are streamed; a
JSON document is held whole, up to `MAX_DOCUMENT` bytes.
"""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from antecede.errors import InputError
from antecede.sources.fields import Step, find, parse_path
from antecede.trace.bad_rows import BadRows
from antecede.trace.csv_records import CsvFormat, RecordLines, csv_records
from antecede.trace.foreign.open_files import open_bytes, read_head, text_encoding
from antecede.trace.json_lines import why_not_json
from antecede.trace.parquet_files import parquet_file, refuse_long_text, text_columns_of
from antecede.trace.reader import damaged_parquet, open_any_parquet, refuse_missing_rows
from antecede.trace.validate import refuse_duplicate_columns

MAX_DOCUMENT = 1 << 28
"""Bytes of one JSON document or line."""
HEAD_BYTES = 1 << 16
_BATCH_ROWS = 8_192
_SEPARATORS = ",\t;|"
JSON_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions raised by decoding bytes that are not JSON, or not of the right shape."""
_NOT_JSON = "lines that are not JSON, left out"
_NO_OBJECT = "values that are no object, left out"


class SourceRecord(NamedTuple):
    """A record, the number of its row, line or element in the file, and its text there if it has one."""

    row: int
    value: dict[str, Any]
    text: str | None
    key: Any = None
    headers: Any = None
    """The key and headers of a Kafka record, as they are in the file."""


def container(head: bytes) -> str:
    """The container of a file that begins like this: parquet, json or table."""
    if head.startswith(b"PAR1"):
        return "parquet"
    text = head.decode(text_encoding(head), errors="replace").lstrip()
    return "json" if text.startswith(("{", "[")) else "table"


def is_text(text: str) -> bool:
    """Whether all bytes that this was decoded from, with `surrogateescape`, were text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_records(
    path: Path,
    bad: BadRows,
    encoding: str = "",
    separator: str = "",
    max_bytes: int | None = None,
) -> Iterator[SourceRecord]:
    """The records of a file; anything that is not a record is counted in `bad`."""
    what = container(read_head(path, HEAD_BYTES))
    if what == "parquet":
        return _parquet_records(path)
    if what == "json":
        return _json_records(path, bad, encoding, max_bytes)
    return _table_records(path, bad, encoding, separator, max_bytes)


# JSON


def _json_records(path: Path, bad: BadRows, encoding: str, max_bytes: int | None) -> Iterator[SourceRecord]:
    for row, raw in json_values(path, bad, encoding, max_bytes):
        try:
            value = msgspec.json.decode(raw)
        except JSON_ERRORS as error:
            bad.add(_NOT_JSON, f"row {row}: {why_not_json(bytes(raw), error)}", str(path), text=bytes(raw))
            continue
        if isinstance(value, dict):
            yield SourceRecord(row, value, bytes(raw).decode())
        else:
            bad.add(_NO_OBJECT, f"row {row}", str(path), text=bytes(raw))


def json_values(
    path: Path, bad: BadRows, encoding: str = "", max_bytes: int | None = None
) -> Iterator[tuple[int, bytes | msgspec.Raw]]:
    """The JSON values of a file as they stand there: lines, elements of an array, or documents in a row."""
    with open_bytes(path, max_bytes) as stream:
        first = _read_line(stream, path, 1)
        marked = text_encoding(first[:4])
        if marked in ("utf-16", "utf-32") or encoding:
            whole = _read_document(stream, path, first)
            yield from _document_values(_to_utf8(whole, marked, encoding, path), path, bad)
        elif _is_value(first):
            rest = stream.peek(1)[:1]  # type: ignore[attr-defined]
            if first.lstrip().startswith(b"[") and not rest:
                yield from _document_values(first.removeprefix(b"\xef\xbb\xbf"), path, bad)
            else:
                yield from _lines(stream, path, first.removeprefix(b"\xef\xbb\xbf"))
        else:
            document = _read_document(stream, path, first.removeprefix(b"\xef\xbb\xbf"))
            yield from _document_values(document, path, bad)


def _to_utf8(data: bytes, marked: str, encoding: str, path: Path) -> bytes:
    chosen = marked if marked != "utf-8" else encoding
    try:
        return data.decode(chosen).encode()
    except UnicodeError as error:
        raise InputError(f"{path} is not text in {chosen}: {error}") from error


def _is_value(line: bytes) -> bool:
    try:
        msgspec.json.decode(line.removeprefix(b"\xef\xbb\xbf"), type=msgspec.Raw)
    except JSON_ERRORS:
        return False
    return True


def _read_line(stream: IO[bytes], path: Path, number: int) -> bytes:
    line = stream.readline(MAX_DOCUMENT + 1)
    if len(line) > MAX_DOCUMENT:
        raise InputError(f"{path}, row {number}: it has more than {MAX_DOCUMENT:,} bytes")
    return line


def _read_document(stream: IO[bytes], path: Path, begin: bytes) -> bytes:
    rest = stream.read(MAX_DOCUMENT + 1 - len(begin))
    if len(begin) + len(rest) > MAX_DOCUMENT:
        raise InputError(
            f"{path} is a JSON document of more than {MAX_DOCUMENT:,} bytes; write its records as JSON "
            "lines, which are read one by one"
        )
    return begin + rest


def _lines(stream: IO[bytes], path: Path, line: bytes) -> Iterator[tuple[int, bytes]]:
    number = 1
    while line:
        if stripped := line.strip():
            yield number, stripped
        number += 1
        line = _read_line(stream, path, number)


def _document_values(data: bytes, path: Path, bad: BadRows) -> Iterator[tuple[int, bytes | msgspec.Raw]]:
    try:
        if data.lstrip().startswith(b"["):
            yield from enumerate(msgspec.json.decode(data, type=list[msgspec.Raw]), start=1)
        else:
            yield 1, msgspec.json.decode(data, type=msgspec.Raw)
    except JSON_ERRORS as error:
        yield from _several_documents(data, path, bad, error)


def _several_documents(
    data: bytes, path: Path, bad: BadRows, error: Exception
) -> Iterator[tuple[int, bytes]]:
    """Documents one after another, each over several lines, as jq prints them."""
    decoder, at, number = json.JSONDecoder(), 0, 0
    try:
        text = data.decode()
        end = len(text.rstrip())
        while at < end:
            at += len(text[at : at + 1]) - len(text[at : at + 1].lstrip())
            if text[at].isspace():
                at += 1
                continue
            _, after = decoder.raw_decode(text, at)
            number += 1
            yield number, text[at:after].encode()
            at = after
    except (ValueError, RecursionError) as cause:
        if not number:
            raise InputError(f"{path} is not JSON: {error}") from cause
        bad.add(
            "documents that are not JSON, left out with all that follows",
            f"row {number + 1}: {cause}",
            str(path),
            text=text[at:].encode(),
        )


def inner_records(
    records: Iterable[SourceRecord], paths: Sequence[str], bad: BadRows, file: Path, with_text: bool = False
) -> Iterator[SourceRecord]:
    """The records at some paths of documents, in lists or alone; documents without them are records.

    `bad` counts what is no object in the lists.
    `with_text`: as they are written in their document, which is decoded again for it.
    """
    steps = [parse_path(path) for path in paths]
    number = 0
    for record in records:
        places = [(each, find(record.value, each)) for each in steps]
        lists = [(each, found) for each, found in places if isinstance(found, list)]
        alone = [(each, found) for each, found in places if isinstance(found, dict) and found][:1]
        if not lists and not alone:
            number = record.row
            yield record
            continue
        texts: Iterator[str | None] = itertools.repeat(None)
        if with_text and record.text is not None:
            texts = itertools.chain(*(_texts_at(record.text, each) for each, _ in lists or alone), texts)
        if not lists:
            number = record.row
            yield SourceRecord(number, alone[0][1], next(texts))
            continue
        for value, text in zip(itertools.chain(*(found for _, found in lists)), texts, strict=False):
            number += 1
            if isinstance(value, dict):
                yield SourceRecord(number, value, text)
            else:
                bad.add(_NO_OBJECT, f"row {number}", str(file), text=msgspec.json.encode(value))


def _texts_at(text: str, steps: Sequence[Step]) -> list[str | None]:
    """The values that `find` finds in a JSON text, as written there: the elements of a list, or one value."""
    found = _raw_at(msgspec.Raw(text.encode()), steps)
    if isinstance(found, msgspec.Raw) and bytes(found).lstrip().startswith(b"["):
        found = msgspec.json.decode(found, type=list[msgspec.Raw])
    every = found if isinstance(found, list) else [found]
    return [None if each is None else bytes(each).decode() for each in every]


def text_at(text: str, steps: Sequence[Step]) -> str | None:
    """The one value at a path of a JSON text, as it is written there; None if there is none."""
    found = _raw_at(msgspec.Raw(text.encode()), steps)
    return bytes(found).decode() if isinstance(found, msgspec.Raw) else None


def _raw_at(raw: msgspec.Raw, steps: Sequence[Step]) -> Any:
    """A Raw, a list of them where a step is every element, or None."""
    try:
        for place, step in enumerate(steps):
            if isinstance(step, str):
                raw = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])[step]
            else:
                elements = msgspec.json.decode(raw, type=list[msgspec.Raw])
                if step is None:
                    return [_raw_at(each, steps[place + 1 :]) for each in elements]
                raw = elements[step]
    except (*JSON_ERRORS, LookupError):
        return None
    return raw


# Tables in text


def _table_records(
    path: Path, bad: BadRows, encoding: str, separator: str, max_bytes: int | None
) -> Iterator[SourceRecord]:
    def unreadable(row: int, why: str) -> None:
        what = "rows that cannot be read, left out"
        why = why.replace("give the --encoding", "a preset names the encoding")
        text = record_lines.text.encode("utf-8", "surrogateescape")
        bad.add(what, f"row {row}: {why}", str(path), text=text)

    with open_bytes(path, max_bytes) as stream:
        marked = text_encoding(stream.peek(4)[:4])  # type: ignore[attr-defined]
        chosen = encoding if encoding and marked == "utf-8" else marked
        # Undecodable bytes are marked, so that the rows around them stay intact.
        lines = io.TextIOWrapper(stream, chosen, errors="surrogateescape", newline="")
        first = lines.readline(MAX_DOCUMENT)
        if not first.strip():
            raise InputError(f"{path} is empty; a table needs a header and rows")
        form = CsvFormat(chosen.removesuffix("-sig").upper(), separator or likely_separator(first))
        record_lines = RecordLines(itertools.chain([first], lines))
        every = csv_records(record_lines, unreadable, form, first_row=0)
        _, names = next(every, (0, [""]))
        refuse_duplicate_columns(names, path)
        for row, fields in every:
            if len(fields) == len(names):
                yield SourceRecord(row, dict(zip(names, fields, strict=True)), record_lines.text)
            else:
                unreadable(row, f"it has {len(fields)} fields, the header {len(names)}")


def likely_separator(header: str) -> str:
    """The most frequent separator in a header, outside quotes; a comma if there is none."""
    outside = "".join(header.split('"')[::2])
    best = max(_SEPARATORS, key=outside.count)
    return best if outside.count(best) else ","


# Parquet


def _parquet_records(path: Path) -> Iterator[SourceRecord]:
    opened = open_any_parquet(path)
    refuse_duplicate_columns(opened.schema_arrow.names, path)
    number = 0
    try:
        # With dictionaries, a long text exists once, and can be refused before every row has a copy.
        for batch in parquet_file(path, text_columns_of(opened)).iter_batches(_BATCH_ROWS):
            refuse_long_text(batch, path)
            for row in _plain_table(pa.Table.from_batches([batch])).to_pylist():
                number += 1
                yield SourceRecord(number, row, None)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise damaged_parquet(path, error) from error
    refuse_missing_rows(path, opened.metadata.num_rows, number)


def _plain_table(table: pa.Table) -> pa.Table:
    """The table with its instants in ISO 8601: Python's own have microseconds only."""
    for at, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            instants = table.column(at).cast(pa.int64()).cast(pa.timestamp(field.type.unit))
            table = table.set_column(at, field.name, pc.strftime(instants, "%Y-%m-%dT%H:%M:%SZ"))
    return table


def schema_outline(kind: pa.DataType | pa.Schema) -> Any:
    """A value of the shape of a schema, for recognition by the names in it."""
    if isinstance(kind, pa.Schema) or pa.types.is_struct(kind):
        return {field.name: schema_outline(field.type) for field in kind}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [schema_outline(kind.value_type)]
    return ""
