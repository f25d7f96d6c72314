"""Change events of Debezium with the markers of its transaction topic: one a line, with or without their
schema, or within a dump of Kafka.

A record is an envelope (`before`, `after`, `source`, `op`) or a marker (`status` BEGIN or END). It gets

- `transaction.id` without the position that PostgreSQL's connector appends to it, which differs from event to
  event;
- `causes`: of the n-th event of a transaction its (n-1)-th; of an END marker every event that it counts, so
  that one that is not there is a missing cause;
- `position` in the log of the database (PostgreSQL, MySQL, MariaDB, Oracle), and `kind`, which says whether a
  row is from a snapshot;
- `snapshot_row`, of a row from a snapshot: its content in short, since all rows of a snapshot have one
  position;
- `kafka`: topic, partition and offset, if they are there.

Tombstones, which follow deletions, have no value: they are counted, and left out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from antecede.sources.kafka import decode_body, read_kafka
from antecede.sources.records import SourceRecord
from antecede.trace.bad_rows import BadRows

_OPERATIONS = {"c": "create", "u": "update", "d": "delete", "r": "read", "t": "truncate", "m": "message"}
_POSTGRES_ID = re.compile(r"(\d+):(\d{1,18})")
_BINLOG = re.compile(r".*\.(\d{1,9})")
_MAX_EVENTS = 1 << 20
"""The most events of a transaction whose END marker is believed."""
COORDINATES = ("topic", "partition", "offset")
TOMBSTONE, BEGIN, END = "tombstone", "BEGIN", "END"
_STREAMING = ("false", "none", "")
"""Values of `source.snapshot` in rows that do not come from a snapshot."""


class CdcEvent(NamedTuple):
    """The facts about a record that a merge of topics needs."""

    kind: str
    """create, update, delete, snapshot and so on; tombstone; BEGIN or END of a transaction."""
    id: str | None
    """An id that repeated copies of a record share when a connector writes it again; None if the record has
    none."""
    transaction: str | None = None
    order: int | None = None
    """`total_order`: the position in the transaction, from 1."""
    events: int | None = None
    """For an END: the number of events of the transaction."""
    position: int | None = None
    """The position in the database's log; the position of the commit where the connector states it, as
    PostgreSQL's does in the END and Oracle's in each event."""
    snapshot: str | None = None
    """`source.snapshot`, if the row is from one: first, true, last_in_data_collection, incremental …"""


def parse_change(topic: str, key: Any, value: Any, without: Collection[str] = ()) -> CdcEvent | None:
    """What a record of a topic is, by its key and value as they are in Kafka; None if it is no change event.

    An END does not count the events of the tables `without`, by their names in `data_collections`.

    >>> parse_change("transaction", None, '{"status": "END", "id": "571:2003", "event_count": 3}')
    CdcEvent(kind='END', id='571:END', transaction='571', order=None, events=3, position=2003, snapshot=None)
    """
    if not value:
        return CdcEvent(TOMBSTONE, None)
    event, _ = unwrap(decode_body(value) or {})
    return None if event is None else change_of(event, topic, key, without)


def change_of(event: dict[str, Any], topic: str, key: Any, without: Collection[str] = ()) -> CdcEvent | None:
    """The same for an envelope or marker that `unwrap` has found."""
    if "op" not in event:
        return _change_of_marker(event, without)
    source, transaction = event["source"], event.get("transaction")
    flag = str(source.get("snapshot", "false")).lower()
    snapshot = flag if flag not in _STREAMING else "true" if event["op"] == "r" else None
    kind = "snapshot" if snapshot else _OPERATIONS.get(event["op"], event["op"])
    commit = whole_number(source.get("commit_scn"))
    position = _position(source) if commit is None else commit
    if transaction is None:
        return CdcEvent(kind, _digest(event, topic, key), position=position, snapshot=snapshot)
    if not isinstance(transaction, dict) or transaction.get("id") is None:
        return None
    name, order = transaction_id(transaction["id"]), whole_number(transaction.get("total_order"))
    if order is None or order < 1:
        return None
    return CdcEvent(kind, f"{name}:{order}", name, order, None, position, snapshot)


def tables_of(event: dict[str, Any]) -> list[str]:
    """The tables that a marker of a transaction's end names."""
    tables = event.get("data_collections")
    listed = tables if isinstance(tables, list) and event.get("status") == END else []
    return [
        str(table["data_collection"])
        for table in listed
        if isinstance(table, dict) and "data_collection" in table
    ]


def _change_of_marker(event: dict[str, Any], without: Collection[str]) -> CdcEvent | None:
    name, status = transaction_id(event["id"]), event["status"]
    count = None
    if status == END:
        count = whole_number(event.get("event_count"))
        if count is None or not 0 <= count <= _MAX_EVENTS:
            return None
        tables = event.get("data_collections")
        for table in tables if without and isinstance(tables, list) else ():
            if isinstance(table, dict) and table.get("data_collection") in without:
                count -= whole_number(table.get("event_count")) or 0
    found = _POSTGRES_ID.fullmatch(str(event["id"]))
    commit = int(found[2]) if found and status == END else None
    return CdcEvent(status, f"{name}:{status}", name, None, count, commit)


