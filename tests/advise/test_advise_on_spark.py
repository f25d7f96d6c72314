"""Advice on Spark equals local advice, run by run."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from antecede.advise import Cost, Request
from antecede.advise.on_spark import advice_by_run
from antecede.advise.run import advise_path
from antecede.errors import InputError
from antecede.sim.record import simulate_to
from antecede.sim.scenario import scenario
from antecede.spark import advise, read_events, read_members

FEW = Request(protocols=("timestamp", "mbcp", "freescale", "vcube"))


def test_spark_agrees_with_local_results(spark: SparkSession, tmp_path: Path) -> None:
    for seed in range(2):
        simulate_to(tmp_path / str(seed), scenario(protocol="mbcp", peers=3 + seed, seconds=1, seed=seed))
    here, engine = advise_path(str(tmp_path), FEW, engine="local")
    assert engine == "local"
    events, members = read_events(spark, str(tmp_path)), read_members(spark, str(tmp_path))
    assert list(advice_by_run(events, members, FEW)) == here
    table = advise(events, members, FEW)
    assert table.columns == ["run", *Cost.__struct_fields__, "recommended", "reason"]
    rows = {(row.run, row.protocol): row for row in table.collect()}
    assert len(rows) == 8
    for advice in here:
        for cost in advice.costs:
            row = rows[advice.run, cost.protocol]
            assert [row[name] for name in Cost.__struct_fields__] == [
                getattr(cost, name) for name in Cost.__struct_fields__
            ]
            assert row.recommended == (cost.protocol == advice.recommended)
            assert row.reason == (advice.reason if row.recommended else None)


def test_runs_that_advise_cannot_handle_are_named_on_spark(spark: SparkSession) -> None:
    columns = "run string, group string, process string, kind string, origin string"
    schema = f"{columns}, index bigint, seq bigint, time bigint, destinations array<string>"
    rows = [("r", "g", "a", "send", "a", 0, 1, 0, None), ("r", "g", "a", "deliver", "a", 1, 1, 0, None)]
    alone = spark.createDataFrame(rows, schema)
    with pytest.raises(InputError, match="run r: there is only a"):
        advise(alone)
    some = [
        ("r", "g", "a", "send", "a", 0, 1, 0, ["b"]),
        ("r", "g", "b", "deliver", "a", 0, 1, 0, None),
        ("r", "g", "c", "send", "c", 0, 1, 0, None),
    ]
    with pytest.raises(InputError, match="a:1 does not go to c"):
        advise(spark.createDataFrame(some, schema))
    with pytest.raises(InputError, match="no columns run, group"):
        advise(spark.range(3).toDF("seq"))
