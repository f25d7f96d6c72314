"""The audit on Spark agrees with the oracle, wherever the rows are stored."""

from __future__ import annotations

import random
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from antecede.audit.core import COUNTS, Finding, judge_files, judge_run, sum_verdicts
from antecede.audit.prepared_run import LARGE_RUN
from antecede.errors import InputError
from antecede.sim.record import simulate_to
from antecede.sim.scenario import Scenario, scenario
from antecede.spark import audit, read_events, read_members
from antecede.spark.read import members_frame
from antecede.spark.session import is_connect, refuse_unshared, spark_path
from antecede.trace.reader import trace_files
from antecede.trace.schema import FIELDS, REQUIRED, Meta
from planted import spoil
from random_executions import any_execution, as_rows


@pytest.fixture
def faulty(tmp_path: Path) -> Path:
    """Several runs, each with planted faults."""
    for seed in range(4):
        given = scenario(protocol="mbcp", peers=3 + seed, seconds=1, seed=seed)
        trace = tmp_path / "runs" / given.key()
        simulate_to(trace, given)
        part = trace / "part-00000.parquet"
        pq.write_table(spoil(pq.read_table(part), seed, faults=1 + 3 * seed).rows, part)
    return tmp_path / "runs"


def test_spark_and_the_oracle_agree_on_planted_faults(spark: SparkSession, faulty: Path) -> None:
    local = {each.run: each for each in judge_files(faulty, trace_files(faulty))}
    result = audit(read_events(spark, str(faulty)), read_members(spark, str(faulty)))
    assert dict(result.by_run()) == {run: each.verdict for run, each in local.items()}
    assert result.total() == sum_verdicts([each.verdict for each in local.values()])
    assert not result.total().clean
    found = {(f.run, f.process, f.cause, f.effect, f.late, f.text) for f in result.first(100_000)}
    assert found == {
        (f.run, f.process, f.cause, f.effect, f.late, f.text)
        for each in local.values()
        for f in each.findings
    }


def test_without_members_every_process_in_the_trace_is_expected(spark: SparkSession, faulty: Path) -> None:
    with_members = audit(read_events(spark, str(faulty)), read_members(spark, str(faulty))).total()
    without = audit(read_events(spark, str(faulty))).total()
    assert with_members == without


def test_a_member_that_never_appears_misses_everything(spark: SparkSession, tmp_path: Path) -> None:
    simulate_to(tmp_path, scenario(protocol="mbcp", peers=3, seconds=0.5))
    meta = tmp_path / "_meta/meta.json"
    meta.write_text(meta.read_text().replace('"p2"', '"p2", "silent"'))
    verdict = audit(read_events(spark, str(tmp_path)), read_members(spark, str(tmp_path))).total()
    assert verdict.processes == 4
    assert verdict.missing == verdict.messages > 0
    assert verdict == sum_verdicts([each.verdict for each in judge_files(tmp_path, trace_files(tmp_path))])


def test_rows_may_come_from_any_session_in_any_order(spark: SparkSession) -> None:
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
    expected = dict.fromkeys(COUNTS, 0) | {"processes": 3, "messages": 2, "deliveries": 4}
    expected |= {"causal_violations": 1, "causal_late_deliveries": 1, "causal_pairs_late": 1}
    assert asdict(result.total()) == expected
    verdict = result.verdicts.first()
    assert verdict is not None
    assert (verdict.causal_violations, verdict.causal_deliveries) == (1, 1)  # the latter is deprecated
    assert (verdict.fifo_violations, verdict.fifo_deliveries) == (0, 0)
    (finding,) = result.first(5)
    assert finding.text == "c delivered b:1 before its cause a:1: b delivered a:1 and then sent b:1."
    assert finding.path == ["a:1", "b:1"]


@pytest.mark.parametrize("large_run", [LARGE_RUN, 0])
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kind": "sned"}, "run r: process a, index 0: kind 'sned'"),
        ({"seq": 0}, "run r: process a, index 0: seq 0"),
        ({"origin": None}, "run r: field origin is empty in 1 row"),
        ({"origin": "b"}, "run r: process a, index 0: it sends a message of b"),
        ({"index": 1}, "run r: process a has two events with index 1"),
        ({"seq": 2}, "run r: a:2 is sent twice, again at index 1"),
        ({"destinations": ["a", None]}, "run r: the destinations of a:1 have an empty name among them"),
    ],
)
def test_bad_rows_are_named(spark: SparkSession, change: dict[str, Any], says: str, large_run: int) -> None:
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
    schema = f"{texts}, index bigint, seq bigint, time bigint, destinations array<string>"
    events = spark.createDataFrame([{**row, **change}, row | {"index": 1, "seq": 2}], schema)
    with pytest.raises(InputError, match=says):
        audit(events, large_run=large_run)


@pytest.mark.parametrize("seed", [1, 78])
def test_many_tasks_judge_a_run_as_one_task_does(spark: SparkSession, seed: int) -> None:
    """With cycles, several audiences, orphans and whatever else is wrong; 1 has impossible deliveries."""
    source = random.Random(seed)
    table, members = as_rows(source, any_execution(source))
    alone = judge_run("r", table, members)
    known = members_frame(spark, [Meta("r", dict(members))])
    shared = audit(spark.createDataFrame(table), known, large_run=0)
    assert shared.total() == alone.verdict
    assert shared.tally("r") == alone.tally
    assert sorted(map(told, shared.first(1_000))) == sorted(map(told, alone.findings))


