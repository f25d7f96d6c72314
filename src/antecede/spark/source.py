"""Traces as a source of Spark's: what is there now, or a stream of the rows while somebody writes them.

    spark.readStream.format("antecede").load("trace/")

A writer numbers the parts of a trace and renames each into place when it is whole. A stream has read the
first few parts of each trace, and its offset says how many: an entry a trace, however many parts there are.
It also says what the last of them looked like. If that is still there, unchanged, the parts before it are
what they were, because whoever writes a trace anew removes all the old parts first. So a pair of offsets
stands for the same rows for ever, or for an error.
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
from antecede.trace.reader import open_parquet, read_batches, read_metas, trace_files
from antecede.trace.schema import META, SCHEMA, read_meta
from antecede.trace.validate import first_line
from antecede.trace.writer import part_name, part_number

_MAX_PARTS = 1000
"""How many parts a micro-batch has at most, unless `maxPartsPerBatch` says so."""
_OPTIONS = ("path", "maxPartsPerBatch")
_SUFFIXES = (".parquet", ".jsonl", ".ndjson", ".csv")
_MARKED = 1 << 16
_PARTITION_BYTES = 8 << 20
_OPENING = 256 << 10
"""What opening a file costs, as bytes to read: many small parts go into one task, but not all of them."""

_REGISTERED: WeakSet[SparkSession] = WeakSet()
"""Spark grumbles if it is told twice."""


def register(spark: SparkSession) -> None:
    """Let a session read `format("antecede")`, one of `connect` too.

    `connect` does not do so itself: Spark looks for sources in a Python of its own then, which takes a second
    that those who only audit need not wait.
    """
    if spark not in _REGISTERED:
        spark.dataSource.register(TraceSource)
        _REGISTERED.add(spark)


class TraceSource(DataSource):
    """The rows of all traces in a folder, in the columns of the schema of traces."""

    _there: Sequence[Path] = ()

    @classmethod
    def name(cls) -> str:
        return "antecede"

    def schema(self) -> StructType:
        with _plainly():
            self.max_parts()
            folder = self.folder()
            # A DataFrame has the same rows whenever it is asked, though the trace grows.
            self._there = trace_files(folder) if folder.is_file() or any(_listed(folder)) else []
        return from_arrow_schema(SCHEMA)

    def reader(self, schema: StructType) -> TraceReader:
        with _plainly():
            _refuse_other(schema)
            return TraceReader(self.folder(), self._there)

    def streamReader(self, schema: StructType) -> TraceStream:  # noqa: N802
        # Spark loses what is raised here; the first question to the stream raises it.
        return TraceStream(self, schema)

    def folder(self) -> Path:
        unknown = [name for name in self.options if name not in map(str.lower, _OPTIONS)]
        if "paths" in unknown:
            raise InputError("one folder is read at a time; it may hold many traces, at any depth")
        if unknown:
            raise InputError(f"there is no option {brief(unknown[0])}; there is maxPartsPerBatch")
        path = self.options.get("path")
        if not path:
            raise InputError('say which trace: .format("antecede").load("trace/")')
        if re.match(r"[A-Za-z][\w+.-]*:/", path):
            raise InputError(f"{path} is a URL; give the path of a folder that every machine sees")
        folder = Path(path).absolute()
        if not folder.exists():
            raise InputError(f"{folder} does not exist")
        return folder

    def max_parts(self) -> int:
        given = self.options.get("maxPartsPerBatch", str(_MAX_PARTS))
        if not re.fullmatch(r"0*[1-9][0-9]{0,8}", given):
            raise InputError(f"maxPartsPerBatch is a number from 1, not {brief(given)}")
        return int(given)


class Piece(msgspec.Struct, frozen=True):
    """A file to read; of a stream, with the part by which its trace is known to be the same as before."""

    file: str
    last: str = ""
    mark: str = ""


class TraceReader(DataSourceReader):
    """What was in the folder when it was loaded."""

    def __init__(self, folder: Path, files: Sequence[Path]) -> None:
        self._path, self._files = folder, files

    def partitions(self) -> Sequence[InputPartition]:
        with _plainly():
            read_metas(self._path)
            return _dealt(Piece(str(file)) for file in self._files or trace_files(self._path))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition)


class Read(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far one trace has been read."""

    parts: int
    mark: str
    """What the last of these parts looked like."""


