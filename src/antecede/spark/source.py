"""Traces as a Spark data source: the rows that are there now, or a stream of rows while they are written.

    spark.readStream.format("antecede").load("trace/")

A writer numbers the parts of a trace and renames each into place when it is complete. The offset of a stream
has one entry per trace, however many parts it has: how many parts were read, and a fingerprint of the last of
them. As long as that part is unchanged, so are all parts before it, because a writer that replaces a trace
removes its old parts first. So a pair of offsets always denotes the same rows, or an error.
"""

from __future__ import annotations

import heapq
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any
from weakref import WeakSet

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from antecede.errors import InputError
from antecede.trace.bad_rows import brief
from antecede.trace.reader import TRACE_SUFFIXES, open_parquet, read_batches, read_metas, trace_files
from antecede.trace.schema import META, SCHEMA, read_meta, with_all_columns
from antecede.trace.validate import first_line
from antecede.trace.writer import part_name, part_number

_MAX_PARTS = 1000
"""The default of the option `maxPartsPerBatch`."""
_OPTIONS = ("path", "maxPartsPerBatch")
_FINGERPRINT_BYTES = 1 << 16
_PARTITION_BYTES = 8 << 20
_OPEN_COST = 256 << 10
"""The cost of opening a file, in equivalent bytes to read, so that many small parts share a task, but not all
of them."""

_REGISTERED: WeakSet[SparkSession] = WeakSet()
"""Spark warns if a source is registered twice."""


def register(spark: SparkSession) -> None:
    """Let a session read `format("antecede")`, also a session of `connect`.

    `connect` does not do this itself: Spark then looks for sources in another Python process, which takes a
    second.
    """
    if spark not in _REGISTERED:
        spark.dataSource.register(TraceSource)
        _REGISTERED.add(spark)


class TraceSource(DataSource):
    """The rows of all traces in a folder, in the columns of a trace."""

    _files: Sequence[Path] = ()

    @classmethod
    def name(cls) -> str:
        return "antecede"

    def schema(self) -> StructType:
        with _one_line_errors():
            self.max_parts()
            folder = self.folder()
            # A DataFrame always has the same rows, even if the trace grows.
            self._files = trace_files(folder) if folder.is_file() or any(_list_folders(folder)) else []
        return from_arrow_schema(SCHEMA)

    def reader(self, schema: StructType) -> TraceReader:
        with _one_line_errors():
            _refuse_other(schema)
            return TraceReader(self.folder(), self._files)

    def streamReader(self, schema: StructType) -> TraceStream:  # noqa: N802
        # Spark loses errors that are raised here, so the first method of the stream raises them.
        return TraceStream(self, schema)

    def folder(self) -> Path:
        unknown = [name for name in self.options if name not in map(str.lower, _OPTIONS)]
        if "paths" in unknown:
            raise InputError("load one folder at a time; it may hold many traces, at any depth")
        if unknown:
            raise InputError(f"there is no option {brief(unknown[0])}; the only one is maxPartsPerBatch")
        path = self.options.get("path")
        if not path:
            raise InputError('name the trace: .format("antecede").load("trace/")')
        if re.match(r"[A-Za-z][\w+.-]*:/", path):
            raise InputError(f"{path} is a URL; give the path of a folder that every machine sees")
        folder = Path(path).absolute()
        if not folder.exists():
            raise InputError(f"{folder} does not exist")
        return folder

    def max_parts(self) -> int:
        text = self.options.get("maxPartsPerBatch", str(_MAX_PARTS))
        if not re.fullmatch(r"0*[1-9][0-9]{0,8}", text):
            raise InputError(f"maxPartsPerBatch must be a number from 1, not {brief(text)}")
        return int(text)


class TracePart(msgspec.Struct, frozen=True):
    """A file to read. In a stream, also the last part of its trace, which must still have its fingerprint."""

    file: str
    last: str = ""
    fingerprint: str = ""


class TraceReader(DataSourceReader):
    """The rows that were in the folder when it was loaded."""

    def __init__(self, folder: Path, files: Sequence[Path]) -> None:
        self._path, self._files = folder, files

    def partitions(self) -> Sequence[InputPartition]:
        with _one_line_errors():
            read_metas(self._path)
            return _assign_to_tasks(TracePart(str(file)) for file in self._files or trace_files(self._path))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition)


