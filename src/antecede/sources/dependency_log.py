"""Dependency logs: the id, process and causes of each record of a source.

Unlike a trace, such a log has no deliveries. It is a stream of Arrow tables of `SCHEMA`, in the order of the
files and of the rows in them; memory is that of a batch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
import pyarrow as pa

from antecede.sources.carried import carry
from antecede.sources.fields import MISSING, Template, find
from antecede.sources.preset import Preset
from antecede.sources.records import SourceRecord
from antecede.trace.bad_rows import BadRows, brief
from antecede.trace.times import parse_time

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
    ]
)
"""`seq` is the position in the process's own order, `time` its clock in nanoseconds; both may be null."""
CARRIED = ("key", "headers", "payload")
"""Additional columns of a log whose records are to be ordered; only Kafka records have the first two."""
BATCH_ROWS = 16_384
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")


class Extractor:
    """Takes the fields of a preset out of records."""

    def __init__(
        self, preset: Preset, bad: BadRows, carried: Mapping[str, pa.DataType] | None = None
    ) -> None:
        """`carried`: the types of the CARRIED columns that are wanted."""
        self._preset, self._bad, self._carried = preset, bad, carried or {}
        columns = [(name, self._carried[name]) for name in CARRIED if name in self._carried]
        self.schema = pa.schema([*SCHEMA, *(pa.field(*column) for column in columns)])
        names = ("id", "process", "seq", "causes", "time", "kind", "payload")
        self._templates = {
            name: [
                Template(text, preset.no_cause if name == "causes" else ()) for text in getattr(preset, name)
            ]
            for name in names
        }
        self._unit = preset.time_unit

    def batches(self, records: Iterable[SourceRecord], file: str) -> Iterator[pa.Table]:
        """The records of a file as tables."""
        rows: list[tuple[Any, ...]] = []
        for record in records:
            row = self._row(record, file)
            if row is not None:
                rows.append(row)
                if len(rows) >= BATCH_ROWS:
                    yield self._table(rows, file)
                    rows = []
        if rows:
            yield self._table(rows, file)

    def _row(self, record: SourceRecord, file: str) -> tuple[Any, ...] | None:
        value = record.value
        name = self._first("id", value)
        process = self._first("process", value)
        if name is None or process is None:
            field = "id" if name is None else "process"
            wanted = " or ".join(getattr(self._preset, field))
            names = brief(", ".join(value) or "no field")
            what = f"records without {wanted}, left out"
            text = msgspec.json.encode(value) if record.text is None else record.text.encode()
            why = " has ".join([f"{self._preset.record_name} {record.row}", names])
            if any(template.path and find(value, template.path) == "" for template in self._templates[field]):
                why = f"{self._preset.record_name} {record.row}: its {field} is empty"
            self._bad.add(what, why, file, text=text)
            return None
        causes = dict.fromkeys(
            cause
            for template in self._templates["causes"]
            for cause in template.values(value)
            if not cause.isspace()
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
            *(self._carry(name, record) for name in self.schema.names[len(SCHEMA) :]),
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
            self._bad.add(what, f"{self._preset.record_name} {row}: {text}", file, left_out=False)
            return None
        return number

    def _nanoseconds(self, text: str, row: int, file: str) -> int | None:
        time = parse_time(text, self._unit)
        if time is None:
            what = "times that cannot be read, ignored"
            self._bad.add(what, f"{self._preset.record_name} {row}: {text}", file, left_out=False)
        return time

    def _carry(self, name: str, record: SourceRecord) -> Any:
        """A carried value, as it is in the file."""
        kind = self._carried[name]
        if name != "payload":
            return carry(getattr(record, name), kind, record.text, (name,))
        for template in self._templates["payload"]:
            if template.path is None:
                value = next(iter(template.values(record.value)), None)
            elif (value := find(record.value, template.path)) is MISSING:
                continue
            if value is not None:
                return carry(value, kind, record.text, template.path or ())
        if self._preset.payload or (record.text is None and self._preset.reader == "git"):
            return None  # The message of a commit may not be text.
        return carry(record.value if record.text is None else record.text, kind, None, ())

    def _table(self, rows: list[tuple[Any, ...]], file: str) -> pa.Table:
        columns = list(zip(*rows, strict=True))
        files = pa.DictionaryArray.from_arrays(pa.array([0] * len(rows), pa.int32()), pa.array([file]))
        names = [name for name in self.schema.names if name != "file"]
        arrays = [
            pa.array(values, self.schema.field(name).type)
            for name, values in zip(names, columns, strict=True)
        ]
        arrays.insert(self.schema.get_field_index("file"), files)
        return pa.table(arrays, schema=self.schema)
