"""A stream in causal order as a part of larger queries, and with a checkpoint of another query."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = "id string, other string, after array<string>, room string, at timestamp"


class Inbox:
    """Rows that arrive batch by batch, and what a query makes of them."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder = spark, folder
        (folder / "in").mkdir()

    def arrive(self, name: str, *rows: dict[str, Any]) -> None:
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (self._folder / "in" / f"{name}.json").write_text(lines)

    def events(self) -> DataFrame:
        return self._spark.readStream.schema(COLUMNS).json(str(self._folder / "in"))

    @property
    def checkpoint(self) -> str:
        return str(self._folder / "checkpoint")

    def run(self, result: DataFrame) -> None:
        query = (
            result.writeStream.format("parquet")
            .option("path", str(self._folder / "out"))
            .option("checkpointLocation", self.checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def ids(self) -> list[str]:
        return sorted(row.id for row in self._spark.read.parquet(str(self._folder / "out")).collect())


@pytest.fixture
def inbox(spark: SparkSession, tmp_path: Path) -> Iterator[Inbox]:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    yield Inbox(spark, tmp_path)
    spark.conf.set("spark.sql.shuffle.partitions", str(before))


def row(name: str, hour: int, *after: str, room: str = "tea") -> dict[str, Any]:
    at = f"2024-01-01T{hour:02}:00:00Z"
    return {"id": name, "other": name, "after": list(after), "room": room, "at": at}


def test_released_rows_are_not_late_for_downstream_operators(inbox: Inbox) -> None:
    """Row b waits until the watermark has passed it; it used to be dropped as late when it was released."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F  # noqa: N812

    from antecede.spark import causal_order

    timed = inbox.events().withWatermark("at", "1 minute")
    inbox.arrive("0", row("b", 1, "a"), row("c", 2, room="bar"))
    with pytest.raises(AnalysisException, match="watermark"):
        ordered = causal_order(timed, group="room", id="id", deps="after")
        inbox.run(ordered.groupBy(F.window("at", "1 hour")).count())
    ordered = causal_order(inbox.events(), group="room", id="id", deps="after")
    distinct = ordered.withWatermark("emitted_at", "1 second").dropDuplicatesWithinWatermark(["id"])
    inbox.run(distinct)
    for number, arriving in enumerate([row("d", 20, room="bar"), row("e", 21, room="bar"), row("a", 0)], 1):
        inbox.arrive(str(number), arriving)
        inbox.run(distinct)
    assert inbox.ids() == ["a", "b", "c", "d", "e"]


def test_the_state_is_found_among_other_operators(inbox: Inbox, spark: SparkSession) -> None:
    from antecede.spark import causal_order, held, stream_counts

    once = inbox.events().withWatermark("at", "1 day").dropDuplicatesWithinWatermark(["id"])
    ordered = causal_order(once, group="room", id="id", deps="after")
    inbox.arrive("0", row("b", 1, "a"), row("b", 1, "a"))
    inbox.run(ordered.withWatermark("emitted_at", "1 day").dropDuplicatesWithinWatermark(["other"]))
    assert [found.id for found in held(spark, inbox.checkpoint).collect()] == ["b"]
    (counts,) = stream_counts(spark, inbox.checkpoint).collect()
    assert (counts.rows, counts.held) == (1, 1)


@pytest.mark.parametrize(
    ("role", "columns"),
    [
        ("group", {"group": None, "id": "id", "deps": "after"}),
        ("group", {"group": "other", "id": "id", "deps": "after"}),
        ("id", {"group": "room", "id": "other", "deps": "after"}),
        ("deps", {"group": "room", "id": "id", "deps": "other"}),
    ],
)
def test_other_columns_are_refused_with_a_checkpoint(
    inbox: Inbox, role: str, columns: dict[str, str | None]
) -> None:
    from pyspark.errors import PySparkException

    from antecede.spark import causal_order

    inbox.arrive("0", row("b", 1, "a"))
    inbox.run(causal_order(inbox.events(), group="room", id="id", deps="after"))
    inbox.arrive("1", row("c", 1, room="bar"))
    with pytest.raises(PySparkException, match=f"{role}: the checkpoint was made with column"):
        inbox.run(causal_order(inbox.events(), **columns))  # type: ignore[arg-type]


def test_too_many_partitions_are_mentioned(inbox: Inbox, spark: SparkSession) -> None:
    from antecede.spark import causal_order

    spark.conf.set("spark.sql.shuffle.partitions", "200")
    with pytest.warns(UserWarning, match="spark.sql.shuffle.partitions is 200.*number of cores"):
        causal_order(inbox.events(), id="id", deps="after")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        causal_order(inbox.events(), id="id", deps="after")
