"""Topics of a Debezium connector merged: each record once, transactions whole, snapshots in their place."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest
from change_history import History, Written, can_be_emitted, check_order

from antecede.causal_order.dependency_edges import Columns, Form
from antecede.causal_order.merge import MergeRules
from antecede.causal_order.merge_rows import merge_table
from antecede.causal_order.merge_stream import merge_micro_batch
from antecede.causal_order.rules import ARRIVED, OnMissing, OrderRules, RowCounts
from antecede.sources.changes import CHANGE_COLUMNS, parse_changes


def table_of(records: list[Written]) -> pa.Table:
    columns: dict[str, Any] = {
        "topic": [one.topic for one in records],
        "partition": [one.partition for one in records],
        "offset": [one.offset for one in records],
    }
    keys, values = [one.key for one in records], [one.value for one in records]
    parsed = parse_changes(columns["topic"], keys, values)
    return pa.table(columns | dict(zip(CHANGE_COLUMNS.names, parsed, strict=True)))


@pytest.mark.parametrize("seed", range(40))
def test_a_whole_table_is_merged_by_the_definition(seed: int) -> None:
    rng = random.Random(seed)
    records = History(rng, transactions=rng.randrange(1, 20), partitions=rng.choice((1, 1, 3))).records
    rng.shuffle(records)
    merged = merge_table(table_of(records), MergeRules())
    emitted = [
        records[row].name
        for row, status in zip(merged.rows.to_pylist(), merged.added["status"].to_pylist(), strict=True)
        if status == "ordered"
    ]
    assert set(emitted) == {one.name for one in records} == can_be_emitted(records)
    check_order(records, emitted)


@pytest.mark.parametrize("seed", range(100, 140))
def test_records_are_held_exactly_if_a_predecessor_is_missing(seed: int) -> None:
    rng = random.Random(seed)
    records = History(rng, transactions=rng.randrange(1, 20), partitions=rng.choice((1, 2))).records
    lost = {one.name for one in records if not one.snapshot and rng.random() < 0.03}
    there = [one for one in records if one.name not in lost]
    rng.shuffle(there)
    merged = merge_table(table_of(there), MergeRules())
    by_status: dict[str, list[str]] = {"ordered": [], "held": []}
    for row, status in zip(merged.rows.to_pylist(), merged.added["status"].to_pylist(), strict=True):
        by_status[status].append(there[row].name)
    assert set(by_status["ordered"]) == can_be_emitted(there)
    assert set(by_status["held"]) == {one.name for one in there} - can_be_emitted(there)
    check_order(there, by_status["ordered"], by_position=False)
    names = {one.name for one in there}
    missing = set(merged.missing.column("id").to_pylist())
    assert bool(missing) == bool(by_status["held"])
    assert missing <= lost
    assert not missing & names
    assert sum(merged.missing.column("rows").to_pylist()) == len(by_status["held"])


class Entries:
    """The entries of one group in memory."""

    def __init__(self) -> None:
        self._entries: dict[int, bytes] = {}

    def get(self, group: str | None, number: int) -> bytes | None:
        return self._entries.get(number)

    def put(self, group: str | None, number: int, data: bytes, new: bool) -> None:
        self._entries[number] = data

    def drop(self, group: str | None, number: int) -> None:
        del self._entries[number]


def merge_in_batches(
    records: list[Written], rng: random.Random, rules: MergeRules
) -> tuple[list[str], RowCounts]:
    """The names of the emitted records, split into random batches."""
    store, emitted, sums = Entries(), list[str](), RowCounts()
    order_rules = OrderRules(
        Columns(Form.IDS, None), OnMissing.HOLD, 0, 1 << 40, internal_columns=(ARRIVED,), tail_bytes=500
    )
    begin = 0
    while begin < len(records):
        some = records[begin : begin + rng.choice((1, 2, 5, 20))]
        begin += len(some)
        new = table_of(some).append_column(ARRIVED, pa.array([begin] * len(some), pa.int64()))
        new = new.append_column("name", pa.array([one.name for one in some]))
        batch = merge_micro_batch(order_rules, rules, store, new, begin)
        assert batch.rows.column("causal_index").to_pylist() == [
            *range(len(emitted), len(emitted) + batch.rows.num_rows)
        ]
        emitted += batch.rows.column("name").to_pylist()
        for name in RowCounts.__struct_fields__:
            setattr(sums, name, getattr(sums, name) + getattr(batch.counts, name))
    return emitted, sums


@pytest.mark.parametrize("seed", range(40))
def test_micro_batches_in_any_order_give_every_record_once_and_in_order(seed: int) -> None:
    rng = random.Random(seed)
    history = History(rng, transactions=rng.randrange(1, 25), again=False)
    records = history.records + rng.choices(history.records, k=len(history.records) // 5)
    rng.shuffle(records)
    rules = MergeRules(consecutive=True, snapshot_of=history.snapshot_topics)
    emitted, counts = merge_in_batches(records, rng, rules)
    check_order(records, emitted, by_position=True)
    assert set(emitted) == {one.name for one in records}
    assert (counts.rows, counts.ordered, counts.held) == (len(records), len(emitted), 0)
    assert counts.duplicates == len(records) - len(emitted)


@pytest.mark.parametrize("seed", range(40))
def test_partitions_that_are_late_need_no_consecutive_offsets(seed: int) -> None:
    rng = random.Random(seed)
    partitions = rng.choice((1, 3))
    history = History(rng, transactions=rng.randrange(1, 25), partitions=partitions, again=False)
    records = [one._replace(offset=3 * one.offset + 7) for one in history.records]
    # Each partition in its order, as Kafka delivers it, but one long after the other.
    delay = {one.place: rng.uniform(0, 100) for one in records}
    arrival = {one: at + delay[one.place] for at, one in enumerate(records)}
    records.sort(key=arrival.__getitem__)
    emitted, counts = merge_in_batches(records, rng, MergeRules(snapshot_of=history.snapshot_topics))
    check_order(records, emitted, by_position=False)
    assert set(emitted) == {one.name for one in records}
    assert counts.held == 0
    assert counts.late == 0 or partitions > 1


def test_transactions_contradicting_partition_order_are_held() -> None:
    """A later transaction is before an earlier one in a partition: both cannot be right."""

    def event(name: str, offset: int) -> Written:
        transaction = {"id": name, "total_order": 1}
        value = {"op": "c", "source": {"connector": "x"}, "after": {}, "transaction": transaction}
        return Written(f"{name}:1", "shop.orders", 0, offset, "k", json.dumps(value), name, 1)

    def end(name: str, offset: int) -> Written:
        value = {"status": "END", "id": name, "event_count": 1}
        return Written(f"{name}:END", "shop.transaction", 0, offset, None, json.dumps(value), name)

    merged = merge_table(table_of([event("b", 0), event("a", 1), end("a", 0), end("b", 1)]), MergeRules())
    assert set(merged.added["status"].to_pylist()) == {"held"}
    assert merged.missing.column("id").to_pylist() == ["b:END before a:END"]
