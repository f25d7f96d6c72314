"""Files of events as DataFrames: as they are now, or as a stream of the files that appear.

Text files are read by tasks with the reader of `text_files`, so the rows are those that the local engine has.
A large file is divided into ranges of whole lines, unless a quote in it might contain a line end.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from antecede.causal_order.columns_on_spark import quoted
from antecede.causal_order.event_files import ENDINGS, EventFiles
from antecede.causal_order.json_kinds import Kinds
from antecede.causal_order.request import OrderRequest
from antecede.causal_order.rules import PLACE, ROW_BITS
from antecede.causal_order.text_files import FilePart, TextPlan, folder_values, plan_text, survey_json
from antecede.errors import InputError
from antecede.spark.session import spark_path
from antecede.trace.bad_rows import BadRows
from antecede.trace.reader import count_by_footers

_BATCH_BYTES = 256 << 20
"""How much of the existing files a stream reads at a time."""
_PART_BYTES = 32 << 20
_MAX_TASKS = 1000
_PARTS = "file string, begin long, end long, first_row long"
_FILE, _FIRST = "_antecede_file", "_antecede_first"
_SCHEME = "^file:/+"
_STREAM_ROW_BITS = 30
"""Bits of a PLACE in a stream; the other bits are the second in which the file was modified."""
_BINARY_FILE = "path string, modificationTime timestamp, length long, content binary"
_SINGLE_BYTE_NEWLINES = ("utf-8", "ascii", "iso8859", "cp125", "latin")
_TYPE_INFERENCE = "spark.sql.sources.partitionColumnTypeInference.enabled"


class FileTable:
    """A table in files, whose columns are found when it is opened."""

    def __init__(self, spark: SparkSession, events: EventFiles, request: OrderRequest) -> None:
        self._spark, self._events = spark, events
        self._plan: TextPlan | None = None
        if events.format == "parquet":
            return
        self._parts = _divide(spark, events, request)
        self._plan = plan_text(
            events.folder.resolve(),
            events.format,
            _absolute(events),
            request.types,
            request.columns,
            request.csv,
            lambda _, listed: self._survey(listed),
        )

    def read(self) -> DataFrame:
        """The rows of the files that exist now."""
        if self._plan is None:
            with setting(self._spark, _TYPE_INFERENCE, "false"):
                reader = self._spark.read.options(**_options(self._events)).option("mergeSchema", True)
                return reader.parquet(spark_path(self._events.path))
        return _frame(self._spark, self._parts).mapInArrow(_read_task(self._plan), _ddl(self._plan))

    def read_with_places(self) -> DataFrame:
        """The same rows with their PLACE."""
        if self._plan is None:
            return self._parquet_with_places()
        places = {str(file): number << ROW_BITS for number, file in enumerate(_absolute(self._events))}
        task = _read_task(self._plan, places.__getitem__)
        return _frame(self._spark, self._parts).mapInArrow(task, f"{_ddl(self._plan)}, {PLACE} long")

    def _parquet_with_places(self) -> DataFrame:
        """Spark numbers the rows of a file; its files are numbered here."""
        frame = self.read()
        # Spark writes file:/// here and file:/ in the metadata.
        files = sorted(
            (re.sub(_SCHEME, "/", file) for file in frame.inputFiles()), key=lambda file: Path(unquote(file))
        )
        numbered = [(file, number << ROW_BITS) for number, file in enumerate(files)]
        metadata = frame.metadataColumn("_metadata")
        names = [F.col(quoted(name)) for name in frame.columns]
        row, file_path = metadata["row_index"] + 1, F.regexp_replace(metadata["file_path"], _SCHEME, "/")
        placed = frame.select(*names, row.alias(PLACE), file_path.alias(_FILE))
        if len(files) > 1:
            first = F.broadcast(self._spark.createDataFrame(numbered, f"{_FILE} string, {_FIRST} long"))
            placed = placed.join(first, _FILE, "left").withColumn(PLACE, F.col(PLACE) + F.col(_FIRST))
        return placed.select(*names, PLACE)

    def read_and_count(self, bad: BadRows) -> tuple[DataFrame, Callable[[], int]]:
        """Rows with PLACE, and a function that returns their number after an action; `bad` then has the
        number for each file."""
        files, counted = self._events.files, Observation()
        count = F.count(F.lit(1)).alias("rows")
        if self._plan is None or len(files) == 1:
            frame = self.read_with_places().observe(counted, count)
        else:
            # With one bin per file, a histogram counts exactly.
            number = F.shiftright(PLACE, ROW_BITS).cast("int")
            by_file = F.histogram_numeric(number, F.lit(max(2, len(files)))).alias("by_file")
            frame = self.read_with_places().observe(counted, count, by_file)

        def rows_read() -> int:
            found = counted.get
            rows = int(found["rows"])
            if self._plan is None:
                count_by_footers(files, bad)
            elif len(files) == 1:
                bad.count(files[0], rows)
            for one in found.get("by_file") or ():
                bad.count(files[int(one["x"])], int(one["y"]))
            return rows

        return frame, rows_read

    def follow(self, strict: bool) -> DataFrame:
        """The files that exist now and those that appear, as a stream.

        In a stream, a row's place is the modification time of its file, followed by its position in the file.
        """
        stream = self._spark.readStream.options(**_options(self._events), maxBytesPerTrigger=_BATCH_BYTES)
        path = spark_path(self._events.path)
        if self._plan is None:
            with setting(self._spark, _TYPE_INFERENCE, "false"):
                frame = stream.schema(self.read().schema).parquet(path)
                metadata = frame.metadataColumn("_metadata")
                modified = F.unix_seconds(metadata["file_modification_time"])
                return frame.withColumn(
                    PLACE, F.shiftleft(modified, _STREAM_ROW_BITS) + metadata["row_index"]
                )
        plan = msgspec.structs.replace(self._plan, strict=strict)
        # Only the names of files are selected, so Spark does not read them.
        files = stream.schema(_BINARY_FILE).format("binaryFile").load(path).select("path")
        return files.mapInArrow(_read_task(plan, _place_by_time), f"{_ddl(plan)}, {PLACE} long")

    def _survey(self, listed: str | None) -> Iterable[dict[str, Kinds]]:
        """The kinds of JSON values in each part, in the order of parts."""

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for part in _parts_of(batches):
                kinds = msgspec.msgpack.encode(survey_json(part, listed))
                yield pa.record_batch({"file": [part.file], "begin": [part.begin], "kinds": [kinds]})

        rows = _frame(self._spark, self._parts).mapInArrow(task, "file string, begin long, kinds binary")
        found = {(row.file, row.begin): bytes(row.kinds) for row in rows.collect()}
        for part in self._parts:
            yield msgspec.msgpack.decode(found[part.file, part.begin], type=dict[str, Kinds])


def _place_by_time(file: str) -> int:
    return int(Path(file).stat().st_mtime) << _STREAM_ROW_BITS


@contextmanager
def setting(spark: SparkSession, key: str, value: str) -> Iterator[None]:
    """Change a setting of the session for a while."""
    before = spark.conf.get(key, None)
    spark.conf.set(key, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, before)


def _absolute(events: EventFiles) -> list[Path]:
    """The files below the folder, as Spark sees them; links are not resolved."""
    folder = events.folder.resolve()
    return [folder / file.relative_to(events.folder) for file in events.files]


def _options(events: EventFiles) -> dict[str, str | bool]:
    if not events.path.is_dir():
        return {}
    endings = ",".join(ending[1:] for ending, name in ENDINGS.items() if name == events.format)
    options: dict[str, str | bool] = {"pathGlobFilter": f"*.{{{endings}}}"}
    in_folders = any(folder_values(file.relative_to(events.folder)) for file in events.files)
    if events.format != "parquet" or not in_folders:
        options["recursiveFileLookup"] = True
    return options


def _ddl(plan: TextPlan) -> str:
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in plan.types().items())


def _frame(spark: SparkSession, parts: list[FilePart]) -> DataFrame:
    """One row per part, spread over tasks."""
    frame = spark.createDataFrame(parts, _PARTS)
    return frame if len(parts) == 1 else frame.repartition(min(len(parts), _MAX_TASKS))


def _parts_of(batches: Iterator[pa.RecordBatch]) -> Iterator[FilePart]:
    """The parts, or whole files by the paths that Spark uses for them."""
    for batch in batches:
        for row in batch.to_pylist():
            yield FilePart(row["path"].removeprefix("file:")) if "path" in row else FilePart(**row)


def _read_task(
    plan: TextPlan, place_of: Callable[[str], int] | None = None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A task that reads parts; with `place_of`, which gives the place of a file, every row has its PLACE."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in _parts_of(batches):
            if Path(part.file).stat().st_size:
                yield from plan.read(part, None if place_of is None else place_of(part.file))

    return read


# Parts of large files.


def _divide(spark: SparkSession, events: EventFiles, request: OrderRequest) -> list[FilePart]:
    """Whole files, and ranges of large files whose line ends are certain to end rows."""
    whole = {str(file): [FilePart(str(file))] for file in _absolute(events)}
    ranges = [
        part
        for file in whole
        if Path(file).stat().st_size > 2 * _PART_BYTES and _ends_lines_by_a_byte(file, request.encoding)
        for part in _ranges(file)
    ]
    if ranges:
        whole |= _numbered(ranges, _count(spark, ranges, events.format), events.format)
    return [part for parts in whole.values() for part in parts]


def _ends_lines_by_a_byte(file: str, encoding: str | None) -> bool:
    if encoding is not None:
        return codecs.lookup(encoding).name.startswith(_SINGLE_BYTE_NEWLINES)
    with Path(file).open("rb") as stream:
        return stream.read(2) not in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def _ranges(file: str) -> list[FilePart]:
    """A file in ranges that end with a line."""
    size = Path(file).stat().st_size
    bounds = {0, size}
    with Path(file).open("rb") as stream:
        for place in range(_PART_BYTES, size, _PART_BYTES):
            stream.seek(place - 1)
            stream.readline()
            bounds.add(min(stream.tell(), size))
    places = sorted(bounds)
    return [FilePart(file, begin, end) for begin, end in pairwise(places)]


def _count(
    spark: SparkSession, ranges: list[FilePart], format_name: str
) -> dict[tuple[str, int], tuple[int, bool]]:
    """How many rows each range has, and whether all its line ends end rows."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in _parts_of(batches):
            rows, is_certain = count_rows(part, format_name)
            yield pa.record_batch(
                {"file": [part.file], "begin": [part.begin], "rows": [rows], "is_certain": [is_certain]}
            )

    counted = _frame(spark, ranges).mapInArrow(task, "file string, begin long, rows long, is_certain boolean")
    return {(row.file, row.begin): (row["rows"], row.is_certain) for row in counted.collect()}