def told(finding: Finding) -> tuple[Any, ...]:
    """A finding without its path: several paths may be equally short."""
    return (
        finding.process,
        finding.cause,
        finding.effect,
        finding.late,
        len(finding.path),
        finding.consequences,
    )


@pytest.mark.parametrize("directly", [False, True])
def test_large_and_small_runs_are_judged_side_by_side(
    spark: SparkSession, faulty: Path, directly: bool
) -> None:
    """Also where workers read the files themselves."""
    local = {each.run: each.verdict for each in judge_files(faulty, trace_files(faulty))}
    events = read_events(spark, str(faulty))
    sizes = sorted(row["count"] for row in events.groupBy("run").count().collect())
    files = trace_files(faulty) if directly else []
    result = audit(events, read_members(spark, str(faulty)), large_run=sizes[-2], files=files)
    assert dict(result.by_run()) == local
    worst = max(finding.consequences for finding in result.first(1_000))
    assert result.first(1)[0].consequences == worst > 1
    result.release()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kind": "sned"}, "run r: process a, index 0: kind 'sned'"),
        ({"seq": 0}, "run r: process a, index 0: seq 0"),
        ({"origin": None}, "part.parquet, row 1, field origin: it is empty"),
        ({"origin": "b"}, "run r: process a, index 0: it sends a message of b"),
    ],
)
def test_bad_rows_of_files_that_workers_read_are_named(
    spark: SparkSession, tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    row = dict(zip(REQUIRED, ("r", "g", "a", 0, "send", "a", 1, 0), strict=True))
    schema = pa.schema([(name, FIELDS[name][0]) for name in REQUIRED])
    rows = [{**row, **change}, row | {"index": 1, "seq": 2}]
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), tmp_path / "part.parquet")
    events = read_events(spark, str(tmp_path))
    with pytest.raises(InputError, match=says):
        audit(events, large_run=0, files=[tmp_path / "part.parquet"])


def test_a_dataframe_without_a_column_is_refused_at_once(spark: SparkSession) -> None:
    with pytest.raises(InputError, match="no columns run, group"):
        audit(spark.range(3).toDF("seq"))


def test_a_folder_without_a_trace_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no trace"):
        read_events(spark, str(tmp_path))


def test_a_url_only_spark_can_read_is_audited(spark: SparkSession, tmp_path: Path) -> None:
    """A Hadoop file system of its own (viewfs), as s3a or hdfs would be."""
    if is_connect(spark):
        pytest.skip("the file system is set up in this process's own JVM")
    given: Scenario = scenario(protocol="mbcp", peers=3, seconds=0.5)
    simulate_to(tmp_path / "t", given)
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("fs.viewfs.mounttable.traces.link./shelf", f"file://{tmp_path}")
    url = "viewfs://traces/shelf/t"
    verdict = audit(read_events(spark, url), read_members(spark, url)).total()
    assert (verdict.processes, verdict.clean) == (3, True)


def test_embedded_spark_can_read_every_local_path(spark: SparkSession, tmp_path: Path) -> None:
    if is_connect(spark):
        pytest.skip("this Spark is not embedded")
    refuse_unshared(spark, tmp_path / "not even there")


def test_parts_with_different_widths_and_optional_columns_are_read_together(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The same answer here and on Spark, whichever part comes first; and odd names of folders."""
    folder = tmp_path / "odd [ab]{x,y}*"
    folder.mkdir()
    base: dict[str, Any] = {"run": "r", "group": "g", "time": 0}
    first = [
        {**base, "process": "a", "index": 0, "kind": "send", "origin": "a", "seq": 1},
        {**base, "process": "b", "index": 0, "kind": "deliver", "origin": "a", "seq": 1},
    ]
    second = [{**first[0], "index": 1, "seq": 2, "destinations": ["z"]}]
    narrow = pa.Table.from_pylist(first)
    place = narrow.column_names.index("seq")
    pq.write_table(
        narrow.set_column(place, "seq", narrow.column("seq").cast(pa.int32())), folder / "1.parquet"
    )
    pq.write_table(pa.Table.from_pylist(second), folder / "2.parquet")
    here = sum_verdicts([each.verdict for each in judge_files(folder, trace_files(folder))])
    assert (here.processes, here.missing) == (3, 1)
    assert audit(read_events(spark, spark_path(folder))).total() == here


def test_a_run_described_in_two_ways_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    given = scenario(protocol="mbcp", peers=2, seconds=0.2)
    for name in ("one", "other"):
        simulate_to(tmp_path / name, given)
    meta = tmp_path / "other" / "_meta/meta.json"
    meta.write_text(meta.read_text().replace('"p1"', '"p9"'))
    (tmp_path / "other" / "part-00000.parquet").unlink()
    with pytest.raises(InputError, match=r"two meta\.json"):
        audit(read_events(spark, str(tmp_path)), read_members(spark, str(tmp_path)))
    with pytest.raises(InputError, match=r"two meta\.json"):
        list(judge_files(tmp_path, trace_files(tmp_path)))
