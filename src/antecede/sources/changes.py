"""Records of Debezium's topics as a table that `causal_order` merges: where each is, and what it is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from antecede.errors import InputError
from antecede.sources.debezium import COORDINATES, Change, change_of, parse_change, unwrap, whole_number
from antecede.sources.kafka import read_kafka
from antecede.sources.read import Source
from antecede.sources.records import SourceRecord
from antecede.trace.bad_rows import BadRows
from antecede.trace.foreign.open_files import streaming_limit
from antecede.trace.parquet_files import parquet_writer

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
_MARKERS = "transaction"
"""The topic of markers in files that do not say which topics their records are from."""
_NO_CHANGE = "records that are no change event, quarantined"

Progress = Callable[[str, int, int], None]


def parse_changes(
    topics: Sequence[str], keys: Sequence[Any], values: Sequence[Any], without: Collection[str] = ()
) -> list[pa.Array]:
    """CHANGE_COLUMNS of records as they are in Kafka; `without` as for `parse_change`."""
    rows = [_fields(parse_change(*record, without)) for record in zip(topics, keys, values, strict=True)]
    columns: Iterable[Sequence[Any]] = zip(*rows, strict=True) if rows else [()] * len(CHANGE_COLUMNS)
    return [pa.array(values, field.type) for values, field in zip(columns, CHANGE_COLUMNS, strict=True)]


def _fields(change: Change | None) -> tuple[Any, ...]:
    if change is None:
        return (None,) * len(CHANGE_COLUMNS)
    kind, name, transaction, order, events, position, snapshot = change
    return kind, transaction, order, position, snapshot, name, events


def write_change_table(
    source: Source,
    file: Path,
    bad: BadRows,
    progress: Progress = lambda *_: None,
    max_bytes: int | None = None,
    without: Collection[str] = (),
) -> None:
    """Write the records of a source as Parquet: their coordinates, CHANGE_COLUMNS, and what they carry."""
    rows, places = 0, count()
    bad.reads(source.files)
    with parquet_writer(file, _SCHEMA) as writer:
        for number, part in enumerate(source.files):
            progress("reading", number, len(source.files))
            limit = streaming_limit(part) if max_bytes is None else max_bytes
            records = _read_changes(source, part, bad, places, limit, without)
            while batch := list(islice(records, _BATCH_ROWS)):
                columns = zip(zip(*batch, strict=True), _SCHEMA, strict=True)
                arrays = [pa.array(values, field.type) for values, field in columns]
                writer.write_table(pa.table(arrays, schema=_SCHEMA))
                rows += len(batch)
                bad.count(part, len(batch))
            bad.finish(part)
    if not rows:
        raise InputError(f"{source.path} has no record that could be taken{bad.first_example()}")


def _read_changes(
    source: Source, file: Path, bad: BadRows, places: Iterator[int], max_bytes: int, without: Collection[str]
) -> Iterator[tuple[Any, ...]]:
    """The records of a file as rows of _SCHEMA.

    Where they have no coordinates, a table is a topic, and the order of the files and rows that of offsets.
    """
    preset = source.preset
    for record in read_kafka(file, bad, preset.encoding, preset.separator, max_bytes):
        event, coordinates = unwrap(record.value)
        key = record.value.get("key")
        if coordinates is not None:
            topic = str(coordinates["topic"])
            partition, offset = (whole_number(coordinates[name]) for name in COORDINATES[1:])
            if partition is None or not 0 <= partition < 1 << 31 or offset is None or offset < 0:
                what = "records whose partition or offset is no such number, left out"
                bad.add(what, f"row {record.row}", str(file))
                continue
        elif event is not None:
            topic, partition, offset = _table_name(event), 0, next(places)
        else:
            bad.add("records that are no change event, left out", f"row {record.row}", str(file))
            continue
        if event is None:
            change = parse_change(topic, key, _value(record))
        else:
            change = change_of(event, topic, key, without)
        if change is None:
            bad.add(_NO_CHANGE, f"row {record.row}", str(file), left_out=False)
        yield topic, partition, offset, _text(key), *_fields(change), str(file), record.row, _payload(record)


def _value(record: SourceRecord) -> Any:
    return next((record.value[name] for name in ("payload", "value") if name in record.value), None)


def _payload(record: SourceRecord) -> str | None:
    return _text(_value(record)) if record.text is None else record.text


def _table_name(event: dict[str, Any]) -> str:
    if "op" not in event:
        return _MARKERS
    names = (event["source"].get(part) for part in ("name", "db", "schema", "table", "collection"))
    return ".".join(str(name) for name in names if name is not None)


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return None if value is None else str(value)
