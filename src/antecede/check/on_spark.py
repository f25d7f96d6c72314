"""Explorations that outgrow one machine: each level of states is a Spark job.

Level n is a folder of Parquet: the states after n events that were not reached in fewer, each once. A task
expands its share of a level and writes the states that follow, what it found of processes and packets, and
its counts. Then Spark removes known states by their hashes. The folders are the only state: a stopped
exploration resumes at its last complete level, and a lost task is run again.

    contents/level=n   what hashes of processes and packets stand for (`portable`)
    raw/level=n        what the tasks of level n wrote
    states/level=n     the states of a level

Every task reads all contents: a few thousand to a few hundred thousand rows. The driver holds counts.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from antecede.check.bounds import Bounds
from antecede.check.explore import Exploration, ExplorationProgress
from antecede.check.group import CheckedGroup, CheckViolation
from antecede.check.portable import PortableStates, as_contents
from antecede.errors import InputError
from antecede.protocols.catalog import find_protocol
from antecede.spark.session import connect, refuse_unshared, spark_path
from antecede.trace.writer import write_whole

_STATE, _CONTENT, _VIOLATION, _COUNTS = range(4)
_RAW = pa.schema(
    [
        ("kind", pa.int8()),
        ("hash", pa.int64()),
        ("is_packet", pa.bool_()),
        ("data", pa.binary()),
        ("process", pa.int64()),
        ("message", pa.int64()),
        ("claim", pa.string()),
        ("transitions", pa.int64()),
        ("ends", pa.int64()),
    ]
)
_BATCH = 20_000


class ExplorationPlan(msgspec.Struct, frozen=True):
    """What is explored in a folder."""

    protocol: str
    bounds: Bounds
    order: bool
    symmetry: bool

    def create(self) -> Exploration:
        return Exploration(CheckedGroup(find_protocol(self.protocol), self.bounds), self.order, self.symmetry)


def explore_on_spark(
    plan: ExplorationPlan, folder: Path, max_states: int, master: str | None = None
) -> Iterator[ExplorationProgress]:
    """Explore like `Exploration.run`, with the same counts; yields after each level."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_plan(plan, folder)
    python_path = [Path.cwd()] if ":" in plan.protocol else []
    with connect(master, python_path) as spark:
        refuse_unshared(spark, folder)
        levels = _Levels(spark, plan, folder)
        progress = ExplorationProgress(states=0)
        level = 0
        states = levels.initial()
        while states:
            progress.states += states
            progress.depth = level
            if progress.states > max_states:
                break
            levels.expand(level)
            transitions, ends = levels.counts(level)
            progress.transitions += transitions
            progress.ends += ends
            progress.violation = levels.violation(level)
            if progress.violation is not None:
                break
            states = levels.follow(level)
            level += 1
            progress.is_complete = not states
            yield progress
        yield progress


def _write_plan(plan: ExplorationPlan, folder: Path) -> None:
    file, data = folder / "plan.json", msgspec.json.encode(plan)
    if file.exists() and file.read_bytes() != data:
        raise InputError(f"{folder} has another exploration in it; name a folder of its own")
    if not file.exists():
        write_whole(file, data)


