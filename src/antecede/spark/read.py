"""Reads traces into DataFrames: events from Parquet, groups' members from `_meta/meta.json`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from antecede.errors import InputError
from antecede.spark.session import is_spark, spark_error_message
from antecede.trace.reader import read_metas
from antecede.trace.schema import META_FOLDER, SCHEMA, Meta
from antecede.trace.validate import check_columns

_MAX_DEPTH = 4
MEMBERS_SCHEMA = "run string, groups map<string, array<string>>, schema_version int"


def read_events(spark: SparkSession, *paths: str) -> DataFrame:
    """The events of the traces at `paths`: local, or any URL that Spark reads."""
    reader = spark.read.option("recursiveFileLookup", "true").option("pathGlobFilter", "*.parquet")
    try:
        columns = reader.parquet(*paths).columns
    except AnalysisException as error:
        raise InputError(f"{', '.join(paths)} holds no trace: {spark_error_message(error)}") from error
    check_columns(columns, ", ".join(paths))
    # With the schema given, parts that differ in integer width or in optional columns read as one.
    return reader.schema(from_arrow_schema(SCHEMA)).parquet(*paths)


def read_members(spark: SparkSession, *paths: str) -> DataFrame:
    """Who was in which group, from the traces at `paths` and in subfolders down to the fourth level.

    Spark lists no folder whose name starts with an underscore, but it reads one that is named.
    """
    members = spark.createDataFrame([], MEMBERS_SCHEMA)
    levels = ",".join("*/" * depth + META_FOLDER for depth in range(_MAX_DEPTH + 1))
    meta = F.from_json("value", MEMBERS_SCHEMA, {"mode": "FAILFAST"})
    for path in paths:
        if Path(path).exists() and not is_spark(spark):
            # Sail skips folders that begin with an underscore below a pattern, even if they are named.
            members = members.unionByName(members_frame(spark, read_metas(Path(path))))
            continue
        reader = spark.read.option("pathGlobFilter", "*.json")
        try:
            texts = reader.text(f"{path.rstrip('/')}/{{{levels}}}", wholetext=True)
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            continue  # a trace without a meta.json
        members = members.unionByName(texts.select(meta.alias("meta")).select("meta.*"))
    return members


def members_frame(spark: SparkSession, metas: Sequence[Meta]) -> DataFrame:
    """Who was in which group, from `meta.json` files that have been read already."""
    rows = [(meta.run, meta.groups, meta.schema_version) for meta in metas]
    return spark.createDataFrame(rows, MEMBERS_SCHEMA)
