"""The benchmark of causal order: its rows are as specified, and it detects a wrong order."""

from __future__ import annotations

import importlib
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ORDER = Path(__file__).parent.parent.parent / "benchmarks" / "causal_order"


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """A module of the benchmark, by its name."""
    monkeypatch.syspath_prepend(str(ORDER))
    return importlib.import_module


@pytest.mark.parametrize("shuffle", ["stream", "group"])
def test_the_loop_orders_made_rows(part: Callable[[str], Any], tmp_path: Path, shuffle: str) -> None:
    workload, peers = part("workload"), part("peers")
    given = workload.make(tmp_path, 4_000, 10, shuffle, 4, 1)
    rows = peers.rows_of(given)
    assert {len(row[2]) for row in rows} == {0, 1, 2, 3}
    assert sum(not row[2] for row in rows) == 10
    assert workload.inverted(given, pq.read_table(given)) > 1_000
    assert 0 < workload.inverted(given, pq.read_table(given).sort_by("time")) < 1_000
    ordered = peers.ordered(rows, defaultdict(peers.new_group))
    assert workload.inverted(given, peers.table_of(ordered)) == 0


def test_workload_blocks_continue_where_the_last_ended(part: Callable[[str], Any], tmp_path: Path) -> None:
    workload, peers = part("workload"), part("peers")
    histories = workload.Histories(3, 7)
    for block in range(3):
        workload.write(histories.block(50, "group"), tmp_path, 2, 2 * block)
    rows = peers.rows_of(tmp_path)
    groups: dict[str, Any] = defaultdict(peers.new_group)
    assert len(peers.ordered(rows, groups)) == len(rows) == 450
    assert sum(not row[2] for row in rows) == 3
    assert not any(waiting for _, waiting in groups.values())


def test_rows_lost_doubled_or_changed_end_the_benchmark(part: Callable[[str], Any], tmp_path: Path) -> None:
    workload, peers = part("workload"), part("peers")
    given = workload.make(tmp_path, 400, 2, "group", 1, 1)
    good = peers.table_of(peers.ordered(peers.rows_of(given), defaultdict(peers.new_group)))
    index = good.column_names.index("causal_index")
    wrong = {
        "399 different rows of 400": good.slice(1),
        "and 400 in all": pa.concat_tables([good.slice(1), good.slice(1, 1)]),
        "body has changed": good.set_column(4, "body", good["body"].take(pa.array(range(399, -1, -1)))),
        "same causal_index": good.set_column(index, "causal_index", pa.array([0] * 400)),
    }
    for message, table in wrong.items():
        with pytest.raises(SystemExit, match=message):
            workload.inverted(given, table)


def test_stream_metrics_are_summed_but_sizes_are_the_latest(part: Callable[[str], Any]) -> None:
    operator = {
        "commitTimeMs": 5,
        "numRowsTotal": 7,
        "operatorName": "x",
        "customMetrics": {"rocksdbPutCount": 2},
    }
    batch = {"durationMs": {"addBatch": 10}, "stateOperators": [operator]}
    assert part("peers").summed([batch, batch]) == {
        "durationMs.addBatch": 20,
        "state.commitTimeMs": 10,
        "state.numRowsTotal": 7,
        "state.rocksdbPutCount": 4,
    }
