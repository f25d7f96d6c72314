"""A trace as a Spark data source: every row once, while it is written, stopped and restarted."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles
from pyspark.sql.streaming.query import StreamingQuery

from antecede.audit.core import judge_files
from antecede.errors import InputError
from antecede.spark import audit, read_events, read_members, register
from antecede.spark.session import spark_error_message
from antecede.spark.source import TraceSource, TraceStream, _list_folders
from antecede.trace.reader import trace_files
from antecede.trace.schema import FIELDS, SCHEMA, Meta
from antecede.trace.writer import TraceWriter, part_name, part_number

ALL = ReadAllAvailable()
COLUMNS = ("run", "group", "process", "index", "kind", "origin", "seq", "time", "link")
Rows = Counter[tuple[str, int]]
"""The run and the index of each row."""


def writer(folder: Path, run: str = "r", part_rows: int = 3) -> TraceWriter:
    return TraceWriter(folder, Meta(run=run, groups={}), COLUMNS, part_rows=part_rows)


def sends(run: str, first: int, end: int) -> pa.Table:
    rows = [(run, "g", "a", index, "send", "a", index + 1, 0, None) for index in range(first, end)]
    schema = pa.schema([(name, FIELDS[name][0]) for name in COLUMNS])
    return pa.Table.from_pylist([dict(zip(COLUMNS, row, strict=True)) for row in rows], schema=schema)


def write(folder: Path, rows: int, run: str = "r", part_rows: int = 3) -> None:
    with writer(folder, run, part_rows) as opened:
        opened.extend(sends(run, 0, rows))


def stream(folder: Path, **options: str) -> TraceStream:
    source = TraceSource(CaseInsensitiveDict({"path": str(folder), **options}))
    return source.streamReader(source.schema())


def latest(reader: TraceStream, start: dict[str, Any], limit: ReadLimit = ALL) -> dict[str, Any]:
    """An offset as it comes back from a checkpoint."""
    found: dict[str, Any] = json.loads(json.dumps(reader.latestOffset(start, limit)))
    return found


def between(reader: TraceStream, start: dict[str, Any], end: dict[str, Any]) -> Rows:
    batches = [batch for partition in reader.partitions(start, end) for batch in reader.read(partition)]
    assert all(batch.schema == SCHEMA for batch in batches)
    return Counter((row["run"], row["index"]) for batch in batches for row in batch.to_pylist())


@pytest.mark.parametrize("seed", range(5))
def test_every_row_is_read_once_from_traces_that_grow_concurrently(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    runs = {f"deep/{name}" if rng.random() < 0.5 else name: name for name in "abcd"}
    writers = {run: writer(tmp_path / trace, run) for trace, run in runs.items()}
    written = Counter(dict.fromkeys(runs.values(), 0))
    reader = stream(tmp_path)
    offset, seen, past = reader.initialOffset(), Rows(), []
    for step in range(40):
        for run in rng.sample(sorted(writers), rng.randint(0, len(writers))):
            more = rng.randint(1, 9)
            writers[run].extend(sends(run, written[run], written[run] + more))
            written[run] += more
            if rng.random() < 0.05 or step == 39:
                writers.pop(run).close()
        if rng.random() < 0.3:
            reader = stream(tmp_path)
        max_parts = rng.choice([None, 1, 2, 5])
        end = latest(reader, offset, ALL if max_parts is None else ReadMaxFiles(max_parts))
        got = between(reader, offset, end)
        if max_parts is not None:
            assert sum(got.values()) <= 3 * max_parts
        assert bool(got) == (end != offset)
        seen += got
        past.append((offset, end, got))
        offset = end
    for opened in writers.values():
        opened.close()
    end = latest(reader, offset)
    seen += between(reader, offset, end)
    assert seen == Counter((run, index) for run, rows in written.items() for index in range(rows))
    again = stream(tmp_path)
    assert [between(again, start, end) for start, end, _ in past] == [got for *_, got in past]
    assert latest(again, end) == end


def test_an_offset_is_as_long_for_many_parts_as_for_few(tmp_path: Path) -> None:
    write(tmp_path / "few", 9)
    write(tmp_path / "many", 900)
    lengths = []
    for name in ("few", "many"):
        reader = stream(tmp_path / name)
        lengths.append(len(json.dumps(latest(reader, reader.initialOffset()))))
    assert lengths[1] - lengths[0] <= 4


def test_the_trace_furthest_behind_is_read_first(tmp_path: Path) -> None:
    for name, rows in (("a", 30), ("b", 30), ("c", 3)):
        write(tmp_path / name, rows, name)
    reader = stream(tmp_path)
    first = latest(reader, reader.initialOffset(), ReadMaxFiles(7))
    assert {trace: read["parts"] for trace, read in first["traces"].items()} == {"a": 3, "b": 3, "c": 1}
    write(tmp_path / "d", 30, "d")
    second = latest(reader, first, ReadMaxFiles(2))
    assert {trace: read["parts"] for trace, read in second["traces"].items()} == {
        "a": 3,
        "b": 3,
        "c": 1,
        "d": 2,
    }


def test_available_now_stops_at_the_end_seen_at_its_start(tmp_path: Path) -> None:
    opened = writer(tmp_path / "a")
    opened.extend(sends("r", 0, 12))
    reader = stream(tmp_path)
    reader.prepareForTriggerAvailableNow()
    opened.extend(sends("r", 12, 30))
    write(tmp_path / "later", 9)
    end = latest(reader, reader.initialOffset(), ReadMaxFiles(3))
    end = latest(reader, end, ReadMaxFiles(3))
    assert {trace: read["parts"] for trace, read in end["traces"].items()} == {"a": 4}
    assert latest(reader, end, ReadMaxFiles(3)) == end


def test_small_parts_share_tasks_and_large_ones_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a", 300)
    write(tmp_path / "b", 3)
    reader = stream(tmp_path)
    start, end = reader.initialOffset(), latest(reader, reader.initialOffset())
    assert 1 < len(reader.partitions(start, end)) < 10
    monkeypatch.setattr("antecede.spark.source._PARTITION_BYTES", 1)
    assert len(reader.partitions(start, end)) == 101
    assert len(reader.partitions(end, end)) == 0


def gone(folder: Path) -> None:
    shutil.rmtree(folder)


def removed(folder: Path) -> None:
    (folder / part_name(1)).unlink()


@pytest.mark.parametrize(
    "change",
    [
        gone,
        lambda folder: write(folder, 6, "s"),
        lambda folder: write(folder, 12, "s"),
        lambda folder: write(folder, 60, "s"),
        lambda folder: write(folder, 60, part_rows=4),
        removed,
    ],
    ids=["gone", "fewer", "as many", "more", "other parts", "one removed"],
)
def test_a_replaced_trace_is_refused(tmp_path: Path, change: Callable[[Path], None]) -> None:
    trace = tmp_path / "deep" / "t"
    write(trace, 12)
    write(tmp_path / "other", 12)
    reader = stream(tmp_path)
    start = reader.initialOffset()
    middle, end = latest(reader, start, ReadMaxFiles(4)), latest(reader, start)
    planned = reader.partitions(middle, end)
    change(trace)
    for each in (reader, stream(tmp_path)):
        with pytest.raises(InputError, match=f"{trace}/part-0.*: the trace was replaced, or a part"):
            latest(each, end)
        with pytest.raises(InputError, match=f"{trace}/part-0.*: the trace was replaced, or a part"):
            each.partitions(start, end)
    if change is not removed:
        with pytest.raises(InputError, match=f"{trace}/part-0.*: the trace was replaced"):
            [batch for partition in planned for batch in reader.read(partition)]


def test_a_trace_replaced_by_the_same_rows_is_the_same_trace(tmp_path: Path) -> None:
    write(tmp_path, 12)
    reader = stream(tmp_path)
    end = latest(reader, reader.initialOffset())
    write(tmp_path, 30)
    later = latest(reader, end)
    assert between(reader, end, later) == Counter(("r", index) for index in range(12, 30))


def test_a_part_that_a_listing_does_not_show_yet_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 12)
    shown = [part_name(0), part_name(2), part_name(3)]
    monkeypatch.setattr("antecede.spark.source._list_folders", lambda folder: [(folder, shown)])
    reader = stream(tmp_path)
    end = latest(reader, reader.initialOffset())
    assert end["traces"]["."]["parts"] == 1
    shown.remove(part_name(0))
    assert latest(reader, end) == end
    assert latest(reader, reader.initialOffset()) == reader.initialOffset()


def damaged(folder: Path) -> None:
    (folder / part_name(0)).write_bytes(b"PAR1 and no more")


def narrow(folder: Path) -> None:
    part = folder / part_name(0)
    pq.write_table(pq.read_table(part).drop_columns(["seq"]), part)


def newer(folder: Path) -> None:
    meta = folder / "_meta/meta.json"
    meta.write_text(meta.read_text().replace('"schema_version": 1', '"schema_version": 9'))


BAD: dict[Callable[[Path], None], str] = {
    damaged: r"part-00000.parquet is a truncated or damaged Parquet file",
    narrow: r"part-00000.parquet has no column seq; a trace needs",
    newer: r"_meta/meta.json: the trace has schema version 9, this Antecede reads up to 1",
}


@pytest.mark.parametrize("change", BAD)
def test_errors_name_the_file(tmp_path: Path, change: Callable[[Path], None]) -> None:
    write(tmp_path, 3)
    change(tmp_path)
    reader = stream(tmp_path)
    with pytest.raises(InputError, match=f"^{tmp_path}/{BAD[change]}"):
        latest(reader, reader.initialOffset())
    source = TraceSource(CaseInsensitiveDict({"path": str(tmp_path)}))
    batch = source.reader(source.schema())
    with pytest.raises(InputError, match=f"^{tmp_path}/{BAD[change]}"):
        [rows for partition in batch.partitions() for rows in batch.read(partition)]


def test_files_a_stream_cannot_read_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "t", 3)
    for name in ("rows.parquet", "rows.csv", "part-000001.parquet"):
        other = tmp_path / "t" / name
        other.touch()
        reader = stream(tmp_path)
        with pytest.raises(InputError, match=f"^{other} is not named like part-00000.parquet"):
            latest(reader, reader.initialOffset())
        other.unlink()
    reader = stream(tmp_path / "t" / part_name(0))
    with pytest.raises(InputError, match="is a file; a stream reads a folder"):
        latest(reader, reader.initialOffset())
    for offset in ({"index": 3}, {"traces": {"t": 3}}, {"version": 2}):
        with pytest.raises(InputError, match="the checkpoint "):
            latest(stream(tmp_path), offset)


def test_options_are_validated(tmp_path: Path) -> None:
    write(tmp_path, 3)
    assert stream(tmp_path, maxPartsPerBatch="7").getDefaultReadLimit() == ReadMaxFiles(7)
    for options, message in (
        (
            {"maxFilesPerTrigger": "3"},
            "there is no option maxfilespertrigger; the only one is maxPartsPerBatch",
        ),
        ({"maxPartsPerBatch": "0"}, "maxPartsPerBatch must be a number from 1, not 0"),
        ({"path": ""}, "name the trace"),
        ({"path": "s3a://bucket/trace"}, "s3a://bucket/trace is a URL"),
        ({"path": "", "paths": '["a", "b"]'}, "load one folder at a time"),
    ):
        with pytest.raises(InputError, match=message):
            TraceSource(CaseInsensitiveDict({"path": str(tmp_path), **options})).schema()


def test_a_stream_reads_the_files_that_an_audit_reads(tmp_path: Path) -> None:
    names = (
        "a.parquet",
        "b.jsonl",
        "c.ndjson",
        "d.csv",
        "e.txt",
        ".f.parquet",
        "_g.csv",
        "_h/i.csv",
        "j/k.csv",
    )
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert sorted(
        folder / name for folder, found in _list_folders(tmp_path) for name in found
    ) == trace_files(tmp_path)
    assert [part_number(part_name(number)) for number in (0, 99999, 100000)] == [0, 99999, 100000]


def streamed(spark: SparkSession, folder: Path, **options: str) -> DataFrame:
    return spark.readStream.format("antecede").options(**options).load(str(folder))


def into(out: Path, rows: DataFrame) -> StreamingQuery:
    sink = rows.writeStream.format("parquet").option("checkpointLocation", f"{out}-checkpoint")
    return sink.start(str(out))


def in_order(rows: DataFrame) -> pa.Table:
    return rows.toArrow().select(list(FIELDS)).sort_by([("process", "ascending"), ("index", "ascending")])


def wait_for(what: Callable[[], object]) -> None:
    end = time.monotonic() + 120
    while not what():
        assert time.monotonic() < end
        time.sleep(0.002)


def test_a_stream_reads_a_running_simulation_and_continues_where_it_stopped(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The simulation is halted twice, so that the stream surely runs, stops and starts within it."""
    register(spark)
    trace, out = tmp_path / "runs" / "one", tmp_path / "out"
    words = [
        "--protocol",
        "mbcp",
        "--peers",
        "8",
        "--seconds",
        "100",
        "--fault",
        "loss:1%",
        "--part-rows",
        "5000",
    ]
    trace.mkdir(parents=True)
    simulation = subprocess.Popen(
        [sys.executable, "-m", "antecede", "simulate", *words, "--out", str(trace)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        read = []
        for parts in (3, 8):
            wait_for(lambda parts=parts: (trace / part_name(parts)).exists())  # type: ignore[misc]
            simulation.send_signal(signal.SIGSTOP)
            query = into(out, streamed(spark, tmp_path / "runs", maxPartsPerBatch="4"))
            query.processAllAvailable()
            read.append(sum(batch["numInputRows"] for batch in query.recentProgress))
            simulation.send_signal(signal.SIGCONT)
            if parts == 8:
                _, message = simulation.communicate(timeout=120)
                assert simulation.returncode == 0, message
                query.processAllAvailable()
            query.stop()
    finally:
        simulation.kill()
        simulation.wait()
        for active in spark.streams.active:
            active.stop()
    got = spark.read.parquet(str(out))
    rows = in_order(spark.read.format("antecede").load(str(tmp_path / "runs")))
    assert in_order(got) == rows == in_order(read_events(spark, str(trace)))
    assert 0 < read[0] < sum(read) < rows.num_rows
    verdict = audit(got, read_members(spark, str(trace))).total()
    assert not verdict.clean
    assert [verdict] == [each.verdict for each in judge_files(trace, trace_files(trace))]


def test_a_replayed_batch_has_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    """As after a crash: Spark has written down what it would read, and not that it did."""
    register(spark)
    trace, checkpoint = tmp_path / "t", tmp_path / "checkpoint"
    opened = writer(trace)
    opened.extend(sends("r", 0, 20))
    done: list[tuple[int, list[int]]] = []

    def note(batch: DataFrame, number: int) -> None:
        done.append((number, sorted(row["index"] for row in batch.select("index").collect())))

    def run() -> None:
        sink = streamed(spark, tmp_path, maxPartsPerBatch="4").writeStream.foreachBatch(note)
        sink.option("checkpointLocation", str(checkpoint)).trigger(
            availableNow=True
        ).start().awaitTermination()

    run()
    assert done == [(0, list(range(12))), (1, list(range(12, 18)))]
    (checkpoint / "commits" / "1").unlink()
    (checkpoint / "commits" / ".1.crc").unlink()
    opened.extend(sends("r", 20, 31))
    run()
    assert done[2:] == [(1, list(range(12, 18))), (2, list(range(18, 30)))]
    opened.close()
    write(trace, 40, "s")
    with pytest.raises(StreamingQueryException) as refused:
        run()
    message = str(refused.value).splitlines()[0]
    assert f"InputError: {trace}/part-00009.parquet has changed: the trace was replaced" in message


def test_a_spark_user_sees_the_input_error_message(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    with pytest.raises(AnalysisException) as refused:
        spark.read.format("antecede").load(str(tmp_path / "nowhere"))
    assert f"InputError: {tmp_path}/nowhere does not exist" in str(refused.value).splitlines()[0]
    write(tmp_path / "t", 9)
    rows = spark.read.format("antecede").load(str(tmp_path))
    write(tmp_path / "u", 9)
    assert rows.count() == 9
    damaged(tmp_path / "t")
    with pytest.raises(PythonException) as broken:
        rows.count()
    assert f"{tmp_path}/t/part-00000.parquet is a truncated" in spark_error_message(broken.value)
    assert "Traceback" not in str(broken.value)