class Offset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far every trace has been read, by its folder in the folder of the stream."""

    traces: dict[str, Read] = {}
    version: int = 1

    def encode(self) -> dict[str, Any]:
        # Spark compares offsets as text.
        ordered: dict[str, Any] = msgspec.to_builtins(Offset(dict(sorted(self.traces.items()))))
        return ordered

    @classmethod
    def decode(cls, found: dict[str, Any]) -> Offset:
        try:
            offset = msgspec.convert(found, cls)
        except msgspec.ValidationError as error:
            raise InputError(
                f"the checkpoint is not one of a stream of traces ({error}); give each stream its own"
            ) from error
        if offset.version > 1:
            raise InputError(
                f"the checkpoint has version {offset.version}, this Antecede reads up to 1; upgrade it"
            )
        return offset


class TraceStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The parts of the traces in a folder, as they come."""

    def __init__(self, source: TraceSource, schema: StructType) -> None:
        self._source, self._schema = source, schema
        self._target: dict[str, int] | None = None
        self._checked: set[str] = set()
        self._marks: dict[str, tuple[int, tuple[int, ...], str]] = {}

    @cached_property
    def _folder(self) -> Path:
        _refuse_other(self._schema)
        folder = self._source.folder()
        if not folder.is_dir():
            raise InputError(f"{folder} is a file; a stream reads a folder of traces that are being written")
        return folder

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return Offset().encode()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        with _plainly():
            return ReadMaxFiles(self._source.max_parts())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with _plainly():
            self._target = self._parts()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        with _plainly():
            before = Offset.decode(start).traces
            there = self._parts()
            if self._target is not None:
                there = {trace: min(parts, self._target.get(trace, 0)) for trace, parts in there.items()}
            new = {
                trace: (had, parts)
                for trace, parts in there.items()
                if parts > (had := before[trace].parts if trace in before else 0)
            }
            end = {
                trace: Read(parts, self._mark(trace, parts))
                for trace, parts in _fairly(new, limit.max_files if isinstance(limit, ReadMaxFiles) else None)
            }
            # In this order: if the old parts are still there now, the new ones are of the same trace.
            for trace, read in before.items():
                self._refuse_other(trace, read)
            return Offset({**before, **end}).encode()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with _plainly():
            return _dealt(self._pieces(Offset.decode(start).traces, Offset.decode(end).traces))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition)

    def _pieces(self, before: dict[str, Read], after: dict[str, Read]) -> Iterator[Piece]:
        for trace, read in after.items():
            first = before[trace].parts if trace in before else 0
            if first < read.parts:
                self._refuse_other(trace, read)
            last = str(self._part(trace, read.parts))
            for number in range(first, read.parts):
                yield Piece(str(self._part(trace, number + 1)), last, read.mark)

    def _part(self, trace: str, count: int) -> Path:
        """The last of so many parts."""
        return self._folder / trace / part_name(count - 1)

    def _parts(self) -> dict[str, int]:
        """How many parts each trace has."""
        found = {}
        for folder, names in _listed(self._folder):
            trace = folder.relative_to(self._folder).as_posix()
            if trace not in self._checked:
                _check_meta(folder)
                self._checked.add(trace)
            found[trace] = self._without_gaps(trace, {_number(folder, name) for name in names})
        return found

    def _without_gaps(self, trace: str, numbers: set[int]) -> int:
        if len(numbers) == max(numbers) + 1:
            return len(numbers)
        count = next(number for number in range(len(numbers) + 1) if number not in numbers)
        # A folder that changes while it is listed may show a part and not the one before.
        missing = self._part(trace, count + 1)
        if not missing.exists():
            raise InputError(f"{missing} is not there, but later parts are: {_ANEW}")
        return count

    def _mark(self, trace: str, count: int) -> str:
        """What the last of so many parts looks like; worked out anew only if the file was touched."""
        part = self._part(trace, count)
        try:
            now = part.stat()
            touched = (now.st_ino, now.st_size, now.st_mtime_ns)
            known = self._marks.get(trace)
            if known is None or known[:2] != (count, touched):
                open_parquet(part)
                known = self._marks[trace] = (count, touched, _mark(part))
        except FileNotFoundError as error:
            raise InputError(f"{part} is gone: {_ANEW}") from error
        return known[2]

    def _refuse_other(self, trace: str, read: Read) -> None:
        if self._mark(trace, read.parts) != read.mark:
            raise InputError(f"{self._part(trace, read.parts)} is not what it was: {_ANEW}")


