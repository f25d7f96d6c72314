"""The audit on Spark: the same answer as the oracle's, wherever the rows lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from antecede.errors import InputError
from antecede.order import Verdict
from antecede.sim import chance
from antecede.sim.record import simulate_to
from antecede.sim.scenario import Scenario, scenario
from antecede.spark import audit, read_events, read_members
from antecede.spark.session import refuse_unshared
from antecede.trace.judge import judge_files, total
from antecede.trace.reader import trace_files


def plant_faults(trace: Path, seed: int, count: int) -> None:
    """Swap, drop and repeat random deliveries in a trace's only part."""
    part = trace / "part-00000.parquet"
    table = pq.read_table(part)
    rows = table.to_pylist()
    draws = iter(chance.draw(chance.key(seed), n) for n in range(10 * count))
    for _ in range(count):
        deliveries = [row for row in rows if row["kind"] == "deliver"]
        one = deliveries[chance.between(next(draws), 0, len(deliveries))]
        match chance.between(next(draws), 0, 3):
            case 0:
                rows.remove(one)
            case 1:
                here = [row for row in deliveries if row["process"] == one["process"]]
                other = here[chance.between(next(draws), 0, len(here))]
                one["index"], other["index"] = other["index"], one["index"]
            case _:
                last = max(row["index"] for row in rows if row["process"] == one["process"])
                rows.append({**one, "index": last + 1})
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), part)


@pytest.fixture
def faulty(tmp_path: Path) -> Path:
    """Several runs, each with planted faults."""
    for seed in range(4):
        given = scenario(protocol="mbcp", peers=3 + seed, seconds=1, seed=seed)
        simulate_to(tmp_path / "runs" / given.key(), given)
        plant_faults(tmp_path / "runs" / given.key(), seed, count=1 + 3 * seed)
    return tmp_path / "runs"


def test_spark_and_the_oracle_agree_on_planted_faults(spark: SparkSession, faulty: Path) -> None:
    local = {each.run: each for each in judge_files(faulty, trace_files(faulty))}
    result = audit(read_events(spark, str(faulty)), read_members(spark, str(faulty)))
    assert dict(result.by_run()) == {run: each.verdict for run, each in local.items()}
    assert result.total() == total([each.verdict for each in local.values()])
    assert not result.total().clean
    found = {(f.run, f.process, f.cause, f.effect, f.late, f.text) for f in result.first(100_000)}
    assert found == {
        (f.run, f.process, f.cause, f.effect, f.late, f.text)
        for each in local.values()
        for f in each.findings
    }


def test_without_members_those_who_appear_should_have_got_it(spark: SparkSession, faulty: Path) -> None:
    with_members = audit(read_events(spark, str(faulty)), read_members(spark, str(faulty))).total()
    without = audit(read_events(spark, str(faulty))).total()
    assert with_members == without


def test_rows_of_any_session_and_order(spark: SparkSession) -> None:
    names = ["run", "group", "process", "index", "kind", "origin", "seq", "time"]
    rows: list[tuple[Any, ...]] = [
        ("r", "g", "c", 5, "deliver", "a", 1, 0),
        ("r", "g", "b", 9, "send", "b", 1, 0),
        ("r", "g", "a", 1, "send", "a", 1, 0),
        ("r", "g", "c", 2, "deliver", "b", 1, 0),
        ("r", "g", "b", 3, "deliver", "a", 1, 0),
        ("r", "g", "a", 2, "deliver", "b", 1, 0),
    ]
    result = audit(spark.createDataFrame(rows, names).repartition(3))
    assert result.total() == Verdict(
        processes=3,
        messages=2,
        deliveries=4,
        causal_deliveries=1,
        causal_late_deliveries=1,
        causal_pairs_late=1,
    )
    (finding,) = result.first(5)
    assert finding.text == "c delivered b:1 before its cause a:1: b delivered a:1 and then sent b:1."
    assert finding.path == ["a:1", "b:1"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kind": "sned"}, "run r: process a, index 0: kind 'sned'"),
        ({"seq": 0}, "run r: process a, index 0: seq 0"),
        ({"origin": None}, "run r: field origin is empty in 1 rows"),
    ],
)
def test_bad_rows_are_named(spark: SparkSession, change: dict[str, Any], says: str) -> None:
    row = {
        "run": "r",
        "group": "g",
        "process": "a",
        "index": 0,
        "kind": "send",
        "origin": "a",
        "seq": 1,
        "time": 0,
    }
    texts = ", ".join(f"{name} string" for name in ("run", "group", "process", "kind", "origin"))
    schema = f"{texts}, index bigint, seq bigint, time bigint"
    events = spark.createDataFrame([{**row, **change}], schema)
    with pytest.raises(InputError, match=says):
        audit(events)


def test_a_dataframe_without_a_column_is_refused_at_once(spark: SparkSession) -> None:
    with pytest.raises(InputError, match="no columns run, group"):
        audit(spark.range(3).toDF("seq"))


def test_a_folder_without_a_trace_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no trace"):
        read_events(spark, str(tmp_path))


def test_a_url_that_only_spark_reads(spark: SparkSession, tmp_path: Path) -> None:
    """A Hadoop file system of its own (viewfs), as s3a or hdfs would be."""
    given: Scenario = scenario(protocol="mbcp", peers=3, seconds=0.5)
    simulate_to(tmp_path / "t", given)
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("fs.viewfs.mounttable.traces.link./shelf", f"file://{tmp_path}")
    url = "viewfs://traces/shelf/t"
    verdict = audit(read_events(spark, url), read_members(spark, url)).total()
    assert (verdict.processes, verdict.clean) == (3, True)


def test_embedded_spark_shares_everything(spark: SparkSession, tmp_path: Path) -> None:
    refuse_unshared(spark, tmp_path / "not even there")
