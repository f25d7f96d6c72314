"""A trace folder as it is, in the hands of other tools."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from pyspark.sql import SparkSession

from antecede.audit.on_spark import audit
from antecede.sim.record import simulate_to
from antecede.sim.scenario import scenario
from antecede.spark.read import read_events, read_members
from antecede.sweep.grid import expand
from antecede.sweep.on_spark import Sweep
from antecede.sweep.results import write_results
from antecede.trace.reader import read_metas, read_trace


def test_pandas_and_spark_read_a_trace_folder(spark: SparkSession, tmp_path: Path) -> None:
    made = scenario(protocol="mbcp", peers=3, seconds=0.5)
    simulate_to(tmp_path / "t", made, part_rows=50)
    rows = read_trace(tmp_path / "t")
    assert len(list((tmp_path / "t").glob("*.parquet"))) > 1
    frame = pd.read_parquet(tmp_path / "t")
    assert list(frame.columns) == rows.column_names
    assert frame["time"].tolist() == rows.column("time").to_pylist()
    read = spark.read.parquet(str(tmp_path / "t"))
    assert read.columns == rows.column_names
    assert read.count() == rows.num_rows
    assert [meta.run for meta in read_metas(tmp_path)] == [made.key()]


def test_pandas_and_spark_read_the_runs_of_a_sweep(spark: SparkSession, tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, expand({"seconds": 0.3, "peers": 3}, {"protocol": ["mbcp", "timestamp"]}))
    assert sweep.simulate(spark) == {}
    sweep.judge(spark)
    write_results(sweep)
    for key in sweep.scenarios:
        folder = tmp_path / "runs" / key
        assert set(pd.read_parquet(folder)["run"]) == {key}
        assert spark.read.parquet(str(folder)).count() == read_trace(folder).num_rows
    both = pd.read_parquet(tmp_path / "runs")
    assert set(both["run"]) == set(sweep.scenarios)
    members = read_members(spark, str(tmp_path), str(tmp_path / "runs" / "nowhere"))
    assert {row.run for row in members.collect()} == set(sweep.scenarios)
    assert audit(read_events(spark, str(tmp_path / "runs")), members).total().clean
