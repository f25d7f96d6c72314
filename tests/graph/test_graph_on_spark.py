"""Dependency graphs on Spark equal local ones, run by run."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from antecede.audit.prepared_run import LARGE_RUN
from antecede.errors import InputError
from antecede.graph.core import compute_figures, edge_table, graph_files
from antecede.sim.record import simulate_to
from antecede.sim.scenario import scenario
from antecede.spark import graph, read_events
from antecede.trace.reader import trace_files
from random_executions import any_execution, as_rows


@pytest.mark.parametrize("how", ["a task a run", "many tasks from files"])
def test_spark_agrees_with_local_results(spark: SparkSession, tmp_path: Path, how: str) -> None:
    for seed in range(3):
        simulate_to(tmp_path / str(seed), scenario(protocol="mbcp", peers=3 + seed, seconds=1, seed=seed))
    here = list(graph_files(tmp_path, trace_files(tmp_path)))
    large_run = LARGE_RUN if how == "a task a run" else 0
    files = trace_files(tmp_path) if how == "many tasks from files" else []
    found = graph(read_events(spark, str(tmp_path)), large_run=large_run, files=files)
    assert list(found.by_run()) == [compute_figures(each) for each in here]
    expected = [tuple(row.values()) for each in here for row in edge_table(each).to_pylist()]
    assert sorted(tuple(row) for row in found.edges.collect()) == sorted(expected)
    assert found.edges.columns == ["run", "cause", "effect"]
    found.release()


def test_message_numbers_need_not_be_consecutive(spark: SparkSession) -> None:
    """Also in a log with a cycle, by one task or by many."""
    source = random.Random(1)
    table, _ = as_rows(source, any_execution(source))
    seqs = pc.multiply(table.column("seq"), 7)
    events = spark.createDataFrame(table.set_column(table.column_names.index("seq"), "seq", seqs))
    alone, shared = graph(events), graph(events, large_run=0)
    assert list(shared.by_run()) == list(alone.by_run())
    assert sorted(map(tuple, shared.edges.collect())) == sorted(map(tuple, alone.edges.collect()))


def test_too_many_messages_have_no_exact_width(spark: SparkSession, tmp_path: Path) -> None:
    simulate_to(tmp_path / "t", scenario(protocol="mbcp", peers=3, seconds=0.5))
    (found,) = graph(read_events(spark, str(tmp_path)), exact_width=1).by_run()
    assert (found.antichain, found.stated) == (None, None)
    assert found.frontier


def test_bad_rows_and_missing_columns_are_named(spark: SparkSession) -> None:
    columns = "run string, group string, process string, kind string, origin string"
    schema = f"{columns}, index bigint, seq bigint, time bigint"
    events = spark.createDataFrame([("r", "g", "a", "sned", "a", 0, 1, 0)], schema)
    with pytest.raises(InputError, match="run r: process a, index 0: kind 'sned'"):
        graph(events)
    with pytest.raises(InputError, match="no columns run, group"):
        graph(spark.range(3).toDF("seq"))
