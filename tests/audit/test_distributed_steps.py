"""A run that several workers judge together is judged as one worker judges it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from antecede.audit import distributed_steps as steps
from antecede.audit.distributed_steps import CHUNK, ENCODED, BlockPlan
from antecede.audit.encoding import EncodedRun, encode_run
from antecede.audit.passes import COUNTED, SEND, find_violations
from antecede.audit.roots import Root
from random_executions import any_execution, as_rows

Work = Callable[[Any], Iterator[pa.RecordBatch]]


def plan_of(source: random.Random, log: EncodedRun) -> BlockPlan:
    return BlockPlan(
        run="r",
        first=log.streams.first,
        origin=log.streams.origin,
        audience=np.arange(len(log.streams.origin)),
        audiences=log.streams.audience.T,
        blocks=source.randrange(1, len(log.names) + 1),
        start_time=0,
        bucket_width=1,
        lowest_index=0,
        slice_width=source.choice((1, 3, 7, 1 << 20)),
    )


def rows_of(source: random.Random, log: EncodedRun) -> list[pa.RecordBatch]:
    """The log's rows in numbers, in any order, in batches."""
    rows = log.rows
    sends = rows.kind == SEND
    table = pa.table(
        [
            np.repeat(rows.process, np.diff(rows.start)).astype(np.int32),
            np.arange(len(rows.kind)),
            np.where(sends, -2 - rows.message, rows.message),
            rows.time.astype(np.int64),
        ],
        schema=ENCODED,
    )
    order = list(range(len(table)))
    if source.random() < 0.5:
        source.shuffle(order)
    batches: list[pa.RecordBatch] = table.take(order).to_batches(max_chunksize=source.randrange(1, 50))
    return batches


def on_blocks(plan: BlockPlan, work: Work, *given: pa.Table) -> pa.Table:
    """Mimics Spark: the chunks of every block in order, block after block, each with a START chunk."""
    every = pa.concat_tables(given)
    found = []
    for block in range(plan.blocks):
        start = pa.table([[block], [steps.START], [0], [0], [0], [b""]], schema=CHUNK)
        mine = every.filter(pc.equal(every.column("block"), block))
        mine = pa.concat_tables([start, mine]).sort_by([("part", "ascending"), ("number", "ascending")])
        found += list(work(mine.to_batches(max_chunksize=5)))
    return pa.Table.from_batches(found, schema=CHUNK)


def to_every_block(plan: BlockPlan, table: pa.Table) -> pa.Table:
    copies = [np.full(len(table), block, np.int32) for block in range(plan.blocks)]
    return pa.concat_tables([table.set_column(0, CHUNK.field("block"), pa.array(copy)) for copy in copies])


def part(table: pa.Table, *which: int) -> pa.Table:
    return table.filter(pc.is_in(table.column("part"), pa.array(which, pa.int64())))


def judged(
    plan: BlockPlan, batches: list[pa.RecordBatch], most: int
) -> tuple[np.ndarray, list[Root], int, list[Any]]:
    """All steps in turn."""
    rows = pa.Table.from_batches(list(steps.pack_rows(plan)(batches)), schema=CHUNK)
    collected = on_blocks(plan, steps.collect_block(plan), rows)
    marked = CHUNK.empty_table()
    impossible = 0
    for _ in range(2):
        clocks = part(collected, steps.SENDER_CLOCK)
        closing = pa.Table.from_batches(list(steps.close_pasts(plan)(clocks.to_batches())), schema=CHUNK)
        pasts = to_every_block(plan, pa.concat_tables([clocks, part(closing, steps.FULL_PAST)]))
        if impossible or not sum(part(closing, steps.CYCLIC).column("number").to_pylist()):
            break
        marked = on_blocks(plan, steps.mark_impossible_block(plan), rows, pasts)
        impossible = sum(marked.column("previous").to_pylist())
        collected = on_blocks(plan, steps.collect_block(plan), rows, marked)
    known = collected.filter(pc.not_equal(collected.column("part"), steps.SENDER_CLOCK))
    counted = on_blocks(plan, steps.count_block(plan, most), rows, known, pasts)
    counts, roots = np.zeros((plan.processes, COUNTED), np.int64), []
    for row in part(counted, steps.COUNTS, steps.ROOTS).to_pylist():
        figures = np.frombuffer(row["payload"], np.int64)
        if row["part"] == steps.COUNTS:
            counts[row["number"]] = figures
        else:
            roots += [Root(*root) for root in figures.reshape(-1, len(Root._fields)).tolist()]
    return counts, roots, impossible, [clocks, marked]


@given(st.integers(0, 1 << 60))
def test_several_workers_find_the_same_violations_as_one(seed: int) -> None:
    source = random.Random(seed)
    log = encode_run(*as_rows(source, any_execution(source)))
    if not len(log.rows.kind):
        return
    vectors = np.zeros((log.streams.messages, len(log.streams.origin)), np.int32)
    whole = find_violations(log.rows, log.streams, vectors, 1_000)
    plan = plan_of(source, log)
    counts, roots, impossible, known = judged(plan, rows_of(source, log), 1_000)
    assert (counts == whole.state.counts).all()
    assert impossible == whole.impossible
    assert sorted(roots) == sorted(whole.roots)
    process = np.repeat(log.rows.process, np.diff(log.rows.start))
    having = [
        (0, steps.PATH, number, int(row), int(process[row]), b"")
        for number, root in enumerate(roots)
        for row in np.flatnonzero(log.rows.message == root.cause)
    ]
    named = [dict(zip(CHUNK.names, each, strict=True)) for each in having]
    told = pa.Table.from_pylist(named, schema=CHUNK)
    batches = pa.concat_tables([told, *known]).to_batches()
    for row in pa.Table.from_batches(list(steps.find_paths(plan, roots)(batches)), schema=CHUNK).to_pylist():
        path = np.frombuffer(row["payload"], np.int64)
        root = roots[row["number"]]
        shortest = whole.paths[whole.roots.index(root)]
        assert [len(path), path[0], path[-1]] == [len(shortest), root.cause, root.effect]


def test_two_events_with_one_index_are_reported_with_their_process() -> None:
    source = random.Random(1)
    log = encode_run(*as_rows(source, any_execution(source)))
    plan = plan_of(source, log)
    batches = rows_of(source, log)
    rows = pa.Table.from_batches(
        list(steps.pack_rows(plan)([*batches, batches[0].slice(0, 1)])), schema=CHUNK
    )
    found = part(on_blocks(plan, steps.collect_block(plan), rows), steps.ERROR).to_pylist()
    (told,) = [(row["number"], row["index"]) for row in found]
    assert told == (batches[0].column("rank")[0].as_py(), batches[0].column("index")[0].as_py())
