"""What depends on what, immediately: a DataFrame of events in, DataFrames of edges and figures out.

Runs are done in parallel, each by one task, as audits are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type

from antecede.errors import InputError
from antecede.trace.graph import EXACT_WIDTH, Figures, edges, figures, graph_of_run
from antecede.trace.schema import FIELDS, REQUIRED, check_columns

_NUMBERS = pa.map_(pa.int64(), pa.int64())
_BUSIEST = pa.list_(pa.struct([("message", pa.string()), ("effects", pa.int64())]))
_TYPES = {
    "dependencies_mean": pa.float64(),
    "dependencies_histogram": _NUMBERS,
    "busiest": _BUSIEST,
}
_FIGURES = pa.struct(
    [(name, _TYPES.get(name, pa.int64())) for name in Figures.__struct_fields__ if name != "run"]
)
_DONE = pa.schema(
    [
        ("run", pa.string()),
        ("error", pa.string()),
        ("cause", pa.string()),
        ("effect", pa.string()),
        ("figures", _FIGURES),
    ]
)


@dataclass(frozen=True)
class DependencyGraphs:
    """The graphs of several runs, still on Spark."""

    done: DataFrame
    edges: DataFrame
    """A row for each immediate dependency: run, cause, effect; messages as origin:seq."""
    figures: DataFrame
    """A row a run."""

    def release(self) -> None:
        """Free what Spark keeps of the graphs."""
        self.done.unpersist()

    def by_run(self) -> Iterator[Figures]:
        """Figures a run: a summary, as many rows as there are runs."""
        for row in self.figures.orderBy("run").toLocalIterator():
            yield msgspec.convert(row.asDict(recursive=True), Figures)


def graph(events: DataFrame, *, exact_width: int = EXACT_WIDTH) -> DependencyGraphs:
    """The immediate-dependency graph of every run of a DataFrame of events in the schema of traces.

    The largest antichain is found for runs of fewer than `exact_width` messages. It is all done here and now
    and kept (`DependencyGraphs.release` lets go of it). Bad rows raise an `InputError`.
    """
    check_columns(events.columns, "the DataFrame of events")
    rows = events.select(*(F.col(name).cast(from_arrow_type(FIELDS[name][0])) for name in REQUIRED))
    # The number is given so that Spark does not gather a few small, costly runs into one task.
    tasks = int(events.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    done = (
        rows.repartition(tasks, "run")
        .groupBy("run")
        .applyInArrow(_graph(exact_width), from_arrow_schema(_DONE))
        .persist()
    )
    bad = done.where("error is not null").first()
    if bad is not None:
        raise InputError(bad.error)
    return DependencyGraphs(
        done=done,
        edges=done.where("cause is not null").select("run", "cause", "effect"),
        figures=done.where("figures is not null").select("run", "figures.*"),
    )


def _graph(exact_width: int) -> Callable[[pa.Table], pa.Table]:
    def make(rows: pa.Table) -> pa.Table:
        run = rows.column("run")[0].as_py()
        about: dict[str, Any] = {"run": run}
        try:
            made = graph_of_run(run, rows)
        except InputError as error:
            return pa.Table.from_pylist([about | {"error": str(error)}], schema=_DONE)
        about["figures"] = msgspec.structs.asdict(figures(made, exact_width))
        about["figures"]["dependencies_histogram"] = list(about["figures"]["dependencies_histogram"].items())
        about["figures"]["busiest"] = [msgspec.structs.asdict(each) for each in about["figures"]["busiest"]]
        told = pa.Table.from_pylist([about], schema=_DONE)
        return pa.concat_tables([told, edges(made)], promote_options="default").select(_DONE.names)

    return make
