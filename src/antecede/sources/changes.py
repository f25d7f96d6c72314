"""Records of Debezium's topics as a table that `causal_order` merges: where each is, and what it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from antecede.errors import InputError
from antecede.sources.debezium import Change, change_of, parse_change, unwrap, whole_number
from antecede.sources.kafka import read_kafka
from antecede.sources.read import Source
from antecede.sources.records import SourceRecord
from antecede.trace.bad_rows import BadRows
from antecede.trace.foreign.open_files import streaming_limit
from antecede.trace.parquet_files import parquet_writer

COORDINATES = ("topic", "partition", "offset")
ID, EVENTS = "_antecede_id", "_antecede_events"
"""Columns that results do not have."""
CHANGE_COLUMNS = pa.schema(
    [
        ("kind", pa.string()),
        ("transaction", pa.string()),
        ("transaction_order", pa.int64()),
        ("position", pa.int64()),
        ("snapshot", pa.string()),
        (ID, pa.string()),
        (EVENTS, pa.int64()),
    ]
)
"""The fields of `Change`; `kind` is null if a record is no change event."""
_FIELDS = ("kind", "transaction", "order", "position", "snapshot", "id", "events")
_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("key", pa.string()),
        *CHANGE_COLUMNS,
        ("file", pa.string()),
        ("row", pa.int64()),
        ("payload", pa.string()),
    ]
)
_BATCH_ROWS = 16_384
_NO_CHANGE = Change("", None)
_MARKERS = "transaction"
"""The topic of markers in files that do not say which topics their records are from."""


def change_columns(changes: Iterable[Change | None]) -> list[pa.Array]:
    """The columns of CHANGE_COLUMNS."""
    rows = [_NO_CHANGE if change is None else change for change in changes]
    return [
        pa.array([getattr(change, field) or None for change in rows], column.type)
        if field == "kind"
        else pa.array([getattr(change, field) for change in rows], column.type)
        for column, field in zip(CHANGE_COLUMNS, _FIELDS, strict=True)
    ]


def parse_changes(topics: Sequence[str], keys: Sequence[Any], values: Sequence[Any]) -> list[pa.Array]:
    """The same of records as they are in Kafka."""
    return change_columns(map(parse_change, topics, keys, values))


def write_change_table(
    source: Source, file: Path, bad: BadRows, progress: Callable[[str, int, int], None] = lambda *_: None
) -> None:
    """Write the records of a source as Parquet: their coordinates, CHANGE_COLUMNS, and what they carry."""
    rows, places = 0, count()
    bad.reads(source.files)
    with parquet_writer(file, _SCHEMA) as writer:
        for number, part in enumerate(source.files):
            progress("reading", number, len(source.files))
            for records in _batches(_read_changes(source, part, bad, places)):
                columns = list(zip(*records, strict=True))
                arrays = [
                    *(
                        pa.array(values, field.type)
                        for values, field in zip(columns[:4], _SCHEMA, strict=False)
                    ),
                    *change_columns(columns[4]),
                    pa.array([str(part)] * len(records)),
                    *(
                        pa.array(values, kind)
                        for values, kind in zip(columns[5:], (pa.int64(), pa.string()), strict=True)
                    ),
                ]
                writer.write_table(pa.table(arrays, schema=_SCHEMA))
                rows += len(records)
                bad.count(part, len(records))
            bad.finish(part)
    if not rows:
        raise InputError(f"{source.path} has no record that could be taken{bad.first_example()}")


class _ReadChange(NamedTuple):
    topic: str
    partition: int
    offset: int
    key: str | None
    change: Change | None
    row: int
    payload: str | None


def _read_changes(source: Source, file: Path, bad: BadRows, places: Iterator[int]) -> Iterator[_ReadChange]:
    """The records of a file. Without coordinates, a table is a topic, and offsets are the order of rows."""
    preset, limit = source.preset, streaming_limit(file)
    for record in read_kafka(file, bad, preset.encoding, preset.separator, limit):
        event, coordinates = unwrap(record.value)
        if coordinates is None:
            if event is None:
                bad.add("records that are no change event, left out", f"row {record.row}", str(file))
                continue
            change = change_of(event, _table_name(event), record.value.get("key"))
            yield _ReadChange(_table_name(event), 0, next(places), None, change, record.row, record.text)
            continue
        partition, offset = (whole_number(coordinates[name]) for name in COORDINATES[1:])
        if partition is None or offset is None:
            what = "records whose partition or offset is no whole number, left out"
            bad.add(what, f"row {record.row}", str(file))
            continue
        topic, key = str(coordinates["topic"]), record.value.get("key")
        if event is not None:
            change = change_of(event, topic, key)
        else:
            change = parse_change(topic, key, _value(record))
        yield _ReadChange(topic, partition, offset, _text(key), change, record.row, record.text)


def _value(record: SourceRecord) -> Any:
    return next((record.value[name] for name in ("payload", "value") if name in record.value), None)


def _table_name(event: dict[str, Any]) -> str:
    source = event.get("source")
    if not isinstance(source, dict):
        return _MARKERS
    names = (source.get(part) for part in ("name", "db", "schema", "table", "collection"))
    return ".".join(str(name) for name in names if name is not None)


def _text(key: Any) -> str | None:
    if isinstance(key, bytes):
        return key.decode(errors="replace")
    return None if key is None else str(key)


def _batches(records: Iterable[_ReadChange]) -> Iterator[list[_ReadChange]]:
    batch: list[_ReadChange] = []
    for record in records:
        batch.append(record)
        if len(batch) >= _BATCH_ROWS:
            yield batch
            batch = []
    if batch:
        yield batch
