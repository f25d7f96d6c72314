"""Audits a trace wherever it lies: in this process if it is small, on Spark otherwise.

Spark, excerpts and the one-pass audit are imported only when they are needed, so that auditing a small trace
starts quickly. `local_path` and `events_on_spark` serve graphs and advice too; `engine_choice` has the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from antecede.audit.core import Finding, RunAudit, judge_files, severity, sum_verdicts
from antecede.audit.faults import DeliveryFault, limit_kinds, worst_first
from antecede.causality import Verdict
from antecede.engine_choice import check_engine, has_cluster, wants_spark
from antecede.errors import InputError, require
from antecede.temporary_folders import temporary_folder
from antecede.trace.bad_rows import BadRows
from antecede.trace.reader import (
    check_files,
    count_by_footers,
    estimate_rows,
    names_receivers,
    read_batches,
    read_files,
    read_metas,
    trace_files,
)
from antecede.units import count_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from antecede.audit.excerpt import Excerpt
    from antecede.audit.tally import Tally

Progress = Callable[[str, int, int], None]
Choose = Callable[[list[Finding]], Sequence[int]]
"""Chooses the findings to excerpt, by position."""

_MANY_ROWS = 1_000_000
"""Above this many rows, a one-pass audit is attempted first."""

_EXPECTED_EVERYWHERE = (
    "no column destinations: every message is expected at every process of its group; if some are for some "
    "processes only, name these in a column at the send (--map destinations=…)"
)


class AuditResult(NamedTuple):
    """What an audit found."""

    verdict: Verdict
    findings: list[Finding]
    """The worst violations."""
    faults: list[DeliveryFault]
    """The worst missing, duplicate, orphan and impossible deliveries: the first of each kind."""
    limit: int
    """How many of each kind are listed at most."""
    engine: str
    runs: int
    tally: Tally | None
    """Counts by process, by origin and over time, of the run with the worst violation."""
    tally_of: str | None
    """That run, if there are several."""


def audit_path(
    path: str,
    engine: str,
    limit: int,
    master: str | None,
    progress: Progress = lambda *_: None,
    bad: BadRows | None = None,
) -> AuditResult:
    """Audit a local trace, or one at a URL that Spark reads; `bad` counts the rows of its files."""
    result, _ = audit_and_excerpt(
        path, engine, limit, master, lambda _: [], progress, bad, tally_clean_runs=False
    )
    return result


def audit_and_excerpt(
    path: str,
    engine: str,
    limit: int,
    master: str | None,
    choose: Choose,
    progress: Progress = lambda *_: None,
    bad: BadRows | None = None,
    *,
    tally_clean_runs: bool = True,
) -> tuple[AuditResult, dict[int, Excerpt]]:
    """Audit a trace, and excerpt the events of chosen violations.

    Without `tally_clean_runs`, a large clean trace may be judged in one pass, which leaves out its tally.
    """
    bad = bad or BadRows(path)
    result, excerpts = _audit(path, engine, limit, master, choose, progress, bad, tally_clean_runs)
    if result.verdict.missing and not bad.names_receivers:
        bad.note("receivers", _EXPECTED_EVERYWHERE)
    if bad.rows_missing and not result.verdict.clean:
        bad.note(
            "left out",
            f"{count_of(bad.rows_missing, 'bad row')} left out: what is reported as missing, never delivered "
            "or never sent may be there",
        )
    return result, excerpts


def _audit(
    path: str,
    engine: str,
    limit: int,
    master: str | None,
    choose: Choose,
    progress: Progress,
    bad: BadRows,
    tally_clean_runs: bool,
) -> tuple[AuditResult, dict[int, Excerpt]]:
    local = local_path(path, engine)
    if local is not None:
        files = trace_files(local)
        check_files(files)
        bad.names_receivers = bad.names_receivers and names_receivers(local, files)
        one_pass = not tally_clean_runs and engine == "auto" and not has_cluster(master)
        if one_pass and estimate_rows(files) > _MANY_ROWS:
            verdict = _verdict_in_one_pass(local, files, progress)
            if verdict is not None:
                count_by_footers(files, bad)
                return AuditResult(verdict, [], [], limit, "local", 1, None, None), {}
        if not wants_spark(engine, master, lambda: estimate_rows(files)):
            return _audit_here(local, files, limit, choose, progress, bad)
    return _audit_on_spark(path, local, limit, master, choose, progress, bad)


def _audit_here(
    local: Path, files: list[Path], limit: int, choose: Choose, progress: Progress, bad: BadRows
) -> tuple[AuditResult, dict[int, Excerpt]]:
    progress("judging", 0, 0)
    audits = list(judge_files(local, files, limit, bad))
    verdict = sum_verdicts([each.verdict for each in audits])
    findings = sorted((finding for each in audits for finding in each.findings), key=severity)[:limit]
    worst = _worst_run(audits, findings)
    result = AuditResult(
        verdict=verdict,
        findings=findings,
        faults=limit_kinds(worst_first(fault for each in audits for fault in each.faults), limit),
        limit=limit,
        engine="local",
        runs=len(audits),
        tally=worst.tally if worst else None,
        tally_of=worst.run if worst is not None and len(audits) > 1 else None,
    )
    return result, _excerpts(findings, choose, lambda chosen: _rows_around(files, chosen))


def _worst_run(audits: list[RunAudit], findings: list[Finding]) -> RunAudit | None:
    """The run with the worst violation; if there is none, the run with the most missing messages."""
    if findings:
        return next(each for each in audits if each.run == findings[0].run)
    return max(audits, key=lambda each: (each.verdict.missing, each.verdict.duplicates), default=None)


def _audit_on_spark(
    path: str,
    local: Path | None,
    limit: int,
    master: str | None,
    choose: Choose,
    progress: Progress,
    bad: BadRows,
) -> tuple[AuditResult, dict[int, Excerpt]]:
    with events_on_spark(path, local, "auditing", master, progress, bad) as (events, members):
        from antecede.audit.excerpt_on_spark import select_rows
        from antecede.audit.on_spark import audit

        audited = audit(events, members, limit, files=splittable_files(local))
        findings = audited.first(limit)
        run, runs = audited.worst_run(findings)
        tally = audited.tally(run) if run is not None else None
        result = AuditResult(
            verdict=audited.total(),
            findings=findings,
            faults=audited.first_faults(limit),
            limit=limit,
            engine="spark",
            runs=runs,
            tally=tally,
            tally_of=run if runs > 1 else None,
        )
        return result, _excerpts(findings, choose, lambda chosen: select_rows(events, chosen))


def _verdict_in_one_pass(local: Path, files: list[Path], progress: Progress) -> Verdict | None:
    """The verdict on one clean run whose rows are in a valid order, usually before Spark has started.

    None in all other cases. These are detected early, or cost a quarter of the audit that follows.
    """
    metas = read_metas(local)
    if len(metas) != 1 or not splittable_files(local):
        return None
    from antecede.audit.streaming import verdict_if_clean

    progress("judging", 0, 0)
    return verdict_if_clean(files, metas[0].run, metas[0].groups)


def splittable_files(local: Path | None) -> list[Path]:
    """The files of a local trace, if workers can read them themselves; otherwise none."""
    files = trace_files(local) if local is not None else []
    return files if all(file.suffix == ".parquet" for file in files) else []


def _excerpts(
    findings: list[Finding], choose: Choose, fetch: Callable[[list[Finding]], pa.Table]
) -> dict[int, Excerpt]:
    chosen = {place: findings[place] for place in choose(findings)}
    if not chosen:
        return {}
    from antecede.audit.excerpt import build_excerpt, is_in_one_group

    rows = fetch(list(chosen.values()))
    drawn = {place: finding for place, finding in chosen.items() if is_in_one_group(finding, rows)}
    return {place: build_excerpt(finding, rows) for place, finding in drawn.items()}


def _rows_around(files: list[Path], findings: list[Finding]) -> pa.Table:
    """The rows of local files that findings need."""
    from antecede.audit.excerpt import rows_of_processes, select_rows

    tables = (table for file in files for table in read_batches(file))
    return select_rows(rows_of_processes(tables, findings), findings)


def refuse_without_deliveries(path: str, verdict: Verdict, bad: BadRows | None = None) -> None:
    """Refuse a log without deliveries, which says nothing about their order.

    If a `meta.json` names the members of its groups, the log is accepted: then every message is missing
    there.
    """
    if verdict.deliveries or not verdict.messages or ("://" in path and not path.startswith("file://")):
        return
    if not read_metas(Path(path.removeprefix("file://"))):
        raise InputError(
            f"{path} has {count_of(verdict.messages, 'send')} and no delivery, and {_nobody_says(path)} who "
            "should have got them, so there is nothing to judge; antecede graph shows what depends on what"
            f"{bad.first_example() if bad else ''}"
        )


def _nobody_says(path: str) -> str:
    return "no meta.json says" if Path(path.removeprefix("file://")).is_dir() else "nothing says"


# Choosing where to run.


def local_path(path: str, engine: str) -> Path | None:
    """The local path of a trace; None if it is at a URL that only Spark reads."""
    check_engine(engine)
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


@contextmanager
def events_on_spark(
    path: str, local: Path | None, activity: str, master: str | None, progress: Progress, bad: BadRows
) -> Iterator[tuple[DataFrame, DataFrame]]:
    """The events of a trace and its groups' members on Spark. `activity` is what progress calls the work.

    Text files are first converted to Parquet in a temporary folder. `bad` counts the rows of each file.
    """
    require("antecede.spark", "spark")
    from antecede.spark.read import members_frame, read_events, read_members
    from antecede.spark.session import connect, refuse_unshared, spark_path
    from antecede.trace.writer import write_parts

    with temporary_folder("trace") as folder:
        if local is not None:
            files, metas = trace_files(local), read_metas(local)
            sample: Path | None = files[0]
            count_by_footers(files, bad)
            if any(file.suffix != ".parquet" for file in files):
                progress("reading", 0, 0)
                write_parts(folder, read_files(files, bad))
                local, sample = folder, None
            path = spark_path(local)
        progress("starting Spark", 0, 0)
        with connect(master) as spark:
            if local is not None:
                refuse_unshared(spark, local, sample)
            progress(activity, 0, 0)
            events = read_events(spark, path)
            if local is None:
                bad.reads([path])
                bad.count(path, events.count())
            yield events, read_members(spark, path) if local is None else members_frame(spark, metas)
