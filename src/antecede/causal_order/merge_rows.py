"""Merges topics over a whole table: a record that is not in it is missing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from antecede.causal_order.merge import ChangeRecord, HeldRecord, MergeProgress, MergeRules, merge
from antecede.causal_order.missing_causes import SCHEMA as MISSING_SCHEMA
from antecede.causal_order.rules import PLACE
from antecede.sources.changes import EVENTS, ID
from antecede.sources.debezium import COORDINATES

NO_CHANGE = "it is no change event of Debezium"
REPEATED = "a record before it has its offset, or its place in the transaction"


class MergedTable(NamedTuple):
    """The emitted and the held rows of a table, as positions in it, and the columns to add to them."""

    rows: pa.Array
    added: dict[str, pa.Array]
    missing: pa.Table
    """The missing records, and how many rows each of them holds."""


def merge_table(table: pa.Table, rules: MergeRules) -> MergedTable:
    """Merge a table. If its rows have places, they are in that order and repeated records are listed."""
    records = records_of(table, np.zeros(table.num_rows, bool))
    merged = merge(records, 0, MergeProgress(MergeRules(snapshot_of=rules.snapshot_of)))
    held = sorted(merged.held)
    repeated = sorted(merged.duplicates) if PLACE in table.column_names else []
    rows = [*merged.emitted, *merged.unreadable, *held, *repeated]
    emitted = len(merged.emitted)
    status = ["ordered"] * emitted + ["quarantined"] * len(merged.unreadable)
    status += ["held"] * len(held) + ["duplicate"] * len(repeated)
    reasons = [None] * emitted + [NO_CHANGE] * len(merged.unreadable)
    reasons += [merged.held[row].reason for row in held] + [REPEATED] * len(repeated)
    added = {
        "causal_index": pa.array([*range(emitted), *[None] * (len(rows) - emitted)], pa.int64()),
        "status": pa.array(status, pa.string()),
        "reason": pa.array(reasons, pa.string()),
    }
    return MergedTable(pa.array(rows, pa.int64()), added, count_missing_records(merged.held.values()))


def count_missing_records(held: Iterable[HeldRecord]) -> pa.Table:
    """Each held row is counted once, for the first missing record that it waits for."""
    counts: dict[str, int] = {}
    for waiting in held:
        for place, name in enumerate(waiting.missing):
            counts[name] = counts.get(name, 0) + (place == 0)
    groups = pa.nulls(len(counts), pa.string())
    return pa.table(
        [groups, pa.array(counts, pa.string()), pa.array(counts.values(), pa.int64())], schema=MISSING_SCHEMA
    )


def records_of(table: pa.Table, is_repeated: np.ndarray) -> list[ChangeRecord]:
    """The rows of a table as records."""
    names = [*COORDINATES, "kind", ID, "transaction", "transaction_order", EVENTS, "position", "snapshot"]
    columns = [table.column(name).to_pylist() for name in names]
    if any(table.column(name).null_count for name in COORDINATES):
        nowhere = [None in place for place in zip(*columns[:3], strict=True)]
        columns[2] = [-1 if is_lost else at for is_lost, at in zip(nowhere, columns[2], strict=True)]
    return [
        ChangeRecord(row, topic, f"{topic}-{partition}", offset, *rest)
        for row, (topic, partition, offset, *rest) in enumerate(
            zip(*columns, is_repeated.tolist(), strict=True)
        )
    ]
