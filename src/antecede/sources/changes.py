"""Records of Debezium's topics as a table that `causal_order` merges: their coordinates, and their meaning as
change events."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from antecede.errors import InputError
from antecede.sources.carried import carried_type, carry
from antecede.sources.debezium import (
    COORDINATES,
    CdcEvent,
    change_of,
    parse_change,
    tables_of,
    unwrap,
    whole_number,
)
from antecede.sources.event_table import EventTable
from antecede.sources.kafka import read_kafka
from antecede.sources.read import Source
from antecede.sources.records import SourceRecord
from antecede.trace.bad_rows import BadRows
from antecede.trace.foreign.open_files import streaming_limit
from antecede.trace.times import parse_time

ID, EVENTS = "_antecede_id", "_antecede_events"
"""Columns that are left out of results."""
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
"""The fields of `Change`; `kind` is null if a record is not a change event."""
_VALUE_NAMES, _TIME_NAMES = ("payload", "value"), ("ts", "timestamp")
_BATCH_ROWS = 16_384
_MAX_NAMED = 5
_MARKERS = "transactions"
"""The topic of markers in files that do not say which topics their records are from."""
_NO_CHANGE = "records that are no change event, quarantined"

Progress = Callable[[str, int, int], None]


def parse_changes(
    topics: Sequence[str], keys: Sequence[Any], values: Sequence[Any], without: Collection[str] = ()
) -> list[pa.Array]:
    """CHANGE_COLUMNS of records in the form they have in Kafka; `without` as for `parse_change`."""
    rows = [_fields(parse_change(*record, without)) for record in zip(topics, keys, values, strict=True)]
    columns: Iterable[Sequence[Any]] = zip(*rows, strict=True) if rows else [()] * len(CHANGE_COLUMNS)
    return [pa.array(values, field.type) for values, field in zip(columns, CHANGE_COLUMNS, strict=True)]


def _fields(change: CdcEvent | None) -> tuple[Any, ...]:
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
    snapshot_of: Collection[str] = (),
) -> None:
    """Write the records of a source as Parquet: their coordinates, CHANGE_COLUMNS, and keys, headers and
    values.

    Names of tables `without` a topic, and of topics that begin with a snapshot, that no record has are
    refused.
    """
    rows, places, topics = 0, count(), set[str]()
    schema = _schema(source.files)
    bad.reads(source.files)
    named: set[str] = set()
    with EventTable(file, schema, bad, source.file_names) as events:
        for number, part in enumerate(source.files):
            progress("reading", number, len(source.files))
            limit = streaming_limit(part) if max_bytes is None else max_bytes
            bad_before = bad.rows_not_taken
            records = _read_changes(source, part, bad, places, limit, without, schema, named)
            while batch := list(islice(records, _BATCH_ROWS)):
                topics.update(row[0] for row in batch)
                columns = zip(zip(*batch, strict=True), schema, strict=True)
                arrays = [pa.array(values, field.type) for values, field in columns]
                events.write(pa.table(arrays, schema=schema))
                rows += len(batch)
                bad.count(part, len(batch))
            bad.count(part, bad.rows_not_taken - bad_before)
            bad.finish(part)
    if not rows:
        raise InputError(f"{source.path} has no record that could be taken{bad.first_example()}")
    for table in without:
        if table not in named:
            known = f"they name {', '.join(sorted(named)[:_MAX_NAMED])}" if named else "they name none"
            raise InputError(f"--without: no transaction in {source.name} names a table {table}; {known}")
    for topic in snapshot_of:
        if topic not in topics:
            known = ", ".join(sorted(topics)[:_MAX_NAMED])
            raise InputError(f"--snapshot-of: {source.name} has no topic {topic}; it has {known}")


def _schema(files: Sequence[Path]) -> pa.Schema:
    """The columns of a table of changes; keys, headers and values have the types of the files."""
    fields = [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("time", pa.int64())]
    fields += [(name, carried_type(files, [(name,)])) for name in ("key", "headers")]
    fields += [*CHANGE_COLUMNS, ("file", pa.string()), ("row", pa.int64())]
    return pa.schema([*fields, ("payload", carried_type(files, [(name,) for name in _VALUE_NAMES]))])


def _read_changes(
    source: Source,
    file: Path,
    bad: BadRows,
    places: Iterator[int],
    max_bytes: int,
    without: Collection[str],
    schema: pa.Schema,
    named: set[str],
) -> Iterator[tuple[Any, ...]]:
    """The records of a file as rows of the schema; the tables that END markers name are added to `named`.

    Where records have no coordinates, a table counts as a topic, and the order of files and rows as the order
    of offsets. The time is Kafka's, and the carried value is that of the Kafka record; without Kafka it is
    the record itself.
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
                bad.add(what, f"row {record.row}", str(file), text=_record_bytes(record))
                continue
        elif event is not None:
            topic, partition, offset = _table_name(event), 0, next(places)
        else:
            what = "records that are no change event, left out"
            bad.add(what, f"row {record.row}", str(file), text=_record_bytes(record))
            continue
        if event is None:
            change = parse_change(topic, key, _value(record))
        else:
            change = change_of(event, topic, key, without)
            named.update(tables_of(event))
        if change is None:
            bad.add(_NO_CHANGE, f"row {record.row}", str(file), left_out=False)
        key, headers = (
            carry(getattr(record, name), schema.field(name).type, record.text, (name,))
            for name in ("key", "headers")
        )
        if coordinates is not None or record.text is None:
            payload, path = _value(record), _value_path(record)
        else:
            payload, path = record.text, ()
        payload = carry(payload, schema.field("payload").type, record.text, path)
        place = (topic, partition, offset, _time(record), key, headers)
        yield *place, *_fields(change), source.name_of(file), record.row, payload


def _record_bytes(record: SourceRecord) -> bytes:
    return msgspec.json.encode(record.value) if record.text is None else record.text.encode()


def _value_path(record: SourceRecord) -> tuple[str, ...]:
    return tuple(name for name in _VALUE_NAMES if name in record.value)[:1]


def _value(record: SourceRecord) -> Any:
    path = _value_path(record)
    return record.value[path[0]] if path else None


def _time(record: SourceRecord) -> int | None:
    """Kafka's time of a record: milliseconds, or ISO 8601."""
    found = next((record.value[name] for name in _TIME_NAMES if record.value.get(name) is not None), None)
    return None if found is None else parse_time(found, "ms")


def _table_name(event: dict[str, Any]) -> str:
    """The topic of a table as most connectors name it, and the preset `debezium` its process."""
    if "op" not in event:
        return _MARKERS
    source = event["source"]
    parts = ("name", "db" if source.get("schema") is None else "schema", "table", "collection")
    return ".".join(str(source[part]) for part in parts if source.get(part) is not None)
