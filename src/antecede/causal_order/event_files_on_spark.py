"""Files of events as DataFrames: as they are now, or as a stream of the files that appear."""

from __future__ import annotations

import re

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from antecede.causal_order.columns import Roles
from antecede.causal_order.columns_on_spark import quoted
from antecede.causal_order.event_files import ENDINGS, EventFiles, needs_split
from antecede.causal_order.request import OrderRequest
from antecede.errors import InputError
from antecede.spark.session import spark_path

_CORRUPT = "_corrupt_record"
"""Spark's column for lines that are not JSON."""
_BATCH_BYTES = 256 << 20
"""How much of the files that exist already a stream reads at a time."""


def infer_schema(spark: SparkSession, events: EventFiles, roles: Roles) -> T.StructType:
    """The columns of the files; those that name rows are text unless all their values are whole numbers."""
    reader = spark.read.options(**_options(events))
    if events.format == "parquet":
        return reader.option("mergeSchema", True).parquet(spark_path(events.path)).schema
    if events.format == "csv":
        reader = reader.option("inferSchema", True)
    schema = reader.format(events.format).load(spark_path(events.path)).schema
    if set(schema.names) <= {_CORRUPT}:
        raise InputError(f"{events.path}: none of its lines is a JSON object; expected one in each line")
    types = {field.name: field.dataType for field in schema}
    for role in ("id", "origin", "deps"):
        name = roles[role]
        if name in types:
            types[name] = _name_type(types[name])
    clock = roles["clock"]
    if clock in types and isinstance(types[clock], T.StructType):
        types[clock] = T.MapType(T.StringType(), T.LongType())
    return T.StructType([T.StructField(name, kind) for name, kind in types.items()])


def _name_type(kind: T.DataType) -> T.DataType:
    """Values that look like dates or fractions are text if they name rows."""
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_name_type(kind.elementType))
    if isinstance(kind, T.IntegralType | T.StringType | T.StructType | T.MapType):
        return kind
    return T.StringType()


def read_files(
    spark: SparkSession, events: EventFiles, schema: T.StructType, request: OrderRequest
) -> DataFrame:
    """The rows of the files that are there now."""
    frame = spark.read.options(**_options(events)).schema(schema).format(events.format)
    return _with_lists(frame.load(spark_path(events.path)), events, request)


def follow_files(
    spark: SparkSession, events: EventFiles, schema: T.StructType, request: OrderRequest
) -> DataFrame:
    """The same as a stream: the files that are there now and those that appear."""
    frame = spark.readStream.options(**_options(events), maxBytesPerTrigger=_BATCH_BYTES).schema(schema)
    return _with_lists(frame.format(events.format).load(spark_path(events.path)), events, request)


def _options(events: EventFiles) -> dict[str, str | bool]:
    options: dict[str, str | bool] = {}
    if events.path.is_dir():
        endings = ",".join(ending[1:] for ending, name in ENDINGS.items() if name == events.format)
        options["pathGlobFilter"] = f"*.{{{endings}}}"
        if not events.partitioned:
            options["recursiveFileLookup"] = True
    if events.format == "csv":
        options |= {"header": True, "escape": '"', "enforceSchema": False}
    return options


def _with_lists(frame: DataFrame, events: EventFiles, request: OrderRequest) -> DataFrame:
    """Dependencies as lists of ids, where the file itself cannot express that."""
    types = {field.name: field.dataType for field in frame.schema}
    name, split = request.columns["deps"], request.split
    if name is None or name not in types:
        return frame
    kind, id_type = types[name], types.get(str(request.columns["id"]))
    is_whole = isinstance(id_type, T.IntegralType)
    if split is not None:
        if isinstance(kind, T.ArrayType | T.StructType | T.MapType):
            raise InputError(f"--split: column {name} is {kind.simpleString()}, not text that can be split")
        return frame.withColumn(name, _cast_elements(_split(name, split), is_whole))
    if is_whole and isinstance(kind, T.StringType):
        raise needs_split(name, request)
    # In JSON, the type of an array that is always empty, or has numbers only, does not follow from its
    # values.
    element = kind.elementType if events.format == "json" and isinstance(kind, T.ArrayType) else None
    other = T.StringType if is_whole else T.IntegralType
    if id_type is not None and isinstance(element, other):
        return frame.withColumn(name, _cast_elements(F.col(quoted(name)), is_whole))
    return frame


def _split(name: str, separator: str) -> Column:
    parts = F.split(F.col(quoted(name)).cast("string"), re.escape(separator))
    # Not F.trim itself: transform would pass the place of the part as what to trim.
    return F.filter(F.transform(parts, lambda part: F.trim(part)), lambda part: part != "")


def _cast_elements(values: Column, is_whole: bool) -> Column:
    kind = "bigint" if is_whole else "string"
    return F.transform(values, lambda value: value.try_cast(kind))
