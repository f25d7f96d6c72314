"""Files of events into causal order in this process: the same rows in the same order as on Spark.

The table is read whole (`local_files`), sorted by group and preference, ordered by `batch`, and written as
Parquet. Where it might read a file differently from Spark, it raises `NeedsSparkError` before writing
anything. Cost: memory for the rows and a copy of them; a hundred thousand rows take a second or two.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antecede.causal_order.batch import decide_table, order_decided
from antecede.causal_order.columns import ADDED, ColumnPlan, plan_columns
from antecede.causal_order.dependency_edges import FAULTS
from antecede.causal_order.event_files import EventFiles
from antecede.causal_order.local_columns import derive, refuse_unreadable, spark_types
from antecede.causal_order.local_files import read_local
from antecede.causal_order.merge_rows import merge_table
from antecede.causal_order.missing_causes import MissingIds, count_missing, summarise_missing
from antecede.causal_order.request import (
    MAX_EXAMPLES,
    MAX_UNREADABLE,
    NOT_ORDERED,
    OUTCOME,
    STATUSES,
    Example,
    OrderRequest,
    OrderResult,
    Progress,
)
from antecede.causal_order.row_digest import digest_rows
from antecede.causal_order.rules import DIGEST, PLACE, ROW_BITS, OnMissing, RowCounts
from antecede.causal_order.text_files import bad_rows
from antecede.errors import InputError
from antecede.sources.changes import EVENTS, ID
from antecede.trace.bad_rows import UNREADABLE, UNREADABLE_ROW, BadRows
from antecede.trace.parquet_files import parquet_writer

_ROW_GROUP = 65_536
_MAX_TEXT_BYTES = 1 << 30

MissingTable = Callable[[], pa.Table]


def order_locally(
    events: EventFiles, out: Path, request: OrderRequest, progress: Progress, bad: BadRows
) -> OrderResult:
    """Order the existing files, into Parquet below `out`, partitioned by outcome."""
    progress("reading", 0, 0)
    table = _with_long_offsets(read_local(events, request, bad))
    if not table.num_rows:
        raise InputError(f"{events.path} holds no events: it has no rows")
    order = _merge if request.merges else _order_by_causes
    ordered, causes = order(table, request, progress)
    ordered, unreadable = _with_reasons(_with_places_in_reasons(ordered, events))
    counts = RowCounts(
        rows=table.num_rows,
        **{status: pc.sum(pc.equal(ordered.column("status"), status)).as_py() or 0 for status in STATUSES},
    )
    counts.duplicates = counts.rows - sum(getattr(counts, status) for status in STATUSES)
    by_outcome = _split_by_outcome(ordered)
    _write(by_outcome, out)
    examples = [
        example
        for status in NOT_ORDERED
        if status in by_outcome
        for example in _examples(by_outcome[status], status, request)
    ]
    missing = summarise_missing(causes()) if counts.held else MissingIds()
    groups = _count_groups(ordered, request.columns["group"])
    places = sorted(unreadable)[:MAX_UNREADABLE]
    return OrderResult(counts, examples, "local", len(unreadable), places, False, groups, missing)


def _count_groups(ordered: pa.Table, group: str | None) -> int:
    """The number of groups; a row that could not be read belongs to none."""
    if group is None:
        return 1
    of_none = pc.and_(ordered.column(group).is_null(), pc.equal(ordered.column("status"), "quarantined"))
    groups: int = pc.count_distinct(ordered.filter(pc.invert(of_none)).column(group), "all").as_py()
    return groups


def _merge(table: pa.Table, request: OrderRequest, progress: Progress) -> tuple[pa.Table, MissingTable]:
    """The merged records of topics, and a function that counts the missing ones."""
    progress("merging", 0, 0)
    merged = merge_table(table, request.merge)
    return _take(table.drop_columns([ID, EVENTS]), merged.rows, merged.added), lambda: merged.missing


def _order_by_causes(
    table: pa.Table, request: OrderRequest, progress: Progress
) -> tuple[pa.Table, MissingTable]:
    """The rows in causal order, and a function that counts the missing causes."""
    roles, places = request.columns, table.column(PLACE)
    table = table.drop_columns([PLACE])
    types = {name: kind for name, kind in spark_types(table).items() if name != UNREADABLE}
    plan = plan_columns(types, roles, [*ADDED, OUTCOME], request.split)
    own = table.column_names
    digests = digest_rows(table, roles)
    for name, derived in plan.derived.items():
        table = table.append_column(name, derive(table, derived))
    if request.strict:
        progress("checking", 0, 0)
        _refuse_bad_rows(table)
        shown = [name for name in own if name not in (UNREADABLE, UNREADABLE_ROW)]
        refuse_unreadable(table, shown, plan.columns, roles)
    progress("ordering", 0, 0)
    table = _sort(table.append_column(DIGEST, digests).append_column(PLACE, places), plan)
    decided = decide_table(table, plan.columns, OnMissing(request.on_missing))
    return _take(table.select([*own, PLACE]), *order_decided(decided)), lambda: count_missing(decided)


def _with_long_offsets(table: pa.Table, max_bytes: int = _MAX_TEXT_BYTES) -> pa.Table:
    """Text too long for 32-bit offsets gets 64-bit ones in memory; the written files do not."""
    longer = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
    for at, field in enumerate(table.schema):
        if field.type in longer and table.column(at).nbytes > max_bytes:
            table = table.set_column(at, field.name, table.column(at).cast(longer[field.type]))
    return table


def _file_schema(schema: pa.Schema) -> pa.Schema:
    shorter = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    return pa.schema([field.with_type(shorter.get(field.type, field.type)) for field in schema])


def _refuse_bad_rows(table: pa.Table) -> None:
    """Refuse a table with rows that could not be read."""
    if UNREADABLE in table.column_names:
        bad = table.column(UNREADABLE).drop_null()
        if len(bad):
            raise bad_rows(len(bad), pc.min(bad).as_py())


def _with_places_in_reasons(ordered: pa.Table, events: EventFiles) -> pa.Table:
    """Rows that are themselves faulty have their file and row in the reason."""
    has_fault = pc.is_in(ordered.column("reason"), pa.array(FAULTS[1:])).to_numpy()
    reasons = ordered.column("reason").to_numpy(zero_copy_only=False).copy()
    places = ordered.column(PLACE).to_numpy()
    for row in np.flatnonzero(has_fault):
        file, number = divmod(int(places[row]), 1 << ROW_BITS)
        reasons[row] = f"{events.files[file].relative_to(events.folder)}, row {number}: {reasons[row]}"
    ordered = ordered.set_column(
        ordered.column_names.index("reason"), "reason", pa.array(reasons, pa.string())
    )
    return ordered.drop_columns([PLACE])


def _with_reasons(ordered: pa.Table) -> tuple[pa.Table, list[str]]:
    """Rows that could not be read have that as their reason; also returns all these reasons."""
    if UNREADABLE not in ordered.column_names:
        return ordered, []
    why = ordered.column(UNREADABLE)
    reason = pc.coalesce(why, ordered.column("reason"))
    ordered = ordered.set_column(ordered.column_names.index("reason"), "reason", reason)
    return ordered.drop_columns([UNREADABLE]), why.drop_null().to_pylist()


def _sort(table: pa.Table, plan: ColumnPlan) -> pa.Table:
    """The groups one after another, each in the preferred order."""
    group = plan.columns.group
    keys = [group, *plan.sorted_by] if group is not None else plan.sorted_by
    # Nulls come last, as by default.
    order = pc.sort_indices(
        table.select(list(dict.fromkeys(keys))), sort_keys=[(key, "ascending") for key in keys]
    )
    return table.take(order)


def _take(table: pa.Table, rows: pa.Array, added: dict[str, pa.Array]) -> pa.Table:
    ordered = table.take(rows)
    for name, values in added.items():
        ordered = ordered.append_column(name, values)
    return ordered


def _split_by_outcome(ordered: pa.Table) -> dict[str, pa.Table]:
    """The rows, split by the folder they go to."""
    status = ordered.column("status")
    folders = {name: pc.equal(status, name) for name in NOT_ORDERED}
    folders["ordered"] = pc.invert(pc.is_in(status, pa.array(NOT_ORDERED)))
    tables = {name: ordered.filter(mask) for name, mask in folders.items()}
    return {name: table for name, table in tables.items() if table.num_rows}


def _write(by_outcome: dict[str, pa.Table], out: Path) -> None:
    """Write all files completely before giving any of them its final name."""
    hidden = out / "_temporary"
    hidden.mkdir(parents=True, exist_ok=True)
    for name, table in by_outcome.items():
        schema = _file_schema(table.schema)
        with parquet_writer(hidden / f"{name}.parquet", schema) as writer:
            for begin in range(0, table.num_rows, _ROW_GROUP):
                writer.write_table(table.slice(begin, _ROW_GROUP).cast(schema), _ROW_GROUP)
    for name in by_outcome:
        folder = out / f"{OUTCOME}={name}"
        folder.mkdir(exist_ok=True)
        (hidden / f"{name}.parquet").replace(folder / "part-00000.parquet")
    hidden.rmdir()
    (out / "_SUCCESS").touch()


def _examples(rows: pa.Table, status: str, request: OrderRequest) -> list[Example]:
    group, names = request.columns["group"], [request.columns[role] for role in ("id", "origin", "seq")]
    examples = []
    for row in rows.slice(0, MAX_EXAMPLES).to_pylist():
        parts = [str(row[name]) for name in names if name is not None and row[name] is not None]
        group_name = None if group is None or row[group] is None else _text(row[group])
        examples.append(Example(group_name, ":".join(parts), status, row["reason"]))
    return examples


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
