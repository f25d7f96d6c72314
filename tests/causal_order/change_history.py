"""Random histories of a Debezium connector as records of Kafka, and what a merge of them has to satisfy."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from itertools import takewhile
from typing import Any, NamedTuple
from zlib import crc32

TABLES = ("customers", "orders", "payments")
MARKERS = "shop.transaction"


class Written(NamedTuple):
    """A record in a partition. Copies that the connector wrote again have the same name."""

    name: str
    topic: str
    partition: int
    offset: int
    key: str | None
    value: str | None
    transaction: str | None = None
    order: int = 0
    events: int = 0
    position: int = 0
    """In the database's log; of an END, that of the commit."""
    snapshot: str | None = None

    @property
    def place(self) -> tuple[str, int]:
        return self.topic, self.partition

    @property
    def is_end(self) -> bool:
        return self.name.endswith(":END")

    @property
    def is_marker(self) -> bool:
        return self.topic == MARKERS


class History:
    """What a connector writes: a snapshot, then transactions with all that may be between them."""

    def __init__(
        self, rng: random.Random, transactions: int, partitions: int = 1, again: bool = True
    ) -> None:
        self._rng, self._partitions = rng, partitions
        self._serial: list[dict[str, Any]] = []
        self._lsn = 1000
        self._names = 0
        self.snapshot("first")
        for number in range(transactions):
            self._transaction(f"{700 + number}")
            if rng.random() < 0.15:
                self._add(rng.choice(TABLES), f"free {self._name()}", "u", None)
            if rng.random() < 0.15:
                self._add(rng.choice(TABLES), f"chunk {self._name()}", "r", None, snapshot="incremental")
            if again and rng.random() < 0.05:
                self.snapshot("again")
        self.records = self._written()

    def _name(self) -> int:
        self._names += 1
        return self._names

    def snapshot(self, what: str) -> None:
        """A consistent read of all tables at one position, with the flags that Debezium gives."""
        self._lsn += 10
        sizes = {table: self._rng.choice((0, 2, 3, 5)) for table in TABLES}
        sizes["customers"] = max(2, sizes["customers"])
        rows = [(table, at) for table in TABLES for at in range(sizes[table])]
        for number, (table, at) in enumerate(rows):
            flag = "last_in_data_collection" if at == sizes[table] - 1 else "first_in_data_collection"
            flag = "true" if 0 < at < sizes[table] - 1 else flag
            flag = "last" if number == len(rows) - 1 else "first" if number == 0 else flag
            self._add(table, f"{what} {table} {self._name()}", "r", None, snapshot=flag, move=False)
        self.snapshot_topics = [f"shop.public.{table}" for table in TABLES if sizes[table]]

    def _transaction(self, name: str) -> None:
        count = self._rng.randrange(1, 5)
        self._marker(name, "BEGIN", 0)
        for order in range(1, count + 1):
            table, op = self._rng.choice(TABLES), self._rng.choice("cud")
            self._add(table, f"{name}:{order}", op, {"id": f"{name}:{self._lsn + 1}", "total_order": order})
            if op == "d" and self._rng.random() < 0.7:
                deleted = self._serial[-1]
                self._serial.append(
                    {
                        "name": f"tombstone {self._name()}",
                        "topic": deleted["topic"],
                        "key": deleted["key"],
                        "value": None,
                    }
                )
        self._marker(name, "END", count)

    def _marker(self, name: str, status: str, count: int) -> None:
        self._lsn += 1
        of_it = takewhile(lambda one: not one["name"].endswith(":BEGIN"), reversed(self._serial))
        counted = Counter(one["topic"].removeprefix("shop.") for one in of_it if "transaction" in one)
        value: dict[str, Any] = {
            "status": status,
            "id": f"{name}:{self._lsn}",
            "event_count": count or None,
            "ts_ms": 5,
        }
        if status == "END":
            value["data_collections"] = [
                {"data_collection": table, "event_count": number} for table, number in counted.items()
            ]
        self._serial.append(
            {"name": f"{name}:{status}", "topic": MARKERS, "key": f'{{"id":"{name}"}}', "value": value}
            | {"transaction": name, "events": count, "position": self._lsn}
        )

    def _add(
        self, table: str, name: str, op: str, transaction: Any, snapshot: str = "false", move: bool = True
    ) -> None:
        self._lsn += move
        source = {
            "connector": "postgresql",
            "name": "shop",
            "schema": "public",
            "table": table,
            "lsn": self._lsn,
        }
        key = self._rng.randrange(20)
        value = {
            "op": op,
            "source": source | {"snapshot": snapshot},
            "before": None,
            "after": {"id": key, "note": name},
            "transaction": transaction,
        }
        record: dict[str, Any] = {
            "name": name,
            "topic": f"shop.public.{table}",
            "key": f'{{"id":{key}}}',
            "value": value,
        }
        record |= {"position": self._lsn, "snapshot": None if snapshot == "false" else snapshot}
        if transaction is not None:
            record |= {"transaction": name.split(":")[0], "order": transaction["total_order"]}
        self._serial.append(record)

    def _written(self) -> list[Written]:
        offsets: dict[tuple[str, int], int] = defaultdict(int)
        written, at, times = [], 0, 0
        furthest = 0
        while at < len(self._serial):
            record = dict(self._serial[at])
            # Tombstones carry nothing by which a copy could be recognised; they are not written again here.
            if not (record["value"] is None and at < furthest):
                partition = (
                    0 if record["topic"] == MARKERS else crc32(record["key"].encode()) % self._partitions
                )
                offset = offsets[record["topic"], partition]
                offsets[record["topic"], partition] += 1
                value = record.pop("value")
                text = None if value is None else json.dumps(value | {"ts_ms": times})
                written.append(Written(value=text, partition=partition, offset=offset, **record))
            at += 1
            furthest = max(furthest, at)
            if at == furthest and self._rng.random() < 0.02:
                # From the last offset that was committed on, all is written again.
                at, times = max(0, at - self._rng.randrange(1, 12)), times + 1
        return written