class _Levels:
    """The folders of an exploration."""

    def __init__(self, spark: SparkSession, plan: ExplorationPlan, folder: Path) -> None:
        self._spark, self._plan, self._folder = spark, plan, folder

    def initial(self) -> int:
        """Write the initial state, unless it exists. Returns the number of states."""
        if not self._is_complete("states", 0):
            group = self._plan.create().group
            portable = PortableStates(group)
            key, data = portable.encode(group.initial)
            contents = [tuple(content) for content in portable.news()]
            frame = self._spark.createDataFrame(contents, "hash long, is_packet boolean, data binary")
            self._write(frame, "contents", 0)
            self._write(self._spark.createDataFrame([(key, data)], "hash long, data binary"), "states", 0)
        return 1

    def expand(self, level: int) -> None:
        """Run the tasks that write the successors of a level."""
        if self._is_complete("raw", level):
            return
        # Not those of later levels, left by a stopped run: they are written again.
        plan, contents = self._plan, [str(self._path("contents", each)) for each in range(level + 1)]
        states = self._read("states", level)
        found = states.mapInArrow(lambda batches: expand(plan, contents, batches), from_arrow_schema(_RAW))
        self._write(found, "raw", level)
        new = self._read("raw", level).where(F.col("kind") == _CONTENT)
        self._write(new.select("hash", "is_packet", "data").dropDuplicates(["hash"]), "contents", level + 1)

    def counts(self, level: int) -> tuple[int, int]:
        """The transitions from a level, and how many of its states have none."""
        rows = self._read("raw", level).where(F.col("kind") == _COUNTS)
        total = rows.agg(F.sum("transitions"), F.sum("ends")).first()
        return (int(total[0] or 0), int(total[1] or 0)) if total is not None else (0, 0)

    def violation(self, level: int) -> CheckViolation | None:
        found = self._read("raw", level).where(F.col("kind") == _VIOLATION).orderBy("process", "data").first()
        if found is None:
            return None
        words = bytes(found["data"]).decode()
        return CheckViolation(found["process"], words, found["message"], found["claim"])

    def follow(self, level: int) -> int:
        """Write the next level: successors of this one that were not reached before. Returns their number."""
        if not self._is_complete("states", level + 1):
            found = self._read("raw", level).where(F.col("kind") == _STATE).select("hash", "data")
            known = self._spark.read.parquet(spark_path(self._folder / "states")).select("hash")
            self._write(found.dropDuplicates(["hash"]).join(known, "hash", "left_anti"), "states", level + 1)
        return self._read("states", level + 1).count()

    def _path(self, kind: str, level: int) -> Path:
        return self._folder / kind / f"level={level}"

    def _is_complete(self, kind: str, level: int) -> bool:
        return (self._path(kind, level) / "_SUCCESS").exists()

    def _read(self, kind: str, level: int) -> DataFrame:
        return self._spark.read.parquet(spark_path(self._path(kind, level)))

    def _write(self, frame: DataFrame, kind: str, level: int) -> None:
        path = self._path(kind, level)
        shutil.rmtree(path, ignore_errors=True)  # Left by a job that did not finish.
        frame.write.parquet(spark_path(path))


def expand(
    plan: ExplorationPlan, contents: list[str], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The successors of some states of a level; runs in a task."""
    exploration = plan.create()
    group, portable = exploration.group, PortableStates(exploration.group)
    for folder in contents:
        rows = ds.dataset(folder, format="parquet").to_table(["hash", "is_packet", "data"])
        portable.learn(as_contents(rows.to_pylist()))
    following: dict[int, bytes] = {}
    transitions = ends = 0
    violations: list[CheckViolation] = []
    for batch in batches:
        for data in batch.column("data").to_pylist():
            state = portable.decode(data)
            events = exploration.events(state)
            transitions += len(events)
            ends += not events
            if not events and (violation := group.judge_end(state)) is not None:
                violations.append(violation)
            for event in events:
                after = group.apply(state, event)
                if isinstance(after, CheckViolation):
                    violations.append(after)
                else:
                    key, encoded = portable.encode(after)
                    following[key] = encoded
    found = [_row(_STATE, hash=key, data=data) for key, data in following.items()]
    found += [_row(_CONTENT, **content._asdict()) for content in portable.news()]
    for process, words, message, claim in violations:
        found.append(_row(_VIOLATION, process=process, data=words.encode(), message=message, claim=claim))
    found.append(_row(_COUNTS, transitions=transitions, ends=ends))
    for start in range(0, len(found), _BATCH):
        yield pa.RecordBatch.from_pylist(found[start : start + _BATCH], schema=_RAW)


def _row(kind: int, **fields: Any) -> dict[str, Any]:
    return dict.fromkeys(_RAW.names) | {"kind": kind} | fields
