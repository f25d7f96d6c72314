"""Files of events into causal order: a table as it is, or files as they appear in a folder."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from antecede.causal_order.columns import added_columns, prepare, quoted, refuse_unreadable
from antecede.causal_order.event_files import EventFiles, find_events, follow, read, schema_of
from antecede.causal_order.inspect import accounts, explain
from antecede.causal_order.on_spark import causal_order
from antecede.causal_order.rules import Counts, OnMissing
from antecede.errors import InputError
from antecede.spark.session import connect, refuse_unshared, spark_path, uninterrupted
from antecede.units import parse_duration

CHECKPOINT = "_checkpoint"
"""Where a stream's checkpoint lies in its folder, unless it is given another."""
_OUTCOME = "outcome"
_STATUSES = ("ordered", "released", "held", "quarantined")
_OPEN_FILES = "spark.sql.maxConcurrentOutputFileWriters"
_NAME = "causal_order"
_POLL_SECONDS = 1
_UNREADABLE = re.compile(r"""[\s%"<>\[\]{}|\\^`?#]""")
"""What Spark's reader of states escapes in paths, and then takes for part of the name."""
_EXAMPLES = 3
_NAMED = 3

Progress = Callable[[str, int, int], None]


class Asked(msgspec.Struct):
    """How events are to be ordered: `columns` by their roles and the rules, as for `causal_order`."""

    columns: dict[str, str | None]
    on_missing: str = "hold"
    timeout: str = "10m"
    horizon: str = "24h"
    split: str | None = None
    check: bool = True

    def refuse_nonsense(self) -> None:
        """Before Spark is started for it."""
        if self.on_missing not in list(OnMissing):
            raise InputError(f"--on-missing: {self.on_missing!r} is none of {', '.join(OnMissing)}")
        for option, text in (("timeout", self.timeout), ("horizon", self.horizon)):
            try:
                parse_duration(text)
            except InputError as error:
                raise InputError(f"--{option}: {error}") from error


class Held(msgspec.Struct):
    """A row that a stream holds: what for, what of that has not even come in, and since when."""

    group: str | None
    id: str
    waits_for: list[str]
    missing: list[str]
    since: datetime


class Example(msgspec.Struct):
    """A row that did not come out, and why."""

    group: str | None
    id: str
    status: str
    reason: str
    since: datetime | None = None


class Outcome(msgspec.Struct):
    """What became of the rows."""

    counts: Counts
    examples: list[Example]
    """Some of those that did not come out."""
    interrupted: bool = False


def order_files(
    path: str, out: Path, asked: Asked, master: str | None = None, progress: Progress = lambda *_: None
) -> Outcome:
    """Order all that is there, into Parquet below `out`, parted by outcome."""
    asked.refuse_nonsense()
    source = find_events(path)
    _refuse_inside(source, out)
    if _anything(out):
        raise InputError(f"{out} is not empty; take another folder, or clear it")
    with _session(source, out, master, progress) as spark:
        progress("reading", 0, 0)
        schema = schema_of(spark, source, asked.columns)
        events = read(spark, source, schema, asked.columns, asked.split)
        _refuse(events, source, asked, added_columns(stream=False), progress)
        progress("ordering", 0, 0)
        came, went = Observation(), Observation()
        ordered = _ordered(events.observe(came, F.count(F.lit(1)).alias("rows")), asked)
        ordered = ordered.observe(went, *(F.count_if(F.col("status") == s).alias(s) for s in _STATUSES))
        with _rows_as_they_come(spark):
            _with_outcome(ordered).write.partitionBy(_OUTCOME).mode("append").parquet(str(out.resolve()))
        counts = Counts(**came.get, **went.get)
        counts.duplicates = counts.rows - sum(getattr(counts, status) for status in _STATUSES)
        return Outcome(counts, _examples(spark, out, asked, counts))


