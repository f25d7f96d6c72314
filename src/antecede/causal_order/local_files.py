"""Files of events as one Arrow table: text by `text_files`, Parquet with its own types."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from antecede.causal_order.columns import refuse_place
from antecede.causal_order.event_files import EventFiles
from antecede.causal_order.request import NeedsSparkError, OrderRequest
from antecede.causal_order.rules import PLACE, ROW_BITS
from antecede.causal_order.text_files import FilePart, folder_values, plan_text
from antecede.errors import InputError
from antecede.trace.bad_rows import BadRows
from antecede.trace.parquet_files import parquet_file
from antecede.trace.reader import TEXT_ROW_BYTES, count_by_footers

_COPIES = 4
"""Copies of the rows in memory: as read, sorted, in causal order, and temporary ones that Arrow makes."""
_DECISION_BYTES = 200
"""Bytes of memory for deciding about a row: its id, its causes and its place, without the row itself."""
_MERGE_BYTES = 800
"""The same when topics are merged: also for a record's position in its partition and in its transaction."""


def read_local(events: EventFiles, request: OrderRequest, bad: BadRows) -> pa.Table:
    """The rows of the files with PLACE; `bad` counts those of each."""
    if events.format == "parquet":
        count_by_footers(events.files, bad)
        return _read_parquet(events)
    plan = plan_text(events.folder, events.format, events.files, request.types, request.columns, request.csv)
    batches = []
    for number, file in enumerate(events.files):
        for batch in plan.read(FilePart(str(file)), number << ROW_BITS):
            bad.count(file, batch.num_rows)
            batches.append(batch)
        bad.finish(file)
    return pa.Table.from_batches(batches, plan.schema().append(pa.field(PLACE, pa.int64())))


def estimate_rows(events: EventFiles) -> int:
    """The number of rows: exact for Parquet, estimated from file sizes for text."""
    if events.format == "parquet":
        return sum(_open_parquet(file).metadata.num_rows for file in events.files)
    return sum(file.stat().st_size for file in events.files) // TEXT_ROW_BYTES


def local_bytes(events: EventFiles, merges: bool = False) -> int:
    """An upper bound on the memory it takes to order the files in this process."""
    size = sum(file.stat().st_size for file in events.files)
    if events.format == "parquet":
        footers = [_open_parquet(file).metadata for file in events.files]
        groups = [footer.row_group(at) for footer in footers for at in range(footer.num_row_groups)]
        size = max(size, sum(group.total_byte_size for group in groups))
    return _COPIES * size + (_MERGE_BYTES if merges else _DECISION_BYTES) * estimate_rows(events)


def _read_parquet(events: EventFiles) -> pa.Table:
    tables = [_read_parquet_file(file, events.folder) for file in events.files]
    if any(table.schema != tables[0].schema for table in tables):
        raise NeedsSparkError(f"the files in {events.path} have different columns")
    refuse_place(tables[0].column_names)
    table = pa.concat_tables(
        each.append_column(PLACE, pa.array(np.arange(1, each.num_rows + 1) + (number << ROW_BITS)))
        for number, each in enumerate(tables)
    )
    if len({name.lower() for name in table.column_names}) < table.num_columns:
        raise NeedsSparkError(f"{events.path} has columns with the same name")
    return table


def _read_parquet_file(file: Path, folder: Path) -> pa.Table:
    try:
        table = _open_parquet(file).read().replace_schema_metadata()
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file} is a damaged Parquet file: {error}") from error
    for at, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(at, field.name, table.column(at).cast(field.type.value_type))
    for name, value in folder_values(file.relative_to(folder)).items():
        table = table.append_column(name, pa.array([value] * table.num_rows, pa.string()))
    return table


def _open_parquet(file: Path) -> pq.ParquetFile:
    try:
        return parquet_file(file)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file} cannot be read as Parquet: {error}") from error
