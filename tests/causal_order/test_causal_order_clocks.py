"""Clocks with gaps: an entry stands for every row of its origin up to then, even if some are missing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from antecede.causal_order.batch import order_table
from antecede.causal_order.dependency_edges import Columns, Form
from antecede.causal_order.micro_batch import order_micro_batch
from antecede.causal_order.rules import ARRIVED, DIGEST, OnMissing, OrderRules
from ordering import Memory

COLUMNS = Columns(Form.CLOCKS, None, origin="host", clock="clock", by="turn")
_MAP = pa.map_(pa.string(), pa.int64())

Event = tuple[str, dict[str, int]]


def happened(rng: random.Random, hosts: str = "abc", many: int = 30) -> list[Event]:
    """Events of a few hosts, each of which may receive the knowledge of another."""
    knows: dict[str, dict[str, int]] = {host: {} for host in hosts}
    events = []
    for _ in range(many):
        host, other = rng.choice(hosts), rng.choice(hosts)
        for name, entry in knows[other].items():
            knows[host][name] = max(entry, knows[host].get(name, 0))
        knows[host][host] = knows[host].get(host, 0) + 1
        events.append((host, dict(knows[host])))
    return events


def table_of(events: Sequence[Event], rng: random.Random) -> pa.Table:
    """A table of events that only their clocks put in order."""
    turns = rng.sample(range(len(events)), len(events))
    clocks = [list(clock.items()) for _, clock in events]
    return pa.table(
        {
            "host": pa.array([host for host, _ in events]),
            "clock": pa.array(clocks, _MAP),
            "turn": pa.array(turns, pa.int64()),
        }
    )


def counts(clock: dict[str, int], other: dict[str, Any]) -> bool:
    """Whether a clock covers another event."""
    return bool(clock.get(other["host"], 0) >= dict(other["clock"])[other["host"]])


@pytest.mark.parametrize("seed", range(40))
def test_a_released_row_follows_every_present_row_that_its_clock_counts(seed: int) -> None:
    rng = random.Random(seed)
    events = [event for event in happened(rng) if rng.random() > 0.3]
    table = table_of(events, rng).sort_by("turn")
    rows, added = order_table(table, COLUMNS, OnMissing.RELEASE)
    assert set(added["status"].to_pylist()) <= {"ordered", "released"}
    out = table.take(rows).to_pylist()
    assert len(out) == len(events)
    for place, row in enumerate(out):
        assert not [other for other in out[place + 1 :] if counts(dict(row["clock"]), other)]


@pytest.mark.parametrize("seed", range(40))
def test_in_a_stream_a_released_row_follows_the_causes_that_arrived_in_time(seed: int) -> None:
    rng = random.Random(seed)
    events = [event for event in happened(rng) if rng.random() > 0.2]
    rng.shuffle(events)
    table = table_of(events, rng)
    rules, memory = OrderRules(COLUMNS, OnMissing.RELEASE, 3, 1000), Memory()
    places = [0, *sorted(rng.sample(range(1, len(events)), 5)), len(events)]
    waiting: dict[int, dict[str, Any]] = {}
    due: dict[str | None, int] = {}
    for now, (low, high) in enumerate([*pairwise(places), *[(0, 0)] * 12]):
        batch = table.slice(low, high - low)
        waiting |= {row["turn"]: row for row in batch.to_pylist()}
        for name, value in ((ARRIVED, now), (DIGEST, 0)):
            batch = batch.append_column(name, pa.array([value] * len(batch), pa.int64()))
        overdue = [group for group, when in due.items() if when <= now]
        if not len(batch) and not overdue:
            continue
        outcome = order_micro_batch(rules, memory, batch if len(batch) else None, now, overdue)
        due = dict(outcome.due)
        for row in outcome.rows.to_pylist():
            del waiting[row["turn"]]
            assert not [other for other in waiting.values() if counts(dict(row["clock"]), other)]
    assert not waiting
    assert not due


def test_a_later_event_of_a_host_does_not_overtake_an_earlier_one_over_a_gap() -> None:
    events: list[Event] = [("x", {"x": 3}), ("x", {"x": 1}), ("a", {"a": 1, "x": 2})]
    clocks = pa.array([list(clock.items()) for _, clock in events], _MAP)
    table = pa.table({"host": pa.array([host for host, _ in events]), "clock": clocks})
    rows, added = order_table(table, COLUMNS._replace(by=None), OnMissing.RELEASE)
    assert rows.to_pylist() == [1, 0, 2]
    assert added["reason"].to_pylist() == [None, *["released without its cause x:2"] * 2]