class ReadPosition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far one trace has been read."""

    parts: int
    mark: str
    """The fingerprint of the last of these parts. The name is part of checkpoints."""


class StreamOffset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far every trace has been read, by its folder below that of the stream."""

    traces: dict[str, ReadPosition] = {}
    version: int = 1

    def encode(self) -> dict[str, Any]:
        # Spark compares offsets as text.
        ordered: dict[str, Any] = msgspec.to_builtins(StreamOffset(dict(sorted(self.traces.items()))))
        return ordered

    @classmethod
    def decode(cls, data: dict[str, Any]) -> StreamOffset:
        try:
            offset = msgspec.convert(data, cls)
        except msgspec.ValidationError as error:
            raise InputError(
                f"the checkpoint is not that of a stream of traces ({error}); each stream needs its own"
            ) from error
        if offset.version > 1:
            raise InputError(
                f"the checkpoint has version {offset.version}, this Antecede reads up to 1; upgrade Antecede"
            )
        return offset


class TraceStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The parts of the traces in a folder, as they appear."""

    def __init__(self, source: TraceSource, schema: StructType) -> None:
        self._source, self._schema = source, schema
        self._target: dict[str, int] | None = None
        self._checked: set[str] = set()
        self._fingerprints: dict[str, tuple[int, tuple[int, ...], str]] = {}

    @cached_property
    def _folder(self) -> Path:
        _refuse_other(self._schema)
        folder = self._source.folder()
        if not folder.is_dir():
            raise InputError(f"{folder} is a file; a stream reads a folder of traces that are being written")
        return folder

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return StreamOffset().encode()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        with _one_line_errors():
            return ReadMaxFiles(self._source.max_parts())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with _one_line_errors():
            self._target = self._parts()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        with _one_line_errors():
            before = StreamOffset.decode(start).traces
            there = self._parts()
            if self._target is not None:
                there = {trace: min(parts, self._target.get(trace, 0)) for trace, parts in there.items()}
            new = {
                trace: (had, parts)
                for trace, parts in there.items()
                if parts > (had := before[trace].parts if trace in before else 0)
            }
            end = {
                trace: ReadPosition(parts, self._fingerprint(trace, parts))
                for trace, parts in _share_fairly(
                    new, limit.max_files if isinstance(limit, ReadMaxFiles) else None
                )
            }
            # In this order: if the old parts are unchanged now, the new ones belong to the same trace.
            for trace, read in before.items():
                self._refuse_other(trace, read)
            return StreamOffset({**before, **end}).encode()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with _one_line_errors():
            return _assign_to_tasks(
                self._parts_between(StreamOffset.decode(start).traces, StreamOffset.decode(end).traces)
            )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition)

    def _parts_between(
        self, before: dict[str, ReadPosition], after: dict[str, ReadPosition]
    ) -> Iterator[TracePart]:
        for trace, read in after.items():
            first = before[trace].parts if trace in before else 0
            if first < read.parts:
                self._refuse_other(trace, read)
            last = str(self._part(trace, read.parts))
            for number in range(first, read.parts):
                yield TracePart(str(self._part(trace, number + 1)), last, read.mark)

    def _part(self, trace: str, count: int) -> Path:
        """The last part of a trace with this many parts."""
        return self._folder / trace / part_name(count - 1)

    def _parts(self) -> dict[str, int]:
        """The number of parts of each trace."""
        counts = {}
        for folder, names in _list_folders(self._folder):
            trace = folder.relative_to(self._folder).as_posix()
            if trace not in self._checked:
                _check_meta(folder)
                self._checked.add(trace)
            counts[trace] = self._without_gaps(trace, {_number(folder, name) for name in names})
        return counts

    def _without_gaps(self, trace: str, numbers: set[int]) -> int:
        if len(numbers) == max(numbers) + 1:
            return len(numbers)
        count = next(number for number in range(len(numbers) + 1) if number not in numbers)
        # A folder that changes while it is listed may show a part but not the one before.
        missing = self._part(trace, count + 1)
        if not missing.exists():
            raise InputError(f"{missing} is not there, but later parts are: {_REPLACED}")
        return count

    def _fingerprint(self, trace: str, count: int) -> str:
        """The fingerprint of the last of this many parts; recomputed only if the file was touched."""
        part = self._part(trace, count)
        try:
            now = part.stat()
            touched = (now.st_ino, now.st_size, now.st_mtime_ns)
            cached = self._fingerprints.get(trace)
            if cached is None or cached[:2] != (count, touched):
                open_parquet(part)
                cached = self._fingerprints[trace] = (count, touched, _fingerprint(part))
        except FileNotFoundError as error:
            raise InputError(f"{part} is gone: {_REPLACED}") from error
        return cached[2]

    def _refuse_other(self, trace: str, read: ReadPosition) -> None:
        if self._fingerprint(trace, read.parts) != read.mark:
            raise InputError(f"{self._part(trace, read.parts)} has changed: {_REPLACED}")


_REPLACED = (
    "the trace was replaced, or a part of it was removed, while a stream was reading it; start the stream "
    "again with a new checkpoint"
)


def _list_folders(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """The files of `trace_files` by folder, without examining each: a stream asks repeatedly."""

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError) or error.filename == str(folder):
            raise error

    for parent, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        found = [name for name in names if name.endswith(TRACE_SUFFIXES) and not name.startswith((".", "_"))]
        if found:
            yield Path(parent), found


def _number(folder: Path, name: str) -> int:
    number = part_number(name)
    if number is None:
        raise InputError(
            f"{folder / name} is not named like {part_name(0)}, so a stream cannot know when it is complete; "
            "spark.read reads it"
        )
    return number


def _check_meta(folder: Path) -> None:
    about = folder / META
    if about.exists():
        read_meta(about.read_bytes(), str(about))


def _fingerprint(part: Path) -> str:
    """Identifies the contents of a part: its size, and a hash of its end, where Parquet has its metadata."""
    with part.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - _FINGERPRINT_BYTES))
        return f"{size}-{blake2b(stream.read(_FINGERPRINT_BYTES), digest_size=12).hexdigest()}"


def _share_fairly(new: dict[str, tuple[int, int]], max_parts: int | None) -> Iterator[tuple[str, int]]:
    """How far to read each trace, from how far it was read and could be read: traces that lag behind go
    first."""
    if max_parts is None or sum(there - read for read, there in new.values()) <= max_parts:
        yield from ((trace, there) for trace, (_, there) in new.items())
        return
    waiting = [(read, trace) for trace, (read, _) in new.items()]
    heapq.heapify(waiting)
    end: dict[str, int] = {}
    for _ in range(max_parts):
        read, trace = waiting[0]
        end[trace] = read + 1
        if read + 1 < new[trace][1]:
            heapq.heapreplace(waiting, (read + 1, trace))
        else:
            heapq.heappop(waiting)
    yield from end.items()


def _assign_to_tasks(parts: Iterable[TracePart]) -> list[InputPartition]:
    """One task for a large file, or for several small ones."""
    tasks: list[InputPartition] = []
    remaining = 0
    for part in parts:
        try:
            cost = _OPEN_COST + Path(part.file).stat().st_size
        except FileNotFoundError as error:
            raise InputError(f"{part.file} is gone: {_REPLACED}") from error
        if cost > remaining:
            tasks.append(InputPartition([]))
            remaining = _PARTITION_BYTES
        tasks[-1].value.append(part)
        remaining -= cost
    return tasks


def _read(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    parts: list[TracePart] = partition.value
    with _one_line_errors():
        for part in parts:
            try:
                tables = read_batches(Path(part.file))
                first = next(tables, None)
                # Checked once the file is open: if the last part is unchanged now, the opened file is the old
                # one.
                if part.last and _fingerprint(Path(part.last)) != part.fingerprint:
                    raise InputError(f"{part.last} has changed: {_REPLACED}")
            except FileNotFoundError as error:
                raise InputError(
                    f"{error.filename or part.file} is gone: the trace was replaced, or a machine does not "
                    "see its folder"
                ) from error
            while first is not None:
                yield from with_all_columns(first).to_batches()
                first = next(tables, None)


def _refuse_other(schema: StructType) -> None:
    if schema != from_arrow_schema(SCHEMA):
        raise InputError("the columns of a trace are fixed; leave out .schema(…), and .select some")


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """Reduce errors that a user can correct to one line: Spark would show the worker's whole stack."""
    try:
        yield
    except (InputError, OSError) as error:
        if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"  # This worker ends with the error.
        if isinstance(error, InputError):
            raise
        message = f"{error.filename}: {error.strerror}" if error.filename else first_line(error)
        raise InputError(message) from error