def _digest(event: dict[str, Any], topic: str, key: Any) -> str | None:
    """Distinguishes rows outside transactions, by everything that stays the same when a connector writes them
    again. Rows without a key may be equal and yet distinct, so they have no digest."""
    if key is None:
        return None
    source = {name: value for name, value in event["source"].items() if name != "snapshot"}
    key = key if isinstance(key, bytes) else msgspec.json.encode(key)
    content = msgspec.json.encode([topic, event["op"], source, event.get("before"), event.get("after")])
    return blake2b(key + b"\0" + content, digest_size=12).hexdigest()


def read_debezium(
    path: Path, bad: BadRows, encoding: str = "", separator: str = "", max_bytes: int | None = None
) -> Iterator[SourceRecord]:
    """The change events and transaction markers of a file."""
    for record in read_kafka(path, bad, encoding, separator, max_bytes):
        event, coordinates = unwrap(record.value)
        if event is None:
            if coordinates is not None and not _carried(record.value):
                bad.leave_out("tombstones, which have no value", 1, f"{path.name}, row {record.row}")
            else:
                example = f"row {record.row}: it has neither op and source nor status and id"
                bad.add("records that are no change event, left out", example, str(path))
            continue
        why = _complete(event)
        if why:
            bad.add("change events that cannot be read, left out", f"row {record.row}: {why}", str(path))
            continue
        if coordinates is not None:
            event["kafka"] = coordinates
        yield SourceRecord(record.row, event, record.text)


def _carried(record: dict[str, Any]) -> Any:
    """The value of a Kafka record as it is in the file; None if it is a tombstone."""
    return next((record[name] for name in ("payload", "value") if name in record), record.get("body"))


def unwrap(value: dict[str, Any]) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The envelope or marker in a record, and its coordinates in Kafka; None where there is none."""
    coordinates = None
    if all(name in value for name in COORDINATES):
        coordinates = {name: value[name] for name in COORDINATES}
        value = value.get("body") or {}
    inner = value.get("payload")
    if "op" not in value and "status" not in value and inner is not None:
        value = decode_body(inner) or {}
    is_event = isinstance(value.get("op"), str) and isinstance(value.get("source"), dict)
    is_marker = value.get("status") in ("BEGIN", "END") and "id" in value
    return (value if is_event or is_marker else None), coordinates


def _complete(event: dict[str, Any]) -> str | None:
    """Add the fields that the event implies, or return why that is not possible."""
    if "status" in event and "op" not in event:
        return _complete_marker(event)
    source = event["source"]
    snapshot = str(source.get("snapshot", "false")).lower() not in _STREAMING
    kind = _OPERATIONS.get(event["op"], event["op"])
    event["kind"] = "snapshot" if snapshot or event["op"] == "r" else kind
    event["position"] = _position(source)
    if event["kind"] == "snapshot":
        content = msgspec.json.encode([source.get("schema"), _position(source), event.get("after")])
        event["snapshot_row"] = blake2b(content, digest_size=12).hexdigest()
    transaction = event.get("transaction")
    event["causes"] = []
    if transaction is None:
        return None
    if not isinstance(transaction, dict):
        return "its transaction is no object"
    order = whole_number(transaction.get("total_order"))
    if order is None or transaction.get("id") is None:
        return "its transaction has no id or no total_order"
    name = transaction_id(transaction["id"])
    event["transaction"] = transaction | {"id": name, "total_order": order}
    event["causes"] = [f"{name}:{order - 1}"] if order > 1 else []
    return None


def _complete_marker(event: dict[str, Any]) -> str | None:
    name, status = transaction_id(event["id"]), event["status"]
    event["kind"] = f"{status} of a transaction"
    event["transaction"] = {"id": name, "total_order": status}
    event["source"] = {}
    event["causes"] = []
    if status == "END":
        count = whole_number(event.get("event_count"))
        if count is None or not 0 <= count <= _MAX_EVENTS:
            return f"its event_count is no number up to {_MAX_EVENTS:,}"
        event["causes"] = [f"{name}:{order}" for order in range(1, count + 1)]
    return None


def transaction_id(value: Any) -> str:
    """The id of a transaction without PostgreSQL's position.

    >>> transaction_id("571:53195832"), transaction_id("00000025:00000d08:0025"), transaction_id(571)
    ('571', '00000025:00000d08:0025', '571')
    """
    text = str(value)
    found = _POSTGRES_ID.fullmatch(text)
    return found[1] if found else text


def _position(source: dict[str, Any]) -> int | None:
    """The position in the database's log: an LSN, an SCN, or the number of a binlog and the position in
    it."""
    for name in ("lsn", "scn"):
        if (number := whole_number(source.get(name))) is not None:
            return number
    file, place = source.get("file"), whole_number(source.get("pos"))
    found = _BINLOG.fullmatch(file) if isinstance(file, str) else None
    if found is None or place is None or not 0 <= place < 1 << 32:
        return None
    return (int(found[1]) << 32) + place


def whole_number(value: Any) -> int | None:
    """An integer, possibly given as text; None if it is not a 64-bit integer."""
    if isinstance(value, str) and re.fullmatch(r"\d{1,18}", value):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63 else None