def order_as_they_appear(
    path: str,
    out: Path,
    asked: Asked,
    once: bool = False,
    checkpoint: Path | None = None,
    master: str | None = None,
    progress: Progress = lambda *_: None,
) -> Outcome:
    """Order the files in a folder and those that appear there, until Ctrl-C; `once`: those that are there.

    Run again with the same folders, it goes on where it was.
    """
    asked.refuse_nonsense()
    source = find_events(path)
    if not source.path.is_dir():
        raise InputError(f"{path} is a file; a stream is of files that appear in a folder")
    _refuse_inside(source, out)
    kept = checkpoint or out / CHECKPOINT
    _refuse_foreign(out, kept)
    with _session(source, out, master, progress) as spark:
        progress("reading", 0, 0)
        schema = schema_of(spark, source, asked.columns)
        now = read(spark, source, schema, asked.columns, asked.split)
        _refuse(now, source, asked, added_columns(stream=True), progress)
        progress("starting", 0, 0)
        stream = _with_outcome(_ordered(follow(spark, source, schema, asked.columns, asked.split), asked))
        before = _account(spark, kept)
        writer = stream.writeStream.format("parquet").partitionBy(_OUTCOME).queryName("antecede order")
        writer = writer.option("checkpointLocation", str(kept.resolve())).option("path", str(out.resolve()))
        writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime="1 second")
        with _rows_as_they_come(spark):
            query = writer.start()
        interrupted = _watch(query, before, progress)
        progress("counting", 0, 0)
        counts = _account(spark, kept)
        waiting = _held(spark, kept, _EXAMPLES) if counts.held else []
        told = [Example(row.group, row.id, "held", _waits_for(row), row.since) for row in waiting]
        return Outcome(counts, told, interrupted)


def held_by(
    path: Path, limit: int, master: str | None = None, progress: Progress = lambda *_: None
) -> tuple[Counts, list[Held]]:
    """The account of a stream, and what it holds, longest first; `path` is its folder or its checkpoint."""
    if not path.is_dir():
        raise InputError(f"{path} is no folder; give the one that a stream writes into, or its checkpoint")
    kept = path / CHECKPOINT if (path / CHECKPOINT).is_dir() else path
    if not _commits(kept):
        if any(path.glob(f"{_OUTCOME}=*")) and not (path / "_spark_metadata").exists():
            raise InputError(f"{path} is no stream's: what a batch holds is in {path}/{_OUTCOME}=held")
        raise InputError(
            f"{path} has no checkpoint with a batch done; give the folder of a stream, or its checkpoint"
        )
    progress("starting Spark", 0, 0)
    with connect(master) as spark:
        progress("reading", 0, 0)
        counts = _account(spark, kept)
        return counts, _held(spark, kept, limit) if counts.held else []


@contextmanager
def _session(source: EventFiles, out: Path, master: str | None, progress: Progress) -> Iterator[SparkSession]:
    progress("starting Spark", 0, 0)
    with connect(master) as spark:
        refuse_unshared(spark, source.path, source.first)
        out.mkdir(parents=True, exist_ok=True)
        refuse_unshared(spark, out)
        yield spark


def _refuse(
    events: DataFrame, source: EventFiles, asked: Asked, added: Iterable[str], progress: Progress
) -> None:
    """Refuse rows that cannot be ordered."""
    prepared = prepare(events, asked.columns, [*added, _OUTCOME])
    if events.isEmpty():
        raise InputError(f"{source.path} holds no events: there is no row in it")
    if asked.check:
        progress("checking", 0, 0)
        try:
            refuse_unreadable(prepared, asked.columns)
        except InputError as error:
            raise InputError(str(error).replace("say check=False", "give --no-check")) from error


def _ordered(events: DataFrame, asked: Asked) -> DataFrame:
    return causal_order(
        events,
        **asked.columns,
        on_missing=asked.on_missing,
        timeout=asked.timeout,
        horizon=asked.horizon,
        name=_NAME,
        check=False,
    )


def _with_outcome(ordered: DataFrame) -> DataFrame:
    status = F.col("status")
    return ordered.withColumn(
        _OUTCOME, F.when(status.isin("held", "quarantined"), status).otherwise("ordered")
    )


@contextmanager
def _rows_as_they_come(spark: SparkSession) -> Iterator[None]:
    """Let a task keep a file open for each outcome.

    Otherwise Spark sorts rows by outcome before it writes them, and they no longer lie by group and index.
    """
    before = spark.conf.get(_OPEN_FILES, None)
    spark.conf.set(_OPEN_FILES, "4")
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_OPEN_FILES)
        else:
            spark.conf.set(_OPEN_FILES, before)


