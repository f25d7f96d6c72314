"""The tables of a sweep: one row for each run, and a summary over runs that differ only by their seed."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from antecede.audit.core import COUNTS
from antecede.causality import Verdict
from antecede.errors import InputError
from antecede.sim.metrics import Metrics
from antecede.sim.scenario import Scenario
from antecede.sweep.on_spark import Sweep
from antecede.trace.parquet_files import write_parquet

RESULTS, SUMMARY = "results.parquet", "summary.parquet"

_METRICS = Metrics.__struct_fields__
_VERDICT = tuple(name for name in (*COUNTS, *Verdict.DEPRECATED) if name not in (*_METRICS, "processes"))
_FIELDS = Scenario.__struct_fields__
_MEANS = ("control_bytes_mean", "paper_bytes_mean", "latency_mean_ns", "hold_mean_ns")
_STRUCTURED = ("layout", "network", "silent", "probes")


def write_results(sweep: Sweep) -> pa.Table:
    """Write both tables into the sweep's folder and return the summary."""
    rows = [
        {"run": key, **msgspec.to_builtins(run.scenario), **msgspec.to_builtins(run.metrics)}
        | {"faults": " ".join(run.scenario.faults), "groups": _groups_text(run.scenario.groups)}
        | {"churn": run.scenario.link_churn or None, "changes": " ".join(run.scenario.group_churn)}
        | {name: _json_text(getattr(run.scenario, name)) for name in _STRUCTURED}
        | {"measured": _json_text(run.metrics.measured)}
        | {name: counts.get(name) for name in _VERDICT}
        | {"audited": counts.get("deliveries")}
        for key, run, verdict in sweep.runs()
        for counts in [verdict.counts() if verdict else {}]
    ]
    if not rows:
        raise InputError(f"{sweep.folder} has no finished run to report")
    results = pa.Table.from_pylist(rows)
    summary = summarise(results)
    for name, table in ((RESULTS, results), (SUMMARY, summary)):
        aside = sweep.folder / f".{name}.writing"
        write_parquet(table, aside)
        aside.rename(sweep.folder / name)
    return summary


def _json_text(value: object) -> str | None:
    """A structured value as a column of JSON text; what is text already stays as it is."""
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value, order="sorted").decode() if value else None


def _groups_text(groups: dict[str, tuple[int, ...]] | None) -> str:
    return "; ".join(f"{name}: {' '.join(map(str, peers))}" for name, peers in (groups or {}).items())


def summarise(results: pa.Table) -> pa.Table:
    """One row for each setting: means over its runs with their standard deviations, and sums of audit
    counts."""
    settings = ["protocol", "peers", *_varying(results)]
    sample = pc.VarianceOptions(ddof=1, min_count=2)  # the deviation of one run is unknown, not 0
    measures: dict[str, tuple[str, str] | tuple[str, str, pc.FunctionOptions]] = {
        "runs": ("run", "count"),
        "audited_runs": ("audited", "count"),
    }
    for name in ("messages", "deliveries", "packets", "audited", "held", "stuck", *_VERDICT):
        measures[name] = (name, "sum")
    for name in _MEANS:
        measures[name] = (name, "mean")
        measures[f"{name}_sd"] = (name, "stddev", sample)
    measures["control_bytes_max"] = ("control_bytes_max", "max")
    grouped = results.group_by(settings, use_threads=False).aggregate(list(measures.values()))
    columns = {name: grouped.column(name) for name in settings}
    columns |= {name: grouped.column("_".join(how[:2])) for name, how in measures.items()}
    return pa.table(columns)


def _varying(results: pa.Table) -> list[str]:
    """The fields, other than protocol, peers and seed, in which runs differ."""
    same = ("protocol", "peers", "seed")
    others = [name for name in (*_FIELDS, "changes") if name in results.column_names and name not in same]
    return [name for name in others if len({str(v) for v in results.column(name).to_pylist()}) > 1]
