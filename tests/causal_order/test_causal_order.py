"""Rows into causal order, whole tables and batch by batch, compared with a direct definition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antecede.causal_order.batch import order_table
from antecede.causal_order.dependency_edges import Columns, Form
from antecede.causal_order.micro_batch import MicroBatch, order_micro_batch
from antecede.causal_order.rules import ARRIVED, DIGEST, OnMissing, OrderRules
from ordering import FORMS, Memory, Row, columns_of, reference, table_of

MOST = 12


@st.composite
def tables(draw: st.DrawFn) -> list[Row]:
    """Rows of a few groups, with missing causes, cycles and duplicates."""
    forward = draw(st.booleans())
    rows = []
    for _ in range(draw(st.integers(0, 24))):
        number = draw(st.integers(0, MOST))
        below = st.integers(0, MOST + 2) if not forward or number == 0 else st.integers(0, number - 1)
        deps = () if forward and number == 0 else tuple(draw(st.lists(below, max_size=3)))
        rows.append(Row(draw(st.sampled_from(["a", "b", None])), number, deps))
    first: dict[tuple[str | None, int], Row] = {}
    return [first.setdefault((row.group, row.id), row) for row in rows]


def in_order(rows: Sequence[Row], form: Form, on_missing: OnMissing) -> pa.Table:
    table = table_of(sorted(rows, key=lambda row: (str(row.group), row.id)), form)
    taken, added = order_table(table, columns_of(form), on_missing)
    table = table.take(taken)
    for name, values in added.items():
        table = table.append_column(name, values)
    return table


@pytest.mark.parametrize("on_missing", OnMissing)
@pytest.mark.parametrize("form", [Form.IDS, Form.NUMBERS])
@given(rows=tables())
@settings(max_examples=150, deadline=None)
def test_a_table_is_ordered_as_the_reference_orders_it(
    rows: list[Row], form: Form, on_missing: OnMissing
) -> None:
    found = in_order(rows, form, on_missing).to_pylist()
    outcome = {(row["room"], row["number"]): (row["causal_index"], row["status"]) for row in found}
    assert len(outcome) == len(found)
    assert outcome == reference(rows, on_missing)


def feed(
    rules: OrderRules, memory: Memory, rows: Sequence[Row], now: int, overdue: Sequence[str | None] = ()
) -> MicroBatch:
    table = table_of(rows, rules.columns.form)
    for name, value in ((ARRIVED, now), (DIGEST, 0)):
        table = table.append_column(name, pa.array([value] * len(rows), pa.int64()))
    return order_micro_batch(rules, memory, table if rows else None, now, overdue)


def rules_of(form: Form, on_missing: OnMissing, timeout: int = 10, tail_bytes: int = 1500) -> OrderRules:
    return OrderRules(columns_of(form), on_missing, timeout, 1000, tail_bytes=tail_bytes)


@pytest.mark.parametrize("form", FORMS)
@given(rows=tables(), cuts=st.lists(st.integers(0, 24), max_size=6), order=st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_a_stream_gives_the_rows_of_the_table_however_it_is_split_into_batches(
    rows: list[Row], cuts: list[int], order: object, form: Form
) -> None:
    order.shuffle(rows)  # type: ignore[attr-defined]
    rules, memory = rules_of(form, OnMissing.HOLD), Memory()
    came: dict[tuple[str | None, int], str] = {}
    index: dict[str | None, list[int]] = {}
    counts: Counter[str] = Counter()
    places = sorted({0, *cuts, len(rows)})
    for now, (low, high) in enumerate(pairwise(places)):
        if not rows[low:high]:
            continue
        outcome = feed(rules, memory, rows[low:high], now)
        for row in outcome.rows.to_pylist():
            key = row["room"], row["number"]
            assert key not in came
            if row["status"] == "ordered":
                (deps,) = {one.deps for one in rows if (one.group, one.id) == key}
                assert all(came.get((row["room"], dep)) == "ordered" for dep in deps)
                index.setdefault(row["room"], []).append(row["causal_index"])
            came[key] = row["status"]
        counts.update({name: getattr(outcome.counts, name) for name in outcome.counts.__struct_fields__})
    assert all(places == list(range(len(places))) for places in index.values())
    wanted = {key: status for key, (_, status) in reference(rows, "hold").items()}
    assert came == {key: status for key, status in wanted.items() if status != "held"}
    by_status = Counter(wanted.values())
    assert counts["rows"] == len(rows)
    assert counts["held"] == by_status["held"]
    assert counts["duplicates"] == len(rows) - len(wanted)
    assert (counts["ordered"], counts["quarantined"]) == (by_status["ordered"], by_status["quarantined"])


@pytest.mark.parametrize("on_missing", [OnMissing.RELEASE, OnMissing.QUARANTINE])
@pytest.mark.parametrize("form", FORMS)
@given(
    rows=tables(),
    cuts=st.lists(st.integers(0, 24), max_size=6),
    steps=st.lists(st.integers(1, 12), min_size=8, max_size=8),
    order=st.randoms(use_true_random=False),
)
@settings(max_examples=100, deadline=None)
def test_with_a_timeout_every_row_is_counted_and_late_causes_are_marked(
    rows: list[Row], cuts: list[int], steps: list[int], order: object, form: Form, on_missing: OnMissing
) -> None:
    order.shuffle(rows)  # type: ignore[attr-defined]
    rules, memory = rules_of(form, on_missing), Memory()
    came: dict[tuple[str | None, int], str] = {}
    first_seen: dict[tuple[str | None, int], int] = {}
    owed: set[tuple[str | None, int]] = set()
    counts: Counter[str] = Counter()
    due: dict[str | None, int] = {}
    now = 0
    places = sorted({0, *cuts, len(rows)})
    batches = [rows[low:high] for low, high in pairwise(places)]
    for batch, step in zip([*batches, *[[]] * 12], [*steps, *[11] * 24], strict=False):
        now += step
        for row in batch:
            first_seen.setdefault((row.group, row.id), now)
        overdue = [group for group, when in due.items() if when <= now]
        if not batch and not overdue:
            continue
        outcome = feed(rules, memory, batch, now, overdue)
        for group in outcome.groups:
            due.pop(group, None)
        due.update(outcome.due)
        for row in outcome.rows.to_pylist():
            key = row["room"], row["number"]
            assert key not in came
            (deps,) = {one.deps for one in rows if (one.group, one.id) == key}
            out = {"ordered", "released", "late"}
            lacking = [(row["room"], dep) for dep in deps if came.get((row["room"], dep)) not in out]
            if row["status"] == "ordered":
                assert not lacking
            if row["status"] == "released":
                assert lacking
                absent = [cause for cause in lacking if cause not in first_seen]
                assert not absent or row["held_ms"] >= rules.timeout_ms
                owed.update(absent)
            assert (row["status"] == "late") == (key in owed and row["status"] != "quarantined")
            if row["status"] == "late":
                owed.update(cause for cause in lacking if cause not in first_seen)
            assert row["held_ms"] == now - first_seen[key]
            came[key] = row["status"]
        counts.update({name: getattr(outcome.counts, name) for name in outcome.counts.__struct_fields__})
    assert not due
    assert counts["held"] == 0
    assert counts["rows"] == len(rows)
    assert Counter(came.values()) == {
        status: counts[status] for status in ("ordered", "released", "late", "quarantined") if counts[status]
    }
    assert len(came) + counts["duplicates"] == len(rows)


def test_bytes_written_grow_with_the_new_rows_not_with_the_held_ones() -> None:
    """A thousand batches wait for one row: each row is written about log(1000) times, not 1000 times."""
    rules, memory = rules_of(Form.NUMBERS, OnMissing.HOLD, tail_bytes=4096), Memory()
    for now in range(1000):
        feed(rules, memory, [Row("a", 10 * now + place, (99_999,)) for place in range(10)], now)
    kept = sum(map(len, memory.parts.values()))
    assert memory.written < 40 * kept
    assert len(memory.parts) < 20
    outcome = feed(rules, memory, [Row("a", 99_999, ())], 1000)
    assert outcome.counts.ordered == 10_001
    assert list(memory.parts) == [("a", 0)]
    assert len(memory.parts["a", 0]) < 200


def test_ids_are_forgotten_after_the_horizon_but_sequence_numbers_are_not() -> None:
    for form, again in ((Form.IDS, 1), (Form.NUMBERS, 0)):
        rules, memory = rules_of(form, OnMissing.HOLD, tail_bytes=200), Memory()
        for now in range(100):
            feed(rules, memory, [Row("a", now, (now - 1,) if now else ())], 100 * now)
        assert sum(map(len, memory.parts.values())) < 10_000
        assert feed(rules, memory, [Row("a", 0, ())], 10_000).counts.ordered == again
        assert feed(rules, memory, [Row("a", 99, ())], 10_000).counts.duplicates == 1


def test_vector_clocks_define_dependencies() -> None:
    clock = pa.map_(pa.string(), pa.int64())
    rows: list[tuple[str | None, list[tuple[str, int]] | None]]
    rows = [("y", [("x", 2), ("y", 1)]), ("x", [("x", 2)]), ("x", [("x", 1)]), ("z", [("z", 2), ("x", 1)])]
    rows += [
        ("z", [("x", 9)]),
        ("x", [("x", -1)]),
        ("y", None),
        (None, [("x", 3)]),
        ("y", [("x", 0), ("y", 2)]),
    ]
    table = pa.table(
        {"user": pa.array([user for user, _ in rows]), "clock": pa.array([one for _, one in rows], clock)}
    )
    taken, added = order_table(
        table, Columns(Form.CLOCKS, None, origin="user", clock="clock"), OnMissing.HOLD
    )
    assert taken.to_pylist() == [2, 1, 0, 8, 3, 4, 5, 6, 7]
    assert added["status"].to_pylist() == ["ordered"] * 4 + ["held"] + ["quarantined"] * 4
    assert added["reason"].to_pylist()[4:] == [
        "waits for z:1",
        "its clock has no entry above 0 for its own origin",
        "its clock has an entry that is null or below 0",
        "it has no clock",
        "it has no origin",
    ]
