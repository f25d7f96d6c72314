"""Dependency logs: what each record of a source is, of whom, and which records caused it.

Unlike a trace, such a log has no deliveries. It is a stream of Arrow tables of `SCHEMA`, in the order of the
files and of the rows in them; memory is that of a batch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa

from antecede.sources.fields import Template
from antecede.sources.preset import TIME_UNITS, Preset
from antecede.sources.records import SourceRecord
from antecede.trace.bad_rows import BadRows, brief

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("process", pa.string()),
        ("seq", pa.int64()),
        ("causes", pa.list_(pa.string())),
        ("time", pa.int64()),
        ("kind", pa.string()),
        ("file", pa.dictionary(pa.int32(), pa.string())),
        ("row", pa.int64()),
        ("payload", pa.string()),
    ]
)
"""`seq` is the place in the process's own order, `time` nanoseconds of its clock; both may be null."""
BATCH_ROWS = 16_384
_INTEGER = re.compile(r"[+-]?\d{1,40}")
_DECIMAL = re.compile(r"[+-]?\d{1,20}(?:\.\d*)?(?:[eE][+-]?\d{1,2})?")
_FRACTION = re.compile(r"\.(\d+)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Extractor:
    """Takes the fields of a preset out of records."""

    def __init__(self, preset: Preset, bad: BadRows, with_payload: bool = False) -> None:
        self._preset, self._bad, self._with_payload = preset, bad, with_payload
        names = ("id", "process", "seq", "causes", "time", "kind", "payload")
        self._templates = {
            name: [
                Template(text, preset.no_cause if name == "causes" else ()) for text in getattr(preset, name)
            ]
            for name in names
        }
        self._unit = TIME_UNITS[preset.time_unit]

    def batches(self, records: Iterable[SourceRecord], file: str) -> Iterator[pa.Table]:
        """The records of a file as tables."""
        rows: list[tuple[Any, ...]] = []
        for record in records:
            row = self._row(record, file)
            if row is not None:
                rows.append(row)
                if len(rows) >= BATCH_ROWS:
                    yield _table(rows, file)
                    rows = []
        if rows:
            yield _table(rows, file)

    def _row(self, record: SourceRecord, file: str) -> tuple[Any, ...] | None:
        value = record.value
        name = self._first("id", value)
        process = self._first("process", value)
        if name is None or process is None:
            field = "id" if name is None else "process"
            wanted = " or ".join(getattr(self._preset, field))
            names = brief(", ".join(value) or "no field")
            self._bad.add(f"records without {wanted}, left out", f"row {record.row} has {names}", file)
            return None
        causes = dict.fromkeys(
            cause for template in self._templates["causes"] for cause in template.values(value)
        )
        seq, time = self._first("seq", value), self._first("time", value)
        return (
            name,
            process,
            None if seq is None else self._integer(seq, record.row, file),
            list(causes),
            None if time is None else self._nanoseconds(time, record.row, file),
            self._first("kind", value),
            record.row,
            self._payload(record) if self._with_payload else None,
        )

    def _first(self, field: str, value: dict[str, Any]) -> str | None:
        for template in self._templates[field]:
            if found := template.values(value):
                return found[0]
        return None

    def _integer(self, text: str, row: int, file: str) -> int | None:
        number = int(text) if _INTEGER.fullmatch(text) else None
        if number is None or not -(2**63) <= number < 2**63:
            what = "sequence numbers that are no whole number, ignored"
            self._bad.add(what, f"row {row}: {text}", file, left_out=False)
            return None
        return number

    def _nanoseconds(self, text: str, row: int, file: str) -> int | None:
        time = parse_time(text, self._unit)
        if time is None:
            what = "times that cannot be read, ignored"
            self._bad.add(what, f"row {row}: {text}", file, left_out=False)
        return time

    def _payload(self, record: SourceRecord) -> str | None:
        if self._preset.payload:
            return self._first("payload", record.value)
        if record.text is not None:
            return record.text
        return msgspec.json.encode(record.value).decode()


def parse_time(text: str, unit: int) -> int | None:
    """Nanoseconds since 1970: of a number in units of so many, or of a date in ISO 8601; None if neither.

    >>> parse_time("1700000000123", 1_000_000), parse_time("1970-01-01T00:00:00.000000001Z", 1)
    (1700000000123000000, 1)
    """
    if _INTEGER.fullmatch(text):
        time = int(text) * unit
    elif _DECIMAL.fullmatch(text):
        time = round(float(text) * unit)
    else:
        found = _FRACTION.search(text)
        digits = found[1] if found else ""
        try:
            # Python's own dates have microseconds.
            whole = datetime.fromisoformat(_FRACTION.sub("", text, count=1))
        except ValueError:
            return None
        if whole.tzinfo is None:
            whole = whole.replace(tzinfo=UTC)
        since = whole - _EPOCH
        time = (since.days * 86_400 + since.seconds) * 10**9 + int(digits[:9].ljust(9, "0"))
    return time if -(2**63) <= time < 2**63 else None


def _table(rows: list[tuple[Any, ...]], file: str) -> pa.Table:
    columns = list(zip(*rows, strict=True))
    files = pa.DictionaryArray.from_arrays(pa.array([0] * len(rows), pa.int32()), pa.array([file]))
    arrays = [
        pa.array(values, SCHEMA.field(name).type)
        for name, values in zip(
            ("id", "process", "seq", "causes", "time", "kind", "row", "payload"), columns, strict=True
        )
    ]
    return pa.table([*arrays[:6], files, *arrays[6:]], schema=SCHEMA)