def _first_copies(records: list[Written]) -> list[Written]:
    """Of the copies of a record, the first in its partition."""
    first: dict[str, Written] = {}
    for record in records:
        if record.name not in first or record.offset < first[record.name].offset:
            first[record.name] = record
    return list(first.values())


def can_be_emitted(records: list[Written], snapshot_is_there: bool = True) -> set[str]:
    """By the definition, step by step until nothing changes: the names of the records that can be emitted."""
    kept = _first_copies(records)
    out: set[str] = set()
    while True:
        before = len(out)
        for record in kept:
            earlier = [one for one in kept if one.place == record.place and one.offset < record.offset]
            if record.transaction is None and all(one.name in out for one in earlier):
                out.add(record.name)
            if record.is_end and snapshot_is_there:
                events = [one for one in kept if one.transaction == record.transaction and one.order]
                ends = [one for one in earlier if one.is_end]
                in_front = [
                    one
                    for one in kept
                    for event in events
                    if one.place == event.place and one.offset < event.offset and one.transaction is not None
                ]
                if (
                    len(events) == record.events
                    and all(one.name in out for one in ends)
                    and all(one.name in out or one.transaction == record.transaction for one in in_front)
                ):
                    out |= {one.name for one in kept if one.transaction == record.transaction}
                    for event in events:  # rows that the connector put between events of the transaction
                        out |= {
                            one.name
                            for one in kept
                            for last in events
                            if one.place == event.place == last.place
                            and event.offset < one.offset < last.offset
                            and one.transaction is None
                        }
        if len(out) == before:
            return out


def check_order(
    records: list[Written], emitted: list[str], by_position: bool = True, whole: bool = True
) -> None:
    """Each record once, transactions whole and in the order of their commits, snapshots in their place."""
    assert len(emitted) == len(set(emitted)), "a record came out twice"
    kept = {record.name: record for record in _first_copies(records)}
    place = {name: at for at, name in enumerate(emitted)}
    out = [kept[name] for name in emitted]
    partitions: dict[tuple[str, int], int] = {}
    for record in out:
        if not record.is_marker:
            assert record.offset > partitions.get(record.place, -1), (
                f"{record.name} is not in its partition's order"
            )
            partitions[record.place] = record.offset
    ends = [record for record in out if record.is_end]
    assert [end.offset for end in ends] == sorted(end.offset for end in ends), "not in the order of commits"
    of_transaction: dict[str | None, list[Written]] = defaultdict(list)
    for record in out:
        if record.order:
            of_transaction[record.transaction].append(record)
    for end in ends:
        events = sorted(of_transaction[end.transaction], key=lambda one: one.order)
        assert len(events) == end.events or not whole, f"{end.transaction} is not whole"
        places = [place[one.name] for one in (*events, end)]
        begin = place.get(f"{end.transaction}:BEGIN", places[0])
        assert [begin, *places] == sorted([begin, *places])
        between = [one for one in out[begin : place[end.name]] if one.transaction != end.transaction]
        for one in between:  # only what the connector itself put there
            assert one.transaction is None
            assert any(event.place == one.place and event.offset < one.offset for event in events)
    if by_position:
        for row in out:
            if row.snapshot not in (None, "incremental"):
                for end in ends:
                    assert (place[row.name] > place[end.name]) == (row.position >= end.position), (row, end)