def count_rows(part: FilePart, format_name: str) -> tuple[int, bool]:
    """How many rows a range has, its header included, and whether all its line ends end rows."""
    with Path(part.file).open("rb") as stream:
        stream.seek(part.begin)
        data = stream.read(None if part.end is None else part.end - part.begin)
    if format_name == "json":
        return data.count(b"\n"), True
    is_certain = b'"' not in data and data.count(b"\r") == data.count(b"\r\n")
    return sum(1 for line in data.split(b"\n") if line.rstrip(b"\r")), is_certain


def _numbered(
    ranges: list[FilePart], counts: dict[tuple[str, int], tuple[int, bool]], format_name: str
) -> dict[str, list[FilePart]]:
    """The ranges of files whose ranges are all certain, with the numbers of their first rows."""
    uncertain = {file for (file, _), (_, is_certain) in counts.items() if not is_certain}
    divided: dict[str, list[FilePart]] = {}
    next_row: dict[str, int] = {}
    for part in ranges:
        if part.file in uncertain:
            continue
        # The header is no row.
        first = next_row.get(part.file, 1)
        rows = counts[part.file, part.begin][0] - (format_name == "csv" and part.begin == 0)
        divided.setdefault(part.file, []).append(part._replace(first_row=first))
        next_row[part.file] = first + rows
    return divided


def refuse_empty(frame: DataFrame, events: EventFiles) -> None:
    if frame.isEmpty():
        raise InputError(f"{events.path} holds no events: it has no rows")
