"""Advises on Spark: a DataFrame of events in, one of each protocol's costs out. One task per run."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from antecede.advise import Advice, Cost, Request, advise_run
from antecede.audit.core import members_by_run
from antecede.errors import InputError
from antecede.spark.by_run import apply_by_run, event_columns, lists_as_json
from antecede.spark.session import require_frame
from antecede.trace.schema import Meta

_ADVISED = pa.schema([("run", pa.string()), ("error", pa.string()), ("advice", pa.string())])
_LISTS = ("destinations", "deps")
_OPTIONAL = ("link", "control_bytes", "payload_bytes", "message", "own_delivery")
_TYPES = {"protocol": "string", "exact": "boolean"}
_COST = ", ".join(f"{name}: {_TYPES.get(name, 'double')}" for name in Cost.__struct_fields__)
_ADVICE = f"recommended string, reason string, costs array<struct<{_COST}>>"


def advise(events: DataFrame, members: DataFrame | None = None, asked: Request | None = None) -> DataFrame:
    """What each protocol would cost on every run of a DataFrame of events in the schema of traces.

    A row a run and protocol: `run`, the fields of `Cost`, whether it is `recommended`, and if so the
    `reason`. `members` (from `read_members`) says who belongs to the group besides those with events. The
    work is done at once and the result persisted. Runs that cannot be advised on raise an `InputError`.
    """
    require_frame(events)
    advice = F.from_json("advice", _ADVICE)
    by_run = _advised(events, members, asked or Request()).select("run", advice.alias("advice"))
    costs = by_run.select("run", "advice.recommended", "advice.reason", F.inline("advice.costs"))
    best = F.col("recommended") == F.col("protocol")
    return costs.select(
        "run",
        *Cost.__struct_fields__,
        best.alias("recommended"),
        F.when(best, F.col("reason")).alias("reason"),
    )


def advice_by_run(events: DataFrame, members: DataFrame | None, request: Request) -> Iterator[Advice]:
    """The whole advice on each run."""
    advised = _advised(events, members, request)
    for row in advised.orderBy("run").toLocalIterator():
        yield msgspec.json.decode(row.advice, type=Advice)
    advised.unpersist()


def _advised(events: DataFrame, members: DataFrame | None, request: Request) -> DataFrame:
    columns = event_columns(events, _OPTIONAL)
    rows = events.select(*columns, *lists_as_json(events, _LISTS))

    def advise_one(run: str, table: pa.Table, metas: list[Meta]) -> pa.Table:
        advice = advise_run(run, table, members_by_run(metas).get(run, {}), request)
        row = {"run": run, "advice": msgspec.json.encode(advice).decode()}
        return pa.Table.from_pylist([row], schema=_ADVISED)

    advised = apply_by_run(rows, members, advise_one, _ADVISED).persist()
    bad = advised.where("error is not null").orderBy("run").first()
    if bad is not None:
        advised.unpersist()
        raise InputError(bad.error)
    return advised
