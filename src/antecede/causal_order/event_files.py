"""Tables of events in files, as Spark reads them: Parquet, JSON lines or CSV, found by their endings."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from antecede.causal_order.columns import quoted
from antecede.errors import InputError
from antecede.spark.session import spark_path

_KINDS = {".parquet": "parquet", ".jsonl": "json", ".ndjson": "json", ".json": "json", ".csv": "csv"}
_CALLED = {"parquet": "Parquet", "json": "JSON lines", "csv": "CSV"}
_UNREAD = "_corrupt_record"
"""The column that Spark makes of lines which are no JSON."""
_BATCH_BYTES = 256 << 20
"""How much of the files that are there a stream takes at a time."""


class EventFiles(NamedTuple):
    """A file, or a folder of them."""

    path: Path
    kind: str
    first: Path
    """One of the files."""
    partitioned: bool
    """Whether columns are in the names of folders, as in room=a."""


def find_events(path: str) -> EventFiles:
    """The files at `path`, all of one kind."""
    if not path:
        raise InputError("no events are named")
    if "://" in path:
        raise InputError(
            f"{path} is a URL; order reads local or commonly mounted files. In a program, causal_order takes "
            "whatever Spark reads: docs/how-to/order-a-stream.md"
        )
    local = Path(path)
    if not local.exists():
        raise InputError(f"{local} does not exist")
    files = [file for file in _files(local) if file.suffix in _KINDS]
    if not files:
        what = "no file in it ends" if local.is_dir() else "it does not end"
        raise InputError(f"{local} holds no events: {what} in {', '.join(_KINDS)}")
    of_kind = {_KINDS[file.suffix]: file for file in reversed(files)}
    if len(of_kind) > 1:
        found = " and ".join(f"{_CALLED[kind]} ({file.name})" for kind, file in sorted(of_kind.items()))
        raise InputError(f"{local} holds {found}; events are of one kind: part them into folders")
    if not any(file.stat().st_size for file in files):
        raise InputError(f"{local} holds no events: {files[0].name} is empty")
    (kind,) = of_kind
    if kind == "csv":
        _refuse_other_headers(files)
    below = {part for file in files for part in file.relative_to(local).parts[:-1]}
    return EventFiles(local, kind, files[0], any("=" in part for part in below))


def _files(path: Path) -> list[Path]:
    """The plain files that Spark would look at."""
    if not path.is_dir():
        return [path]

    def refuse(error: OSError) -> None:
        raise InputError(f"{error.filename}: {error.strerror}") from error

    found: list[Path] = []
    for parent, folders, names in os.walk(path, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        found += [Path(parent) / name for name in names if not name.startswith((".", "_"))]
    return sorted(file for file in found if file.is_file())


def _refuse_other_headers(files: list[Path]) -> None:
    """Spark takes CSV by the places of columns, so all files must have them at the same."""

    def header(file: Path) -> bytes:
        with file.open("rb") as lines:
            return lines.readline().strip()

    expected = header(files[0])
    for file in files[1:]:
        if file.stat().st_size and header(file) != expected:
            raise InputError(f"{file} has another header than {files[0].name}; make them alike")


def schema_of(spark: SparkSession, events: EventFiles, columns: dict[str, str | None]) -> T.StructType:
    """The columns of the files that are there; those that name rows are text or whole numbers if they can.

    `columns` are named by their roles.
    """
    reader = spark.read.options(**_options(events))
    if events.kind == "parquet":
        return reader.option("mergeSchema", True).parquet(spark_path(events.path)).schema
    if events.kind == "csv":
        reader = reader.option("inferSchema", True)
    schema = reader.format(events.kind).load(spark_path(events.path)).schema
    if set(schema.names) <= {_UNREAD}:
        raise InputError(f"{events.path}: no line of it is a JSON object; expected one in each line")
    kinds = {field.name: field.dataType for field in schema}
    for role in ("id", "origin", "deps"):
        name = columns[role]
        if name in kinds:
            kinds[name] = _as_names(kinds[name])
    clock = columns["clock"]
    if clock in kinds and isinstance(kinds[clock], T.StructType):
        kinds[clock] = T.MapType(T.StringType(), T.LongType())
    return T.StructType([T.StructField(name, kind) for name, kind in kinds.items()])


def _as_names(kind: T.DataType) -> T.DataType:
    """What looks like a date or a fraction is text if it is to name a row."""
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_as_names(kind.elementType))
    if isinstance(kind, T.IntegralType | T.StringType | T.StructType | T.MapType):
        return kind
    return T.StringType()


def read(
    spark: SparkSession,
    events: EventFiles,
    schema: T.StructType,
    columns: dict[str, str | None],
    split: str | None,
) -> DataFrame:
    """The rows of the files that are there. With `split`, dependencies are text with that between ids."""
    frame = spark.read.options(**_options(events)).schema(schema).format(events.kind)
    return _shaped(frame.load(spark_path(events.path)), events, columns, split)


def follow(
    spark: SparkSession,
    events: EventFiles,
    schema: T.StructType,
    columns: dict[str, str | None],
    split: str | None,
) -> DataFrame:
    """The same as a stream: the files that are there and those that appear."""
    frame = spark.readStream.options(**_options(events), maxBytesPerTrigger=_BATCH_BYTES).schema(schema)
    return _shaped(frame.format(events.kind).load(spark_path(events.path)), events, columns, split)


def _options(events: EventFiles) -> dict[str, str | bool]:
    options: dict[str, str | bool] = {}
    if events.path.is_dir():
        endings = ",".join(ending[1:] for ending, kind in _KINDS.items() if kind == events.kind)
        options["pathGlobFilter"] = f"*.{{{endings}}}"
        if not events.partitioned:
            options["recursiveFileLookup"] = True
    if events.kind == "csv":
        options |= {"header": True, "escape": '"', "enforceSchema": False}
    return options


def _shaped(
    frame: DataFrame, events: EventFiles, columns: dict[str, str | None], split: str | None
) -> DataFrame:
    """With dependencies like ids where the file cannot say so itself."""
    kinds = {field.name: field.dataType for field in frame.schema}
    name = columns["deps"]
    if name is None or name not in kinds:
        if split is not None and name is None:
            raise InputError("--split is for --deps, the column that has several ids")
        return frame
    kind, of_ids = kinds[name], kinds.get(str(columns["id"]))
    whole = isinstance(of_ids, T.IntegralType)
    if split is not None:
        if isinstance(kind, T.ArrayType | T.StructType | T.MapType):
            raise InputError(f"--split: column {name} is {kind.simpleString()}, no text to be split")
        return frame.withColumn(name, _listed(_parted(name, split), whole))
    if whole and isinstance(kind, T.StringType):
        raise InputError(
            f"deps: column {name} is text, and {columns['id']} has whole numbers; if it has several of them, "
            "say what is between: --split ' '"
        )
    # In JSON, an array that is always empty, or has only numbers, does not tell what it is of.
    element = kind.elementType if events.kind == "json" and isinstance(kind, T.ArrayType) else None
    other = T.StringType if whole else T.IntegralType
    if of_ids is not None and isinstance(element, other):
        return frame.withColumn(name, _listed(F.col(quoted(name)), whole))
    return frame


def _parted(name: str, split: str) -> Column:
    if not split:
        raise InputError("--split: say what is between two ids, as in --split ' '")
    parts = F.split(F.col(quoted(name)).cast("string"), re.escape(split))
    # Not F.trim itself: it takes two arguments, and transform would give it the place as what to trim away.
    return F.filter(F.transform(parts, lambda part: F.trim(part)), lambda part: part != "")


def _listed(values: Column, whole: bool) -> Column:
    kind = "bigint" if whole else "string"
    return F.transform(values, lambda value: value.try_cast(kind))
