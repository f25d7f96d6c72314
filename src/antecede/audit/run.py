"""Auditing a trace wherever it lies: in this process if it is small, on Spark otherwise."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from antecede.audit.core import Finding, RunAudit, judge_files, severity, total
from antecede.audit.excerpt import Excerpt, excerpt, near, needed
from antecede.audit.streaming import verdict_if_clean
from antecede.audit.tally import Tally
from antecede.causality import Verdict
from antecede.errors import InputError, require
from antecede.trace.reader import check_files, estimate_rows, read_batches, read_metas, trace_files
from antecede.trace.writer import write_parts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SMALL_ROWS = 1_000_000
"""Below this, judging a trace takes no longer than starting Spark."""

Progress = Callable[[str, int, int], None]


class AuditResult(NamedTuple):
    """What an audit found."""

    verdict: Verdict
    findings: list[Finding]
    """The worst violations."""
    engine: str
    tally: Tally | None
    """Where and when: of the run with the worst violation."""
    tally_of: str | None
    """That run, if there are several."""


def audit_path(
    path: str, engine: str, limit: int, master: str | None, progress: Progress = lambda *_: None
) -> AuditResult:
    """Audit a local trace, or one at a URL that Spark reads."""
    return audit_and_excerpt(path, engine, limit, master, lambda _: [], progress, may_be_quick=True)[0]


def audit_and_excerpt(
    path: str,
    engine: str,
    limit: int,
    master: str | None,
    choose: Callable[[list[Finding]], Sequence[int]],
    progress: Progress = lambda *_: None,
    *,
    may_be_quick: bool = False,
) -> tuple[AuditResult, dict[int, Excerpt]]:
    """The same, and the events of those violations that are chosen, by their places.

    A clean run need not be counted by process and over time if it `may_be_quick`.
    """
    local = local_path(path, engine)
    if local is not None:
        files = trace_files(local)
        check_files(files)
        if not wants_spark(files, engine, master):
            progress("judging", 0, 0)
            audits = list(judge_files(local, files, limit))
            findings = [finding for each in audits for finding in each.findings]
            findings.sort(key=severity)
            worst = _worst(audits, findings)
            several = worst.run if worst is not None and len(audits) > 1 else None
            verdict, tally = total([each.verdict for each in audits]), worst.tally if worst else None
            outcome = AuditResult(verdict, findings[:limit], "local", tally, several)
            found = _excerpts(outcome.findings, choose, lambda those: near(_likely(files, those), those))
            return outcome, found
        here = may_be_quick and engine == "auto" and not _cluster(master)
        clean = _in_one_pass(local, files, progress) if here else None
        if clean is not None:
            return AuditResult(clean, [], "local", None, None), {}
    with events_on_spark(path, local, "auditing", master, progress) as (events, members):
        from antecede.audit.excerpt_on_spark import near as near_on_spark
        from antecede.audit.on_spark import audit

        audited = audit(events, members, limit, files=readable(local))
        first = audited.first(limit)
        run, runs = audited.worst_run(first)
        tally = audited.tally(run) if run is not None else None
        outcome = AuditResult(audited.total(), first, "spark", tally, run if runs > 1 else None)
        return outcome, _excerpts(first, choose, lambda those: near_on_spark(events, those))


def _in_one_pass(local: Path, files: list[Path], progress: Progress) -> Verdict | None:
    """The verdict on one clean run whose rows are in an order that could have happened: sooner than Spark has
    started, for most. None if it is anything else, which shows early, or costs a quarter of what follows."""
    about = read_metas(local)
    if len(about) != 1 or not readable(local):
        return None
    progress("judging", 0, 0)
    return verdict_if_clean(files, about[0].run, about[0].groups)


def readable(local: Path | None) -> list[Path]:
    """The files of a local trace, if workers can read them themselves."""
    files = trace_files(local) if local is not None else []
    return files if all(file.suffix == ".parquet" for file in files) else []


def _worst(audits: list[RunAudit], findings: list[Finding]) -> RunAudit | None:
    """The run with the worst violation; without any, the one that misses most."""
    if findings:
        return next(each for each in audits if each.run == findings[0].run)
    return max(audits, key=lambda each: (each.verdict.missing, each.verdict.duplicates), default=None)


def _excerpts(
    findings: list[Finding],
    choose: Callable[[list[Finding]], Sequence[int]],
    fetch: Callable[[list[Finding]], pa.Table],
) -> dict[int, Excerpt]:
    chosen = {place: findings[place] for place in choose(findings)}
    rows = fetch(list(chosen.values())) if chosen else None
    return {place: excerpt(finding, rows) for place, finding in chosen.items()}


def _likely(files: list[Path], findings: list[Finding]) -> pa.Table:
    """The rows of the runs and processes that findings are about."""
    keys = needed(findings)
    runs, processes = (pa.array({*names}, pa.string()) for names in list(zip(*keys, strict=True))[:2])
    wanted = pc.is_in(pc.field("run"), runs) & pc.is_in(pc.field("process"), processes)
    tables = [table.filter(wanted) for file in files for table in read_batches(file)]
    return pa.concat_tables(tables, promote_options="default")


def local_path(path: str, engine: str) -> Path | None:
    """Where a trace lies on this machine; None if it is at a URL that only Spark reads."""
    if engine not in ("auto", "local", "spark"):
        raise InputError(f"no engine '{engine}'; there are auto, local and spark")
    if not path:
        raise InputError("no trace is named")
    scheme, is_url, rest = path.partition("://")
    if is_url and scheme != "file":
        if engine == "local":
            raise InputError(f"{path} can be read by Spark only; leave out --engine local")
        return None
    local = Path(rest if is_url else path)
    if (local / "runs").is_dir() and (local / "results.parquet").exists():
        local = local / "runs"  # a sweep's folder: its traces, not its tables
    return local


def wants_spark(files: list[Path], engine: str, master: str | None) -> bool:
    """Whether a local trace goes to Spark: by choice, because there is a cluster, or by its size."""
    return engine == "spark" or (engine == "auto" and (_cluster(master) or estimate_rows(files) > SMALL_ROWS))


def _cluster(master: str | None) -> bool:
    return bool(master or os.environ.get("SPARK_REMOTE"))


@contextmanager
def events_on_spark(
    path: str, local: Path | None, what: str, master: str | None, progress: Progress
) -> Iterator[tuple[DataFrame, DataFrame]]:
    """The events of a trace and its groups' members on Spark; `what` is done with them."""
    require("antecede.spark", "spark")
    from antecede.audit.on_spark import members_frame, read_events, read_members
    from antecede.spark.session import connect, refuse_unshared, spark_path

    with tempfile.TemporaryDirectory(prefix="antecede-") as folder:
        if local is not None:
            files, about = trace_files(local), read_metas(local)
            one: Path | None = files[0]
            if any(file.suffix != ".parquet" for file in files):
                progress("reading", 0, 0)
                write_parts(Path(folder), (table for file in files for table in read_batches(file)))
                local, one = Path(folder), None
            path = spark_path(local)
        progress("starting Spark", 0, 0)
        with connect(master) as spark:
            if local is not None:
                refuse_unshared(spark, local, one)
            progress(what, 0, 0)
            events = read_events(spark, path)
            yield events, read_members(spark, path) if local is None else members_frame(spark, about)