_ANEW = (
    "the trace was written anew, or a part of it was removed, while a stream was reading it; start the "
    "stream again with a new checkpoint"
)


def _listed(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """What `trace_files` finds, by folder and without a look at each file: a stream asks again and again."""

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError) or error.filename == str(folder):
            raise error

    for parent, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        found = [name for name in names if name.endswith(_SUFFIXES) and not name.startswith((".", "_"))]
        if found:
            yield Path(parent), found


def _number(folder: Path, name: str) -> int:
    number = part_number(name)
    if number is None:
        raise InputError(
            f"{folder / name} is not called {part_name(0)} or so, and a stream cannot know when it is whole; "
            "spark.read reads it"
        )
    return number


def _check_meta(folder: Path) -> None:
    about = folder / META
    if about.exists():
        read_meta(about.read_bytes(), str(about))


def _mark(part: Path) -> str:
    """What tells a part from another: its size, and its end, where Parquet has what it knows of the rest."""
    with part.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - _MARKED))
        return f"{size}-{blake2b(stream.read(_MARKED), digest_size=12).hexdigest()}"


def _fairly(new: dict[str, tuple[int, int]], most: int | None) -> Iterator[tuple[str, int]]:
    """How far to read each trace, given how far it was read and could be: those that lag behind go first."""
    if most is None or sum(there - read for read, there in new.values()) <= most:
        yield from ((trace, there) for trace, (_, there) in new.items())
        return
    waiting = [(read, trace) for trace, (read, _) in new.items()]
    heapq.heapify(waiting)
    taken: dict[str, int] = {}
    for _ in range(most):
        read, trace = waiting[0]
        taken[trace] = read + 1
        if read + 1 < new[trace][1]:
            heapq.heapreplace(waiting, (read + 1, trace))
        else:
            heapq.heappop(waiting)
    yield from taken.items()


def _dealt(pieces: Iterable[Piece]) -> list[InputPartition]:
    """A large file a task, small ones together."""
    dealt: list[InputPartition] = []
    room = 0
    for piece in pieces:
        try:
            cost = _OPENING + Path(piece.file).stat().st_size
        except FileNotFoundError as error:
            raise InputError(f"{piece.file} is gone: {_ANEW}") from error
        if cost > room:
            dealt.append(InputPartition([]))
            room = _PARTITION_BYTES
        dealt[-1].value.append(piece)
        room -= cost
    return dealt


def _read(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    pieces: list[Piece] = partition.value
    with _plainly():
        for piece in pieces:
            try:
                tables = read_batches(Path(piece.file))
                first = next(tables, None)
                # Looked at once the file is open: if the last part is the old one now, so is the opened one.
                if piece.last and _mark(Path(piece.last)) != piece.mark:
                    raise InputError(f"{piece.last} is not what it was: {_ANEW}")
            except FileNotFoundError as error:
                raise InputError(
                    f"{error.filename or piece.file} is gone: the trace was written anew, or a machine does "
                    "not see its folder"
                ) from error
            while first is not None:
                yield from _whole(first).to_batches()
                first = next(tables, None)


def _whole(table: pa.Table) -> pa.Table:
    """With all the columns of a trace; those it lacks are empty."""
    columns = [
        table.column(field.name) if field.name in table.column_names else pa.nulls(table.num_rows, field.type)
        for field in SCHEMA
    ]
    return pa.table(columns, schema=SCHEMA)


def _refuse_other(schema: StructType) -> None:
    if schema != from_arrow_schema(SCHEMA):
        raise InputError("the columns of a trace are given; leave .schema(…) out, and .select some")


@contextmanager
def _plainly() -> Iterator[None]:
    """Errors that a person can mend, as one line: Spark shows whatever a worker says, with its stack."""
    try:
        yield
    except (InputError, OSError) as error:
        if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"  # this worker ends with the error
        if isinstance(error, InputError):
            raise
        told = f"{error.filename}: {error.strerror}" if error.filename else first_line(error)
        raise InputError(told) from error