def _examples(spark: SparkSession, out: Path, asked: Asked, counts: Counts) -> list[Example]:
    """Some of the rows of a batch that did not come out."""
    group, names = asked.columns["group"], [asked.columns[role] for role in ("id", "origin", "seq")]
    whose = F.concat_ws(":", *(F.col(quoted(name)).cast("string") for name in names if name is not None))
    found: list[Example] = []
    for status in ("held", "quarantined"):
        if not getattr(counts, status):
            continue
        rows = spark.read.parquet(spark_path(out / f"{_OUTCOME}={status}")).select(
            (F.lit(None) if group is None else F.col(quoted(group))).cast("string").alias("group"),
            whose.alias("id"),
            F.lit(status).alias("status"),
            "reason",
        )
        found += [Example(**row.asDict()) for row in rows.limit(_EXAMPLES).collect()]
    return found


def _watch(query: StreamingQuery, counts: Counts, progress: Progress) -> bool:
    """Tell how far a stream is until it ends; True if Ctrl-C ended it."""
    seen = -1
    with uninterrupted() as interrupted:
        try:
            while query.isActive and not interrupted:
                query.awaitTermination(_POLL_SECONDS)
                for batch in query.recentProgress:
                    told = batch.observedMetrics.get(_NAME)
                    if told is not None and batch.batchId > seen:
                        seen = batch.batchId
                        for name in Counts.__struct_fields__:
                            setattr(counts, name, getattr(counts, name) + told[name])
                went = counts.ordered + counts.released + counts.late
                progress(f"ordering: {went:,} out, {counts.held:,} held", counts.rows, 0)
        except PySparkException as error:
            raise _failure(error) from error
        finally:
            query.stop()
    failed = query.exception()
    if failed is not None and not interrupted:
        raise _failure(failed)
    return bool(interrupted)


def _failure(error: PySparkException) -> Exception:
    """What a task says no to is not Spark's failure."""
    if "Cannot change timeMode" in str(error):
        return InputError(
            "--on-missing: with a checkpoint, hold cannot become release or quarantine, nor the reverse; go "
            "back, or begin again with another OUT"
        )
    said = re.search(r"antecede\.errors\.InputError: (.+)", str(error))
    return InputError(said[1]) if said else error


def _account(spark: SparkSession, checkpoint: Path) -> Counts:
    if not _commits(checkpoint):
        return Counts()
    (row,) = accounts(spark, str(checkpoint.resolve())).collect()
    return Counts(**row.asDict())


def _held(spark: SparkSession, checkpoint: Path, limit: int) -> list[Held]:
    rows = explain(spark, str(checkpoint.resolve())).orderBy("since", "group", "id").limit(limit).collect()
    return [Held(**row.asDict() | {"since": row.since.astimezone(UTC)}) for row in rows]


def _waits_for(row: Held) -> str:
    more = len(row.waits_for) - _NAMED
    return f"waits for {', '.join(row.waits_for[:_NAMED])}" + (f" and {more:,} more" if more > 0 else "")


def _commits(checkpoint: Path) -> bool:
    """Whether a stream with this checkpoint has a batch done."""
    return any(file.name.isdigit() for file in (checkpoint / "commits").glob("*"))


def _anything(folder: Path) -> bool:
    """Whether a folder has something in it besides what a job left that was stopped."""
    if not folder.exists():
        return False
    if not folder.is_dir():
        raise InputError(f"{folder} is a file; results go into a folder")
    return any(each.name != "_temporary" for each in folder.iterdir())


def _refuse_inside(source: EventFiles, out: Path) -> None:
    """Results must not be taken for events."""
    if source.path.is_dir() and out.resolve().is_relative_to(source.path.resolve()):
        raise InputError(
            f"{out} is in {source.path}, so results would be read as events; take another folder"
        )


def _refuse_foreign(out: Path, checkpoint: Path) -> None:
    """A stream goes on only with its own checkpoint: with another it would lose rows, or write them twice."""
    if odd := _UNREADABLE.search(str(checkpoint.resolve())):
        raise InputError(
            f"{checkpoint}: Spark does not find a stream's state again where a path has {odd[0]!r} in it; "
            "name another place with --checkpoint"
        )
    begun, done = (checkpoint / "metadata").exists(), (out / "_spark_metadata").exists()
    if _commits(checkpoint) and not done:
        raise InputError(
            f"{checkpoint} is the checkpoint of a stream that wrote elsewhere than {out}; take its folder, "
            "or another checkpoint"
        )
    if _anything(out) and not begun:
        raise InputError(
            f"{out} is not empty, and there is no checkpoint of a stream that wrote it in {checkpoint}; take "
            "another folder, or name its checkpoint"
        )
